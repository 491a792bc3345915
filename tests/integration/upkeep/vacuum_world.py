"""A log with garbage of every kind, and stores that let something else happen in the middle of a vacuum."""

from __future__ import annotations

import copy
import datetime
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from tests.integration.clients.failing import NUMBERS, rows
from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.core.sealing.segment_list import decode_root
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnformat.store.wrapped import WrappedStore
from txnformat.types import OffsetRange
from txnlog import Producer, TxnLog

__all__ = ["GRACE", "LIVE", "WEEK_MS", "Interposed", "World", "new_key", "one_by_one", "unnamed"]

GRACE = datetime.timedelta(hours=2)
WEEK_MS = 7 * 24 * 3_600_000
LIVE = list(range(2, 9))
"""The records that can be read."""

Answer = TypeVar("Answer")


def new_key(directory: str, born: int) -> str:
    """Return the key of a data file that nothing names."""
    return keys.data_key(directory, born, str(uuid.uuid4()))


class World:
    """Five records, two of them removed, segments in lists that were merged, batch tables, aborted
    transactions, and one that is open."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        log = TxnLog.create(self.store, clock=self.clock, max_transaction_timeout_ms=WEEK_MS, embedding=False)
        log.create_topic("t", NUMBERS)
        for number in range(5):
            self.append(number, log)
            log.maintain("seal")
        log.delete_records("t", 2)
        for commits, number in ((True, 5), (False, 100), (True, 6)):
            with Producer(log, "staged", buffer="deferred") as producer:
                producer.begin()
                producer.send("t", rows(number))
                producer.flush()
                if commits:
                    producer.commit()
                else:
                    producer.abort()
        log.maintain("seal")
        self.open = Producer(
            log,
            "open",
            buffer="deferred",
            transaction_timeout_ms=WEEK_MS,
            deferred_timeout_ms=WEEK_MS,
        )
        self.open.init()
        self.open.begin()
        self.open.send("t", rows(7))
        self.open.flush()
        directory = log.state.topic("t").directory
        for where in (directory, "lost-0a1b2c3d"):
            self.store.create(new_key(where, log.state.entry - 1), b"given up")
        self.log = log
        self.append(8, log)

    def append(self, number: int, log: TxnLog) -> None:
        with Producer(log) as producer:
            producer.send("t", rows(number), partition=0)

    def copied(self) -> World:
        """Return another world whose objects are the same. Its open producer is that of this one."""
        other = copy.copy(self)
        other.store = MemoryStore(self.clock)
        for info in self.store.list(""):
            other.store.create(info.key, self.store.get(info.key) or b"")
        return other

    def opened(self, store: ObjectStore | None = None) -> TxnLog:
        """Return the log as another process opens it."""
        return TxnLog.open(self.store if store is None else store, clock=self.clock)

    def wait(self) -> None:
        """Let the grace pass."""
        self.clock.sleep(GRACE.total_seconds() + 1)

    def finish(self) -> None:
        """Let two vacuums and a third for what was born last delete all that can be, and check that this is
        so."""
        for _ in range(3):
            self.wait()
            self.opened().vacuum(GRACE)
        self.check()
        assert unnamed(self.opened()) == set()

    def check(self) -> None:
        """Everything that was acknowledged is there."""
        log = self.opened()
        assert sorted(log.read("t").read_all()["n"].to_pylist()) == [n for n in LIVE if n != 7]
        report = log.verify(deep=True)
        assert report.ok, report.problems

    def commit_open(self) -> None:
        """Commit the transaction that was open all the time."""
        self.open.commit()
        assert sorted(self.opened().read("t").read_all()["n"].to_pylist()) == LIVE


def unnamed(log: TxnLog) -> set[str]:
    """Return the objects of the root that the state does not lead to, found in another way than the vacuum
    does it."""
    state, sidecars, store = log.refresh(), log.sidecars, log.store
    live = {one.key for one in (*state.files, *state.tables, *state.segment_lists)}
    for named in state.segment_lists:
        if named.leaves:
            live |= {leaf.record.key for leaf in decode_root(store.get(named.key), named)}
    for key, partition in state.partitions.items():
        for part in sidecars.segments(state, key, OffsetRange(partition.log_start, partition.sealed_end)):
            record = part.record
            live |= {one.key for one in (record.index, record.markers, record.txnindex) if one}
            index = sidecars.index(record.index)
            if index.is_compacted:
                rows = index.runs_of(key.partition, part.range)
                ends = rows["end_offset"]
            else:
                rows = index.partition(key.partition)
                ends = rows["base_offset"] + rows["records"]
            live |= {index.files[int(file)].key for file in rows["file"][ends > partition.log_start]}
    live = {key for key in live if keys.place_of(key) is None}
    found = {info.key for info in store.list("")}
    assert live <= found
    return {key for key in found - live if keys.named_after(key) or keys.parse_probe_key(key)}


class Interposed(WrappedStore):
    """Counts requests, and lets something else happen once, before the request of a number."""

    def __init__(
        self, inner: ObjectStore, number: int = -1, other: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(inner)
        self.count = 0
        self.deletes: list[str] = []
        self.seen: list[tuple[RequestKind, str]] = []
        self.number, self.other = number, other

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        number, self.count = self.count, self.count + 1
        if number == self.number:
            self.other()
        self.seen.append((operation, key))
        if operation is RequestKind.DELETE:
            self.deletes.append(key)
        return call()

    @property
    def kinds(self) -> list[tuple[RequestKind, str]]:
        """The kind of each request: its operation, and its key without ids and numbers."""
        return [(operation, re.sub("[0-9a-f]*[0-9][0-9a-f]*", "#", key)[:40]) for operation, key in self.seen]


@contextmanager
def one_by_one() -> Iterator[None]:
    """Let a vacuum make one request at a time, and writers make lists and leaves early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.verify.requests.THREADS", 1)
        patch.setattr("txnformat.protocol.sealing.LISTED_ROWS", 1)
        patch.setattr("txnformat.protocol.segment_lists.LEAF_BYTES", 500)
        patch.setattr("txnformat.protocol.snapshots.TAIL_ENTRIES_MIN", 1_000_000)
        yield
