"""OffsetMetadataManagerTest, GroupMetadataTest, GroupMetadataManagerTest, GroupCoordinatorTest: offsets in
transactions.

Kafka keeps the offsets of a group in a partition of a topic, with markers, a coordinator that loads it, and
requests that fail between two steps. Here a commit is an operation of an entry; what a coordinator "loads" is
what anybody folds.
"""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT
from tests.conformance.group_log import GROUP, GroupLog, part
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.groups.operations import DeleteGroup
from txnformat.core.intents import RemoveGroup, Write
from txnformat.core.lifecycle.idle import GROUP_RETENTION_MS, expirable
from txnformat.errors import (
    ConflictError,
    CorruptDataError,
)
from txnformat.persistent import replace
from txnformat.types import Outcome

# --- pending until the end ----------------------------------------------------------------------------------


@case("OffsetMetadataManagerTest", "testTransactionalReplay", "testReplayTransactionEndMarkerWithCommit")
@case(
    "GroupMetadataManagerTest",
    "testTransactionalCommitOffsetCommitted",
    "testTransactionalCommitOffsetAborted",
)
@case("GroupMetadataTest", "testHasPendingTxnOffsets")
@case("GroupCoordinatorTest", "testBasicFetchTxnOffsets", "testFetchTxnOffsetsWithAbort")
@pytest.mark.parametrize("outcome", list(Outcome), ids=str)
def test_offsets_in_a_transaction_are_in_force_with_its_commit_and_forgotten_with_its_abort(
    outcome: Outcome,
) -> None:
    log = GroupLog("a", "b")
    log.do(log.commit({0: 100, 1: 101}, "a", metadata="small"), log.commit({2: 102}, "b"))
    log.do(log.commit({0: 7}, "a", group="others"))
    assert (log.pending("a"), log.pending("b")) == ({0: 100, 1: 101}, {2: 102})
    assert log.pending("a", "others") == {0: 7}
    assert log.committed() == log.committed("others") == {}
    assert not any(log.settled(number) for number in range(3))
    log.check_reopening()
    log.end("a", outcome)
    assert log.pending("a") == log.pending("a", "others") == {}
    assert log.pending("b") == {2: 102}
    commits = outcome is COMMIT
    assert log.committed() == ({0: 100, 1: 101} if commits else {})
    assert log.committed("others") == ({0: 7} if commits else {})
    assert [log.settled(number) for number in range(3)] == [True, True, False]
    if commits:
        assert log.group_state().committed[part(0)].metadata == "small"
    log.check_reopening()


@case("GroupCoordinatorTest", "testFetchPendingTxnOffsetsWithAbort", "testFetchPendingTxnOffsetsWithCommit")
@case("OffsetMetadataManagerTest", "testFetchOffsetsWithPendingTransactionalOffsets")
@case("OffsetMetadataManagerTest", "testFetchAllOffsetsWithPendingTransactionalOffsets")
@pytest.mark.parametrize("outcome", list(Outcome), ids=str)
def test_a_stable_read_has_no_answer_while_something_is_pending_and_another_sees_what_was_there(
    outcome: Outcome,
) -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 100, 1: 110}))
    log.do(log.commit({1: 111, 2: 211}, "etl"))
    assert [log.settled(number) for number in range(3)] == [True, False, False], "2 had no offset before"
    assert log.committed() == {0: 100, 1: 110}
    # A consumer that asks for a stable read is refused for as long.
    for number, expected in ((1, 110), (2, -1)):
        error = log.refusal(log.commit({number: 500}, expected=expected))
        assert isinstance(error, ConflictError)
        assert error.kind == "offsets-pending"
    log.do(log.commit({0: 105}, expected=100))
    log.end("etl", outcome)
    assert all(log.settled(number) for number in range(3))
    assert log.committed() == ({0: 105, 1: 111, 2: 211} if outcome is COMMIT else {0: 105, 1: 110})


@case("GroupCoordinatorTest", "testFetchTxnOffsetsIgnoreSpuriousCommit")
def test_a_commit_after_the_abort_brings_nothing_back() -> None:
    log = GroupLog("etl")
    producer = log.producer("etl")
    log.do(log.commit({0: 100}, "etl"))
    log.end("etl", ABORT)
    for spurious in (Write(producer, end=COMMIT), Write(log.producer("etl"), end=COMMIT)):
        assert log.refusal(spurious).kind in ("transaction-aborted", "no-transaction")
        assert log.committed() == {}
    log.do(log.commit({1: 5}, "etl"))
    assert log.refusal(Write(producer, end=COMMIT)).kind == "transaction-aborted"
    assert log.committed() == {}, "it does not commit the next transaction either"
    log.end("etl", COMMIT)
    assert log.committed() == {1: 5}


