"""Opening a producer (Kafka's InitProducerId), on the pure core: identities, epochs, fences."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, COMMIT, NAME, CoreLog, orders, rows
from tests.conformance.epochs import BOUNDARIES, at_epoch
from txnformat.core.assemble import assemble
from txnformat.core.intents import AllocateIds, Done, Included, OpenProducer, ProducerRef, Write
from txnformat.core.operations import AllocateProducerIds, Cause, InitProducer
from txnformat.core.transactions.state import LastEnd, TransactionStatus
from txnformat.errors import ProducerFencedError, UnknownProducerIdError
from txnformat.persistent import replace
from txnformat.types import Outcome


@case("TransactionCoordinatorTest", "shouldAcceptInitPidAndReturnNextPidWhenTransactionalIdIsNull")
def test_without_an_id_a_producer_gets_the_next_producer_id_and_epoch_0() -> None:
    """Ids of a block stand for themselves: their epoch is 0 and stays, and no id is given twice."""
    log = CoreLog()
    for first in (0, 1_000):
        (block,) = log.apply(AllocateIds("process"))
        assert isinstance(block, AllocateProducerIds)
        assert (block.first, block.last) == (first, first + 999)
    log.apply(Write(ProducerRef(1_999, 0), rows()))
    assert isinstance(log.refusal(Write(ProducerRef(2_000, 0), rows())), UnknownProducerIdError)
    assert log.open().producer_id == 2_000


@case("TransactionCoordinatorTest", "shouldInitPidWithEpochZeroForNewTransactionalId")
@case("TransactionMetadataTest", "testInitializeEpoch", "testAttemptedEpochBumpWithNewlyCreatedMetadata")
@case("TransactionStateManagerTest", "testAddGetPids")
def test_a_new_id_begins_at_epoch_0_with_a_producer_id_of_its_own() -> None:
    log = CoreLog(AllocateIds("process", 7))
    assert NAME not in log.state.transactional_ids
    (first,) = log.apply(OpenProducer(NAME))
    assert isinstance(first, InitProducer)
    assert (first.producer_id, first.epoch, first.aborted) == (7, 0, ())
    (second,) = log.apply(OpenProducer("other"))
    assert isinstance(second, InitProducer)
    assert (second.producer_id, second.epoch) == (8, 0)
    known = log.id()
    assert (known.status, known.partitions, known.last_end) == (TransactionStatus.EMPTY, {}, None)


@case("TransactionCoordinatorTest", "shouldGenerateNewProducerIdIfNoStateAndProducerIdAndEpochProvided")
def test_a_producer_that_the_log_does_not_know_has_to_open_and_gets_what_the_log_gives() -> None:
    """What it brings along (a producer id and epoch of another log) is never taken over."""
    log = CoreLog()
    stranger = ProducerRef(4711, 10, NAME)
    assert log.refusal(Write(stranger, rows())).kind == "unknown-transactional-id"
    assert log.open() == ProducerRef(0, 0, NAME)
    assert log.refusal(Write(stranger, rows())).kind == "unknown-transactional-id"


@case(
    "TransactionCoordinatorTest",
    "shouldIncrementEpochAndUpdateMetadataOnHandleInitPidWhenExistingEmptyTransaction",
    "shouldIncrementEpochAndUpdateMetadataOnHandleInitPidWhenExistingCompleteTransaction",
    "shouldIncrementEpochAndUpdateMetadataOnHandleInitPidWhenExistingCompleteCommitTransaction",
)
@case("TransactionMetadataTest", "testNormalEpochBump")
@pytest.mark.parametrize("end", [None, COMMIT, ABORT])
def test_opening_again_keeps_the_producer_id_and_bumps_the_epoch_once(end: Outcome | None) -> None:
    log = CoreLog()
    old = log.open()
    if end is not None:
        log.append(old)
        log.finish(old, end)
    before = log.id()
    (opened,) = log.apply(OpenProducer(NAME))
    assert isinstance(opened, InitProducer)
    assert (opened.producer_id, opened.epoch, opened.aborted) == (old.producer_id, before.epoch + 1, ())
    after = log.id()
    assert after.status is TransactionStatus.EMPTY
    assert after.last_end == before.last_end, "how the last transaction ended stays known"


@case(
    "TransactionCoordinatorTest", "shouldAbortTransactionOnHandleInitPidWhenExistingTransactionInOngoingState"
)
def test_opening_aborts_what_is_open_in_the_same_entry_and_bumps_the_epoch_once() -> None:
    """Kafka needs three steps (fence, abort, and a repeated init that bumps again); the caller is told to
    wait."""
    log = CoreLog()
    old = log.open()
    log.append(old, 0, 2)
    before = log.state.entry
    (opened,) = log.apply(OpenProducer(NAME))
    assert isinstance(opened, InitProducer)
    assert log.state.entry == before + 1
    assert opened.epoch == old.epoch + 1
    assert [(marker.partition, marker.offset) for marker in opened.aborted] == [(0, 2), (2, 2)]
    assert log.id().last_end == LastEnd(old.epoch, ABORT, Cause.INIT, log.state.entry)
    for partition in (0, 2):
        assert log.state.partition(orders(partition)).last_stable_offset == 3
    for late in (Write(old, rows(sequence=2)), Write(old, end=COMMIT), Write(old, end=ABORT)):
        assert isinstance(log.refusal(late), ProducerFencedError)


@case("TransactionCoordinatorTest", "shouldFailToAbortTransactionOnHandleInitPidWhenProducerEpochIsSmaller")
@case("TransactionMetadataTest", "testAttemptedEpochBumpWithFencedEpoch")
def test_of_two_instances_that_open_the_later_entry_wins_and_the_other_is_fenced() -> None:
    """The loser holds a smaller epoch: it ends nothing that the winner has open."""
    log = CoreLog()
    log.append(log.open())
    first, second = log.intent(OpenProducer(NAME)), log.intent(OpenProducer(NAME))
    assert set(log.assemble(first, second).verdicts) == {first.intent_id}, "one init in one entry"
    loser = log.producer(NAME)
    log.assemble(second)
    winner = log.producer(NAME)
    assert (loser.epoch, winner.epoch) == (1, 2)
    log.append(winner, 1)
    for late in (Write(loser, rows(1)), Write(loser, end=ABORT), Write(loser, end=COMMIT)):
        assert isinstance(log.refusal(late), ProducerFencedError)
    assert log.id().status is TransactionStatus.ONGOING


@case(
    "TransactionCoordinatorTest",
    "testInitProducerIdWithCurrentEpochProvided",
    "testRetryInitProducerIdAfterProducerIdRotation",
)
@case(
    "TransactionMetadataTest", "testEpochBumpWithCurrentEpochProvided", "testAttemptedEpochBumpWithLastEpoch"
)
def test_a_repeated_init_is_answered_with_the_identity_that_it_got() -> None:
    """Kafka knows a retry by the epoch that the caller brings (KIP-360), ours by the intent: one init, one
    bump."""
    log = CoreLog()
    log.open()
    intent = log.intent(OpenProducer(NAME))
    assert isinstance(log.assemble(intent).verdicts[intent.intent_id], Included)
    entry, epoch = log.state.entry, log.id().epoch
    verdict = log.assemble(intent).verdicts[intent.intent_id]
    assert verdict == Done(entry, intent_id=intent.intent_id)
    log.append(log.producer(NAME))
    verdict = log.assemble(intent).verdicts[intent.intent_id]
    assert verdict == Done(entry, intent_id=intent.intent_id), "and it aborts nothing that began since"
    assert (log.id().epoch, log.id().status) == (epoch, TransactionStatus.ONGOING)


@case(
    "TransactionCoordinatorTest",
    "testInitProducerIdWithNoLastProducerData",
    "testInitProducerIdStaleCurrentEpochProvided",
    "testFenceProducerWhenMappingExistsWithDifferentProducerId",
    "testInitProducerIdWithInvalidEpochAfterProducerIdRotation",
)
@pytest.mark.parametrize("step", ["append", "commit", "abort"])
def test_an_instance_of_before_cannot_go_on_with_its_identity(step: str) -> None:
    """Neither with a smaller epoch, whether or not anything ended in it, nor with another producer id."""
    log = CoreLog()
    log.open("other")
    old = log.open()
    log.open()
    write = {"append": Write(old, rows()), "commit": Write(old, end=COMMIT), "abort": Write(old, end=ABORT)}[
        step
    ]
    assert isinstance(log.refusal(write), ProducerFencedError)
    foreign = replace(write, producer=ProducerRef(0, 1, NAME))
    assert log.refusal(foreign).kind == "unknown-transactional-id"


@case(
    "TransactionCoordinatorTest",
    "shouldNotRepeatedlyBumpEpochDueToInitPidDuringOngoingTxnIfAppendToLogFails",
    "testTV2AllowsEpochReBumpingAfterFailedWrite",
)
def test_an_init_that_was_decided_but_not_written_has_changed_nothing() -> None:
    """However often its slot was lost or its write failed: in the log the epoch grows by one per init."""
    log = CoreLog()
    old = log.open()
    log.append(old)
    intent = log.intent(OpenProducer(NAME))
    for attempt in range(5):
        lost = assemble(log.state, (intent,), store_time_ms=log.now_ms, write_id=f"lost {attempt}")
        assert lost.after.transactional_ids[NAME].epoch == 1
        assert (log.id().epoch, log.id().status) == (0, TransactionStatus.ONGOING)
        log.apply(AllocateIds("somebody else", 1))  # holds the slot
    log.append(old, sequence=2)
    log.assemble(intent)
    assert (log.id().epoch, log.id().status) == (1, TransactionStatus.EMPTY)


@case(
    "TransactionCoordinatorTest",
    "shouldGenerateNewProducerIdIfEpochsExhausted",
    "shouldGenerateNewProducerIdIfEpochsExhaustedV2",
    "shouldUseLastEpochToFenceWhenEpochsAreExhausted",
    "shouldNotCauseEpochOverflowWhenInitPidDuringOngoingTxnV2",
    "shouldRotateProducerIdWhenInitPidFencesOngoingTxnAtEpochOverflowBoundaryTV2",
    "shouldReturnOkOnEndTxnV2IfEndTxnV2RetryEpochOverflow",
    "shouldReturnConcurrentTxnOnAddPartitionsIfEndTxnV2EpochOverflowAndNotComplete",
)
@case("TransactionMetadataTest", "testEpochBumpOnEndTxnOverflow")
@pytest.mark.parametrize("epoch", BOUNDARIES)
@pytest.mark.parametrize("by", ["commit", "abort", "init", "init of an open transaction"])
def test_no_epoch_is_the_last_and_the_producer_id_stays(epoch: int, by: str) -> None:
    """Kafka's epochs end at 32767 and the producer id changes under the producer; ours have 64 bits.

    What those tests hold must hold here as well: at the boundary the producer goes on, a repeat gets its
    answer, the next transaction may begin at once, and everything older is fenced.
    """
    log = CoreLog()
    log.open()
    old = at_epoch(log, epoch)
    if by != "init":
        log.append(old)
    outcome = COMMIT if by == "commit" else ABORT
    if by in ("commit", "abort"):
        ended = log.finish(old, outcome)
        assert log.done(Write(old, end=outcome)).entry == ended
    else:
        log.apply(OpenProducer(NAME))
        assert isinstance(log.refusal(Write(old, end=ABORT)), ProducerFencedError)
    now = log.producer(NAME)
    assert now == ProducerRef(old.producer_id, epoch + 1, NAME)
    log.refusal(Write(old, rows(sequence=2)))
    log.append(now)
    log.finish(now, COMMIT)
    assert isinstance(log.refusal(Write(replace(now, epoch=epoch - 1), end=COMMIT)), ProducerFencedError)
