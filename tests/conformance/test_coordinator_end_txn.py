"""Ends of transactions on the pure core: the whole table, and what an end is made of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import (
    ABORT,
    AUDIT,
    COMMIT,
    NAME,
    ORDERS,
    CoreLog,
    kinds,
    orders,
    rows,
    staged,
)
from tests.conformance.end_txn_table import ERRORS, KAFKAS, STATES, TABLE, Answer, Epoch, Row
from txnformat.core.entry import decode_entry
from txnformat.core.intents import Done, Included, OpenProducer, ProducerRef, Rejected, Write
from txnformat.core.operations import EndTxn
from txnformat.core.transactions.state import TransactionalIdState, TransactionStatus
from txnformat.errors import (
    CorruptDataError,
    InternalError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.entries import replaced_in_entry
from txnlog_testing.strategies import make_append


def _class_of(epoch: int, known: TransactionalIdState) -> Epoch:
    last = known.last_end
    if epoch >= known.epoch:
        return Epoch.CURRENT if epoch == known.epoch else Epoch.HIGHER
    if last is None or epoch < last.epoch:
        return Epoch.OLDER
    return Epoch.ENDED if epoch == last.epoch else Epoch.PASSED


def _epochs(log: CoreLog) -> Iterator[tuple[Epoch, int]]:
    """Return all epochs there are: from 0 to the one that was never given."""
    known = log.id()
    return ((_class_of(epoch, known), epoch) for epoch in range(known.epoch + 2))


def _check(log: CoreLog, epoch: int, outcome: Outcome, answer: Answer, *, one_shot: bool) -> None:
    before = log.id()
    deferred = one_shot and bool(before.staged)
    appends = () if not one_shot else staged(1) if deferred else rows(1)
    write = Write(ProducerRef(before.producer_id, epoch, NAME), appends, outcome, deferred=deferred)
    others = {name: known for name, known in log.state.transactional_ids.items() if name != NAME}
    if answer is Answer.ENDS:
        operations = log.apply(write)
        assert kinds(operations) == ["Stage" if deferred else "Append", "EndTxn"] if one_shot else ["EndTxn"]
        after = log.id()
        complete = (
            TransactionStatus.COMPLETE_COMMIT if outcome is COMMIT else TransactionStatus.COMPLETE_ABORT
        )
        assert (after.status, after.epoch, after.partitions) == (complete, before.epoch + 1, {})
        assert after.last_end is not None
        assert (after.last_end.epoch, after.last_end.outcome) == (epoch, outcome)
        assert after.last_end.entry == log.state.entry
    elif answer is Answer.REPEATED:
        assert before.last_end is not None
        assert log.done(write).entry == before.last_end.entry
    else:
        error = log.refusal(write)
        assert (type(error), error.kind) == (ERRORS[answer], answer.value)
        assert error.values["transactional_id"] == NAME
    assert {name: known for name, known in log.state.transactional_ids.items() if name != NAME} == others


@case(
    "TransactionCoordinatorTest",
    "shouldReplyWithProducerFencedOnEndTxnWhenEpochIsNotSameAsTransaction",
    "testEndTxnWhenStatusIsCompleteCommitAndResultIsCommitInV1",
    "testEndTxnWhenStatusIsCompleteCommitAndResultIsCommitInV2",
    "testEndTxnWhenStatusIsCompleteAbortAndResultIsAbortInV1",
    "shouldReturnOkOnEndTxnWhenStatusIsCompleteAbortAndResultIsAbortInV2",
    "shouldReturnInvalidTxnRequestOnEndTxnRequestWhenStatusIsCompleteAbortAndResultIsNotAbort",
    "shouldReturnInvalidTxnRequestOnEndTxnRequestWhenStatusIsCompleteCommitAndResultIsNotCommit",
    "testEndTxnRequestWhenStatusIsCompleteCommitAndResultIsAbortInV1",
    "testEndTxnRequestWhenStatusIsCompleteCommitAndResultIsAbortInV2",
    "TestEndTxnRequestWhenEmptyTransactionStateForAbortInV1",
    "TestEndTxnRequestWhenEmptyTransactionStateForAbortInV2",
    "TestEndTxnRequestWhenEmptyTransactionStateForCommitInV2",
    "shouldReturnInvalidTxnRequestOnEndTxnV2IfNotEndTxnV2Retry",
    "shouldReturnInvalidEpochOnEndTxnWhenEpochIsLarger",
    "shouldReturnInvalidEpochOnEndTxnWhenEpochIsSmaller",
)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.state}-{row.epoch}")
def test_an_end_gets_the_answer_of_the_table(row: Row) -> None:
    """Each row: commit, abort, commit with records; an end that is no repeat begins the next epoch."""
    tried = 0
    for outcome, answer, one_shot in (
        (COMMIT, row.commit, False),
        (ABORT, row.abort, False),
        (COMMIT, row.one_shot, True),
    ):
        epochs = [epoch for kind, epoch in _epochs(STATES[row.state](NAME)) if kind is row.epoch]
        for epoch in epochs:
            _check(STATES[row.state](NAME), epoch, outcome, answer, one_shot=one_shot)
            tried += 1
    assert tried >= 3


def test_the_table_has_every_state_and_every_kind_of_epoch_once() -> None:
    present = sorted((state, str(kind)) for state, build in STATES.items() for kind in _kinds(build(NAME)))
    assert sorted((row.state, str(row.epoch)) for row in TABLE) == present
    reached = {build(NAME).id().status for build in STATES.values()}
    assert reached == set(TransactionStatus)


def _kinds(log: CoreLog) -> set[Epoch]:
    return {kind for kind, _ in _epochs(log)}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.state}-{row.epoch}")
def test_a_row_that_differs_from_kafkas_says_why(row: Row) -> None:
    same = (KAFKAS[row.commit], KAFKAS[row.abort]) == row.kafka
    assert same == (not row.because)


@case(
    "TransactionCoordinatorTest",
    "shouldReplyWithInvalidPidMappingOnEndTxnWhenTxnIdDoesntExist",
    "shouldReplyWithInvalidPidMappingOnEndTxnWhenPidDoesntMatchMapped",
)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", Outcome)
def test_an_id_or_producer_id_that_the_log_does_not_know_ends_nothing(state: str, outcome: Outcome) -> None:
    """For any epoch, and also when the epoch would be a repeat: identity comes first."""
    log = STATES[state](NAME)
    known = log.id()
    for epoch in range(known.epoch + 2):
        for name, producer_id in (
            ("never opened", known.producer_id),
            (NAME, known.producer_id + 1),
            (NAME, 0),
        ):
            for appends in ((), rows(1)):
                error = log.refusal(Write(ProducerRef(producer_id, epoch, name), appends, outcome))
                assert (type(error), error.kind) == (InvalidTransactionStateError, "unknown-transactional-id")
                assert error.values["producer_id"] == producer_id


@case(
    "TransactionCoordinatorTest",
    "shouldRespondWithInvalidRequestOnEndTxnWhenTransactionalIdIsNull",
    "shouldRespondWithInvalidRequestOnEndTxnWhenTransactionalIdIsEmpty",
    "shouldRespondWithInvalidRequestAddPartitionsToTransactionWhenTransactionalIdIsEmpty",
    "shouldRespondWithInvalidRequestAddPartitionsToTransactionWhenTransactionalIdIsNull",
)
@pytest.mark.parametrize("end", [None, COMMIT, ABORT])
def test_no_id_and_an_empty_id_end_and_append_nothing(end: Outcome | None) -> None:
    """The core refuses them; and no entry that names an empty id can be read, whoever wrote it."""
    log = CoreLog()
    producer = log.open()
    log.append(producer, 0)
    empty = log.refusal(Write(ProducerRef(producer.producer_id, producer.epoch, ""), rows(1), end))
    assert empty.kind == "unknown-transactional-id"
    if end is not None:
        none = log.refusal(Write(ProducerRef(producer.producer_id, producer.epoch), end=end))
        assert isinstance(none, InternalError)
    written = log.assemble(log.intent(Write(producer, rows(1), COMMIT))).data
    assert written.count(b'"etl"') == 2
    with pytest.raises(CorruptDataError, match="text of 1 to 249 bytes"):
        decode_entry(replaced_in_entry(written, b'"etl"', b'""'), log.state.entry)


@case(
    "TransactionCoordinatorTest",
    "shouldAppendPrepareCommitToLogOnEndTxnWhenStatusIsOngoingAndResultIsCommit",
    "shouldAppendPrepareAbortToLogOnEndTxnWhenStatusIsOngoingAndResultIsAbort",
)
@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_is_one_entry_with_a_marker_in_each_partition_that_has_data(outcome: Outcome) -> None:
    """Decision and markers are one step: there is no state in between that anybody could see."""
    log = CoreLog()
    producer = log.open()
    log.append(log.open("other"), 1)
    log.append(producer, 0, 1)
    log.append(producer, 0, sequence=2)
    log.apply(Write(producer, (make_append(AUDIT, {2: (0, 1)}, content="audit"),)))
    entry = log.state.entry
    (end,) = log.apply(Write(producer, end=outcome))
    assert isinstance(end, EndTxn)
    assert log.state.entry == entry + 1
    assert (end.transactional_id, end.producer_id, end.epoch) == (NAME, producer.producer_id, 0)
    assert end.outcome is outcome
    assert {(marker.topic_partition, marker.offset) for marker in end.markers} == {
        (TopicPartition(topic.topic_id, partition), offset)
        for topic, partition, offset in ((ORDERS, 0, 4), (ORDERS, 1, 4), (AUDIT, 2, 1))
    }
    assert log.state.partition(orders(0)).last_stable_offset == 5
    assert log.state.partition(orders(1)).last_stable_offset == 0  # the other's


@case(
    "TransactionCoordinatorTest",
    "shouldReturnConcurrentTransactionsOnEndTxnRequestWhenStatusIsPrepareCommit",
    "shouldReturnInvalidTxnRequestOnEndTxnRequestWhenStatusIsPrepareAbort",
)
@pytest.mark.parametrize("first", Outcome)
@pytest.mark.parametrize("second", Outcome)
def test_an_end_that_waits_beside_another_is_answered_by_it(first: Outcome, second: Outcome) -> None:
    """Where Kafka says "later" (CONCURRENT_TRANSACTIONS), ours has the answer: both are decided in one
    entry.
    """
    log = CoreLog()
    producer = log.open()
    log.append(producer, 0)
    one, two = (log.intent(Write(producer, end=outcome)) for outcome in (first, second))
    assembled = log.assemble(one, two)
    assert assembled.entry is not None
    assert kinds(assembled.entry.operations) == ["EndTxn"]
    assert isinstance(assembled.verdicts[one.intent_id], Included)
    verdict = assembled.verdicts[two.intent_id]
    if first is second:
        assert isinstance(verdict, Done)
        assert verdict.entry == assembled.entry.entry
    else:
        assert isinstance(verdict, Rejected)
        assert verdict.error.kind == ("transaction-committed" if first is COMMIT else "transaction-aborted")


@case("TransactionCoordinatorTest", "shouldReturnInvalidTxnRequestOnEndTxnV2IfNotEndTxnV2Retry")
def test_a_delayed_end_never_ends_the_next_transaction() -> None:
    """Kafka's flaw before KIP-890 (lost writes, aborted reads, torn transactions): one epoch, one
    transaction.

    The end that was sent twice arrives after the next transaction has begun: it is answered with what it did,
    or refused, and what is open stays open.
    """
    log = CoreLog()
    producer = log.open()
    log.append(producer, 0)
    ended = log.finish(producer, ABORT)
    following = log.producer(NAME)
    log.append(following, 0)
    assert log.done(Write(producer, end=ABORT)).entry == ended
    assert log.refusal(Write(producer, end=COMMIT)).kind == "transaction-aborted"
    assert log.id().status is TransactionStatus.ONGOING
    log.finish(following, COMMIT)
    log.append(log.producer(NAME), 0)
    assert isinstance(log.refusal(Write(producer, end=COMMIT)), ProducerFencedError)
    assert log.id().status is TransactionStatus.ONGOING


@case(
    "TransactionCoordinatorTest",
    "shouldWaitForCommitToCompleteOnHandleInitPidAndExistingTransactionInPrepareCommitState",
)
@case(
    "TransactionCoordinatorTest",
    "shouldWaitForCommitToCompleteOnHandleInitPidAndExistingTransactionInPrepareAbortState",
)
@pytest.mark.parametrize("outcome", Outcome)
def test_an_init_that_waits_beside_an_end_comes_after_it(outcome: Outcome) -> None:
    """The init is put off to the next entry, not refused; the end that was first stands."""
    log = CoreLog()
    producer = log.open()
    log.append(producer, 0)
    end, init = log.intent(Write(producer, end=outcome)), log.intent(OpenProducer(NAME))
    assert set(log.assemble(end, init).verdicts) == {end.intent_id}
    assert isinstance(log.assemble(init).verdicts[init.intent_id], Included)
    last = log.id().last_end
    assert last is not None
    assert (last.outcome, last.cause, log.id().epoch) == (outcome, "producer", 2)
    assert log.done(Write(producer, end=outcome)).entry == last.entry