@case("GroupCoordinatorTest", "testFetchTxnOffsetsOneProducerMultipleGroups")
def test_one_transaction_with_offsets_of_several_groups_ends_for_all_of_them_at_once() -> None:
    """In Kafka a marker for each group's partition; one may be there before the other."""
    log = GroupLog("etl")
    log.do(log.commit({0: 10}, "etl", group="first"), log.commit({0: 20, 1: 21}, "etl", group="second"))
    assert (log.committed("first"), log.committed("second")) == ({}, {})
    log.end("etl", COMMIT)
    assert (log.committed("first"), log.committed("second")) == ({0: 10}, {0: 20, 1: 21})
    first, second = (log.group_state(name).committed[part(0)].entry for name in ("first", "second"))
    assert first == second == log.state.entry


@case("GroupCoordinatorTest", "testFetchTxnOffsetsMultipleProducersOneGroup")
@case("GroupMetadataManagerTest", "testLoadTransactionalOffsetCommitsFromMultipleProducers")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_transactions_of_several_producers_in_one_group_end_one_by_one(order: str) -> None:
    log = GroupLog("a", "b")
    offsets = {"a": {0: 23, 1: 455}, "b": {2: 899}}
    for name, committed in offsets.items():
        log.do(log.commit(committed, name))
    log.end(order[0], COMMIT)
    assert log.committed() == offsets[order[0]]
    assert log.pending(order[1]) == offsets[order[1]]
    log.end(order[1], COMMIT)
    assert log.committed() == {0: 23, 1: 455, 2: 899}
    log.check_reopening()


@case("OffsetMetadataManagerTest", "testOffsetCommitsNumberMetricWithTransactionalOffsets")
def test_three_transactions_over_two_partitions_leave_two_offsets() -> None:
    log = GroupLog("4", "5", "6")
    log.do(log.commit({0: 100}, "4"), log.commit({0: 101}, "5"), log.commit({1: 200}, "6"))
    for name in ("4", "5", "6"):
        log.end(name, COMMIT)
    assert log.committed() == {0: 101, 1: 200}
    assert log.group_state().commits == 3


# --- the last by log position -------------------------------------------------------------------------------


@case("OffsetMetadataManagerTest", "testReplayTransactionEndMarkerKeepsTheMostRecentCommittedOffset")
@case("GroupMetadataTest", "testConsumerBeatsTransactionalOffsetCommit")
@case("GroupMetadataManagerTest", "testGroupLoadWithConsumerAndTransactionalOffsetCommitsConsumerWins")
def test_a_commit_that_stands_behind_a_transactions_stays_in_force_when_that_ends_later() -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 37, 1: 5}, "etl"))
    log.do(log.commit({0: 57}))
    assert (log.committed(), log.pending("etl")) == ({0: 57}, {0: 37, 1: 5})
    log.end("etl", COMMIT)
    assert log.committed() == {0: 57, 1: 5}, "by partition"
    assert log.pending("etl") == {}
    log.check_reopening()


@case("GroupMetadataTest", "testTransactionBeatsConsumerOffsetCommit")
@case("GroupMetadataManagerTest", "testGroupLoadWithConsumerAndTransactionalOffsetCommitsTransactionWins")
def test_a_transactions_commit_that_stands_behind_another_is_in_force_when_it_ends() -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 57}))
    log.do(log.commit({0: 37}, "etl"))
    assert (log.committed(), log.pending("etl")) == ({0: 57}, {0: 37})
    log.end("etl", COMMIT)
    assert log.committed() == {0: 37}, "the smaller offset, and the later commit"
    log.check_reopening()


@case("GroupMetadataTest", "testTransactionalCommitIsAbortedAndConsumerCommitWins")
@pytest.mark.parametrize("first", ["consumer", "transaction"])
def test_an_abort_leaves_the_commit_beside_it_in_force(first: str) -> None:
    log = GroupLog("etl")
    commits = [log.commit({0: 57}), log.commit({0: 37}, "etl")]
    log.do(*(commits if first == "consumer" else commits[::-1]))
    assert log.committed() == {0: 57}
    log.end("etl", ABORT)
    assert (log.committed(), log.pending("etl")) == ({0: 57}, {})


@pytest.mark.parametrize("order", ["ab", "ba"])
@case("OffsetMetadataManagerTest", "testReplayTransactionEndMarkerKeepsTheMostRecentCommittedOffset")
def test_of_two_transactions_the_one_whose_commit_stands_later_wins_whichever_ends_first(order: str) -> None:
    log = GroupLog("a", "b")
    log.do(log.commit({0: 10}, "a"), log.commit({0: 20}, "b"))
    for name in order:
        log.end(name, COMMIT)
    assert log.committed() == {0: 20}


# --- loading ------------------------------------------------------------------------------------------------


def loaded(log: GroupLog) -> GroupLog:
    """Return the log after checking that whoever opens it, from any snapshot or from entry 0, knows the
    same.
    """
    log.check_reopening()
    return log


@case("GroupMetadataManagerTest", "testLoadTransactionalOffsetsWithoutGroup")
def test_a_group_that_nobody_ever_joined_has_offsets_of_transactions() -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 23, 1: 455}, "etl", end=COMMIT))
    found = loaded(log).group_state()
    assert (found.member, found.generation) == (None, 0)
    assert log.committed() == {0: 23, 1: 455}


