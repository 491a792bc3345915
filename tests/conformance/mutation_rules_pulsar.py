"""Rules that Pulsar's and Flink's cases claim, each broken by a change; see
:mod:`tests.conformance.mutation_rules`."""

from __future__ import annotations

from tests.conformance.mutation_rules import Mutation

__all__ = ["PULSAR_AND_FLINK"]

METADATA_BUFFER, BUFFER, RECOVER, SERVICE = (
    "MetadataTransactionBufferTest",
    "TopicTransactionBufferTest",
    "TopicTransactionBufferRecoverTest",
    "TransactionMetadataStoreServiceTest",
)
END_TO_END, REPLAY, PRODUCE = "TransactionEndToEndTest", "PendingAckPersistentTest", "TransactionProduceTest"
STORE, MEMORY, SCALABLE = (
    "MetadataPendingAckStoreTest",
    "PendingAckInMemoryDeleteTest",
    "V5TransactionScalableTest",
)
ACKS = "txnformat/core/subscriptions/state.py"
STRATEGY, WRITER = "TransactionAbortStrategyImplTest", "ExactlyOnceKafkaWriterITCase"

PULSAR_AND_FLINK = (
    Mutation(
        "an open transaction holds no reader back",
        "txnformat/core/records/visibility.py",
        "return log_end if first_unstable is None else max(log_start, first_unstable)",
        "return log_end",
        (
            (METADATA_BUFFER, "openTxnAppend_pinsMaxReadPosition"),
            (METADATA_BUFFER, "concurrentOpenTxns_minPositionPins"),
            (METADATA_BUFFER, "recoveryDiscoveredOpenTxn_pinsAtWatermark"),
            (BUFFER, "testGetLastMessageIdsWithOngoingTransactions"),
            (BUFFER, "testGetLastMessageIdsWithOpenTransactionAtLedgerHead"),
            ("TransactionTest", "testMaxReadPositionForNormalPublish"),
            ("TransactionTest", "testPersistentTopicGetLastDispatchablePositionWithTxn"),
            ("TransactionStablePositionTest", "testSyncNormalPositionWhenTBRecover"),
            ("TransactionConsumeTest", "noSortedTest"),
            ("V5TransactionScalableTest", "testOpenTransactionPinsLaterNonTransactionalWrites"),
        ),
    ),
    Mutation(
        "an abort leaves no trace in the abort index",
        "txnformat/core/records/state.py",
        "if not commit and first is not None:",
        "if first is None:",
        (
            ("TransactionEndToEndTest", "produceAbortTest"),
            ("TransactionProduceTest", "produceAndAbortTest"),
            ("TransactionStablePositionTest", "abortTxnTest"),
            (METADATA_BUFFER, "abortEvent_marksAborted_isTxnAbortedTrue"),
            (METADATA_BUFFER, "restartAfterAbort_abortedTxnStillFiltered"),
            (METADATA_BUFFER, "recoveryDiscoveredAbortedTxns_filteredImmediatelyAfterRecovery"),
            (METADATA_BUFFER, "terminalTxns_prunedFromCache_visibilityUnchanged"),
            (RECOVER, "testSnapshotSegment"),
            ("SegmentAbortedTxnProcessorTest", "testPutAbortedTxnIntoProcessor"),
            ("SegmentAbortedTxnProcessorTest", "testTxnSegmentStats"),
            ("V5TransactionScalableTest", "testConcurrentTransactionsMixedCommitAbort"),
            ("V5TransactionScalableTest", "testAbortSpansSplit"),
        ),
    ),
    Mutation(
        "a message that comes after the end joins the next transaction",
        "txnformat/core/transactions/decide.py",
        "if producer.epoch < owner.epoch:",
        "if producer.epoch < owner.epoch - 1:",
        (
            (METADATA_BUFFER, "appendToCommittedTxn_failsTxnConflict"),
            ("TransactionLowWaterMarkTest", "testTransactionBufferLowWaterMark"),
            ("TransactionLowWaterMarkTest", "testPendingAckLowWaterMark"),
            (REPLAY, "testPendingAckLowWaterMarkRemoveFirstTxn"),
            ("TransactionLowWaterMarkTest", "testTBLowWaterMarkEndToEnd"),
        ),
    ),
    Mutation(
        "any producer that names a transactional id owns it",
        "txnformat/core/transactions/decide.py",
        """    if owner is None or owner.producer_id != producer.producer_id:
        raise InvalidTransactionStateError(""",
        """    if owner is None:
        raise InvalidTransactionStateError(""",
        (("TransactionCoordinatorV5Test", "verifyTxnOwnership_matchesOwnerAndRejectsOthers"),),
    ),
    Mutation(
        "a read that fails is not tried again",
        "txnformat/protocol/reads.py",
        "if not error.transient or error.patience_over or attempt == READ_ATTEMPTS_MAX - 1:",
        "if True:",
        ((RECOVER, "testTBRecoverCanRetryIfTimeoutRead"),),
    ),
    Mutation(
        "a producer that opens an id forgets what is open under it",
        "txnformat/core/transactions/decide.py",
        "if known.status is TransactionStatus.ONGOING:\n        aborted",
        "if known is None:\n        aborted",
        (
            (METADATA_BUFFER, "recoveryDiscoveredAbortedTxn_persistsAbortedRecordAtSegmentLac"),
            (METADATA_BUFFER, "recoveryDiscoveredOpenTxn_pinsAtWatermark"),
        ),
    ),
    Mutation(
        "a transaction times out at once",
        "txnformat/core/transactions/state.py",
        "return (self.used_ms if self.staged else self.started_ms) + self.allowed_ms",
        "return self.used_ms if self.staged else self.started_ms",
        (
            ("TransactionCoordinatorV5Test", "sweepTimeouts_leavesUnexpiredOpenTxnAlone"),
            (SERVICE, "transactionTimeoutRecoverTest"),
        ),
    ),
    Mutation(
        "no transaction ever times out",
        "txnformat/core/transactions/decide.py",
        "return owner.expires_ms is not None and action.store_time_ms >= owner.expires_ms",
        "return False",
        (
            ("TransactionEndToEndTest", "testTxnTimeoutAtTransactionMetadataStore"),
            ("TransactionEndToEndTest", "testTxnTimeOutInClient"),
            ("TransactionCoordinatorV5Test", "sweepTimeouts_abortsExpiredOpenTxnAndFansOut"),
            (SERVICE, "testTimeoutTracker"),
            (SERVICE, "testTimeoutTrackerExpired"),
            (SERVICE, "testTimeoutTrackerMultiThreading"),
            (SERVICE, "transactionTimeoutRecoverTest"),
        ),
    ),
    Mutation(
        "the ids of a job are shared out to any worker",
        "txnformat/core/transactions/lingering.py",
        "if number % parallelism == worker and number < parallelism * factor:",
        "if number >= worker and number < parallelism * factor:",
        (
            (STRATEGY, "testDownscale"),
            (STRATEGY, "testDownscaleWithIntermediateUpscale"),
            (STRATEGY, "testUpscaleWithIntermediateUpscale"),
            ("TransactionOwnershipTest", "Implicit.testOneRecoveredState"),
        ),
    ),
    Mutation(
        "a worker looks at its own id alone",
        "txnformat/core/transactions/lingering.py",
        "if number % parallelism == worker and number < parallelism * factor:",
        "if number == worker:",
        (
            (STRATEGY, "testDownscale"),
            (STRATEGY, "testDownscaleWithUnsafeTransactionalIds"),
            (STRATEGY, "testDownscaleWithIntermediateUpscale"),
            (STRATEGY, "testUpscaleWithIntermediateUpscale"),
        ),
    ),
    Mutation(
        "a prepared transaction is like any other to those who end what expired",
        "txnformat/core/transactions/decide.py",
        "if owner.status is TransactionStatus.PREPARED and not (action.force and action.cause is "
        "Cause.OPERATOR):",
        "if owner.status is TransactionStatus.EMPTY and not (action.force and action.cause is "
        "Cause.OPERATOR):",
        (("TransactionEndToEndTest", "txnMetadataHandlerRecoverTest"),),
    ),
    Mutation(
        "an id may be opened while its transaction is prepared",
        "txnformat/core/transactions/decide.py",
        """    if known.status is TransactionStatus.PREPARED:
        raise _prepared(action.transactional_id,""",
        """    if known.status is TransactionStatus.EMPTY:
        raise _prepared(action.transactional_id,""",
        (
            (WRITER, "usePooledProducerForTransactional"),
            (WRITER, "shouldSkipIdsOfCommitterForPooledTransactions"),
        ),
    ),
    Mutation(
        "of two transactions that acknowledge one message both do",
        ACKS,
        "            if offset is not None:\n                found.append(AckConflict(ACK_PENDING, "
        "offset, name))",
        "            if offset == -1:\n                found.append(AckConflict(ACK_PENDING, offset, name))",
        (
            (REPLAY, "individualPendingAckReplayTest"),
            (REPLAY, "testTransactionConflictExceptionWhenAckBatchMessage"),
        ),
    ),
    Mutation(
        "what is acknowledged may be acknowledged again, in any transaction",
        ACKS,
        "offset = self.acked.first_common(ranges)",
        "offset = self.acked.first_common(NO_RANGES)",
        ((REPLAY, "individualPendingAckReplayTest"),),
    ),
    Mutation(
        "a cumulative acknowledgement is not compared with individual ones of others",
        ACKS,
        "if len(held.ranges) and held.ranges.first_start < position:",
        "if len(held.ranges) and held.ranges.first_start < 0:",
        ((END_TO_END, "testCumulativeAckRedeliverMessages"),),
    ),
    Mutation(
        "two transactions each hold everything below a position",
        ACKS,
        "            if held.position is not None:\n                found.append(AckConflict(ACK_PENDING, "
        "self.mark, name))",
        "            if held.position == -1:\n                found.append(AckConflict(ACK_PENDING, "
        "self.mark, name))",
        (
            (END_TO_END, "testCumulativeAckRedeliverMessages"),
            (REPLAY, "cumulativePendingAckReplayTest"),
        ),
    ),
    Mutation(
        "a transaction's own position may go back",
        ACKS,
        "if held.position is not None and position <= held.position:",
        "if held.position is not None and position <= 0:",
        (
            (END_TO_END, "txnAckTestBatchAndCumulativeSub"),
            (END_TO_END, "txnAckTestNoBatchAndCumulativeSub"),
        ),
    ),
    Mutation(
        "an abort acknowledges what the transaction had acknowledged",
        ACKS,
        "return rest.acknowledged(held.ranges, held.position or 0) if commit else rest",
        "return rest.acknowledged(held.ranges, held.position or 0)",
        (
            (END_TO_END, "txnIndividualAckTestNoBatchAndSharedSub"),
            (END_TO_END, "txnAckTestBatchAndCumulativeSub"),
            (END_TO_END, "testIndividualAckAbortFilterAckSetInPendingAckState"),
            (END_TO_END, "txnTransactionRedeliverNullDispatcher"),
            (END_TO_END, "transactionTimeoutTest"),
            (PRODUCE, "ackAbortTest"),
            (STORE, "abortEvent_callsHandleAbortTxn_andDeletesOpRecords"),
            (SCALABLE, "testTransactionalAckAbortRedeliversThenCommitSticks"),
        ),
    ),
    Mutation(
        "an abort keeps acknowledgements pending",
        ACKS,
        "rest = PartitionAcks(self.mark, self.acked, without(self.pending, (transactional_id,)), still)",
        "rest = replace(self, pending=without(self.pending, (transactional_id,) if commit else ()), "
        "_held=still)",
        (
            (END_TO_END, "txnIndividualAckTestBatchAndFailoverSub"),
            (END_TO_END, "testFilterMsgsInPendingAckStateWhenConsumerDisconnect"),
            (REPLAY, "individualPendingAckReplayTest"),
            (STORE, "abortEvent_callsHandleAbortTxn_andDeletesOpRecords"),
        ),
    ),
    Mutation(
        "an end frees what other transactions have acknowledged",
        ACKS,
        "rest = PartitionAcks(self.mark, self.acked, without(self.pending, (transactional_id,)), still)",
        "rest = replace(self, pending={}, _held=None)",
        (
            (END_TO_END, "testIndividualAckAbortFilterAckSetInPendingAckState"),
            (MEMORY, "testPendingAckClearPositionIsSmallerThanMarkDelete"),
            (STORE, "recovery_rebuildsOpenTxnStateFromAckRecords"),
        ),
    ),
    Mutation(
        "pending messages are received",
        ACKS,
        "found = found | held.ranges | below",
        "found = found | below",
        (
            (PRODUCE, "ackCommitTest"),
            (PRODUCE, "ackAbortTest"),
            (END_TO_END, "testFilterMsgsInPendingAckStateWhenConsumerDisconnect"),
            (END_TO_END, "testMsgsInPendingAckStateWouldNotGetTheConsumerStuck"),
            (END_TO_END, "testAckWithTransactionReduceUnackCountNotInPendingAcks"),
        ),
    ),
    Mutation(
        "an instance does not receive again what its aborted transaction gave back",
        "txnformat/consumers/delivery.py",
        "known.passed = known.passed - given",
        "known.passed = known.passed | given",
        (
            (END_TO_END, "txnIndividualAckTestNoBatchAndSharedSub"),
            (SCALABLE, "testMultipleSubscriptionsIndependentTransactionalAcks"),
        ),
    ),
    Mutation(
        "acknowledged messages are kept one by one",
        ACKS,
        "if len(acked) and acked.first_start == mark:",
        "if len(acked) and acked.first_start == -1:",
        (
            (MEMORY, "txnAckTestNoBatchAndSharedSubMemoryDeleteTest"),
            (MEMORY, "txnAckTestBatchAndSharedSubMemoryDeleteTest"),
            (REPLAY, "testDeleteUselessLogDataWhenSubCursorMoved"),
            (REPLAY, "individualPendingAckReplayTest"),
            ("TransactionTest", "testPendingAckMarkDeletePosition"),
        ),
    ),
)
