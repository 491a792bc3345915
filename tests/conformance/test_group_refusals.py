"""GroupCoordinatorTest, TxnOffsetCommitRequestTest, WriteTxnMarkersRequestTest: who may commit offsets in a
transaction, and when."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT
from tests.conformance.group_log import GROUP, RECORDS, GroupLog, part
from tests.integration.clients.failing import ENTRY, Plan, faulty
from txnformat.core.groups.operations import OffsetCommit
from txnformat.core.intents import GroupOffsets, OpenProducer, ProducerRef, Write
from txnformat.errors import (
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    StorageError,
)
from txnformat.persistent import replace
from txnformat.types import Outcome
from txnlog import Producer
from txnlog_testing.stores.faulty import Fault, FaultKind


@case(
    "OffsetMetadataManagerTest",
    "testConsumerGroupTransactionalOffsetCommit",
    "testStreamsGroupTransactionalOffsetCommit",
    "testGenericGroupTransactionalOffsetCommit",
)
@case(
    "GroupCoordinatorTest", "testTxnCommitOffsetWithKnownMemberId", "testTxnCommitOffsetWithLegalGeneration"
)
@case(
    "TxnOffsetCommitRequestTest",
    "testTxnOffsetCommitWithNewConsumerGroupProtocol",
    "testTxnOffsetCommitWithOldConsumerGroupProtocol",
)
@pytest.mark.parametrize("says_generation", [True, False])
def test_the_member_of_a_group_commits_in_a_transaction_and_whoever_says_no_generation_does(
    says_generation: bool,
) -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 1}))
    generation = log.join()
    wanted = log.commit({0: 100}, "etl", metadata="m", generation=generation if says_generation else None)
    log.do(wanted)
    assert (log.committed(), log.pending("etl")) == ({0: 1}, {0: 100})
    log.end("etl", COMMIT)
    assert log.committed() == {0: 100}
    assert log.group_state().committed[part(0)].metadata == "m"


@case(
    "OffsetMetadataManagerTest",
    "testConsumerGroupTransactionalOffsetCommitWithUnknownMemberId",
    "testStreamsGroupTransactionalOffsetCommitWithUnknownMemberId",
    "testGenericGroupTransactionalOffsetCommitWithUnknownMemberId",
    "testConsumerGroupTransactionalOffsetCommitWithStaleMemberEpoch",
    "testStreamsGroupTransactionalOffsetCommitWithStaleMemberEpoch",
    "testGenericGroupTransactionalOffsetCommitWithIllegalGenerationId",
)
@case(
    "GroupCoordinatorTest",
    "testTxnCommitOffsetWithFencedInstanceId",
    "testTxnCommitOffsetWithInvalidMemberId",
    "testTxnCommitOffsetWithIllegalGeneration",
)
@case(
    "TxnOffsetCommitRequestTest",
    "testTxnOffsetCommitWithNewConsumerGroupProtocol",
    "testTxnOffsetCommitWithOldConsumerGroupProtocol",
)
def test_a_generation_that_is_not_the_members_commits_nothing_in_a_transaction() -> None:
    """The generation is what a member is known by: older, newer, of nobody, and of one that left."""
    log = GroupLog("etl")
    older = log.join()
    newer = log.join()
    entries = len(log.entries)
    for generation in (older, newer + 1, 100):
        for end in (None, COMMIT):
            error = log.refusal(log.commit({0: 100}, "etl", generation=generation, end=end))
            assert isinstance(error, ConflictError)
            assert error.kind == "member-fenced"
    assert len(log.entries) == entries
    assert (log.committed(), log.pending("etl")) == ({}, {})
    log.do(log.commit({0: 100}, "etl", generation=newer), log.commit({0: 101}, "etl"))
    log.join()
    assert log.refusal(log.commit({0: 102}, "etl", generation=newer)).kind == "member-fenced"
    log.end("etl", COMMIT)
    assert log.committed() == {0: 101}, "what was pending when it was fenced is the transaction's"


@case(
    "OffsetMetadataManagerTest",
    "testTransactionalOffsetCommitWithUnknownGroupId",
    "testGenericGroupTransactionalOffsetCommitWithUnknownGroupId",
)
@case(
    "TxnOffsetCommitRequestTest",
    "testTxnOffsetCommitWithNewConsumerGroupProtocol",
    "testTxnOffsetCommitWithOldConsumerGroupProtocol",
)
def test_a_group_that_is_not_there_has_no_generation_and_begins_with_a_commit_that_says_none() -> None:
    log = GroupLog("etl")
    for generation in (1, 10):
        assert log.refusal(log.commit({0: 100}, "etl", generation=generation)).kind == "member-fenced"
    assert log.state.groups == {}
    log.do(log.commit({0: 100}, "etl"))
    assert list(log.state.groups) == [GROUP]


@case("OffsetMetadataManagerTest", "testConsumerGroupTransactionalOffsetCommitResolvesTopicId")
@case(
    "TxnOffsetCommitRequestTest",
    "testTxnOffsetCommitWithNewConsumerGroupProtocol",
    "testTxnOffsetCommitWithOldConsumerGroupProtocol",
)
def test_offsets_are_of_topic_ids_and_an_unknown_one_has_none() -> None:
    log = GroupLog("etl")
    generation = log.join()
    known = log.commit({0: 100}, "etl", generation=generation)
    (offsets,) = known.offsets
    unknown = replace(offsets.offsets[0], topic_id="00000000-0000-4000-8000-000000000000")
    error = log.refusal(replace(known, offsets=(replace(offsets, offsets=(unknown,)),)))
    assert isinstance(error, NotFoundError)
    assert error.kind == "topic-gone"
    assert isinstance(log.refusal(log.commit({3: 1}, "etl")), NotFoundError), "nor a partition"
    log.do(known)
    assert log.pending("etl") == {0: 100}


@case("GroupCoordinatorTest", "testVerificationErrorsForTxnOffsetCommits")
def test_offsets_join_the_open_transaction_of_a_known_identity_only() -> None:
    log = GroupLog("etl")
    producer = log.producer("etl")
    wanted = log.commit({0: 100, 1: 101}, "etl")
    for other, kind in (
        (ProducerRef(producer.producer_id, 0, "nobody"), "unknown-transactional-id"),
        (replace(producer, producer_id=producer.producer_id + 9), "unknown-transactional-id"),
        (replace(producer, epoch=1), "unknown-epoch"),
    ):
        assert log.refusal(replace(wanted, producer=other)).kind == kind
    log.do(log.commit({2: 1}, "etl"))
    log.end("etl", COMMIT)
    assert log.refusal(wanted).kind == "transaction-ended"
    assert log.committed() == {2: 1}
    assert log.pending("etl") == {}


@case(
    "TxnOffsetCommitRequestTest",
    "testDelayedTxnOffsetCommitWithBumpedEpochIsRejectedWithNewConsumerGroupProtocol",
    "testDelayedTxnOffsetCommitWithBumpedEpochIsRejectedWithOldConsumerGroupProtocol",
)
@pytest.mark.parametrize("bumped_by", ["commit", "abort", "init"])
def test_offsets_that_come_after_their_epoch_are_refused_also_in_the_next_transaction(bumped_by: str) -> None:
    log = GroupLog("etl")
    delayed = log.commit({0: 100}, "etl")
    log.do(log.commit({1: 1}, "etl"))
    if bumped_by == "init":
        log.do(OpenProducer("etl"))
    else:
        log.end("etl", Outcome(bumped_by))
    before = log.committed()
    kind = "producer-fenced" if bumped_by == "init" else "transaction-ended"
    assert log.refusal(delayed).kind == kind
    log.do(log.commit({2: 2}, "etl"))
    assert log.refusal(delayed).kind == kind
    log.end("etl", COMMIT)
    assert log.committed() == before | {2: 2}


@case(
    "WriteTxnMarkersRequestTest",
    "testDelayedWriteTxnMarkersShouldNotCommitTxnOffsetWithNewConsumerGroupProtocol",
    "testDelayedWriteTxnMarkersShouldNotCommitTxnOffsetWithOldConsumerGroupProtocol",
)
def test_an_end_that_comes_late_again_does_not_commit_the_offsets_of_the_next_transaction() -> None:
    log = GroupLog("etl")
    delayed = Write(log.producer("etl"), end=COMMIT)
    log.do(log.commit({0: 100}, "etl"), delayed)
    log.do(log.commit({0: 101}, "etl"))
    entry = log.done(delayed)
    assert entry < log.state.entry, "the original answer"
    assert (log.committed(), log.pending("etl")) == ({0: 100}, {0: 101})
    log.end("etl", ABORT)
    log.do(log.commit({0: 102}, "etl"))
    assert log.refusal(delayed).kind == "producer-fenced", "two epochs ago"
    assert (log.committed(), log.pending("etl")) == ({0: 100}, {0: 102})


@case("GroupCoordinatorTest", "testTxnOffsetMetadataTooLarge")
@case("GroupMetadataManagerTest", "testTransactionalCommitOffsetWithOffsetMetadataTooLargePartialFailure")
def test_metadata_that_is_too_large_refuses_the_commit_whole() -> None:
    """Kafka takes the other partitions; here a commit is one operation."""
    log = GroupLog("etl")
    fits = log.commit({0: 37}, "etl", metadata="s" * 4_096)
    (offsets,) = fits.offsets
    too_large = OffsetCommit(*offsets.offsets[0].key, 38, "s" * 4_097)
    both = GroupOffsets(GROUP, (*log.commit({1: 37}).offsets[0].offsets, too_large))
    error = log.refusal(replace(fits, offsets=(both,)))
    assert isinstance(error, InvalidInputError)
    assert "4096" in str(error)
    assert log.state.groups == {}
    log.do(fits)
    log.end("etl", COMMIT)
    log.check_reopening()
    assert log.group_state().committed[part(0)].metadata == "s" * 4_096


@case("GroupMetadataManagerTest", "testTransactionalCommitOffsetAppendFailure")
@case("GroupMetadataTest", "testFailedTxnOffsetCommitLeavesNoPendingState")
def test_a_commit_that_could_not_be_stored_leaves_nothing_pending() -> None:
    plan = Plan()
    log = faulty(plan)
    assert log.topics() == ["t"]
    producer = Producer(log, "etl", buffer="inline")
    producer.init()
    with Producer(log) as plain:
        plain.send("t", [{"n": 1}], partition=0)
    topic_id = log.refresh().topic_ids["t"]
    who = ProducerRef(producer.producer_id or 0, producer.epoch or 0, "etl")
    offsets = (GroupOffsets(GROUP, (OffsetCommit(topic_id, 0, 1),)),)
    plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
    with pytest.raises(StorageError):
        log.committer.commit(log.committer.intend(Write(who, offsets=offsets)))
    plan.clear()
    assert log.refresh().groups == {}
    assert log.state.transactional_ids["etl"].groups == frozenset()
    with pytest.raises(InvalidTransactionStateError):
        log.committer.commit(log.committer.intend(Write(who, end=COMMIT)))
    assert log.refresh().groups == {}
    log.committer.commit(log.committer.intend(Write(who, offsets=offsets)))
    log.committer.commit(log.committer.intend(Write(who, end=COMMIT)))
    assert log.refresh().groups[GROUP].commits == 1
    producer.close()


@case("ProducerStateManagerTest", "testSequenceNotValidatedForGroupMetadataTopic")
def test_offsets_have_no_sequences_and_leave_those_of_records_alone() -> None:
    log = GroupLog("etl")
    producer = log.producer("etl")
    for offset in (5, 3, 3):
        log.do(log.commit({0: offset}, "etl"))
    log.do(log.write(producer, 2, sequence=0))
    log.do(log.commit({0: 9}, "etl"))
    log.do(log.write(producer, 2, sequence=2))
    log.end("etl", COMMIT)
    assert log.committed() == {0: 9}
    assert log.partition().log_end == RECORDS + 5
    assert [log.partition(number).log_end for number in (1, 2)] == [RECORDS] * 2, "no marker for offsets"
