"""Stores and clocks that fail as a test plans it: what the tests of producers share."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pytest

from txnformat.clock import Instant
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

NUMBERS = pa.schema([("n", pa.int64())])
BUFFERS = pytest.mark.parametrize("buffer", ["auto", "inline", "deferred"])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers}, schema=NUMBERS)


def read(log: TxnLog, isolation: str = "read_committed") -> list[int]:
    log = TxnLog.open(log.store, clock=log.committer.clock)  # somebody else, who knows nothing
    found: list[int] = log.read("t", isolation=isolation).read_all().column("n").to_pylist()
    return found


class Plan:
    """A schedule that a test sets while it runs: the faults of the next requests of one class."""

    def __init__(self) -> None:
        self._coming: dict[tuple[RequestKind, KeyClass], list[Fault | None]] = {}
        self._always: dict[tuple[RequestKind, KeyClass], Fault] = {}
        self.seen: Counter[tuple[RequestKind, KeyClass]] = Counter()

    def next(self, operation: RequestKind, what: KeyClass, *faults: Fault | None) -> None:
        self._coming[operation, what] = list(faults)

    def always(self, operation: RequestKind, what: KeyClass, fault: Fault) -> None:
        self._always[operation, what] = fault

    def clear(self) -> None:
        self._coming.clear()
        self._always.clear()

    def __call__(self, operation: RequestKind, key: str, nth: int) -> Fault | None:
        request = (operation, key_class(key))
        self.seen[request] += 1
        coming = self._coming.get(request)
        return coming.pop(0) if coming else self._always.get(request)


ENTRY = (RequestKind.CREATE, KeyClass.ENTRY)


class QuickClock:
    """Time that passes only where somebody waits for it: deadlines come at once."""

    def __init__(self) -> None:
        self._ms = 1_800_000_000_000.0

    def set_back(self, milliseconds: int) -> None:
        self._ms -= milliseconds

    def now(self) -> Instant:
        return Instant(int(self._ms), int(self._ms))

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        self._ms += 1_000 * seconds


def faulty(plan: Plan, *, embedding: bool | None = None) -> TxnLog:
    clock = QuickClock()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock, embedding=embedding).create_topic("t", NUMBERS)
    return TxnLog.open(FaultyStore(store, plan), clock=clock)


def unclear_commit(plan: Plan, kind: FaultKind) -> None:
    """Let the next create of an entry end as ``kind``; then the store is away."""
    plan.next(*ENTRY, Fault(kind))
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
