"""What nobody uses any more is forgotten by maintenance and by writers, on a real log with a clock of the
test's own."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from txnformat.clock import Instant
from txnformat.core.lifecycle.idle import PRODUCER_RETENTION_MS, TRANSACTIONAL_ID_RETENTION_MS
from txnformat.protocol.commit import CommitSettings
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

NUMBERS = pa.schema([("n", pa.int64())])


class Clock:
    """Goes only when it is told to."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now(self) -> Instant:
        return Instant(self.ms, self.ms)

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        self.ms += round(seconds * 1_000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> TxnLog:
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    log.create_topic("t", NUMBERS)
    return log


def write(log: TxnLog, name: str | None) -> None:
    with Producer(log, name) as producer:
        if name is None:
            producer.send("t", [{"n": 1}])
        else:
            with producer.transaction() as txn:
                txn.send("t", [{"n": 1}])


def tick(log: TxnLog) -> None:
    """Let log time catch up with the clock."""
    log.create_topic(f"tick-{log.state.entry}", NUMBERS)


def test_maintenance_forgets_what_was_idle_for_long_and_nothing_else(log: TxnLog, clock: Clock) -> None:
    write(log, None)
    write(log, "etl")
    clock.ms += PRODUCER_RETENTION_MS + 1_000
    tick(log)
    report = log.maintain("expire")
    assert (report.expired_producers, report.expired_transactional_ids) == (1, 0)
    clock.ms += TRANSACTIONAL_ID_RETENTION_MS
    write(log, "young")
    report = log.maintain("expire")
    assert report.expired_transactional_ids == 1
    assert list(log.state.transactional_ids) == ["young"]
    entry = log.state.entry
    assert log.maintain("expire").expired_transactional_ids == 0
    assert log.state.entry == entry, "nothing is no entry"
    assert log.verify().ok


def test_a_log_of_many_short_lived_producers_keeps_a_state_of_those_that_live(clock: Clock) -> None:
    store = CountingStore(MemoryStore(clock))
    log = TxnLog.create(store, clock=clock, settings=CommitSettings(producer_retention_ms=60_000))
    log.create_topic("t", NUMBERS)
    for number in range(240):
        clock.ms += 1_000
        with Producer(log, f"job-{number % 3}") as producer, producer.transaction() as txn:
            txn.send("t", [{"n": number}])
        write(log, None)
        log.close()  # a snapshot that is due is written, and what is idle expires before it
    assert len(log.state.producers) <= 60 + 110, (
        "those of the last minute, and of the entries since the last snapshot"
    )
    assert len(log.state.partition(next(iter(log.state.partitions))).sequences) == len(log.state.producers)
    assert log.read("t").read_all().num_rows == 480
    assert log.verify().ok


def test_a_producer_that_the_log_has_forgotten_goes_on_under_another_id(log: TxnLog, clock: Clock) -> None:
    with Producer(log) as producer:
        producer.send("t", [{"n": 1}])
        producer.flush()
        first = producer.producer_id
        clock.ms += PRODUCER_RETENTION_MS + 1_000
        tick(log)
        assert log.maintain("expire").expired_producers == 1
        producer.send("t", [{"n": 2}])
        producer.flush()
        assert producer.producer_id != first
    assert log.read("t").read_all().column("n").to_pylist() == [1, 2]