@case("GroupMetadataManagerTest", "testDoNotLoadAbortedTransactionalOffsetCommits")
def test_offsets_of_an_aborted_transaction_are_not_loaded() -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 23, 1: 455}, "etl"))
    log.end("etl", ABORT)
    assert loaded(log).committed() == log.pending("etl") == {}


@case("GroupMetadataManagerTest", "testGroupLoadedWithPendingCommits")
def test_offsets_that_are_pending_are_loaded_as_such() -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 23, 1: 455, 2: 899}, "etl"))
    assert loaded(log).committed() == {}
    assert log.pending("etl") == {0: 23, 1: 455, 2: 899}
    assert not any(log.settled(number) for number in range(3))


@case(
    "GroupMetadataManagerTest",
    "testLoadWithCommittedAndAbortedTransactionalOffsetCommits",
    "testLoadWithCommittedAndAbortedAndPendingTransactionalOffsetCommits",
)
@pytest.mark.parametrize("pending", [{}, {0: 3, 2: 4}], ids=["decided", "pending"])
def test_committed_aborted_and_pending_offsets_of_one_producer_are_told_apart(
    pending: dict[int, int],
) -> None:
    log = GroupLog("etl")
    log.do(log.commit({0: 23, 1: 455}, "etl"))
    log.end("etl", ABORT)
    log.do(log.commit({0: 24, 2: 899}, "etl"))
    log.end("etl", COMMIT)
    if pending:
        log.do(log.commit(pending, "etl"))
    assert loaded(log).committed() == {0: 24, 2: 899}
    assert log.pending("etl") == pending


# --- deleting and expiring ----------------------------------------------------------------------------------


def removal(log: GroupLog) -> RemoveGroup:
    return RemoveGroup(GROUP, log.state.timestamp_ms + 1)


@case(
    "OffsetMetadataManagerTest",
    "testGenericGroupOffsetDeleteWithPendingTransactionalOffsets",
    "testConsumerGroupOffsetDeleteWithPendingTransactionalOffsets",
    "testStreamsGroupOffsetDeleteWithPendingTransactionalOffsets",
    "testDeleteGroupAllOffsetsWithPendingTransactionalOffsets",
    "testReplayWithTombstoneAndPendingTransactionalOffsets",
    "testGroupHasNoOffsetsReturnsFalseWhenOpenTxnPending",
)
@pytest.mark.parametrize("outcome", list(Outcome), ids=str)
@pytest.mark.parametrize("committed", [{}, {0: 100, 1: 100}], ids=["pending only", "committed too"])
def test_a_group_with_pending_offsets_is_not_deleted_and_goes_whole_when_they_are_decided(
    committed: dict[int, int], outcome: Outcome
) -> None:
    """Kafka deletes what is pending, too. Here the transaction would commit without a position that it
    has.
    """
    log = GroupLog("etl")
    if committed:
        log.do(log.commit(committed))
    log.do(log.commit({1: 101, 2: 100}, "etl"))
    error = log.refusal(removal(log))
    assert isinstance(error, ConflictError)
    assert (error.kind, error.values["transactional_ids"]) == ("offsets-pending", ["etl"])
    with pytest.raises(CorruptDataError):
        apply_operation(log.state, DeleteGroup(GROUP), At(log.state.entry + 1, log.state.timestamp_ms))
    log.end("etl", outcome)
    assert log.committed() == (committed | {1: 101, 2: 100} if outcome is COMMIT else committed)
    log.do(removal(log))
    assert log.state.groups == {}
    loaded(log)


@case("OffsetMetadataManagerTest", "testGroupHasNoOffsetsReturnsTrueWhenGroupAbsentAndNoOpenTxn")
def test_a_group_that_is_not_there_cannot_be_deleted() -> None:
    log = GroupLog("etl")
    assert log.refusal(removal(log)).kind == "unknown-group"
    assert log.state.groups == {}


@case(
    "OffsetMetadataManagerTest",
    "testCleanupExpiredOffsetsWithPendingTransactionalOffsets",
    "testCleanupExpiredOffsetsWithPendingTransactionalOffsetsOnly",
)
@pytest.mark.parametrize("pending", [0, 1], ids=["of the same partition", "of another"])
def test_a_group_does_not_expire_while_offsets_of_any_partition_are_pending(pending: int) -> None:
    """Kafka's group may lose its other offsets by then. Here a group expires whole, long after its last
    use.
    """
    log = GroupLog("etl")
    log.do(log.commit({0: 100}))
    log.do(log.commit({pending: 101}, "etl"))

    def expires() -> bool:
        """Return whether the group is idle for long enough, now."""
        wanted = expirable(replace(log.state, timestamp_ms=log.now_ms), log.now_ms)
        return wanted is not None and GROUP in wanted.expire.groups

    log.now_ms += GROUP_RETENTION_MS + 60_000
    assert not expires()
    log.end("etl", COMMIT)
    assert log.committed()[pending] == 101
    assert not expires(), "the end is a use"
    log.now_ms = log.state.timestamp_ms + GROUP_RETENTION_MS - 1
    assert not expires()
    log.now_ms += 1
    assert expires()
