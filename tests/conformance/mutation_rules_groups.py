"""Rules of consumer groups, each broken by a change of one line: see ``mutation_rules.py``."""

from __future__ import annotations

from tests.conformance.mutation_rules import Mutation

__all__ = ["GROUPS"]

END_TO_END, LRK = "TransactionsTest", "librdkafka-0103-transactions"
CLIENT, MOCK = "TransactionManagerTest", "librdkafka-0105-transactions_mock"
OFFSETS, LOADING = "OffsetMetadataManagerTest", "GroupMetadataManagerTest"
GROUP, COORDINATOR, REQUEST = "GroupMetadataTest", "GroupCoordinatorTest", "TxnOffsetCommitRequestTest"

GROUPS = (
    Mutation(
        "of two commits the one whose transaction ends later wins",
        "txnformat/core/groups/ends.py",
        "if before is None or before.order < one.order:",
        "if before is None or before.order >= 0:",
        (
            (OFFSETS, "testReplayTransactionEndMarkerKeepsTheMostRecentCommittedOffset"),
            (GROUP, "testConsumerBeatsTransactionalOffsetCommit"),
            (LOADING, "testGroupLoadWithConsumerAndTransactionalOffsetCommitsConsumerWins"),
        ),
    ),
    Mutation(
        "what is in force is not replaced by a transaction's offsets",
        "txnformat/core/groups/ends.py",
        "if before is None or before.order < one.order:",
        "if before is None:",
        (
            (GROUP, "testTransactionBeatsConsumerOffsetCommit"),
            (LOADING, "testGroupLoadWithConsumerAndTransactionalOffsetCommitsTransactionWins"),
            (COORDINATOR, "testFetchPendingTxnOffsetsWithCommit"),
        ),
    ),
    Mutation(
        "an abort brings offsets into force",
        "txnformat/core/groups/ends.py",
        "    if outcome is Outcome.COMMIT:\n",
        "    if outcome is not None:\n",
        (
            (COORDINATOR, "testFetchTxnOffsetsWithAbort"),
            (COORDINATOR, "testFetchPendingTxnOffsetsWithAbort"),
            (COORDINATOR, "testFetchTxnOffsetsIgnoreSpuriousCommit"),
            (GROUP, "testTransactionalCommitIsAbortedAndConsumerCommitWins"),
            (LOADING, "testDoNotLoadAbortedTransactionalOffsetCommits"),
            (LOADING, "testLoadWithCommittedAndAbortedTransactionalOffsetCommits"),
            (LOADING, "testTransactionalCommitOffsetAborted"),
        ),
    ),
    Mutation(
        "offsets in a transaction are in force at once",
        "txnformat/core/groups/fold.py",
        "if op.transactional_id is None:",
        "if op.transactional_id != '':",
        (
            (OFFSETS, "testTransactionalReplay"),
            (OFFSETS, "testFetchOffsetsWithPendingTransactionalOffsets"),
            (OFFSETS, "testFetchAllOffsetsWithPendingTransactionalOffsets"),
            (GROUP, "testHasPendingTxnOffsets"),
            (LOADING, "testGroupLoadedWithPendingCommits"),
            (COORDINATOR, "testBasicFetchTxnOffsets"),
            (COORDINATOR, "testFetchTxnOffsetsMultipleProducersOneGroup"),
            (OFFSETS, "testConsumerGroupTransactionalOffsetCommit"),
        ),
    ),
    Mutation(
        "the end of a transaction leaves its offsets pending",
        "txnformat/core/groups/ends.py",
        "pending = without(group.pending, (transactional_id,))",
        "pending = group.pending",
        (
            (OFFSETS, "testReplayTransactionEndMarkerWithCommit"),
            (COORDINATOR, "testFetchTxnOffsetsMultipleProducersOneGroup"),
        ),
    ),
    Mutation(
        "any generation commits for its group",
        "txnformat/core/groups/checks.py",
        "if generation is None or (generation == group.generation and group.member is not None):",
        "if generation is None or generation >= 0:",
        (
            (OFFSETS, "testConsumerGroupTransactionalOffsetCommitWithStaleMemberEpoch"),
            (OFFSETS, "testGenericGroupTransactionalOffsetCommitWithIllegalGenerationId"),
            (OFFSETS, "testTransactionalOffsetCommitWithUnknownGroupId"),
            (COORDINATOR, "testTxnCommitOffsetWithIllegalGeneration"),
            (REQUEST, "testTxnOffsetCommitWithNewConsumerGroupProtocol"),
        ),
    ),
    Mutation(
        "who compares does not wait for what is pending",
        "txnformat/core/groups/comparing.py",
        "    for name in pending:\n",
        "    for name in list(pending)[:0]:\n",
        (
            (COORDINATOR, "testFetchPendingTxnOffsetsWithCommit"),
            (OFFSETS, "testFetchOffsetsWithPendingTransactionalOffsets"),
        ),
    ),
    Mutation(
        "a group is deleted with what is pending",
        "txnformat/core/groups/decide.py",
        "    if group.pending:\n",
        "    if len(group.pending) > 9:\n",
        (
            (OFFSETS, "testDeleteGroupAllOffsetsWithPendingTransactionalOffsets"),
            (OFFSETS, "testGroupHasNoOffsetsReturnsFalseWhenOpenTxnPending"),
        ),
    ),
    Mutation(
        "a group with pending offsets expires",
        "txnformat/core/lifecycle/idle.py",
        "        and not group.pending\n",
        "",
        (
            (OFFSETS, "testCleanupExpiredOffsetsWithPendingTransactionalOffsets"),
            (OFFSETS, "testCleanupExpiredOffsetsWithPendingTransactionalOffsetsOnly"),
        ),
    ),
    Mutation(
        "metadata of any size is committed",
        "txnformat/core/groups/checks.py",
        "check_text(text, name=what)",
        "check_text(text, name=what, bytes_max=99_999)",
        (
            (COORDINATOR, "testTxnOffsetMetadataTooLarge"),
            (LOADING, "testTransactionalCommitOffsetWithOffsetMetadataTooLargePartialFailure"),
        ),
    ),
    Mutation(
        "offsets join a transaction for any producer that names its id",
        "txnformat/core/transactions/decide.py",
        "if producer.epoch < owner.epoch:",
        "if producer.epoch < owner.epoch - 9:",
        (
            (REQUEST, "testDelayedTxnOffsetCommitWithBumpedEpochIsRejectedWithNewConsumerGroupProtocol"),
            (COORDINATOR, "testVerificationErrorsForTxnOffsetCommits"),
        ),
    ),
    Mutation(
        "an end that comes again ends the next transaction",
        "txnformat/core/transactions/decide.py",
        "if write.end is not None and last is not None and last.epoch == producer.epoch:",
        "if write.end is None and last is not None and last.epoch == producer.epoch:",
        (
            (
                "WriteTxnMarkersRequestTest",
                "testDelayedWriteTxnMarkersShouldNotCommitTxnOffsetWithNewConsumerGroupProtocol",
            ),
        ),
    ),
    Mutation(
        "offsets are compared with nothing",
        "txnformat/core/groups/comparing.py",
        "    if commit.expected != group.value(commit.key):",
        "    if commit.expected is commit:",
        (
            (CLIENT, "testTransactionAbortableExceptionInAddOffsetsToTxn"),
            (CLIENT, "testBumpTransactionalEpochOnRecoverableAddOffsetsRequestError"),
        ),
    ),
    Mutation(
        "offsets that are sent are left out of the commit",
        "writers/session.py",
        "        self._inputs.add(offsets, source)\n",
        "",
        (
            (CLIENT, "testSendOffsetsWithGroupMetadata"),
            (CLIENT, "testHandlingOfNetworkExceptionOnTxnOffsetCommit"),
            (MOCK, "do_test_txn_recoverable_errors"),
            ("ProducerIntegrationTest", "testTransactionWithSendOffset"),
            ("librdkafka-0103-transactions", "do_test_empty_txn (send offsets, commit)"),
        ),
    ),
    Mutation(
        "a producer whose group has another member by now goes on",
        "txnformat/core/groups/checks.py",
        "if generation is None or (generation == group.generation and group.member is not None):",
        "if generation is None or generation <= group.generation:",
        (
            (CLIENT, "testIllegalGenerationInTxnOffsetCommitByGroupMetadata"),
            (CLIENT, "testTransactionAbortableExceptionInTxnOffsetCommit"),
            (OFFSETS, "testStreamsGroupTransactionalOffsetCommitWithStaleMemberEpoch"),
        ),
    ),
    Mutation(
        "who asks for a position does not wait while it is pending",
        "txnformat/consumers/membership.py",
        "            if not pending:\n                break",
        "            if pending is not None:\n                break",
        (
            (MOCK, "do_test_unstable_offset_commit"),
            (OFFSETS, "testFetchAllOffsetsWithPendingTransactionalOffsets"),
        ),
    ),
    Mutation(
        "a consumer goes on after an abort where it had read to",
        "txnformat/consumers/committing.py",
        "                one.seek(starts.get(key, reading.later.get(key)))",
        "                starts.get(key)",
        (
            (END_TO_END, "testClassicSendOffsetsWithGroupMetadata"),
            (LRK, "do_test_consumer_producer_txn"),
            ("KnownFlaws", "the position after an abort is anywhere"),
        ),
    ),
    Mutation(
        "a member goes on when another one has joined",
        "txnformat/core/groups/checks.py",
        "if generation is None or (generation == group.generation and group.member is not None):",
        "if generation != 0:",
        (("kafkatest-transactions", "group_mode_transactions_test.test_transactions"),),
    ),
    Mutation(
        "an older instance commits its offsets",
        "txnformat/core/transactions/decide.py",
        "if producer.epoch < owner.epoch:",
        "if producer.epoch < owner.epoch - 9:",
        ((END_TO_END, "testFencingOnSendOffsets"),),
    ),
)
