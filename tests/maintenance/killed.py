"""A process that does one task of maintenance on a local disk, and kills itself with SIGKILL at a write:
``python -m tests.maintenance.killed task root ms write``.

``ms``: the time of its clock and of its store. ``write``: the number of the write, from 0, after which it
dies, at its next request. Those of the probe do not count: a store on a disk is probed, by creates that race,
and the store in memory from which the writes were counted is not.
"""

from __future__ import annotations

import os
import signal
import sys

from tests.maintenance.tasks import TASKS
from tests.maintenance.world import URL, small_lists
from tests.model.groups import DrawnIds, ManualClock
from txnformat.keys import parse_probe_key
from txnformat.store.local import LocalStore
from txnformat.store.requests import READS, RequestKind
from txnformat.store.wrapped import WrappedStore
from txnlog import TxnLog
from txnlog_testing.stores.faulty import Fault, FaultyStore

__all__ = ["main"]


class _Timed(WrappedStore):
    """A store with the time of a clock, in which every object is two hours old, and with the URL of the world
    that it was copied from."""

    def __init__(self, root: str, clock: ManualClock) -> None:
        super().__init__(LocalStore(root))
        self._clock = clock

    @property
    def url(self) -> str:
        return URL

    def store_time_ms(self) -> int:
        return self._clock.now().wall_ms

    def created_ms(self, key: str) -> int | None:
        """Return a time two hours ago: all that is asked about was there before."""
        return None if self.head(key) is None else self.store_time_ms() - 2 * 3_600_000


def main(name: str, root: str, ms: float, last: int) -> None:
    """Do the task."""
    clock = ManualClock()
    clock.ms = ms
    writes = 0

    def plan(operation: RequestKind, key: str, nth: int) -> Fault | None:
        nonlocal writes
        if parse_probe_key(key) is not None:
            return None
        if writes > last:
            os.kill(os.getpid(), signal.SIGKILL)
        writes += operation not in READS
        return None

    with small_lists():
        log = TxnLog.open(FaultyStore(_Timed(root, clock), plan), clock=clock, ids=DrawnIds(1))
        TASKS[name].run(log)
        log.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
