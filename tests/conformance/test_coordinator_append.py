"""Appends of a transaction (Kafka's AddPartitionsToTxn, explicit or implied), on the pure core.

Kafka registers a partition with the coordinator before data counts, and verifies that it did. Here the append
that gives the offsets is what registers: these tests hold that nothing else can, and that the answers are
Kafka's.
"""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, AUDIT, COMMIT, NAME, ORDERS, CoreLog, kinds, orders, rows
from txnformat.core.intents import Included, ProducerRef, Write
from txnformat.core.operations import Cause
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import InvalidTransactionStateError, NotFoundError, ProducerFencedError
from txnformat.persistent import replace
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.strategies import make_append


@case(
    "TransactionCoordinatorTest",
    "shouldRespondWithInvalidPidMappingOnAddPartitionsToTransactionWhenTransactionalIdNotPresent",
)
def test_an_append_of_an_id_that_the_log_does_not_know_is_refused() -> None:
    log = CoreLog()
    known = log.open("other")
    for stranger in (ProducerRef(known.producer_id, 0, NAME), ProducerRef(known.producer_id + 1, 0, "other")):
        error = log.refusal(Write(stranger, rows()))
        assert (type(error), error.kind) == (InvalidTransactionStateError, "unknown-transactional-id")
    assert log.state.partition(orders(0)).log_end == 0


