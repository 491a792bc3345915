"""Rules of removals, compaction, vacuum and truncation, each broken by a change; see
:mod:`tests.conformance.mutation_rules`."""

from __future__ import annotations

from tests.conformance.mutation_rules import Mutation

__all__ = ["LIFECYCLE_RULES"]

LOG, SNAPSHOTS, CLEANER, LOADER = (
    "UnifiedLogTest",
    "ProducerStateManagerTest",
    "LogCleanerTest",
    "LogLoaderTest",
)
PULSAR_BUFFER = "TopicTransactionBufferRecoverTest"
READ_COMPACTED = (
    ("TransactionTest", "testReadCommittedWithReadCompacted"),
    ("TransactionTest", "testReadCommittedWithCompaction"),
)
LATEST, SWEEP = "txnformat/reading/latest.py", "txnformat/admin/compaction/cleaning.py"
FOLD, REMOVAL = "txnformat/core/lifecycle/fold.py", "txnformat/core/lifecycle/removal.py"
GARBAGE = "txnformat/admin/garbage.py"

LIFECYCLE_RULES = (
    Mutation(
        "the first record of a key stays, not the latest",
        LATEST,
        "keep = offsets >= latest  # the winner is by offset",
        "keep = (offsets <= latest) | (latest < 0)",
        (
            *READ_COMPACTED,
            (CLEANER, "testMultiPassSegmentCleaningWithAbortedTransactions"),
            (CLEANER, "testCommitMarkerRemoval"),
            (CLEANER, "testCommitMarkerRetentionWithEmptyBatch"),
            (CLEANER, "testCleaningWithKeysConflictingWithTxnMarkerKeys"),
        ),
    ),
    Mutation(
        "an aborted record is the latest of its key",
        LATEST,
        "plan = plan_range(self.sidecars, self.state, self.key, within)",
        'plan = plan_range(self.sidecars, self.state, self.key, within, isolation="read_uncommitted")',
        (
            (CLEANER, "testAbortMarkerRemoval"),
            (CLEANER, "testCleaningWithKeysConflictingWithTxnMarkerKeys"),
        ),
    ),
    Mutation(
        "tombstones stay for ever",
        LATEST,
        "keep &= ~(deletes & (offsets < self._due_end))",
        "keep &= ~(deletes & (offsets < 0))",
        READ_COMPACTED,
    ),
    Mutation(
        "keys are told apart by one byte of their hash",
        LATEST,
        "blake2b(key, digest_size=HASH_BYTES, key=self.seed).digest()",
        "key[:1].ljust(HASH_BYTES)",
        ((CLEANER, "testCleaningWithKeysConflictingWithTxnMarkerKeys"), *READ_COMPACTED),
    ),
    Mutation(
        "a compaction keeps what was aborted",
        "txnformat/reading/compacting.py",
        "plan = plan_range(self._sidecars, self._state, key, wanted)",
        'plan = plan_range(self._sidecars, self._state, key, wanted, isolation="read_uncommitted")',
        (
            (LOG, "testRebuildProducerStateWithEmptyCompactedBatch"),
            ("FetcherTest", "testUpdatePositionWithLastRecordMissingFromBatch"),
            (CLEANER, "testAbortMarkerRemoval"),
            (CLEANER, "testAbortMarkerRetentionWithEmptyBatch"),
            (CLEANER, "testCleanEmptyControlBatch"),
        ),
    ),
    Mutation(
        "a compaction forgets the sequences of producers",
        FOLD,
        "return replace(partition, sealed=rest, revision=partition.revision + 1)",
        "return replace(partition, sealed=rest, revision=partition.revision + 1, sequences={})",
        (
            (LOG, "testRebuildProducerIdMapWithCompactedData"),
            (LOG, "testUpdateProducerIdMapWithCompactedData"),
        ),
    ),
    Mutation(
        "a trim goes beyond the last stable offset",
        "txnformat/admin/trimming.py",
        "stable = sealable_end(replace_in(partition, open={}) if force else partition)",
        "stable = partition.log_end",
        (
            (LOG, "testLastStableOffsetDoesNotExceedLogStartOffsetMidSegment"),
            (LOG, "testLastStableOffsetDoesNotExceedLogStartOffsetAfterSegmentDeletion"),
        ),
    ),
    Mutation(
        "producers are forgotten with the records that are removed",
        FOLD,
        "log_start=part.log_start,\n        sealed=rest,",
        "log_start=part.log_start,\n        sequences={},\n        sealed=rest,",
        (
            (LOADER, "testLoadProducersAfterDeleteRecordsMidSegment"),
            (LOADER, "testLoadProducersAfterDeleteRecordsOnSegment"),
            (LOG, "testProducerIdExpirationOnSegmentDeletion"),
        ),
    ),
    Mutation(
        "what was removed is still counted",
        FOLD,
        "log_start=part.log_start,\n        sealed=rest,",
        "log_start=part.log_start,\n        sealed=sealed,",
        ((PULSAR_BUFFER, "testTopicTransactionBufferDeleteAbort"),),
    ),
    Mutation(
        "the partitions of a deleted topic stay in the state",
        REMOVAL,
        "partitions=without(state.partitions, keys),",
        "partitions=state.partitions,",
        (
            ("SegmentAbortedTxnProcessorTest", "testClearSnapshotSegments"),
            (PULSAR_BUFFER, "clearTransactionBufferSnapshotTest"),
        ),
    ),
    Mutation(
        "the subscriptions of a deleted topic stay in the state",
        REMOVAL,
        "state.subscriptions, [key for key in state.subscriptions if key[0] == topic.topic_id]",
        "state.subscriptions, []",
        (("PendingAckPersistentTest", "testDeleteTopicThenDeletePendingAckManagedLedger"),),
    ),
    Mutation(
        "the producers of a deleted topic stay in the state",
        REMOVAL,
        "producers=without(state.producers, forgotten),",
        "producers=state.producers,",
        ((LOG, "testProducerExpireCheckAfterDelete"),),
    ),
    Mutation(
        "any open transaction holds back the deletion of a topic",
        "txnformat/core/lifecycle/touching.py",
        "sorted(name for name in state.undecided if _touches(state, name, topic_id))",
        "sorted(state.undecided)",
        (("TransactionEndToEndTest", "testAfterDeleteTopicOtherTopicCanRecover"),),
    ),
    Mutation(
        "old snapshots stay",
        GARBAGE,
        "if len(named) < 2 or entry >= min(self._limits.floor, named[0].entry):",
        "if entry >= 0:",
        (
            (SNAPSHOTS, "testDeleteSnapshotsBefore"),
            (SNAPSHOTS, "testRemoveAndMarkSnapshotForDeletion"),
            (LOG, "testRetentionDeletesProducerStateSnapshots"),
            (LOG, "testCompactionDeletesProducerStateSnapshots"),
            (SNAPSHOTS, "testRemoveStraySnapshotsKeepCleanShutdownSnapshot"),
            (SNAPSHOTS, "testRemoveAllStraySnapshots"),
        ),
    ),
    Mutation(
        "the newest snapshots go, too",
        GARBAGE,
        "if len(named) < 2 or entry >= min(self._limits.floor, named[0].entry):",
        "if len(named) < 2 or entry > self._state.entry:",
        (
            (SNAPSHOTS, "testDeleteSnapshotsBefore"),
            (SNAPSHOTS, "testRemoveStraySnapshotsKeepCleanShutdownSnapshot"),
            (SNAPSHOTS, "testRemoveAndMarkSnapshotForDeletionAlreadyDeleted"),
        ),
    ),
    Mutation(
        "what nothing names is never deleted",
        GARBAGE,
        "garbage, kind, key, size, due=any(one.is_due for one in lists), known=bool(lists)",
        "garbage, kind, key, size, due=False, known=bool(lists)",
        (("TransactionIndexTest", "testDeleteIfExists"),),
    ),
    Mutation(
        "no entry is ever old enough to go",
        "txnformat/core/lifecycle/truncation.py",
        "(old_entry + 1, LimitedBy.AGE),",
        "(0, LimitedBy.AGE),",
        (("MLTransactionMetadataStoreTest", "testDeleteLog"),),
    ),
)
