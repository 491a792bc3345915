"""Rules of reading and of appending to a transaction, each broken by a change of one line: see
``mutation_rules.py``."""

from __future__ import annotations

from tests.conformance.mutation_rules import Mutation

__all__ = ["FETCH"]

FETCHER, COMPLETED, COLLECTOR = "FetcherTest", "CompletedFetchTest", "FetchCollectorTest"
SHARE, OFFSETS, PARTITION = "ShareCompletedFetchTest", "OffsetFetcherTest", "PartitionTest"
REPLICAS, REMOTE = "ReplicaManagerTest", "RemoteLogManagerTest"

FETCH = (
    Mutation(
        "read_committed goes on to the log end",
        "txnformat/core/records/scan.py",
        "return partition.last_stable_offset\n",
        "return partition.log_end\n",
        (
            (FETCHER, "testReturnCommittedTransactions"),
            (OFFSETS, "testListOffsetSendsReadCommitted"),
            (OFFSETS, "testListOffsetsSendsIsolationLevel"),
            (PARTITION, "testListOffsetIsolationLevels"),
            (REPLICAS, "testReadCommittedFetchLimitedAtLSO"),
            (REPLICAS, "testDelayedFetchIncludesAbortedTransactions"),
        ),
    ),
    Mutation(
        "read_uncommitted ends where read_committed does",
        "txnformat/core/records/scan.py",
        "return partition.log_end\n",
        "return partition.last_stable_offset\n",
        (
            (FETCHER, "testReturnAbortedTransactionsInUncommittedMode"),
            (OFFSETS, "testListOffsetSendsReadUncommitted"),
            (PARTITION, "testListOffsetIsolationLevels"),
        ),
    ),
    Mutation(
        "what was aborted is read until it is sealed",
        "txnformat/core/records/scan.py",
        "extents = extents[committed(partition, extents)]",
        "extents = extents[extents['records'] > 0]",
        (
            (FETCHER, "testSkippingAbortedTransactions"),
            (FETCHER, "testReadCommittedWithCommittedAndAbortedTransactions"),
            (FETCHER, "testConsumerPositionUpdatedWhenSkippingAbortedTransactions"),
            (FETCHER, "testMultipleAbortMarkers"),
            (FETCHER, "testReadCommittedWithCompactedTopic"),
            (COMPLETED, "testAbortedTransactionRecordsRemoved"),
            (COLLECTOR, "testReadCommittedWithAbortedTransaction"),
            (REPLICAS, "testDelayedFetchIncludesAbortedTransactions"),
        ),
    ),
    Mutation(
        "read_uncommitted leaves out what was aborted",
        "txnformat/core/records/scan.py",
        "    if isolation is IsolationLevel.READ_COMMITTED:\n        extents",
        "    if isolation is not None:\n        extents",
        (
            (FETCHER, "testReturnAbortedTransactionsInUncommittedMode"),
            (FETCHER, "testFetcherIgnoresControlRecords"),
            (COMPLETED, "testAbortedTransactionRecordsRemoved"),
        ),
    ),
    Mutation(
        "what was aborted is read from sealed segments",
        "txnformat/core/records/scan.py",
        'chosen &= rows["outcome"] != BatchOutcome.ABORTED',
        'chosen &= rows["outcome"] >= 0',
        (
            (FETCHER, "testReadCommittedWithCommittedAndAbortedTransactions"),
            (FETCHER, "testReadCommittedWithCompactedTopic"),
            (REMOTE, "testFindNextSegmentWithTxnIndexTraversesNextEpoch"),
        ),
    ),
    Mutation(
        "an aborted transaction goes on to hide records behind its marker",
        "txnformat/core/records/visibility.py",
        "if first_offset <= base_offset < last_offset:",
        "if first_offset <= base_offset:",
        ((FETCHER, "testMultipleAbortMarkers"),),
    ),
    Mutation(
        "an aborted transaction hides every producer's records",
        "txnformat/core/records/visibility.py",
        "active[aborted_producer_id] = (first_offset, last_offset)",
        "active |= dict.fromkeys(range(10), (first_offset, last_offset))",
        (
            (FETCHER, "testReadCommittedWithCommittedAndAbortedTransactions"),
            (FETCHER, "testReadCommittedWithCompactedTopic"),
        ),
    ),
    Mutation(
        "a segment of which nothing is to be read is looked up",
        "txnformat/reading/plan.py",
        'if part.row["records"] <= hidden:',
        'if part.row["records"] < hidden:',
        (
            (FETCHER, "testUpdatePositionOnEmptyBatch"),
            (REMOTE, "testFetchNextSegmentWithTxnIndex"),
        ),
    ),
    Mutation(
        "the position stays where the last record was read",
        "txnformat/core/records/scan.py",
        "return PartitionPlan(number, wanted, planned(",
        "return PartitionPlan(number, OffsetRange(wanted.start, wanted.start + "
        "int(extents['records'].sum())), planned(",
        (
            (SHARE, "testGapsForControlRecordsInAcquiredRange"),
            (SHARE, "testGapsWithControlRecordsAtBeginningAndEnd"),
        ),
    ),
    Mutation(
        "a poll that returns nothing leaves the position where it was",
        "txnformat/consumers/fetching.py",
        "            filling.positions[one.key] = one.read.offset",
        "            filling.positions[one.key] = one.read.offset if filling.parts else one.position or 0",
        (
            (FETCHER, "testConsumerPositionUpdatedWhenSkippingAbortedTransactions"),
            (FETCHER, "testUpdatePositionOnEmptyBatch"),
            (COLLECTOR, "testReadCommittedWithAbortedTransaction"),
        ),
    ),
    Mutation(
        "undecided records are sealed",
        "txnformat/protocol/sealing.py",
        "    end = partition.last_stable_offset\n",
        "    end = partition.log_end\n",
        ((REMOTE, "testCandidateLogSegmentsSkipsSegmentsAfterLastStableOffset"),),
    ),
    Mutation(
        "a segment has no abort index",
        "txnformat/protocol/sealing.py",
        "encode_txnindex(part.aborted for part in parts)",
        "encode_txnindex(() for part in parts)",
        ((REMOTE, "testFindNextSegmentWithTxnIndex"),),
    ),
    Mutation(
        "a transaction is late only after its time",
        "txnformat/core/transactions/listing.py",
        "now_ms >= known.expires_ms",
        "now_ms > known.expires_ms",
        ((REPLICAS, "testPartitionsWithLateTransactionsCount"),),
    ),
    Mutation(
        "any append under a transactional id is believed",
        "txnformat/core/transactions/decide.py",
        "if owner is None or owner.producer_id != producer.producer_id:",
        "if owner is None:",
        ((REPLICAS, "testExceptionWhenUnverifiedTransactionHasMultipleProducerIds"),),
    ),
    Mutation(
        "a transaction of an epoch that was never given is appended to",
        "txnformat/core/transactions/decide.py",
        "if producer.epoch > owner.epoch:",
        "if producer.epoch > owner.epoch + 9:",
        (
            (REPLICAS, "testTransactionVerificationFlow"),
            (REPLICAS, "testTransactionVerificationGuardOnMultiplePartitions"),
            (REPLICAS, "testVerificationForTransactionalPartitionsOnly"),
            (PARTITION, "testMaybeStartTransactionVerification"),
        ),
    ),
    Mutation(
        "an append of an older epoch joins the transaction of the newer one",
        "txnformat/core/transactions/decide.py",
        "if producer.epoch < owner.epoch:",
        "if producer.epoch < owner.epoch - 9:",
        (
            (REPLICAS, "testTransactionVerificationRejectsLowerProducerEpoch"),
            (REPLICAS, "testTransactionAddPartitionRetry"),
            (REPLICAS, "testDisabledTransactionVerification"),
        ),
    ),
    Mutation(
        "a producer's first sequence may be any",
        "txnformat/core/producers/state.py",
        "SequenceVerdict.NEW if base_sequence == 0 else",
        "SequenceVerdict.NEW if base_sequence >= 0 else",
        ((REPLICAS, "testTransactionVerificationBlocksOutOfOrderSequence"),),
    ),
    Mutation(
        "a consumer stays behind the last record that it returned",
        "txnformat/consumers/fetching.py",
        "            self.offset = self._end\n            self.close()",
        "            self.close()",
        (
            (FETCHER, "testFetcherIgnoresControlRecords"),
            (FETCHER, "testReturnCommittedTransactions"),
            (COLLECTOR, "testReadCommittedWithAbortedTransaction"),
        ),
    ),
    Mutation(
        "a consumer stays before what it has not returned",
        "txnformat/consumers/fetching.py",
        "self.offset = part.range.start if self._left else self._end",
        "self.offset = part.range.start",
        (
            (FETCHER, "testConsumerPositionUpdatedWhenSkippingAbortedTransactions"),
            (FETCHER, "testUpdatePositionOnEmptyBatch"),
            (REPLICAS, "testDelayedFetchIncludesAbortedTransactions"),
        ),
    ),
    Mutation(
        "aborted records count as lag",
        "txnformat/reading/visible.py",
        "        extents = extents[committed(partition, extents)]",
        "        extents = extents[extents['records'] > 0]",
        ((FETCHER, "testReadCommittedLagMetric"),),
    ),
    Mutation(
        "a consumer's end is that of the log",
        "txnformat/consumers/reading.py",
        "return partition.log_start, readable_end(partition, self._settings.isolation)",
        "return partition.log_start, partition.log_end",
        (
            (OFFSETS, "testListOffsetSendsReadCommitted"),
            (OFFSETS, "testListOffsetsSendsIsolationLevel"),
        ),
    ),
)