@case("TransactionCoordinatorTest", "shouldRespondWithProducerFencedOnAddPartitionsWhenEpochsAreDifferent")
@pytest.mark.parametrize("status", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_an_append_needs_the_current_epoch_exactly(status: str) -> None:
    """Lower: fenced, or that its own transaction has ended; higher: an epoch that was never given."""
    log = CoreLog()
    log.open()
    now = log.open()
    if status != "Empty":
        log.append(now)
    if status.startswith("Complete"):
        log.finish(now, COMMIT if status == "CompleteCommit" else ABORT)
        error = log.refusal(Write(now, rows(sequence=2)))
        assert (type(error), error.kind) == (InvalidTransactionStateError, "transaction-ended")
    assert log.id().status == status
    current = log.producer(NAME)
    assert isinstance(log.refusal(Write(replace(current, epoch=0), rows())), ProducerFencedError)
    error = log.refusal(Write(replace(current, epoch=current.epoch + 1), rows()))
    assert (type(error), error.kind) == (InvalidTransactionStateError, "unknown-epoch")


@case(
    "TransactionCoordinatorTest",
    "shouldAppendNewMetadataToLogOnAddPartitionsWhenPartitionsAdded",
    "shouldRespondWithSuccessOnAddPartitionsWhenStateIsOngoing",
    "shouldRespondWithSuccessOnAddPartitionsWhenStateIsCompleteCommit",
    "shouldRespondWithSuccessOnAddPartitionsWhenStateIsCompleteAbort",
)
@case("TransactionStateManagerTest", "testCompleteTransitionWhenAppendSucceeded")
@pytest.mark.parametrize("before", [None, COMMIT, ABORT])
def test_appends_begin_the_transaction_and_add_partitions_to_it(before: Outcome | None) -> None:
    """From Empty and from either end; over topics; the first append says when the transaction began."""
    log = CoreLog()
    log.open()
    if before is not None:
        log.append(log.producer(NAME), 2)
        log.finish(log.producer(NAME), before)
        assert log.id().partitions == {}, "nothing of the ended transaction is left in the next"
    now = log.producer(NAME)
    offset = log.state.partition(orders(2)).log_end
    log.append(now, 2)
    started = (log.state.entry, log.state.timestamp_ms)
    assert log.id().partitions == {orders(2): offset}
    log.now_ms += 1_000
    log.append(now, 0)
    log.apply(Write(now, (make_append(AUDIT, {1: (0, 3)}, content="audit"),)))
    known = log.id()
    assert known.partitions == {orders(0): 0, orders(2): offset, TopicPartition(AUDIT.topic_id, 1): 0}
    assert (known.started_entry, known.started_ms) == started
    assert (known.status, known.epoch) == (TransactionStatus.ONGOING, now.epoch)


@case(
    "TransactionCoordinatorTest",
    "shouldRespondWithErrorsNoneOnAddPartitionWhenNoErrorsAndPartitionsTheSame",
)
def test_a_further_append_to_a_partition_changes_nothing_of_the_transaction() -> None:
    """No operation registers anything: the entry has the append alone, and the id's state stays as it was."""
    log = CoreLog()
    now = log.open()
    log.append(now, 0, 1)
    before = log.id()
    log.now_ms += 1_000
    assert kinds(log.apply(Write(now, rows(0, 1, sequence=2)))) == ["Append"]
    after = log.id()
    assert (after.used_entry, after.used_ms) == (log.state.entry, log.state.timestamp_ms)
    assert replace(after, used_entry=before.used_entry, used_ms=before.used_ms) == before
    assert (after.expires_ms, after.timed_entry) == (before.expires_ms, before.timed_entry), "nor its time"
    log.done(Write(now, rows(0, 1, sequence=2)))
    assert log.id() == after


@case(
    "TransactionCoordinatorTest",
    "testVerifyPartitionHandling",
    "shouldRespondWithErrorsNoneOnAddPartitionWhenOngoingVerifyOnlyAndPartitionsTheSame",
    "shouldRespondWithInvalidTxnStateWhenVerifyOnlyAndPartitionNotPresent",
)
@case("AddPartitionsToTxnRequestServerTest", "testVerifyOnly")
@pytest.mark.parametrize("outcome", [*Outcome, "init"])
def test_no_data_is_open_in_a_partition_that_its_transaction_does_not_name(outcome: str) -> None:
    """What Kafka verifies by a request of its own (KIP-890, against hanging transactions) holds by
    construction.

    A transaction is open in a partition exactly while its id names the partition; data that comes after the
    end, of any kind, is refused, so nothing can be left hanging.
    """
    log = CoreLog()
    now = log.open()
    log.append(now, 0, 2)
    for partition in range(3):
        assert _open(log, partition) == ([0] if orders(partition) in log.id().partitions else [])
    if outcome == "init":
        log.open()
    else:
        log.finish(now, Outcome(outcome))
    for late in (rows(0, sequence=2), rows(1), rows(0)):
        log.refusal(Write(now, late))
    for partition in range(3):
        assert _open(log, partition) == []
    assert log.id().partitions == {}


def _open(log: CoreLog, partition: int) -> list[int]:
    return list(log.state.partition(orders(partition)).open.values())


@case(
    "TransactionCoordinatorTest",
    "shouldRespondWithConcurrentTransactionsOnAddPartitionsWhenStateIsPrepareCommit",
    "shouldRespondWithConcurrentTransactionOnAddPartitionsWhenStateIsPrepareAbort",
)
@pytest.mark.parametrize("outcome", Outcome)
def test_the_next_transaction_may_begin_in_the_very_entry_of_the_end(outcome: Outcome) -> None:
    """Kafka answers "later" while markers are written, and clients back off; here nothing lies in between."""
    log = CoreLog()
    first = log.open()
    log.append(first)
    following = replace(first, epoch=first.epoch + 1)
    end, begin = log.intent(Write(first, end=outcome)), log.intent(Write(following, log.fresh(rows())))
    made = log.assemble(end, begin)
    assert made.entry is not None
    assert kinds(made.entry.operations) == ["EndTxn", "Append"]
    assert all(isinstance(verdict, Included) for verdict in made.verdicts.values())
    known = log.id()
    assert (known.status, known.epoch, known.partitions) == (TransactionStatus.ONGOING, 1, {orders(0): 3})
    assert known.last_end is not None
    assert (known.last_end.outcome, known.last_end.cause) == (outcome, Cause.PRODUCER)


@case(
    "AddPartitionsToTxnRequestServerTest",
    "shouldReceiveOperationNotAttemptedWhenOtherPartitionHasError",
    "testOneSuccessOneErrorInBatchedRequest",
)
def test_an_append_is_all_or_nothing_and_alone_in_its_failure() -> None:
    """One bad partition: nothing of that append is in the log; other producers' appends of the entry are."""
    log = CoreLog()
    mine, other = log.open(), log.open("other")
    before = log.id()
    missing = make_append(replace(ORDERS, partitions=3), {0: (0, 1), 3: (0, 1)}, content="beyond")
    bad, good = log.intent(Write(mine, (missing,))), log.intent(Write(other, rows(1)))
    made = log.assemble(bad, good)
    assert made.entry is not None
    assert made.entry.intents == (good.intent_id,)
    error = log.refusal(Write(mine, (missing,)))
    assert (type(error), error.kind, error.values["partitions"]) == (NotFoundError, "unknown-partition", [3])
    assert log.id() == before
    assert [log.state.partition(orders(number)).log_end for number in range(3)] == [0, 2, 0]
