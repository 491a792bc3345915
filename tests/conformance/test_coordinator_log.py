"""The coordinator's log: what a state that is loaded again knows, and what failing and late writes do
to it.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, COMMIT, NAME, CoreLog, orders
from tests.integration.clients.failing import BUFFERS, ENTRY, Plan, faulty, read, rows, unclear_commit
from txnformat import keys
from txnformat.core.entry import decode_entry
from txnformat.core.fold import apply
from txnformat.core.intents import AllocateIds, Write
from txnformat.core.operations import EndTxn
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import UnsupportedFeatureError
from txnformat.log import TxnLog
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import Outcome, TopicPartition
from txnlog import (
    CommitStateUnknownError,
    CorruptDataError,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
)
from txnlog_testing.entries import replaced_in_entry
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, Gate
from txnlog_testing.strategies import make_append, make_topic


def _busy() -> CoreLog:
    """Return a log with ids in every state, and with entries in between that concern no transaction."""
    log = CoreLog()
    for name in ("committed", "aborted", "open", "twice", NAME):
        log.append(log.open(name), 0, 1)
    log.apply(AllocateIds("somebody", 10))
    log.finish(log.producer("committed"), COMMIT)
    log.finish(log.producer("aborted"), ABORT)
    log.open("twice")
    log.apply(AllocateIds("somebody", 10))
    log.append(log.producer("committed"), 2)
    log.finish(log.producer("committed"), ABORT)
    log.append(log.producer("open"), 2)
    return log


@case(
    "TransactionStateManagerTest",
    "testLoadAndRemoveTransactionsForPartition",
    "testLoadTransactionMetadataContainingSegmentEndingWithEmptyBatch",
)
@case("TransactionMarkerChannelManagerTest", "shouldNotLoseTxnCompletionAfterLoad")
def test_who_loads_the_log_from_any_snapshot_knows_every_id_as_it_is() -> None:
    """States, epochs, partitions, starts and last ends: also the one that Kafka forgets (the last epoch)."""
    log = _busy()
    log.check_reopening()
    ids = log.state.transactional_ids
    for entry in range(len(log.entries)):
        loaded = log.reopened(entry)
        assert loaded.transactional_ids == ids
        assert loaded.next_producer_id == log.state.next_producer_id
    ended = {name: known.last_end and known.last_end.epoch for name, known in ids.items()}
    assert ended == {"committed": 1, "aborted": 0, "open": None, "twice": 0, NAME: None}


@case(
    "TransactionStateManagerTest",
    "shouldWriteTxnMarkersForTransactionInPreparedCommitState",
    "shouldWriteTxnMarkersForTransactionInPreparedAbortState",
)
@pytest.mark.parametrize("outcome", Outcome)
def test_whoever_loads_finds_a_transaction_open_or_ended_in_all_partitions(outcome: Outcome) -> None:
    """Kafka's coordinator has to write the missing markers after it loads; at no entry is one missing
    here.
    """
    log = CoreLog()
    producer = log.open()
    log.append(producer, 0, 1, 2)
    ended = log.finish(producer, outcome)
    for entry in range(ended + 1):
        loaded = log.folded(entry)
        open_in = [number for number in range(3) if loaded.partition(orders(number)).open]
        known = loaded.transactional_ids.get(NAME)
        is_open = known is not None and known.status is TransactionStatus.ONGOING
        assert open_in == ([0, 1, 2] if is_open else [])
    assert not any(log.state.partition(orders(number)).open for number in range(3))


@case("TransactionStateManagerTest", "testIgnoreUnknownRecordType")
def test_an_operation_that_this_version_does_not_know_stops_the_loading() -> None:
    """Kafka passes over records of the future; a state that has left something out would decide wrongly."""
    log = CoreLog()
    log.open()
    data = log.entries[-1]
    entry = decode_entry(data, log.state.entry)
    assert apply(log.states[-2], entry, "0" * 64).transactional_ids
    for future in (b"retire_producer", b"coordinate"):
        with pytest.raises(UnsupportedFeatureError):
            decode_entry(replaced_in_entry(data, b"init_producer", future), log.state.entry)


@case("TransactionStateManagerTest", "testLoadTransactionMetadataWithCorruptedLog")
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "changed"])
def test_a_damaged_log_is_never_loaded_as_a_shorter_one(tmp_path: Path, damage: str) -> None:
    """Kafka logs a warning, and goes on with the state that it got so far: ids and open transactions are
    forgotten."""
    path = tmp_path / "log"
    with TxnLog.create(str(path)) as log:
        log.create_topic("t", rows(1).schema)
        for _ in range(4):
            with Producer(log, NAME, buffer="inline") as producer, producer.transaction() as txn:
                txn.send("t", rows(1))
    shutil.rmtree(path / "_txnlog" / "snapshots", ignore_errors=True)
    victim = path / keys.entry_key(5)
    data = victim.read_bytes()
    victim.chmod(0o644)
    match damage:
        case "missing":
            victim.unlink()
        case "empty":
            victim.write_bytes(b"")
        case "cut":
            victim.write_bytes(data[:-9])
        case _:
            victim.write_bytes(
                data.replace(b'"epoch":2', b'"epoch":9') if b'"epoch":2' in data else data[::-1]
            )
    with pytest.raises(CorruptDataError):
        TxnLog.open(str(path)).refresh()


REFUSED = (FaultKind.DISK_FULL, FaultKind.READ_ONLY, FaultKind.PERMISSION_DENIED)


@case(
    "TransactionStateManagerTest",
    "testAppendFailToCoordinatorNotAvailableError",
    "testAppendFailToUnknownError",
)
@BUFFERS
@pytest.mark.parametrize("kind", REFUSED)
def test_an_end_that_the_store_refuses_has_not_happened_and_can_be_repeated(
    buffer: str, kind: FaultKind
) -> None:
    """The error is the store's; id, epoch and data stay as they are; the same call succeeds when the store
    does."""
    plan = Plan()
    log = faulty(plan)
    with Producer(log, NAME, buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        before = log.refresh().transactional_ids[NAME]
        plan.always(*ENTRY, Fault(kind))
        for _ in range(3):
            with pytest.raises(StorageError) as caught:
                producer.commit()
            assert not caught.value.transient
            assert producer.status is ProducerStatus.IN_TRANSACTION
            assert log.refresh().transactional_ids[NAME] == before
        plan.clear()
        producer.commit()
    assert read(log) == [1]
    assert log.refresh().transactional_ids[NAME].epoch == before.epoch + 1


@case(
    "TransactionMarkerRequestCompletionHandlerTest",
    "shouldReEnqueuePartitionsWhenBrokerDisconnected",
    "shouldRetryPartitionWhenUnknownTopicOrPartitionError",
    "shouldRetryPartitionWhenNotEnoughReplicasError",
    "shouldRetryPartitionWhenNotEnoughReplicasAfterAppendError",
    "shouldRetryPartitionWhenKafkaStorageError",
)
@case("TransactionMarkerChannelManagerTest", "shouldRetryAppendToLogOnEndTxnWhenCoordinatorNotAvailableError")
@case("TransactionMarkerChannelManagerTest", "shouldOnlyWriteTxnCompletionOnce")
@BUFFERS
@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize(
    "fault",
    [
        Fault(FaultKind.FAIL_BEFORE),
        Fault(FaultKind.APPLIED_LOST_ANSWER),
        Fault(FaultKind.EXISTS_AFTER_OWN_SUCCESS),
        Fault(FaultKind.CONFLICT_409),
        Fault(FaultKind.SERVER_ERROR),
        Fault(FaultKind.SERVER_ERROR, applied=True),
        Fault(FaultKind.SERVER_ERROR, status=500),
        Fault(FaultKind.APPLIED_LATE, late_by=1),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.applied}-{fault.status}",
)
def test_an_end_that_the_store_may_not_have_got_is_repeated_until_it_is_there_once(
    buffer: str, outcome: Outcome, fault: Fault
) -> None:
    """Within the one call, three times over: the caller sees an end, the log has one."""
    plan = Plan()
    log = faulty(plan)
    with Producer(log, NAME, buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        plan.next(*ENTRY, fault, fault, fault)
        producer.commit() if outcome is COMMIT else producer.abort()
        plan.clear()
        assert producer.epoch == (0 if buffer == "auto" and outcome is ABORT else 1)
    assert read(log) == ([1] if outcome is COMMIT else [])
    assert len(_ends(log)) == producer.epoch


def _ends(log: TxnLog) -> list[EndTxn]:
    """Return the ends in the log, from its bytes."""
    found: list[EndTxn] = []
    for number in range(log.refresh().entry + 1):
        data = log.store.get(keys.entry_key(number))
        assert data is not None
        found += [op for op in decode_entry(data, number).operations if isinstance(op, EndTxn)]
    return found


@case("TransactionStateManagerTest", "testPendingStateNotResetOnRetryAppend")
@BUFFERS
def test_an_end_that_is_not_settled_stays_pending_until_it_is(buffer: str) -> None:
    """However often the call is repeated in vain: nothing else becomes possible, and the identity stays."""
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, NAME, buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    for _ in range(3):
        with pytest.raises((CommitStateUnknownError, StorageError)):
            producer.commit()
        assert producer.status is ProducerStatus.UNKNOWN_OUTCOME
        assert producer.epoch == 0
    plan.clear()
    producer.commit()
    assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
    assert len(_ends(log)) == 1
    producer.close()


@case(
    "TransactionStateManagerTest",
    "testAppendTransactionToLogWhileProducerFenced",
    "testAppendTransactionToLogWhilePendingStateChanged",
)
@case(
    "TransactionMarkerRequestCompletionHandlerTest",
    "shouldCompleteDelayedOperationWhenCoordinatorEpochChanged",
    "shouldCompleteDelayedOperationWhenInvalidProducerEpoch",
    "shouldCompleteDelayedOperationWhenCoordinatorEpochFenced",
)
@BUFFERS
def test_an_end_that_was_decided_before_a_fence_is_decided_again_after_it(buffer: str) -> None:
    """The commit is on its way when another instance opens: its slot is lost, the transaction belongs to the
    newer."""
    memory = MemoryStore()
    with TxnLog.create(memory) as made:
        made.create_topic("t", rows(1).schema)
    with TxnLog.open(memory) as other:
        gate = Gate()
        old = Producer(other, NAME, buffer=buffer)
        old.init()
        old.begin()
        old.send("t", rows(1))
        old.flush()
        held = TxnLog.open(FaultyStore(memory, before_create=gate))
        intent = held.committer.intend(Write(old._session.at.ref, end=COMMIT))
        errors: list[BaseException] = []

        def commit() -> None:
            try:
                held.committer.commit(intent)
            except ProducerFencedError as error:
                errors.append(error)

        thread = threading.Thread(target=commit, daemon=True)
        if buffer != "auto":
            thread.start()
            gate.wait_until_held()
        with Producer(other, NAME) as newer:
            gate.open()
            if buffer == "auto":
                thread.start()
            thread.join(300)
            assert [type(error) for error in errors] == [ProducerFencedError]
            assert newer.epoch == 1
        assert read(other) == []
        assert _ends(other) == []
        held.close()


@case("TransactionMarkerChannelManagerTest", "shouldGenerateRequestPerPartitionPerBroker")
@case("TransactionMarkerChannelManagerTest", "shouldCompleteAppendToLogOnEndTxnWhenSendMarkersSucceed")
@case("TransactionMarkerRequestCompletionHandlerTest", "shouldCompleteDelayedOperationWhenNoErrors")
@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_over_many_partitions_is_one_request(outcome: Outcome) -> None:
    """No fan-out: one create, whatever the number of partitions, and the transaction is complete with its
    answer."""
    counting = CountingStore(MemoryStore())
    with TxnLog.create(counting) as log:
        log.create_topic("t", rows(1).schema, partitions=100)
        with Producer(log, NAME, buffer="inline") as producer:
            producer.begin()
            for partition in range(100):
                producer.send("t", rows(partition), partition=partition)
            producer.flush()
            with counting.measure() as measured:
                producer.commit() if outcome is COMMIT else producer.abort()
            assert measured.counts.requests == {(RequestKind.CREATE, KeyClass.ENTRY): 1}
        known = log.refresh().transactional_ids[NAME]
        assert known.status is not TransactionStatus.ONGOING
        assert sum(offsets.last_stable_offset for offsets in log.offsets("t")) == 200


@case(
    "TransactionMarkerRequestCompletionHandlerTest",
    "shouldThrowIllegalStateExceptionWhenMessageTooLargeError",
    "shouldThrowIllegalStateExceptionWhenRecordListTooLargeError",
    "shouldThrowIllegalStateExceptionWhenCorruptMessageError",
    "shouldThrowIllegalStateExceptionWhenUnknownError",
)
def test_a_transaction_over_all_partitions_that_a_topic_can_have_can_be_ended() -> None:
    """Where a marker cannot be written, Kafka's coordinator is stuck with it for ever; an entry holds 10,000
    of them."""
    log = CoreLog()
    producer = log.open()
    topic = make_topic("wide", partitions=10_000)
    log.do(topic, Write(producer, (make_append(topic, dict.fromkeys(range(10_000), (0, 1)), content="x"),)))
    assert len(log.id().partitions) == 10_000
    log.do(Write(producer, end=COMMIT))
    assert len(log.entries[-1]) < 2**20, "far below the 8 MiB that an entry may have"
    assert (log.id().partitions, log.id().epoch) == ({}, 1)
    last = log.state.partition(TopicPartition(topic.topic_id, 9_999))
    assert (last.open, last.last_stable_offset, last.log_end) == ({}, 2, 2)
