"""Time that passes: transactions that were open too long, ids and producers that nobody used for long.

The clock is the test's own, and the store's: nothing waits. Upstream's brokers look for what has expired
every 200 or 500 ms; here whoever commits, or asks for maintenance, does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.conformance.cases import case
from tests.conformance.numbered import Numbered
from tests.conformance.scenes import BUFFERS, INLINE, NUMBERS, open_ids, read
from tests.integration.clients.failing import Plan, QuickClock, unclear_commit
from txnformat import keys
from txnformat.core.entry import ENTRY_BYTES_MAX
from txnformat.core.lifecycle.idle import EXPIRED_MAX
from txnformat.protocol.commit import CommitSettings
from txnformat.store.memory import MemoryStore
from txnlog import (
    CommitStateUnknownError,
    InvalidInputError,
    InvalidTransactionStateError,
    Producer,
    ProducerStatus,
    TransactionTimedOutError,
    TxnLog,
    UnknownProducerIdError,
)
from txnlog_testing.stores.faulty import FaultKind, FaultyStore

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
SEALED = pytest.mark.parametrize("seals", [False, True], ids=["as-appended", "sealed"])


class Clock(QuickClock):
    """A clock that a test moves."""

    def go_on(self, milliseconds: int) -> None:
        """Let time pass."""
        self.set_back(-milliseconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Iterator[TxnLog]:
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    for topic in ("t", "u"):
        log.create_topic(topic, NUMBERS, partitions=4)
    with closing(log):
        yield log


def opened(log: TxnLog, name: str | None = "transactionalProducer", buffer: str = INLINE) -> Producer:
    producer = Producer(log, name, buffer=buffer) if name else Producer(log, linger_ms=10**9)
    producer.init()
    return producer


def send(producer: Producer, topic: str, *numbers: int) -> None:
    producer.send(topic, [{"n": number} for number in numbers])
    producer.flush()


def pass_by(log: TxnLog, clock: Clock, milliseconds: int) -> None:
    """Let time pass, and log time follow: somebody else commits; then ask for what has expired."""
    clock.go_on(milliseconds)
    log.create_topic(f"tick-{log.refresh().entry}", NUMBERS)
    log.maintain("expire")


# --- ids and producers --------------------------------------------------------------------------------------


@case(
    "TransactionsExpirationTest",
    "testFatalErrorAfterInvalidProducerIdMappingWithTV1",
    "testFatalErrorAfterInvalidProducerIdMappingWithTV2",
)
@case("ProducerIdExpirationTest", "testTransactionAfterTransactionIdExpiresButProducerIdRemains")
@BUFFERS
def test_a_producer_whose_id_has_expired_is_refused_and_a_new_one_has_another_producer_id(
    log: TxnLog, clock: Clock, buffer: str
) -> None:
    old = opened(log, buffer=buffer)
    old.begin()
    send(old, "t", 2)
    send(old, "u", 4)
    old.abort()
    pass_by(log, clock, 7 * DAY - MINUTE)
    assert "transactionalProducer" in log.state.transactional_ids
    pass_by(log, clock, 2 * MINUTE)
    assert "transactionalProducer" not in log.state.transactional_ids

    def work() -> None:
        old.begin()
        send(old, "t", 1)
        old.commit()

    with pytest.raises(InvalidTransactionStateError) as caught:
        work()
    assert caught.value.kind == "unknown-transactional-id"
    with pytest.raises(InvalidTransactionStateError):
        old.commit()
    with pytest.raises(InvalidTransactionStateError):
        old.begin()
    new = opened(log, buffer=buffer)
    assert new.producer_id != old.producer_id
    assert new.epoch == 0
    new.begin()
    for number in (1, 2):
        send(new, "t", number)
        send(new, "u", 10 * number)
    new.commit()
    assert sorted(read(log, "t") + read(log, "u")) == [1, 2, 10, 20]


@case("ProducerIdExpirationTest", "testProducerIdExpirationWithNoTransactions")
def test_a_producer_that_was_idle_for_long_goes_on(log: TxnLog, clock: Clock) -> None:
    """Under another id: what its old one would append first could be a late repeat."""
    producer = opened(log, None)
    send(producer, "t", 1)
    assert len(log.refresh().producers) == 1
    pass_by(log, clock, DAY + MINUTE)
    assert len(log.state.producers) == 0
    send(producer, "t", 2)
    assert len(log.refresh().producers) == 1
    assert sorted(read(log)) == [1, 2]


def test_a_producer_that_the_log_forgot_after_an_unknown_answer_takes_no_other_id(clock: Clock) -> None:
    """The records may have been in the log all the time: under another id they would be there twice."""
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", NUMBERS)
    plan = Plan()
    producer = Producer(TxnLog.open(FaultyStore(store, plan), clock=clock), linger_ms=10**9)
    producer.init()
    send(producer, "t", 1)
    unclear_commit(plan, FaultKind.FAIL_BEFORE)
    producer.send("t", [{"n": 2}])
    with pytest.raises(CommitStateUnknownError):
        producer.flush()
    pass_by(log, clock, DAY + MINUTE)
    plan.clear()
    with pytest.raises(UnknownProducerIdError):
        producer.flush()
    assert producer.status is ProducerStatus.FENCED
    assert read(log) == [1]


def test_a_new_producer_gets_no_id_below_those_that_have_expired(log: TxnLog, clock: Clock) -> None:
    """This process has a block of ids from yesterday; a producer of a later block, another process's, has
    expired."""
    send(opened(log, None), "t", 1)
    other = Numbered(log)
    other.append(0, 1)
    pass_by(log, clock, DAY + MINUTE)
    assert log.state.retired_below == other.ref.producer_id + 1
    producer = opened(log, None)
    assert (producer.producer_id or 0) > other.ref.producer_id
    send(producer, "t", 2)
    assert log.refresh().producers.keys() == {producer.producer_id}


@case("ProducerIdExpirationTest", "testDynamicProducerIdExpirationMs")
def test_how_long_producers_are_remembered_is_a_setting_of_whoever_asks(log: TxnLog, clock: Clock) -> None:
    def remembering(milliseconds: int) -> TxnLog:
        settings = CommitSettings(producer_retention_ms=milliseconds)
        return TxnLog.open(log.store, clock=clock, settings=settings)

    send(opened(log, None), "t", 1)
    pass_by(remembering(100_000), clock, 90_000)
    assert len(log.refresh().producers) == 1
    pass_by(remembering(10_000), clock, 0)
    assert len(log.refresh().producers) == 0


@case("ImplementationTraps", "tombstones of transactional ids exceed the largest message")
def test_many_long_ids_expire_in_entries_that_are_far_from_the_cap(log: TxnLog, clock: Clock) -> None:
    """2,500 names of 249 bytes: three entries."""
    open_ids(log, [f"{number:04}" + "x" * 245 for number in range(2_500)])
    log.refresh()
    before = log.state.entry
    clock.go_on(8 * DAY)
    log.create_topic("tick", NUMBERS)
    assert log.maintain("expire").expired_transactional_ids == 2_500
    assert len(log.state.transactional_ids) == 0
    sizes = [len(log.store.get(keys.entry_key(n)) or b"") for n in range(before + 2, log.state.entry + 1)]
    assert len(sizes) == 3
    assert max(sizes) < ENTRY_BYTES_MAX / 10
    assert EXPIRED_MAX * 2 * 249 < ENTRY_BYTES_MAX


# --- transactions -------------------------------------------------------------------------------------------


@case("TransactionsTest", "testFencingOnTransactionExpiration")
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicFencingOnTransactionExpiration",
    "testAsyncFencingOnTransactionExpiration",
)
@case("KnownFlaws", "a stall ends in a fatal error")
@SEALED
@pytest.mark.parametrize("call", ["flush", "commit"])
@pytest.mark.parametrize("by", ["a commit of somebody else", "somebody who looks for it"])
def test_a_transaction_that_was_open_too_long_is_aborted_and_its_producer_goes_on(
    log: TxnLog, clock: Clock, call: str, by: str, seals: bool
) -> None:
    """The producer that slept hears of its timeout, not of a fence, and needs no new instance."""
    producer = opened(log, "expiringProducer")
    producer.begin()
    send(producer, "t", 1)
    clock.go_on(MINUTE + 1_000)
    other = TxnLog.open(log.store, clock=clock)
    if by == "somebody who looks for it":
        assert [one.transactional_id for one in other.transactions.end_expired()] == ["expiringProducer"]
    else:
        opened(other, "another")
    if seals:
        log.maintain("seal")
    producer.send("t", [{"n": 2}])
    with pytest.raises(TransactionTimedOutError):
        getattr(producer, call)()
    assert read(log) == []
    assert read(log, isolation="read_uncommitted") == [1]
    producer.abort()
    assert producer.status is ProducerStatus.READY
    with producer.transaction() as txn:
        txn.send("t", [{"n": 3}])
    if seals:
        log.maintain("seal")
    assert read(log) == [3]
    assert log.outcome("expiringProducer", 0).cause == "timeout"


def test_a_transaction_that_nobody_has_ended_may_commit_late(log: TxnLog, clock: Clock) -> None:
    """A timeout is a right of others: whoever is held up may use it, and as long as nobody does nothing is
    lost."""
    producer = opened(log, "slow")
    producer.begin()
    send(producer, "t", 1)
    clock.go_on(DAY)
    producer.send("t", [{"n": 2}])
    producer.commit()
    assert sorted(read(log)) == [1, 2]


def test_the_first_entry_after_the_timeout_ends_it_also_when_it_is_the_producers_own_flush(
    log: TxnLog, clock: Clock
) -> None:
    """Kafka's coordinator would have ended it before: what is flushed too late is refused, and the flush says
    so."""
    producer = opened(log, "slow")
    producer.begin()
    send(producer, "t", 1)
    clock.go_on(DAY)
    with pytest.raises(TransactionTimedOutError):
        send(producer, "t", 2)
    assert {ends.held_by for ends in log.offsets("t")} == {None}
    assert len(read(log, isolation="read_uncommitted")) == 1
    producer.abort()
    assert read(log) == []


@case("librdkafka-0103-transactions", "do_test_misuse_txn")
@pytest.mark.parametrize("timeout_ms", [2**31 - 1, 15 * MINUTE + 1, 0, -1])
def test_a_timeout_out_of_bounds_is_refused_and_nothing_is_written(log: TxnLog, timeout_ms: int) -> None:
    before = log.refresh().entry

    def open_one() -> None:
        Producer(log, "p", transaction_timeout_ms=timeout_ms).init()

    with pytest.raises(InvalidInputError):
        open_one()
    assert log.refresh().entry == before
