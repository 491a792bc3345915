"""TransactionManagerTest and librdkafka's: what a producer that takes consumed offsets along does when that
fails."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import BUFFERS, ENTRY, Plan, faulty, read, rows
from txnformat.core.groups.operations import OffsetCommit
from txnformat.core.intents import GroupOffsets, JoinAsMember, Write
from txnformat.types import TopicPartition
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    GroupMetadata,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetAndMetadata,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind

READ = ("t", 0)
ENDS = pytest.mark.parametrize("flushes", [False, True], ids=["with the commit", "flushed before"])


def made() -> tuple[Plan, TxnLog]:
    """Return a log with ten records in ``t``, of which some may be consumed."""
    plan = Plan()
    log = faulty(plan)
    with Producer(log) as producer:
        producer.send("t", rows(*range(100, 110)))
    return plan, log


def opened(log: TxnLog, buffer: str = "auto", **settings: int) -> Producer:
    """Return a producer with an open transaction that has a record."""
    producer = Producer(log, "etl", buffer=buffer, **settings)  # type: ignore[arg-type]
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    return producer


def committed(log: TxnLog, group: str = "g") -> int | None:
    """Return the offset that is in force; None when there is none."""
    state = log.refresh()
    found = state.groups[group].committed if group in state.groups else {}
    return next((int(one.value) for key, one in found.items() if isinstance(key, TopicPartition)), None)


def new(log: TxnLog) -> list[int]:
    """Return what was written besides the records that are consumed."""
    return [number for number in read(log) if number < 100]


def next_commits(log: TxnLog, producer: Producer) -> None:
    """The producer goes on with another transaction, and its offsets come with that."""
    with producer.transaction() as txn:
        txn.send("t", rows(2))
        txn.send_offsets("g", {READ: 7})
    assert (new(log), committed(log)) == ([2], 7)
    producer.close()


@case("TransactionManagerTest", "testTransactionV2AddPartitionAndOffsets", "testSendOffsetsWithGroupMetadata")
@case("ProducerIntegrationTest", "testTransactionWithSendOffset")
@BUFFERS
def test_partitions_and_offsets_join_without_a_request_of_their_own(buffer: str) -> None:
    plan, log = made()
    log.committer.commit(log.committer.intend(JoinAsMember("g", "m", 45_000)))
    producer = opened(log, buffer)
    seen = plan.seen[ENTRY]
    producer.send_offsets(GroupMetadata("g", 1), {READ: OffsetAndMetadata(5, "note")})
    assert plan.seen[ENTRY] == seen
    producer.commit()
    assert plan.seen[ENTRY] == seen + 1, "records, offsets and the end are one entry"
    assert (new(log), committed(log)) == ([1], 5)
    (found,) = log.state.groups["g"].committed.values()
    assert found.metadata == "note"
    producer.close()


@case(
    "TransactionManagerTest",
    "testFencedInstanceIdInTxnOffsetCommitByGroupMetadata",
    "testUnknownMemberIdInTxnOffsetCommitByGroupMetadata",
    "testIllegalGenerationInTxnOffsetCommitByGroupMetadata",
    "testGroupMetadataMismatchErrorInTxnOffsetCommit",
    "testTransactionAbortableExceptionInTxnOffsetCommit",
)
@BUFFERS
@ENDS
def test_a_generation_that_is_over_leaves_a_transaction_that_is_to_be_aborted(
    buffer: str, flushes: bool
) -> None:
    _, log = made()
    join = JoinAsMember("g", "m", 45_000)
    log.committer.commit(log.committer.intend(join))
    producer = opened(log, buffer)
    with pytest.raises(ConflictError) as caught:
        producer.send_offsets(GroupMetadata("g", 2), {READ: 5})
    assert caught.value.kind == "member-fenced"
    producer.send_offsets(GroupMetadata("g", 1), {READ: 5})
    log.committer.commit(log.committer.intend(join))
    call = (
        producer.flush if flushes and buffer != "auto" else producer.commit
    )  # auto's entry comes with the commit
    with pytest.raises(ConflictError) as caught:
        call()
    assert (caught.value.kind, producer.status) == ("member-fenced", ProducerStatus.ABORT_REQUIRED)
    with pytest.raises(InvalidTransactionStateError):
        producer.commit()
    producer.abort()
    assert (new(log), committed(log)) == ([], None)
    next_commits(log, producer)


@case(
    "TransactionManagerTest",
    "testTransactionAbortableExceptionInAddOffsetsToTxn",
    "testBumpTransactionalEpochOnRecoverableAddOffsetsRequestError",
)
@BUFFERS
def test_offsets_that_somebody_else_has_moved_abort_the_transaction_and_the_next_one_goes_on(
    buffer: str,
) -> None:
    _, log = made()
    producer = opened(log, buffer)
    producer.flush()
    epoch = producer.epoch
    producer.send_offsets("g", {READ: 5}, expected={READ: None})
    offsets = (OffsetCommit(log.state.topic_ids["t"], 0, 3),)
    log.committer.commit(log.committer.intend(Write(offsets=(GroupOffsets("g", offsets),))))
    with pytest.raises(ConflictError) as caught:
        producer.commit()
    assert caught.value.kind == "offsets-changed"
    producer.abort()
    # What the log had of the transaction is ended there, which bumps the epoch; what it never had is dropped.
    assert producer.epoch == (epoch if buffer == "auto" else (epoch or 0) + 1)
    assert (new(log), committed(log)) == ([], 3)
    next_commits(log, producer)


@case(
    "TransactionManagerTest",
    "testGroupAuthorizationFailureInTxnOffsetCommit",
    "testTransactionalIdAuthorizationFailureInAddOffsetsToTxn",
    "testTransactionalIdAuthorizationFailureInTxnOffsetCommit",
    "testHandlingOfTransactionalIdAuthorizationFailedErrorOnTxnOffsetCommit",
    "shouldNotSendAbortTxnRequestWhenOnlyAddOffsetsRequestFailed",
)
@case("librdkafka-0105-transactions_mock", "do_test_txn_requires_abort_errors")
@BUFFERS
def test_offsets_without_the_right_to_write_are_not_committed_and_an_abort_of_them_costs_nothing(
    buffer: str,
) -> None:
    plan, log = made()
    producer = Producer(log, "etl", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send_offsets("g", {READ: 5})
    plan.always(*ENTRY, Fault(FaultKind.PERMISSION_DENIED))
    with pytest.raises(StorageError) as caught:
        producer.commit()
    assert caught.value.kind == "permission-denied"
    seen = sum(plan.seen.values())
    producer.abort()
    assert sum(plan.seen.values()) == seen, "the log has nothing of it, and could not be written"
    plan.clear()
    assert (log.refresh().groups, producer.epoch) == ({}, 0)
    next_commits(log, producer)


@case(
    "TransactionManagerTest",
    "testProducerFencedInAddOffSetsToTxn",
    "testInvalidProducerEpochConvertToProducerFencedInAddOffSetsToTxn",
    "testHandlingOfProducerFencedErrorOnTxnOffsetCommit",
    "testHandlingOfInvalidProducerEpochErrorOnTxnOffsetCommit",
    "shouldFailAbortIfAddOffsetsFailsWithFatalError",
)
@BUFFERS
@ENDS
def test_offsets_of_a_fenced_producer_are_not_committed_and_nothing_helps_it(
    buffer: str, flushes: bool
) -> None:
    _, log = made()
    old = opened(log, buffer)
    old.send_offsets("g", {READ: 5})
    if flushes:
        old.flush()
    newer = Producer(log, "etl", buffer=buffer)
    newer.init()
    with pytest.raises(ProducerFencedError):
        old.commit()
    assert old.status is ProducerStatus.FENCED
    for call in (old.abort, lambda: old.send_offsets("g", {READ: 6})):
        with pytest.raises(ProducerFencedError):
            call()
    assert (new(log), committed(log)) == ([], None)
    next_commits(log, newer)


@case("TransactionManagerTest", "testInvalidTxnStateFailureInAddOffsetsToTxn")
@BUFFERS
def test_offsets_are_for_an_open_transaction_only(buffer: str) -> None:
    _, log = made()
    producer = Producer(log, "etl", buffer=buffer)
    with pytest.raises(InvalidTransactionStateError):
        producer.send_offsets("g", {READ: 5})
    producer.init()
    with pytest.raises(InvalidTransactionStateError):
        producer.send_offsets("g", {READ: 5})
    producer.begin()
    producer.send("t", rows(1))
    producer.prepare()
    with pytest.raises(InvalidTransactionStateError):
        producer.send_offsets("g", {READ: 5})
    producer.abort()
    assert committed(log) is None
    next_commits(log, producer)


@case("TransactionManagerTest", "testHandlingOfUnknownTopicPartitionErrorOnTxnOffsetCommit")
@BUFFERS
def test_offsets_of_a_topic_that_is_not_there_are_refused_and_the_transaction_goes_on(buffer: str) -> None:
    """Kafka's client asks again until the topic appears. Topics are folded: one that is not there was never
    made."""
    _, log = made()
    producer = opened(log, buffer)
    for unknown in ({("nowhere", 0): 1}, {("t", 5): 1}, {READ: 1, ("nowhere", 0): 1}):
        with pytest.raises(NotFoundError):
            producer.send_offsets("g", unknown)
    producer.send_offsets("g", {READ: 5})
    producer.commit()
    assert (new(log), committed(log)) == ([1], 5)
    producer.close()


@case(
    "TransactionManagerTest",
    "testHandlingOfCoordinatorLoadingErrorOnTxnOffsetCommit",
    "testHandlingOfNetworkExceptionOnTxnOffsetCommit",
)
@case(
    "librdkafka-0105-transactions_mock",
    "do_test_txn_recoverable_errors",
    "do_test_txn_req_cnt",
    "do_test_txns_send_offsets_concurrent_is_retried",
    "do_test_disconnected_group_coord (down)",
    "do_test_txn_offset_commit_doesnt_retry_too_quickly (succeeds)",
)
@BUFFERS
@pytest.mark.parametrize("ends", ["commit", "abort"])
@pytest.mark.parametrize(
    "kind",
    [FaultKind.FAIL_BEFORE, FaultKind.SERVER_ERROR, FaultKind.CONFLICT_409, FaultKind.APPLIED_LOST_ANSWER],
    ids=str,
)
def test_offsets_are_committed_once_through_a_store_that_fails_for_a_while(
    kind: FaultKind, ends: str, buffer: str
) -> None:
    plan, log = made()
    producer = opened(log, buffer)
    producer.send_offsets("g", {READ: 5})
    before = log.committer.clock.now().wall_ms
    plan.next(*ENTRY, Fault(kind), Fault(kind), Fault(kind))
    if ends == "commit":
        producer.commit()
        assert (new(log), committed(log)) == ([1], 5)
        assert log.state.groups["g"].commits == 1
        if kind is not FaultKind.APPLIED_LOST_ANSWER:
            assert log.committer.clock.now().wall_ms > before, "it waits between the attempts"
    else:
        producer.flush()
        producer.abort()
        assert (new(log), committed(log)) == ([], None)
    producer.close()


@case("librdkafka-0105-transactions_mock", "do_test_txn_offset_commit_doesnt_retry_too_quickly (times out)")
@BUFFERS
def test_a_commit_with_offsets_that_the_store_never_answers_is_unknown_and_bounded(buffer: str) -> None:
    plan, log = made()
    producer = opened(log, buffer)
    producer.send_offsets("g", {READ: 5})
    seen = plan.seen[ENTRY]
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    with pytest.raises(CommitStateUnknownError):
        producer.commit()
    assert 1 < plan.seen[ENTRY] - seen < 100, "with waits between them, until the deadline"
    plan.clear()
    producer.commit()
    assert (new(log), committed(log)) == ([1], 5)
    producer.close()


@case("librdkafka-0105-transactions_mock", "do_test_txns_send_offsets_non_eligible")
@BUFFERS
def test_no_offsets_at_all_are_a_mistake_that_leaves_the_transaction_as_it_was(buffer: str) -> None:
    _, log = made()
    producer = opened(log, buffer)
    for _ in range(2):
        with pytest.raises(InvalidInputError):
            producer.send_offsets("g", {})
    producer.commit()
    assert (new(log), log.refresh().groups) == ([1], {})
    producer.close()


@case(
    "librdkafka-0103-transactions",
    "do_test_empty_txn (send offsets, commit)",
    "do_test_empty_txn (send offsets, abort)",
)
@BUFFERS
@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_transaction_of_nothing_but_offsets(ends: str, buffer: str) -> None:
    _, log = made()
    end = log.offsets("t")[0].log_end
    producer = Producer(log, "etl", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send_offsets("g", {READ: 5})
    (producer.commit if ends == "commit" else producer.abort)()
    assert committed(log) == (5 if ends == "commit" else None)
    assert log.offsets("t")[0].log_end == end, "a marker only where records are"
    next_commits(log, producer)
