"""Rules of txnformat and of the producer, each broken by a change of one line, and the upstream cases that
must then fail.

The line is found by its exact text, which stands in its file once: a line that was rewritten has to be
rewritten here.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One rule, broken."""

    name: str
    """What the log does then."""
    path: str
    """Of the source file, in the checkout."""
    before: str
    after: str
    claims: tuple[tuple[str, str], ...] = ()
    """(test class, case): each of these must fail, by the tests that cite it."""
    tests: tuple[str, ...] = ()
    """Tests, as pytest names them, or files of tests: of each, one must fail. For rules that no upstream case
    states."""


PSM, LOG, INDEX, CLEANER = (
    "ProducerStateManagerTest",
    "UnifiedLogTest",
    "TransactionIndexTest",
    "LogCleanerTest",
)
COORDINATOR, METADATA = "TransactionCoordinatorTest", "TransactionMetadataTest"
STATE, CLIENT = "TransactionStateManagerTest", "TransactionManagerTest"

MUTATIONS = (
    Mutation(
        "a gap in the sequences is taken",
        "txnformat/core/producers/state.py",
        "SequenceVerdict.NEW if base_sequence == expected else",
        "SequenceVerdict.NEW if base_sequence >= expected else",
        ((PSM, "testBasicIdMapping"), (LOG, "testDuplicateAppends")),
    ),
    Mutation(
        "a producer that is new to the partition begins at any sequence",
        "txnformat/core/producers/state.py",
        "SequenceVerdict.NEW if base_sequence == 0 else",
        "SequenceVerdict.NEW if base_sequence >= 0 else",
        (
            (PSM, "testRejectNonZeroSequenceForTransactionsV2WithEmptyState"),
            (PSM, "testRejectNonZeroSequenceForDirectEpochBump"),
            (PSM, "testOutOfSequenceAfterControlRecordEpochBump"),
            (PSM, "testThrowOutOfOrderSequenceWithVerificationSequenceCheck"),
            (LOG, "testNonZeroSequenceOnFirstAppendNonZeroEpoch"),
        ),
    ),
    Mutation(
        "one append is remembered instead of five",
        "txnformat/core/producers/state.py",
        "(*window, appended)[-WINDOW_APPENDS:]",
        "(*window, appended)[-1:]",
        (
            (LOG, "testDuplicateAppends"),
            (PSM, "testReadWriteSnapshot"),
            (CLEANER, "testDuplicateCheckAfterCleaning"),
        ),
    ),
    Mutation(
        "a repeat is appended again",
        "txnformat/core/producers/state.py",
        "return (SequenceVerdict.REPEAT if known.digest == digest else SequenceVerdict.FORK), known",
        "return SequenceVerdict.NEW, None",
        ((LOG, "testDuplicateAppends"), (LOG, "testMultipleProducersWithDuplicatesInSingleAppend")),
    ),
    Mutation(
        "sequences wrap after 32 bits, as Kafka's",
        "txnformat/core/producers/state.py",
        "expected = window[-1].last_sequence + 1",
        "expected = (window[-1].last_sequence + 1) % 2**31",
        (
            (PSM, "testProducerSequenceWrapAround"),
            (PSM, "testProducerSequenceInvalidWrapAround"),
            (PSM, "testProducerSequenceWithWrapAroundBatchRecord"),
        ),
    ),
    Mutation(
        "the producer id of a transactional id appends without it",
        "txnformat/core/state.py",
        "return producer_id not in self.owners",
        "return True",
        ((PSM, "testNonTransactionalAppendWithOngoingTransaction"),),
    ),
    Mutation(
        "a producer that was forgotten comes back as new",
        "txnformat/core/state.py",
        "if not self.retired_below <= producer_id < self.next_producer_id:",
        "if not 0 <= producer_id < self.next_producer_id:",
        ((PSM, "testPidExpirationTimeout"), (LOG, "testPeriodicProducerIdExpiration")),
    ),
    Mutation(
        "the youngest open transaction holds the last stable offset",
        "txnformat/core/records/state.py",
        "islice(self.open.values(), 1)",
        "islice(reversed(self.open.values()), 1)",
        (
            (PSM, "testFirstUnstableOffset"),
            (LOG, "testFetchUpToLastStableOffset"),
            (LOG, "testTransactionIndexUpdated"),
        ),
    ),
    Mutation(
        "the last stable offset is the log end",
        "txnformat/core/records/visibility.py",
        "return log_end if first_unstable is None else max(log_start, first_unstable)",
        "return log_end",
        (
            (PSM, "testFirstUnstableOffset"),
            (LOG, "testFirstUnstableOffsetWithTransactionalData"),
            (LOG, "testReadCommittedWithConcurrentHighWatermarkUpdates"),
            ("LogCleanerManagerTest", "testUndecidedTransactionalDataNotCleanable"),
        ),
    ),
    Mutation(
        "the filter looks at the first batch of an aborted transaction only",
        "txnformat/core/records/visibility.py",
        "if first_offset <= base_offset < last_offset:",
        "if first_offset == base_offset < last_offset:",
        ((LOG, "testTransactionIndexUpdated"), (LOG, "testAbortedTransactionSpanningMultipleSegments")),
    ),
    Mutation(
        "an aborted transaction hides the producer's next one",
        "txnformat/core/records/visibility.py",
        "if first_offset <= base_offset < last_offset:",
        "if first_offset <= base_offset:",
        ((PSM, "testSkipEmptyTransactions"),),
    ),
    Mutation(
        "an index entry's last stable offset counts its own transaction",
        "txnformat/core/records/state.py",
        "stable = first_value(others, offset + 1)",
        "stable = first_value(self.open, offset + 1)",
        ((PSM, "testLastStableOffsetCompletedTxn"), (LOG, "testTransactionIndexUpdated")),
    ),
    Mutation(
        "commits have index entries too",
        "txnformat/core/records/state.py",
        "if not commit and first is not None:",
        "if first is not None:",
        (
            (PSM, "testSkipEmptyTransactions"),
            (LOG, "testTransactionIndexUpdated"),
            (INDEX, "testIsEmptyWhenFileDoesNotExist"),
        ),
    ),
    Mutation(
        "a marker leaves its transaction open",
        "txnformat/core/records/state.py",
        "others = without_key(self.open, transaction)",
        "others = dict(self.open)",
        (
            (PSM, "testFirstUnstableOffset"),
            (PSM, "updateProducerTransactionState"),
            (LOG, "testFirstUnstableOffsetWithTransactionalData"),
        ),
    ),
    Mutation(
        "a marker leaves the transaction's window",
        "txnformat/core/records/state.py",
        "sequences = without_key(self.sequences, transaction)",
        "sequences = self.sequences",
        (
            (PSM, "updateProducerTransactionState"),
            (PSM, "testProducerStateAfterFencingAbortMarker"),
            (LOG, "testActiveProducers"),
        ),
    ),
    Mutation(
        "a fetch misses the transaction whose marker it begins at",
        "txnformat/core/transactions/abort_index.py",
        "if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:",
        "if entry.last_offset > fetch_offset and entry.first_offset < upper_bound:",
        ((INDEX, "testCollectAbortedTransactions"),),
    ),
    Mutation(
        "the search of the index goes on behind its end",
        "txnformat/core/transactions/abort_index.py",
        "if entry.last_stable_offset >= upper_bound:",
        "if entry.last_stable_offset > upper_bound:",
        ((INDEX, "testCollectAbortedTransactions"),),
    ),
    Mutation(
        "two entries of the index may have one last offset",
        "txnformat/core/transactions/abort_index.py",
        "if previous is not None and entry.last_offset <= previous:",
        "if previous is not None and entry.last_offset < previous:",
        ((INDEX, "testLastOffsetMustIncrease"),),
    ),
    Mutation(
        "the index is little-endian",
        "txnformat/core/transactions/abort_index.py",
        '_ENTRY = struct.Struct(">hqqqq")',
        '_ENTRY = struct.Struct("<hqqqq")',
        ((INDEX, "testBinaryCompatibilityWithHandWrittenClass"),),
    ),
    Mutation(
        "a segment's index has only transactions that end in it",
        "txnformat/protocol/sealing.py",
        'rows = rows[rows["first_offset"] < end]',
        'rows = rows[rows["last_offset"] < end]',
        ((CLEANER, "testAbortedTransactionSpanningSegments"),),
    ),
    Mutation(
        "a snapshot keeps one append of each producer, as Kafka's",
        "txnformat/core/snapshot/partitions.py",
        "tuple(SequencesRow(*known, window) for",
        "tuple(SequencesRow(*known, window[-1:]) for",
        ((PSM, "testReadWriteSnapshot"), (PSM, "testNoValidationOnFirstEntryWhenLoadingLog")),
    ),
    Mutation(
        "an opener stops at a damaged snapshot",
        "txnformat/protocol/follow.py",
        "not isinstance(snapshot, bytes) or sha256_hex(snapshot) != checkpoint.sha256:",
        "not isinstance(snapshot, bytes):",
        (
            (PSM, "testLoadFromEmptySnapshotFile"),
            (PSM, "testLoadFromTruncatedSnapshotFile"),
            (PSM, "testLoadFromCorruptSnapshotFile"),
        ),
    ),
    Mutation(
        "a second snapshot of one entry is named",
        "txnformat/core/decide.py",
        "if action.checkpoint.entry <= newest:",
        "if action.checkpoint.entry < newest:",
        ((PSM, "testSkipSnapshotIfOffsetUnchanged"),),
    ),
    Mutation(
        "the epoch before the current one may still write",
        "txnformat/core/transactions/decide.py",
        "if producer.epoch < owner.epoch:",
        "if producer.epoch < owner.epoch - 1:",
        (
            (PSM, "testOldEpochForControlRecord"),
            (LOG, "testOldProducerEpoch"),
            (PSM, "testEntryForVerification"),
            (LOG, "testEmptyTransactionStillClearsVerificationGuard"),
        ),
    ),
    Mutation(
        "an end keeps its epoch",
        "txnformat/core/transactions/fold.py",
        "op.epoch + 1,\n        target,",
        "op.epoch,\n        target,",
        (
            (PSM, "testControlRecordBumpsProducerEpoch"),
            (LOG, "testTV2MarkerWithBumpedEpochSucceeds"),
            (LOG, "testTransactionIsOngoingAndVerificationGuardTV2"),
            (METADATA, "testEpochBumpOnEndTxn"),
        ),
    ),
    Mutation(
        "a repeated end of the opposite outcome is done",
        "txnformat/core/transactions/decide.py",
        "if last.outcome is wanted:",
        "if last.outcome is not None:",
        (
            (COORDINATOR, "testEndTxnRequestWhenStatusIsCompleteCommitAndResultIsAbortInV1"),
            (
                COORDINATOR,
                "shouldReturnInvalidTxnRequestOnEndTxnRequestWhenStatusIsCompleteAbortAndResultIsNotAbort",
            ),
        ),
    ),
    Mutation(
        "a transaction without data can be committed",
        "txnformat/core/transactions/decide.py",
        "if write.end is Outcome.COMMIT and not (is_open or ends or staged or write.offsets or write.acks):",
        "if write.end is None:",
        ((COORDINATOR, "TestEndTxnRequestWhenEmptyTransactionStateForCommitInV2"),),
    ),
    Mutation(
        "what has ended may be committed once more",
        "txnformat/core/transactions/state.py",
        "TransactionStatus.COMPLETE_COMMIT: UNDECIDED,",
        "TransactionStatus.COMPLETE_COMMIT: frozenset(TransactionStatus),",
        (
            (METADATA, "testInvalidTransitionFromCompleteCommitToFence"),
            (METADATA, "testInvalidTransitionFromCompleteAbortToFence"),
        ),
    ),
    Mutation(
        "an end has no markers in the partitions of earlier entries",
        "txnformat/core/transactions/decide.py",
        "for key in {*ends, *(owner.partitions if is_open else ())}",
        "for key in {*ends}",
        (
            (COORDINATOR, "shouldAppendPrepareCommitToLogOnEndTxnWhenStatusIsOngoingAndResultIsCommit"),
            (LOG, "testTransactionIndexUpdated"),
        ),
    ),
    Mutation(
        "a repeated end is none that the log knows",
        "txnformat/core/transactions/decide.py",
        "if write.end is not None and last is not None and last.epoch == producer.epoch:",
        "if write.end is not None and last is not None and last.epoch > producer.epoch:",
        (
            (COORDINATOR, "testEndTxnWhenStatusIsCompleteCommitAndResultIsCommitInV2"),
            (CLIENT, "testRetryAbortTransactionAfterCommitTimeout"),
        ),
    ),
    Mutation(
        "an epoch that was never given is taken for the current one",
        "txnformat/core/transactions/decide.py",
        "if producer.epoch > owner.epoch:",
        "if producer.epoch > owner.epoch + 1:",
        (
            (COORDINATOR, "shouldReturnInvalidEpochOnEndTxnWhenEpochIsLarger"),
            (CLIENT, "testFatalErrorWhenProduceResponseWithInvalidPidMapping"),
        ),
    ),
    Mutation(
        "the producer id of an identity is not looked at",
        "txnformat/core/transactions/decide.py",
        "if owner is None or owner.producer_id != producer.producer_id:",
        "if owner is None:",
        ((COORDINATOR, "shouldReplyWithInvalidPidMappingOnEndTxnWhenPidDoesntMatchMapped"),),
    ),
    Mutation(
        "an instance that was fenced by an init learns that its transaction was aborted, and goes on",
        "txnformat/core/transactions/decide.py",
        "if last.cause is Cause.INIT:",
        "if last.cause is None:",
        ((COORDINATOR, "shouldAbortTransactionOnHandleInitPidWhenExistingTransactionInOngoingState"),),
    ),
    Mutation(
        "an append may name a partition that its topic does not have",
        "txnformat/core/records/decide.py",
        "if not 0 <= part.partition < count]",
        "if part.partition < 0]",
        (
            (
                "AddPartitionsToTxnRequestServerTest",
                "shouldReceiveOperationNotAttemptedWhenOtherPartitionHasError",
            ),
        ),
    ),
    Mutation(
        "any producer id is taken for one that the log has given",
        "txnformat/core/records/decide.py",
        "if state.may_begin(producer.producer_id):",
        "if producer.producer_id >= 0:",
        (
            (COORDINATOR, "shouldAcceptInitPidAndReturnNextPidWhenTransactionalIdIsNull"),
            (CLIENT, "testBumpEpochAndResetSequenceNumbersAfterUnknownProducerId"),
        ),
    ),
    Mutation(
        "an init beside an end shares its entry",
        "txnformat/core/assemble.py",
        "return name in opened or (isinstance(intent.action, OpenProducer) and name in touched)",
        "return name in opened",
        (
            (
                COORDINATOR,
                "shouldWaitForCommitToCompleteOnHandleInitPidAndExistingTransactionInPrepareCommitState",
            ),
        ),
    ),
    Mutation(
        "a timeout comes a millisecond early",
        "txnformat/core/transactions/decide.py",
        "action.store_time_ms >= owner.expires_ms",
        "action.store_time_ms >= owner.expires_ms - 1",
        ((COORDINATOR, "shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch"),),
    ),
    Mutation(
        "a producer may ask for any timeout",
        "txnformat/core/transactions/decide.py",
        "if not 1 <= value <= limit",
        "if not 1 <= value",
        ((STATE, "testValidateTransactionTimeout"),),
    ),
    Mutation(
        "prepared transactions time out",
        "txnformat/core/transactions/state.py",
        "if self.status is not TransactionStatus.ONGOING or self.started_ms is None:",
        "if self.started_ms is None:",
        (
            (COORDINATOR, "shouldNotAbortExpiredTransactionsThatHaveAPendingStateTransition"),
            (STATE, "shouldOnlyConsiderTransactionsInTheOngoingStateToAbort"),
        ),
    ),
    Mutation(
        "ids with an open transaction expire",
        "txnformat/core/lifecycle/idle.py",
        "and known.status not in UNDECIDED",
        "and known.status is not None",
        (
            (STATE, "shouldNotRemoveOngoingTransactionalIds"),
            (STATE, "shouldNotRemovePrepareCommitTransactionalIds"),
            (PSM, "testProducersWithOngoingTransactionsDontExpire"),
        ),
    ),
    Mutation(
        "ids expire a millisecond early",
        "txnformat/core/lifecycle/idle.py",
        "and known.used_ms <= wanted.id_cutoff_ms",
        "and known.used_ms <= wanted.id_cutoff_ms + 1",
        ((STATE, "shouldRemoveEmptyExpiredTransactionalIds"),),
    ),
    Mutation(
        "one entry expires any number of ids",
        "txnformat/core/lifecycle/idle.py",
        "tuple(ids[:EXPIRED_MAX]),",
        "tuple(ids),",
        ((STATE, "testTransactionExpirationShouldRespectBatchSize"),),
    ),
    Mutation(
        "a pattern may match a part of an id",
        "txnformat/patterns.py",
        'self._whole = rf"\\A(?:{text})\\z"',
        "self._whole = text",
        ((STATE, "testListTransactionsFiltering"),),
    ),
    Mutation(
        "blocks of producer ids may leave gaps",
        "txnformat/core/producers/fold.py",
        "if op.first != state.next_producer_id:",
        "if op.first < state.next_producer_id:",
        (("ProducerIdManagerTest", "testSanityCheckProhibitsOverlappingBlocks"),),
    ),
    Mutation(
        "a producer whose identity is unknown is asked to abort for ever",
        "writers/standing.py",
        " or error.kind in _UNKNOWN_IDENTITY\n",
        "\n",
        ((CLIENT, "testFatalErrorWhenProduceResponseWithInvalidPidMapping"),),
    ),
    Mutation(
        "after a refused upload a transaction can be committed without what was lost",
        "writers/session.py",
        "if self._staging.is_broken and self.at.status is ProducerStatus.IN_TRANSACTION:",
        "if self._staging.is_broken and self.at.status is ProducerStatus.CLOSED:",
        ((CLIENT, "testDisallowCommitOnProduceFailure"), (CLIENT, "testDropCommitOnBatchExpiry")),
    ),
)
