"""A producer without transactions that goes quiet: what it holds is flushed all the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

WAIT_S = 60.0


class Watch:
    """Tells when the producer creates an entry, and lets the first of them fail if that is wanted."""

    def __init__(self) -> None:
        self.tried = threading.Event()
        self.failure: Fault | None = None

    def __call__(self, operation: RequestKind, key: str, nth: int) -> Fault | None:
        if operation is not RequestKind.CREATE or not key.startswith(keys.LOG_PREFIX):
            return None
        self.tried.set()
        fault, self.failure = self.failure, None
        return fault


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def log(watch: Watch) -> Iterator[TxnLog]:
    store = MemoryStore()
    TxnLog.create(store).create_topic("t", pa.schema([("n", pa.int64())]))
    with TxnLog.open(FaultyStore(store, watch)) as opened:
        yield opened


def _send(producer: Producer, watch: Watch) -> None:
    watch.tried.clear()  # opening the producer created entries too
    producer.send("t", [{"n": 1}])


def _numbers(log: TxnLog) -> list[int]:
    return [row["n"] for row in log.read("t").read_all().to_pylist()]


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_a_quiet_producer_flushes_by_itself(log: TxnLog, watch: Watch, linger_ms: int) -> None:
    with Producer(log, linger_ms=linger_ms) as producer:
        _send(producer, watch)
        assert watch.tried.wait(WAIT_S)
        assert producer.flush().entry is None  # it waits for the flush that is under way; nothing is left
        assert _numbers(log) == [1]


def test_what_cannot_be_flushed_in_the_background_is_kept(log: TxnLog, watch: Watch) -> None:
    with Producer(log, linger_ms=0) as producer:
        watch.failure = Fault(FaultKind.DISK_FULL)
        _send(producer, watch)
        assert watch.tried.wait(WAIT_S)
        assert producer.flush().offsets == {("t", 0): 0}
    assert _numbers(log) == [1]


def _timers() -> set[threading.Thread]:
    return {
        thread
        for thread in threading.enumerate()
        if isinstance(thread, threading.Timer) and thread.is_alive() and not thread.finished.is_set()
    }


def test_a_closed_producer_flushes_no_more(log: TxnLog, watch: Watch) -> None:
    before = _timers()  # of other tests' producers
    producer = Producer(log, linger_ms=10**9)
    producer.init()
    _send(producer, watch)
    assert not watch.tried.is_set()
    producer.close()  # it flushes
    assert watch.tried.is_set()
    assert _numbers(log) == [1]
    assert _timers() <= before
