"""Erasures that meet a compactor or another call at each request of the store. ``stride``: at each so manieth
one only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.erasure.world import CANARY, canaries, complete, made, names, write
from tests.model.groups import ManualClock
from txnformat.admin.erasure.status import ErasureStage
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog import TxnLog
from txnlog_testing.stores.faulty import Fault, FaultyStore

__all__ = ["assert_erased", "compact", "erase", "filled", "meetings", "opened"]

WHERE = f"name LIKE '{CANARY}%'"
KEY = "0123456789abcdef" * 2


def erase(log: TxnLog) -> Any:
    """Make one call, and return the status."""
    return log.erase("t", WHERE, requested_by="x", key=KEY).status


def compact(log: TxnLog) -> None:
    """Write everything together."""
    log.compact("t", min_lag_ms=0)


def filled() -> TxnLog:
    """Return a log with records in two segments, of which some match, between them aborted ones."""
    clock = ManualClock()
    log = made(MemoryStore(clock), clock)
    write(log, "a", f"{CANARY}1", "b")
    log.maintain("seal")
    write(log, f"{CANARY}2", commit=False)
    write(log, "c", f"{CANARY}3")
    log.close()
    return log


def opened(log: TxnLog, store: Any = None) -> TxnLog:
    """Return another client."""
    return TxnLog.open(log.store if store is None else store, clock=log.committer.clock)


def assert_erased(log: TxnLog) -> None:
    """Call again, do what maintenance does, and look at every object of the root."""
    after = opened(log)
    assert erase(after).stage is not ErasureStage.REWRITING
    assert names(after) == ["a", "b", "c"]
    complete(after)
    assert canaries(log.store) == {}
    assert {one.stage for one in after.erasures()} == {ErasureStage.COMPLETE}
    report = after.verify(deep=True)
    assert report.ok, report.problems


def anywhere(operation: RequestKind, key: str) -> bool:
    """Return True: a meeting may be at every request."""
    return True


def meetings(
    first: Callable[[TxnLog], Any],
    second: Callable[[TxnLog], Any],
    stride: int,
    at: Callable[[RequestKind, str], bool] = anywhere,
) -> int:
    """Let the second client do everything before a request of the first one; return the number of requests.
    ``at``: of those that count."""
    place = 0
    while True:
        log = filled()
        left = place

        def plan(operation: RequestKind, key: str, nth: int, log: TxnLog = log) -> Fault | None:
            nonlocal left
            left -= at(operation, key)
            if left == -1 and at(operation, key):
                second(opened(log))
            return None

        first(opened(log, FaultyStore(log.store, plan)))
        if left >= 0:
            return place
        place += stride
        assert_erased(log)
