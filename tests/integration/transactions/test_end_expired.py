"""Readers and maintenance that end expired transactions, and readers that may not."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from tests.integration.clients.failing import ENTRY, Plan, QuickClock, read
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import Producer, ProducerStatus, StorageError, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

NUMBERS = pa.schema([("n", pa.int64())])


class Held:
    """A log whose partition an abandoned transaction holds back, before a committed record."""

    def __init__(self) -> None:
        self.clock = QuickClock()
        self.store = CountingStore(MemoryStore(self.clock))
        self.log = TxnLog.create(self.store, clock=self.clock)
        self.log.create_topic("t", NUMBERS)
        abandoned = Producer(self.log, "abandoned", buffer="inline")
        abandoned.init()
        abandoned.begin()
        abandoned.send("t", [{"n": 1}])
        abandoned.flush()
        with Producer(self.log) as producer:
            producer.send("t", [{"n": 2}])

    def wait(self, seconds: int) -> None:
        self.clock.set_back(-1_000 * seconds)

    def reader(self, plan: Plan) -> TxnLog:
        return TxnLog.open(FaultyStore(self.store, plan), clock=self.clock)


@pytest.fixture
def held() -> Held:
    return Held()


def read_ending(log: TxnLog) -> list[int]:
    numbers: list[int] = log.read("t", columns=["n"], end_expired=True).read_all()["n"].to_pylist()
    return numbers


def test_a_permitted_reader_ends_what_expired_and_nothing_else(held: Held) -> None:
    before = held.log.refresh().entry
    with held.store.measure() as requests:
        assert read_ending(held.log) == [], "its time is not over"
    assert requests.counts.count() == 1, "what a refresh costs, once"
    held.wait(61)
    assert read(held.log) == []
    assert read_ending(held.log) == [2]
    assert held.log.state.entry == before + 1
    assert held.log.outcome("abandoned", 0).cause == "timeout"
    with held.store.measure() as requests:
        assert read_ending(held.log) == [2]
    assert requests.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 0


@pytest.mark.parametrize("kind", [FaultKind.PERMISSION_DENIED, FaultKind.READ_ONLY, FaultKind.FAIL_BEFORE])
def test_a_reader_that_may_not_write_warns_once_and_reads_on(
    held: Held, kind: FaultKind, caplog: pytest.LogCaptureFixture
) -> None:
    held.wait(61)
    plan = Plan()
    plan.always(*ENTRY, Fault(kind))
    reader = held.reader(plan)
    with caplog.at_level(logging.WARNING, logger="txnlog"):
        for _ in range(3):
            assert read_ending(reader) == []
    warnings = [record for record in caplog.records if "expired transactions" in record.message]
    assert len(warnings) == 1
    assert held.log.refresh().undecided == {"abandoned"}


def test_a_reader_that_cannot_read_raises(held: Held) -> None:
    held.wait(61)
    plan = Plan()
    reader = held.reader(plan)
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    with pytest.raises(StorageError):
        read_ending(reader)


def test_maintain_ends_what_expired_before_it_seals(held: Held) -> None:
    assert held.log.maintain("timeouts").timed_out == ()
    held.wait(61)
    report = held.log.maintain()
    assert report.timed_out == ("abandoned",)
    assert report.batches == 2, "what the transaction held back is sealed with it"
    assert held.log.maintain("timeouts").timed_out == ()


def test_what_its_producer_committed_meanwhile_is_not_reported_as_ended(held: Held) -> None:
    late = Producer(held.log, "late", buffer="inline")
    late.init()
    late.begin()
    late.send("t", [{"n": 3}])
    late.flush()
    held.wait(61)

    class Racing(Plan):
        """Commits the late transaction just before the tool's own entry arrives."""

        def __call__(self, operation: RequestKind, key: str, nth: int) -> Fault | None:
            if (operation, key_class(key)) == ENTRY and late.status is ProducerStatus.IN_TRANSACTION:
                late.commit()
            return super().__call__(operation, key, nth)

    ended = held.reader(Racing()).transactions.end_expired()
    assert held.log.refresh().undecided == frozenset()
    assert [one.transactional_id for one in ended] == ["abandoned"]
    assert read(held.log) == [2, 3]
