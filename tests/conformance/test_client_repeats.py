"""Calls whose answer was lost: which may be repeated, what settles them, and that nothing happens twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import (
    BUFFERS,
    ENTRY,
    NUMBERS,
    Plan,
    QuickClock,
    faulty,
    read,
    rows,
    unclear_commit,
)
from txnformat.log import TxnLog
from txnformat.store.base import CreateOutcome
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    InvalidTransactionStateError,
    Producer,
    ProducerStatus,
    StorageError,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

UNCLEAR = pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)
TRANSIENT = [
    Fault(FaultKind.FAIL_BEFORE),
    Fault(FaultKind.APPLIED_LOST_ANSWER),
    Fault(FaultKind.EXISTS_AFTER_OWN_SUCCESS),
    Fault(FaultKind.CONFLICT_409),
    Fault(FaultKind.SERVER_ERROR),
    Fault(FaultKind.SERVER_ERROR, status=500, applied=True),
]


def _unknown(call: Callable[[], object]) -> None:
    with pytest.raises(CommitStateUnknownError):
        call()


def _only(producer: Producer, *allowed: str) -> None:
    """Every other call says that the outcome is unknown."""
    assert producer.status is ProducerStatus.UNKNOWN_OUTCOME
    calls: dict[str, Callable[[], object]] = {
        "init": producer.init,
        "begin": producer.begin,
        "send": lambda: producer.send("t", rows(9)),
        "flush": producer.flush,
        "commit": producer.commit,
        "abort": producer.abort,
    }
    for name in set(calls) - set(allowed):
        with pytest.raises(InvalidTransactionStateError) as caught:
            calls[name]()
        assert caught.value.kind == "outcome-unknown", name


@case("TransactionManagerTest", "testRetryCommitTransactionAfterTimeout", "testRetryCommitTransaction")
@BUFFERS
@UNCLEAR
def test_an_unknown_commit_is_repeated_and_happens_once(buffer: str, kind: FaultKind, landed: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "etl", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, kind)
        _unknown(producer.commit)
        _only(producer, "commit", "abort")
        plan.clear()
        entry = TxnLog.open(log.store, clock=log.committer.clock).state.entry
        assert producer.commit().entry == (entry if landed else entry + 1)
        assert producer.epoch == 1
    assert read(log) == [1]


@case("TransactionManagerTest", "testRetryAbortTransactionAfterTimeout", "testRetryAbortTransaction")
@UNCLEAR
def test_an_unknown_abort_is_repeated_and_happens_once(kind: FaultKind, landed: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "etl", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        unclear_commit(plan, kind)
        _unknown(producer.abort)
        _only(producer, "abort")
        plan.clear()
        producer.abort()
        assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
        assert log.refresh().transactional_ids["etl"].epoch == 1
    assert read(log) == []


@case("TransactionManagerTest", "testRetryInitTransactionsAfterTimeout")
@UNCLEAR
def test_an_unknown_init_is_repeated_and_bumps_the_epoch_once(kind: FaultKind, landed: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "etl")
    unclear_commit(plan, kind)
    _unknown(producer.init)
    _only(producer, "init")
    plan.clear()
    producer.init()
    assert producer.epoch == 0 == log.refresh().transactional_ids["etl"].epoch
    producer.close()


@case("TransactionManagerTest", "testRetryAbortTransactionAfterCommitTimeout")
@BUFFERS
@UNCLEAR
def test_an_abort_settles_an_unknown_commit_one_way_or_the_other(
    buffer: str, kind: FaultKind, landed: bool
) -> None:
    """Kafka forbids it and leaves the caller with a commit that it cannot take back; here the log decides."""
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "etl", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, kind)
        _unknown(producer.commit)
        plan.clear()
        if landed:
            with pytest.raises(InvalidTransactionStateError) as caught:
                producer.abort()
            assert caught.value.kind == "transaction-committed"
        else:
            producer.abort()
        assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
    assert read(log) == ([1] if landed else [])


@case("TransactionManagerTest", "testRetryCommitTransactionAfterAbortTimeout")
def test_a_commit_does_not_follow_an_unknown_abort() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "etl", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        _unknown(producer.abort)
        with pytest.raises(InvalidTransactionStateError) as caught:
            producer.commit()
        assert caught.value.kind == "outcome-unknown"
        plan.clear()
        producer.abort()
    assert read(log) == []


@case(
    "TransactionManagerTest",
    "testAbortResendsAddPartitionErrorIfRetried",
    "testAbortResendsProduceRequestIfRetried",
    "testBumpTransactionalEpochOnTimeout",
    "testTransitionToFatalErrorWhenRetriedBatchIsExpired",
)
@UNCLEAR
def test_an_abort_settles_a_flush_that_may_have_landed(kind: FaultKind, landed: bool) -> None:
    """The log may hold records of the transaction: the abort is written, and the next one has another
    epoch.
    """
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "etl", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, kind)
        _unknown(producer.flush)
        _only(producer, "flush", "abort")
        plan.clear()
        producer.abort()
        assert producer.epoch == 1 == log.refresh().transactional_ids["etl"].epoch
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == [2]
    assert read(log, "read_uncommitted") == ([1, 2] if landed else [2])


@case(
    "TransactionManagerTest",
    "testBatchFailureAfterProducerReset",
    "testBatchCompletedAfterProducerReset",
    "testDuplicateSequenceAfterProducerReset",
    "testFailedInflightBatchAfterEpochBump",
)
@pytest.mark.parametrize("buffer", ["inline", "auto"])
def test_a_request_of_an_ended_transaction_that_arrives_late_changes_nothing(buffer: str) -> None:
    """It wants a slot that somebody else has by then, and so do all of its repeats: the data never gets
    in.
    """
    plan = Plan()
    log = faulty(plan)
    assert isinstance(log.store, FaultyStore)
    with Producer(log, "etl", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, FaultKind.APPLIED_LATE)
        _unknown(producer.commit if buffer == "auto" else producer.flush)
        plan.clear()
        producer.abort()
        with producer.transaction() as txn:
            txn.send("t", rows(2))
        (late,) = log.store.release()
        assert late.result is not None
        assert late.result.outcome is CreateOutcome.EXISTS
        with producer.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log, "read_uncommitted") == [2, 3]


@case(
    "TransactionManagerTest",
    "testRetriableErrors",
    "testCoordinatorNotAvailable",
    "testDisconnectAndRetry",
    "testHandlingOfUnknownTopicPartitionErrorOnAddPartitions",
    "testAddPartitionToTransactionRetainsRetryBackoffForRegularRetriableError",
)
@BUFFERS
@pytest.mark.parametrize("fault", TRANSIENT, ids=lambda fault: f"{fault.kind}-{fault.status}")
def test_what_passes_is_repeated_within_each_call(buffer: str, fault: Fault) -> None:
    """Init, flush, commit and abort: each entry gets the fault twice, and no caller hears of it."""
    plan = Plan()
    log = faulty(plan)
    plan.next(*ENTRY, fault, fault)
    with Producer(log, "etl", buffer=buffer) as producer:
        for commit in (True, False):
            producer.begin()
            TxnLog.open(log.store, clock=log.committer.clock).create_topic(f"new-{commit}", NUMBERS)
            producer.send(f"new-{commit}", rows(1))  # a topic that this producer's view does not have yet
            producer.send("t", rows(1))
            plan.next(*ENTRY, fault, fault)
            producer.flush()
            plan.next(*ENTRY, fault, fault)
            producer.commit() if commit else producer.abort()
    plan.clear()
    assert read(log) == [1]


@case(
    "TransactionManagerTest",
    "testTransactionalIdAuthorizationFailureInInitProducerId",
    "testTransactionalIdAuthorizationFailureInFindCoordinator",
)
def test_an_init_without_the_right_to_write_says_so_and_can_be_repeated_with_it() -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "etl")
    plan.always(*ENTRY, Fault(FaultKind.PERMISSION_DENIED))
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            producer.init()
        assert (caught.value.kind, caught.value.transient) == ("permission-denied", False)
        assert producer.status is ProducerStatus.UNINITIALISED
    plan.clear()
    producer.init()
    assert producer.epoch == 0
    producer.close()


@case(
    "TransactionManagerTest",
    "testTopicAuthorizationFailureInAddPartitions",
    "testTransactionalIdAuthorizationFailureInAddPartitions",
    "testCommitWithTopicAuthorizationFailureInAddPartitionsInFlight",
)
@BUFFERS
@pytest.mark.parametrize("where", [ENTRY, (RequestKind.OPEN_WRITE, KeyClass.DATA)])
def test_a_commit_without_the_right_to_write_commits_nothing_and_the_producer_goes_on(
    buffer: str, where: tuple[RequestKind, KeyClass]
) -> None:
    plan = Plan()
    log = faulty(plan, embedding=False)
    with Producer(log, "etl", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        before = log.refresh()
        plan.always(*where, Fault(FaultKind.PERMISSION_DENIED))
        with pytest.raises(StorageError) as caught:
            producer.commit()
        assert caught.value.kind == "permission-denied"
        assert log.refresh() == before
        plan.clear()
        producer.abort()
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == [2]


@case(
    "TransactionManagerTest",
    "testBumpEpochAfterTimeoutWithoutPendingInflightRequests",
    "testNoProducerIdResetAfterLastInFlightBatchSucceeds",
    "testEpochBumpAfterLastInFlightBatchFailsIdempotentProducer",
    "testMaybeResolveSequencesTransactionalProducer",
    "resendFailedProduceRequestAfterAbortableError",
)
@UNCLEAR
def test_sequences_that_may_be_in_the_log_are_settled_by_a_repeat_and_never_guessed(
    kind: FaultKind, landed: bool
) -> None:
    """Kafka's client guesses after a timeout and takes another epoch (and may append twice); ours asks the
    log."""
    plan = Plan()
    log = faulty(plan)
    with Producer(log, linger_ms=10**9) as producer:
        identity = (producer.producer_id, producer.epoch)
        for number in range(3):
            producer.send("t", rows(2 * number, 2 * number + 1))
            unclear_commit(plan, kind)
            _unknown(producer.flush)
            _only(producer, "flush", "begin", "commit", "abort")  # the latter are for transactional producers
            plan.clear()
            assert producer.flush().offsets == {("t", 0): 2 * number}
        assert (producer.producer_id, producer.epoch) == identity
    assert read(log) == [0, 1, 2, 3, 4, 5]


@case("TransactionManagerTest", "testBackgroundInvalidStateTransitionIsFatal")
def test_what_a_background_flush_meets_is_told_by_the_next_call() -> None:
    """Refused for now: the records are held, and the next call writes them. Refused for good: every call says
    so."""
    clock = QuickClock()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock).create_topic("t", NUMBERS)
    plan = Plan()
    log = TxnLog.open(FaultyStore(store, plan), clock=clock)
    producer = Producer(log, linger_ms=10**9)
    producer.init()
    producer.send("t", rows(1))
    plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
    producer._flush_held()
    assert producer.status is ProducerStatus.READY
    with pytest.raises(StorageError):
        producer.flush()
    plan.clear()
    producer.flush()
    assert read(log) == [1]
    producer.close()
