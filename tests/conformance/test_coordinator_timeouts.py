"""Timeouts of transactions: which are ended, by whom, what it does to the epoch, and what their producers
hear."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, COMMIT, NAME, CoreLog, kinds, rows, staged
from tests.conformance.epochs import BOUNDARIES, at_epoch
from tests.integration.clients.failing import BUFFERS, ENTRY, Plan, QuickClock, faulty, read
from tests.integration.clients.failing import rows as records
from txnformat.core.assemble import assemble
from txnformat.core.intents import (
    AllocateIds,
    EndTransaction,
    Included,
    OpenProducer,
    ProducerRef,
    Rejected,
    Write,
)
from txnformat.core.operations import Cause, EndTxn
from txnformat.core.transactions.state import (
    DEFERRED_TIMEOUT_MS_MAX,
    MAX_TRANSACTION_TIMEOUT_MS,
    LastEnd,
    TransactionStatus,
)
from txnformat.errors import InvalidTransactionStateError, ProducerFencedError, TransactionTimedOutError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.protocol.effects import Times
from txnformat.protocol.expiry import Watch
from txnformat.store.memory import MemoryStore
from txnformat.types import Outcome
from txnlog import InvalidInputError, Producer, ProducerStatus, StorageError
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
LATER_MS = 8 * DAY_MS


def _open() -> tuple[CoreLog, ProducerRef]:
    """Return a log with a transaction that is open."""
    log = CoreLog()
    log.open("before")
    producer = log.open()
    log.append(producer, 0, 2)
    return log, producer


@case("TransactionStateManagerTest", "testValidateTransactionTimeout")
@pytest.mark.parametrize(
    ("timeout_ms", "deferred_ms", "allowed"),
    [
        (1, 1, True),
        (MAX_TRANSACTION_TIMEOUT_MS, DEFERRED_TIMEOUT_MS_MAX, True),
        (0, 1, False),
        (-1, 1, False),
        (MAX_TRANSACTION_TIMEOUT_MS + 1, 1, False),
        (1, 0, False),
        (1, -1, False),
        (1, DEFERRED_TIMEOUT_MS_MAX + 1, False),
    ],
)
def test_a_timeout_is_from_1_ms_to_the_longest_that_the_log_allows(
    timeout_ms: int, deferred_ms: int, allowed: bool
) -> None:
    """15 minutes, and 7 days for records without offsets, which block nobody; prepared ones have none
    at all.
    """
    log = CoreLog()
    action = OpenProducer(NAME, timeout_ms, deferred_ms)
    if allowed:
        log.do(action)
        assert (log.id().timeout_ms, log.id().deferred_timeout_ms) == (timeout_ms, deferred_ms)
    else:
        error = log.refusal(action)
        assert (type(error), error.kind) == (InvalidInputError, "invalid-transaction-timeout")
        assert NAME not in log.state.transactional_ids


@case("TransactionCoordinatorTest", "shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch")
def test_a_transaction_whose_time_is_over_is_aborted_and_its_epoch_grows_by_one() -> None:
    """One step, by anybody: markers, the next epoch, and the cause; not a millisecond too early."""
    log, producer = _open()
    began = log.id().started_ms
    assert began is not None
    assert log.id().expires_ms == began + MINUTE_MS
    early = log.abort_for(Cause.TIMEOUT)
    assert early.store_time_ms is not None
    error = log.refusal(_at(log, early.store_time_ms - 1))
    assert (type(error), error.kind) == (InvalidTransactionStateError, "transaction-not-expired")
    (end,) = log.apply(_at(log, began + MINUTE_MS))
    assert isinstance(end, EndTxn)
    assert (end.outcome, end.cause, end.epoch, len(end.markers)) == (ABORT, Cause.TIMEOUT, 0, 2)
    known = log.id()
    assert (known.status, known.epoch) == (TransactionStatus.COMPLETE_ABORT, 1)
    assert known.last_end == LastEnd(0, ABORT, Cause.TIMEOUT, log.state.entry)
    for late in (Write(producer, rows(sequence=2)), Write(producer, end=COMMIT)):
        assert isinstance(log.refusal(late), TransactionTimedOutError)
    log.done(Write(producer, end=ABORT))
    log.append(log.producer(NAME))
    log.finish(log.producer(NAME), COMMIT)


def _at(log: CoreLog, store_time_ms: int) -> EndTransaction:
    return replace(log.abort_for(Cause.TIMEOUT), store_time_ms=store_time_ms)


@case("TransactionCoordinatorTest", "shouldNotAcceptSmallerEpochDuringTransactionExpiration")
@pytest.mark.parametrize("since", ["commit", "abort", "init", "timeout"])
def test_an_end_that_somebody_wanted_of_an_older_transaction_ends_no_newer_one(since: str) -> None:
    """A slow client that looked before the next transaction began changes nothing."""
    log, producer = _open()
    late = log.abort_for(Cause.TIMEOUT)
    if since == "init":
        log.open()
    elif since == "timeout":
        log.do(late)
    else:
        log.finish(producer, COMMIT if since == "commit" else ABORT)
    log.append(log.producer(NAME))
    before = log.id()
    if since == "commit":
        assert log.refusal(late).kind == "transaction-committed"
    else:
        log.done(late)  # it is aborted, whoever did it
    newer = replace(late, epoch=late.epoch + 2)
    assert log.refusal(newer).kind == "no-transaction"
    assert log.id() == before
    assert before.status is TransactionStatus.ONGOING


@case(
    "TransactionCoordinatorTest",
    "shouldNotAbortExpiredTransactionsThatHaveAPendingStateTransition",
    "shouldNotBumpEpochWithPendingTransaction",
)
@pytest.mark.parametrize("outcome", Outcome)
def test_a_producers_end_that_waits_beside_its_timeout_comes_first_and_bumps_the_epoch_once(
    outcome: Outcome,
) -> None:
    """A committer puts its own intents before the ends of others: an end in time is never lost to a
    timeout.
    """
    log, producer = _open()
    own, timeout = log.intent(Write(producer, end=outcome)), log.intent(log.abort_for(Cause.TIMEOUT))
    made = log.assemble(own, timeout)
    assert made.entry is not None
    assert kinds(made.entry.operations) == ["EndTxn"]
    assert isinstance(made.verdicts[own.intent_id], Included)
    assert isinstance(made.verdicts[timeout.intent_id], Rejected) == (outcome is COMMIT)
    last = log.id().last_end
    assert last is not None
    assert (last.outcome, last.cause, log.id().epoch) == (outcome, Cause.PRODUCER, 1)


@case("TransactionCoordinatorTest", "shouldNotAbortExpiredTransactionsThatHaveAPendingStateTransition")
def test_a_prepared_transaction_never_times_out() -> None:
    log, producer = _open()
    over = log.abort_for(Cause.TIMEOUT)
    log.prepare(producer)
    assert log.refusal(over).kind == "transaction-prepared"
    assert Watch().expired(log.state, Times(log.now_ms + LATER_MS, None, log.now_ms + LATER_MS)) == []
    log.finish(producer, COMMIT)


@case("TransactionCoordinatorTest", "shouldNotBumpEpochWhenAbortingExpiredTransactionIfAppendToLogFails")
def test_a_timeout_that_was_decided_but_not_written_has_changed_nothing() -> None:
    log, producer = _open()
    intent = log.intent(log.abort_for(Cause.TIMEOUT))
    for attempt in range(5):
        lost = assemble(log.state, (intent,), store_time_ms=log.now_ms, write_id=f"lost {attempt}")
        assert lost.after.transactional_ids[NAME].epoch == 1
        assert (log.id().epoch, log.id().status) == (0, TransactionStatus.ONGOING)
        log.apply(AllocateIds("somebody else", 1))  # holds the slot
    log.append(producer, sequence=2)
    log.assemble(intent)
    assert (log.id().epoch, log.id().status) == (1, TransactionStatus.COMPLETE_ABORT)


@case(
    "TransactionCoordinatorTest",
    "shouldHandleTimeoutAtEpochOverflowBoundaryCorrectlyTV2",
    "shouldHandleTimeoutAtEpochOverflowBoundaryCorrectlyAndLateClientAbortRequestTV2",
    "shouldHandleTimeoutAtEpochOverflowBoundaryCorrectlyAndRetryInitProducerIdTV2",
)
@pytest.mark.parametrize("epoch", BOUNDARIES)
@pytest.mark.parametrize("then", ["abort", "init"])
def test_a_timeout_at_the_end_of_kafkas_epochs_is_like_any_other(epoch: int, then: str) -> None:
    """There the producer id changes with the timeout, and a late abort or init must find its way; here
    nothing does."""
    log = CoreLog()
    log.open()
    producer = at_epoch(log, epoch)
    log.append(producer)
    log.do(log.abort_for(Cause.TIMEOUT))
    ended = log.state.entry
    assert isinstance(log.refusal(Write(producer, end=COMMIT)), TransactionTimedOutError)
    if then == "abort":
        assert log.done(Write(producer, end=ABORT)).entry == ended
    else:
        log.open()
        assert isinstance(log.refusal(Write(producer, rows())), ProducerFencedError)
    now = log.producer(NAME)
    assert now == ProducerRef(producer.producer_id, epoch + (1 if then == "abort" else 2), NAME)
    log.append(now)
    log.finish(now, COMMIT)


@case("TransactionStateManagerTest", "shouldOnlyConsiderTransactionsInTheOngoingStateToAbort")
def test_only_what_is_open_and_not_prepared_is_looked_at() -> None:
    """All states of an id at once, long after: two are over, and each is ended as what it was seen to be."""
    log = CoreLog()
    for name in ("empty", "committed", "aborted", "open", "prepared", "staged"):
        log.open(name)
    for name in ("committed", "aborted", "open", "prepared"):
        log.append(log.producer(name))
    log.apply(Write(log.producer("staged"), staged(1), deferred=True))
    log.finish(log.producer("committed"), COMMIT)
    log.finish(log.producer("aborted"), ABORT)
    log.prepare(log.producer("prepared"))
    long_after = log.now_ms + LATER_MS
    found = Watch().expired(log.state, Times(long_after, None, long_after))
    assert [(end.transactional_id, end.epoch) for end in found] == [("open", 0), ("staged", 0)]
    for end in found:
        log.do(end)
    assert Watch().expired(log.state, Times(long_after, None, long_after)) == []
    assert sorted(log.state.undecided) == ["prepared"]


# --- on a real log, with time that passes only where somebody waits for it ----------------------------------


def _pass(log: TxnLog, seconds: float) -> None:
    log.committer.clock.sleep(seconds)


@case(
    "TransactionManagerTest",
    "testTransactionAbortableExceptionInAddPartitions",
    "testTransactionAbortableExceptionInEndTxn",
)
@pytest.mark.parametrize("call", ["flush", "commit"])
def test_a_producer_whose_transaction_timed_out_aborts_and_goes_on(call: str) -> None:
    """Somebody else's commit has ended it, at no further request; the error says that a new transaction will
    do."""
    log = faulty(Plan())
    other = TxnLog.open(log.store, clock=log.committer.clock)
    with Producer(log, NAME, buffer="inline") as producer:
        producer.begin()
        producer.send("t", records(1))
        producer.flush()
        _pass(log, 61)
        with Producer(other) as plain:
            plain.send("t", records(7))
        producer.send("t", records(2))
        with pytest.raises(TransactionTimedOutError):
            producer.flush() if call == "flush" else producer.commit()
        producer.abort()
        assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
        with producer.transaction() as txn:
            txn.send("t", records(3))
    assert read(log) == [7, 3]


@case("TransactionCoordinatorTest", "shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch")
@BUFFERS
def test_a_commit_after_the_time_is_over_succeeds_unless_somebody_ended_it(buffer: str) -> None:
    """A timeout gives others the right to end it; it is no ban. What waits in files only never times out."""
    log = faulty(Plan())
    with Producer(log, NAME, buffer=buffer) as producer:
        producer.begin()
        producer.send("t", records(1))
        producer.flush()
        _pass(log, 10 * 60)
        producer.commit()
    assert read(log) == [1]


@case("TransactionCoordinatorTest", "shouldNotBumpEpochWhenAbortingExpiredTransactionIfAppendToLogFails")
def test_a_sweep_that_the_store_refuses_is_repeated_and_bumps_the_epoch_once() -> None:
    plan = Plan()
    clock = QuickClock()
    memory = MemoryStore(clock)
    TxnLog.create(memory, clock=clock).create_topic("t", records(1).schema)
    log, sweeper = TxnLog.open(memory, clock=clock), TxnLog.open(FaultyStore(memory, plan), clock=clock)
    producer = Producer(log, NAME, buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", records(1))
    producer.flush()
    assert sweeper.committer.end_expired() == []
    _pass(log, 61)
    plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
    for _ in range(3):
        with pytest.raises(StorageError):
            sweeper.committer.end_expired()
        known = log.refresh().transactional_ids[NAME]
        assert (known.epoch, known.status) == (0, TransactionStatus.ONGOING)
    plan.clear()
    (ended,) = sweeper.committer.end_expired()
    assert (ended.transactional_id, ended.epoch) == (NAME, 0)
    assert sweeper.committer.end_expired() == []
    known = log.refresh().transactional_ids[NAME]
    assert (known.epoch, known.status) == (1, TransactionStatus.COMPLETE_ABORT)
    producer.close()
