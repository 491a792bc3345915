"""The producer's states as its user sees them (Kafka's TransactionManager): which calls each allows, and what
they cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import BUFFERS, NUMBERS, Plan, faulty, read, rows
from txnformat.core.transactions.state import TransactionStatus
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    InvalidTransactionStateError,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind

UPLOAD = (RequestKind.OPEN_WRITE, KeyClass.DATA)


def _log() -> TxnLog:
    log = TxnLog.create(CountingStore(MemoryStore()))
    log.create_topic("t", NUMBERS, partitions=3)
    return log


def _calls(producer: Producer) -> dict[str, Callable[[], object]]:
    return {
        "init": producer.init,
        "begin": producer.begin,
        "send": lambda: producer.send("t", rows(7)),
        "flush": producer.flush,
        "commit": producer.commit,
        "abort": producer.abort,
    }


def _refused(producer: Producer, kind: str, *calls: str) -> None:
    """Each call is refused, and leaves everything as it is."""
    status = producer.status
    for call in calls:
        with pytest.raises(InvalidTransactionStateError) as caught:
            _calls(producer)[call]()
        assert caught.value.kind == kind, call
        assert producer.status is status


def lose_records(producer: Producer, plan: Plan) -> None:
    """Bring an open transaction of a one-shot producer to where it can only be aborted."""
    producer.send("t", rows(1))
    plan.next(*UPLOAD, Fault(FaultKind.DISK_FULL))
    producer.flush()  # into the open file
    producer.send("t", rows(2))
    with pytest.raises(StorageError):
        producer.commit()
    assert producer.status is ProducerStatus.ABORT_REQUIRED


@case(
    "TransactionManagerTest",
    "testFailIfNotReadyForSendNoProducerId",
    "testFailIfNotReadyForSendNoOngoingTransaction",
    "testNotReadyForSendBeforeInitTransactions",
    "testNotReadyForSendBeforeBeginTransaction",
    "testForegroundInvalidStateTransitionIsRecoverable",
    "testInitializeTransactionsTwiceRaisesError",
)
def test_each_state_allows_its_calls_and_a_refused_one_spoils_nothing() -> None:
    log = _log()
    producer = Producer(log, "etl")
    _refused(producer, "not-initialised", "begin", "send", "flush", "commit", "abort")
    producer.init()
    _refused(producer, "no-transaction", "send", "flush", "commit", "abort")
    _refused(producer, "already-initialised", "init")
    producer.begin()
    _refused(producer, "transaction-open", "begin")
    _refused(producer, "already-initialised", "init")
    producer.send("t", rows(1))
    producer.commit()
    _refused(producer, "no-transaction", "send", "flush", "commit", "abort")
    producer.close()
    _refused(producer, "producer-closed", "init", "begin", "send", "flush", "commit", "abort")
    producer.close()
    assert read(log) == [1]


@case("TransactionManagerTest", "testFailIfNotReadyForSendIdempotentProducer")
def test_a_producer_without_an_id_sends_as_soon_as_it_is_initialised_and_has_no_transactions() -> None:
    log = _log()
    producer = Producer(log)
    _refused(producer, "not-initialised", "send", "flush")
    producer.init()
    producer.send("t", rows(1))
    producer.flush()
    _refused(producer, "not-transactional", "begin", "commit", "abort")
    producer.close()
    assert read(log) == [1]


@case(
    "TransactionManagerTest",
    "testHasOngoingTransactionSuccessfulAbort",
    "testHasOngoingTransactionSuccessfulCommit",
    "testBasicTransaction",
)
@BUFFERS
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_open_from_begin_to_its_end(buffer: str, commit: bool) -> None:
    """In the producer from ``begin``, in the log from the first flush that it is told of; after the end in
    neither."""
    log = _log()
    with Producer(log, "etl", buffer=buffer) as producer:
        for number in range(2):
            statuses = [producer.status]
            producer.begin()
            statuses.append(producer.status)
            assert statuses == [ProducerStatus.READY, ProducerStatus.IN_TRANSACTION]
            assert log.refresh().transactional_ids["etl"].status is not TransactionStatus.ONGOING
            producer.send("t", rows(number), partition=0)
            producer.flush()
            ongoing = log.refresh().transactional_ids["etl"].status is TransactionStatus.ONGOING
            assert ongoing == (buffer != "auto")
            assert read(log) == list(range(number if commit else 0))
            producer.commit() if commit else producer.abort()
            assert log.refresh().transactional_ids["etl"].status is not TransactionStatus.ONGOING
            assert read(log) == list(range(number + 1 if commit else 0))


@case(
    "TransactionManagerTest",
    "testHasOngoingTransactionAbortableError",
    "testFailIfNotReadyForSendAfterAbortableError",
    "testNotReadyForSendAfterAbortableError",
    "testIsSendToPartitionAllowedWithPendingPartitionAfterAbortableError",
    "testIsSendToPartitionAllowedWithInFlightPartitionAddAfterAbortableError",
    "testDisallowCommitOnProduceFailure",
    "testAllowAbortOnProduceFailure",
    "testTransitionToAbortableErrorOnBatchExpiry",
    "testTransitionToAbortableErrorOnMultipleBatchExpiry",
    "testDropCommitOnBatchExpiry",
)
def test_after_records_are_lost_only_an_abort_is_possible_and_nothing_is_appended() -> None:
    """A commit would leave out what is lost: it is refused until the transaction is aborted."""
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "etl") as producer:
        producer.begin()
        lose_records(producer, plan)
        entries = log.refresh().entry
        _refused(producer, "abort-required", "send", "flush", "commit", "begin")
        assert log.refresh().entry == entries
        producer.abort()
        assert producer.status is ProducerStatus.READY
    assert read(log, "read_uncommitted") == []


@case(
    "TransactionManagerTest",
    "testRecoveryFromAbortableErrorTransactionNotStarted",
    "testRecoveryFromAbortableErrorTransactionStarted",
    "testRecoveryFromAbortableErrorProduceRequestInRetry",
    "testAbortableErrorWhileAbortInProgress",
    "testAllowAbortOnProduceFailure",
)
@BUFFERS
@pytest.mark.parametrize("started", [True, False])
def test_after_a_failure_an_abort_gives_a_working_producer(buffer: str, started: bool) -> None:
    """Whether or not the log has something of the transaction, and when the abort itself fails at first."""
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "etl", buffer=buffer) as producer:
        producer.begin()
        if started:
            producer.send("t", rows(1))
            producer.flush()
        producer.send("t", rows(2))
        for where in (UPLOAD, (RequestKind.CREATE, KeyClass.ENTRY)):
            plan.always(*where, Fault(FaultKind.DISK_FULL))
        with pytest.raises(StorageError):
            producer.commit()
        needs_the_log = started and buffer == "inline"
        if needs_the_log:
            with pytest.raises(StorageError):
                producer.abort()
            assert producer.status is ProducerStatus.ABORT_REQUIRED
            _refused(producer, "abort-required", "send", "commit", "begin")
        plan.clear()
        producer.abort()
        assert producer.status is ProducerStatus.READY
        with producer.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == [3]


@case(
    "TransactionManagerTest",
    "testHasOngoingTransactionFatalError",
    "testFailIfNotReadyForSendAfterFatalError",
    "testNotReadyForSendAfterFatalError",
    "testIsSendToPartitionAllowedWithPendingPartitionAfterFatalError",
    "testIsSendToPartitionAllowedWithInFlightPartitionAddAfterFatalError",
    "testNoFailedBatchHandlingWhenTxnManagerIsInFatalError",
    "testProducerFencedExceptionInInitProducerId",
    "testInvalidProducerEpochConvertToProducerFencedInInitProducerId",
    "testProducerFencedInAddPartitionToTxn",
    "testInvalidProducerEpochConvertToProducerFencedInAddPartitionToTxn",
    "testInvalidProducerEpochConvertToProducerFencedInEndTxn",
    "testInvalidProducerEpochFromProduce",
)
@BUFFERS
@pytest.mark.parametrize("found_by", ["flush", "commit", "abort"])
def test_a_fenced_producer_stays_fenced_whatever_is_called(buffer: str, found_by: str) -> None:
    """Every further call, ``init`` included, gives the same error; the log is not even asked again."""
    log = _log()
    old = Producer(log, "etl", buffer=buffer)
    old.init()
    old.begin()
    old.send("t", rows(1))
    old.flush()
    with Producer(log, "etl") as newer:
        if buffer == "auto" and found_by != "commit":
            _calls(old)[found_by]()  # asks nothing of the log, and so learns nothing
            assert old.status is (
                ProducerStatus.READY if found_by == "abort" else ProducerStatus.IN_TRANSACTION
            )
            if found_by == "abort":
                old.begin()
            found_by = "commit"
        old.send("t", rows(2))
        with pytest.raises(ProducerFencedError) as first:
            _calls(old)[found_by]()
        assert old.status is ProducerStatus.FENCED
        assert isinstance(log.store, CountingStore)
        with log.store.measure() as measured:
            for call in _calls(old).values():
                with pytest.raises(ProducerFencedError) as again:
                    call()
                assert str(again.value) == str(first.value)
        assert measured.counts.count() == 0
        old.close()
        with newer.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == [3]


@case("TransactionManagerTest", "testSenderShutdownWithPendingTransactions")
@BUFFERS
def test_closing_aborts_what_is_open(buffer: str) -> None:
    """Kafka's sender waits for batches, then aborts; here close is one abort, and the next instance finds
    none."""
    log = _log()
    producer = Producer(log, "etl", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    producer.flush()
    producer.send("t", rows(2))
    producer.close()
    assert producer.status is ProducerStatus.CLOSED
    assert log.refresh().transactional_ids["etl"].partitions == {}
    assert read(log) == []


@case(
    "TransactionManagerTest",
    "testMaybeAddPartitionToTransaction",
    "testMaybeAddPartitionToTransactionInTransactionV2",
    "testMultipleAddPartitionsPerForOneProduce",
)
def test_the_append_that_brings_the_data_is_what_adds_its_partitions() -> None:
    """One entry for all partitions of a flush, none besides; and none again for partitions that are known."""
    log = _log()
    assert isinstance(log.store, CountingStore)
    with Producer(log, "etl", buffer="inline") as producer:
        producer.begin()
        for expected in ([0], [0, 1, 2], [0, 1, 2]):
            for partition in expected:
                producer.send("t", rows(partition), partition=partition)
            with log.store.measure() as measured:
                producer.flush()
            assert measured.counts.count(RequestKind.CREATE) == 1
            known = log.refresh().transactional_ids["etl"]
            assert sorted(key.partition for key in known.partitions) == expected
        producer.abort()


@case(
    "TransactionManagerTest",
    "testFlushPendingPartitionsOnCommit",
    "testCommitTransactionWithUnsentProduceRequest",
    "testCommitTransactionWithInFlightProduceRequest",
    "testEndTxnNotSentIfIncompleteBatches",
)
@BUFFERS
def test_a_commit_writes_what_is_buffered_first_and_fails_as_a_whole(buffer: str) -> None:
    """While the data cannot be written there is no end in the log; when it can, data and end are one step."""
    plan = Plan()
    log = faulty(plan, embedding=False)
    with Producer(log, "etl", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1, 2, 3))
        entries = log.refresh().entry
        plan.always(*UPLOAD, Fault(FaultKind.DISK_FULL))
        with pytest.raises(StorageError):
            producer.commit()
        assert log.refresh().entry == entries
        plan.clear()
        assert producer.commit().entry == entries + 1
    assert read(log) == [1, 2, 3]


@case(
    "TransactionManagerTest",
    "testCancelUnsentAddPartitionsAndProduceOnAbort",
    "shouldNotSendAbortTxnRequestWhenOnlyAddPartitionsRequestFailed",
    "shouldNotAddPartitionsToTransactionWhenTopicAuthorizationFailed",
)
@BUFFERS
def test_an_abort_of_what_the_log_has_nothing_of_costs_no_request_and_keeps_the_epoch(buffer: str) -> None:
    """Records that were only buffered, and records whose flush was refused, are dropped where they are."""
    plan = Plan()
    log = faulty(plan, embedding=False)
    with Producer(log, "etl", buffer=buffer) as producer:
        for refused in (False, True):
            producer.begin()
            producer.send("t", rows(1))
            if refused:
                plan.always(*UPLOAD, Fault(FaultKind.PERMISSION_DENIED))
                with pytest.raises(StorageError):
                    producer.commit()
                plan.clear()
            seen = sum(plan.seen.values())
            producer.abort()
            assert sum(plan.seen.values()) == seen
            assert (producer.epoch, log.refresh().transactional_ids["etl"].partitions) == (0, {})
    assert read(log, "read_uncommitted") == []


@case("ProducerIntegrationTest", "testTransactionWithAndWithoutSend")
@case("TransactionManagerTest", "testEpochUpdateAfterBumpFromEndTxnResponseInV2")
@BUFFERS
def test_a_transaction_without_records_costs_nothing_and_the_epoch_follows_the_log(buffer: str) -> None:
    log = _log()
    assert isinstance(log.store, CountingStore)
    with Producer(log, "etl", buffer=buffer) as producer:
        for number in range(3):
            with producer.transaction() as txn:
                txn.send("t", rows(number))
            assert producer.epoch == number + 1 == log.refresh().transactional_ids["etl"].epoch
            with log.store.measure() as measured, producer.transaction():
                pass
            assert measured.counts.count() == 0
            assert producer.epoch == number + 1
    assert sorted(read(log)) == [0, 1, 2]


@case("ProducerIntegrationTest", "testTransactionWithInvalidSendAndEndTxnRequestSent")
@BUFFERS
def test_a_transaction_whose_only_send_was_refused_can_be_aborted_or_committed(buffer: str) -> None:
    log = _log()
    with Producer(log, "etl", buffer=buffer) as producer:
        for end in (producer.abort, producer.commit):
            producer.begin()
            with pytest.raises(ValueError, match="is not a value of int64"):
                producer.send("t", [{"n": "no number"}])
            end()
            assert producer.status is ProducerStatus.READY
    assert read(log, "read_uncommitted") == []
