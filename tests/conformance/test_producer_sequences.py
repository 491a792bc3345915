"""ProducerStateManagerTest and UnifiedLogTest: identities, sequences, repeats."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, ORDERS, Chain
from txnformat.core.decide import decide
from txnformat.core.fold import At, apply_operation
from txnformat.core.intents import AllocateIds, Done, Included, OpenProducer, ProducerRef, Write
from txnformat.core.operations import Append
from txnformat.core.producers.state import WINDOW_APPENDS
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.transactions.fold import NUMBER_MAX
from txnformat.errors import (
    CorruptDataError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    SequenceError,
    UnknownProducerIdError,
)
from txnformat.persistent import replace
from txnformat.types import Outcome, TopicPartition

KEY = TopicPartition(ORDERS.topic_id, 0)
INT_MAX = 2**31 - 1


def idempotent() -> tuple[Chain, ProducerRef]:
    """Return a log and a producer without a transactional id."""
    chain = Chain()
    chain.do(AllocateIds("process"))
    return chain, ProducerRef(0, 0)


def small(write: Write) -> Write:
    """Return the write with batches of one byte: the bytes of so many records would not fit into 64 bits."""
    appends = tuple(
        replace(
            append,
            partitions=tuple(replace(part, size=1) for part in append.partitions),
            batches=tuple(replace(batch, size=1) for batch in append.batches),
        )
        for append in write.appends
    )
    return replace(write, appends=appends)


def refused_sequence(chain: Chain, producer: ProducerRef, sequence: int, records: int = 1) -> SequenceError:
    error = chain.refusal(chain.write(producer, records, sequence=sequence))
    assert isinstance(error, SequenceError), error
    return error


@case("ProducerStateManagerTest", "testBasicIdMapping")
def test_a_sequence_follows_its_producers_last_and_a_new_epoch_begins_at_0_and_fences() -> None:
    chain = Chain("etl")
    first = chain.producer("etl")
    chain.do(chain.write(first, 1, sequence=0), chain.write(first, 1, sequence=1))
    assert isinstance(refused_sequence(chain, first, 5), OutOfOrderSequenceError)
    chain.do(OpenProducer("etl"))
    second = chain.producer("etl")
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    chain.do(chain.write(second, 1, sequence=0))
    assert isinstance(chain.refusal(chain.write(first, 1, sequence=2)), ProducerFencedError)


@case("ProducerStateManagerTest", "testNoValidationOnFirstEntryWhenLoadingLog")
def test_what_is_loaded_is_validated_because_windows_survive_a_reload() -> None:
    chain, producer = idempotent()
    for _ in range(7):
        chain.do(chain.write(producer, 2))
    chain.check_reopening()
    reopened = chain.reopened(5)
    verdict = decide(reopened, chain.intent(chain.write(producer, 1, sequence=14)))
    assert isinstance(verdict, Included)
    (append,) = verdict.operations
    assert isinstance(append, Append)
    skipping = replace(append, partitions=(replace(append.partitions[0], base_sequence=15),))
    with pytest.raises(CorruptDataError, match="sequence does not follow"):
        apply_operation(reopened, skipping, At(reopened.entry + 1, reopened.timestamp_ms + 1))


@case("ProducerStateManagerTest", "testPrepareUpdateDoesNotMutate")
def test_deciding_changes_nothing() -> None:
    chain = Chain("etl")
    chain.send("etl", 3)
    before = state_digest(chain.state)
    producer = chain.producer("etl")
    for write in (
        chain.write(producer, 5),
        chain.write(producer, 5, sequence=9),
        Write(producer, end=COMMIT),
        Write(replace(producer, epoch=7), end=ABORT),
    ):
        decide(chain.state, chain.intent(write))
        assert state_digest(chain.state) == before


@case("ProducerStateManagerTest", "updateProducerTransactionState")
def test_a_transaction_keeps_its_first_offset_while_its_sequences_move_until_its_end_clears_both() -> None:
    chain = Chain("etl")
    chain.do(chain.write(None, 9))
    producer = chain.producer("etl")
    who = (producer.producer_id, producer.epoch)
    for number, records in enumerate((1, 5, 6)):
        chain.send("etl", records)
        partition = chain.partition()
        assert partition.open == {who: 9}
        known = partition.sequences[who]
        assert len(known) == number + 1
        assert (known[-1].last_sequence, known[0].base_offset) == (partition.log_end - 9 - 1, 9)
    assert chain.state.transactional_ids["etl"].partitions == {KEY: 9}
    chain.end("etl", COMMIT)
    assert (chain.partition().open, chain.partition().sequences) == ({}, {})
    assert chain.partition().log_end == 9 + 12 + 1, "the marker takes an offset, and no sequence"


@case("ProducerStateManagerTest", "testProducerSequenceWrapAround", "testProducerSequenceInvalidWrapAround")
def test_after_the_largest_sequence_of_32_bits_comes_the_next_number_and_never_0_or_1() -> None:
    chain, producer = idempotent()
    chain.do(chain.write(producer, INT_MAX + 1, sequence=0))
    assert chain.partition().sequences[0, 0][-1].last_sequence == INT_MAX
    for sequence in (0, 1, INT_MAX):
        assert isinstance(refused_sequence(chain, producer, sequence), OutOfOrderSequenceError)
    chain.do(chain.write(producer, 1, sequence=INT_MAX + 1))


@case("ProducerStateManagerTest", "testProducerSequenceWithWrapAroundBatchRecord")
def test_a_batch_runs_across_32_bits_and_none_beyond_the_largest_number() -> None:
    chain, producer = idempotent()
    chain.do(chain.write(producer, INT_MAX - 9, sequence=0), chain.write(producer, 20, sequence=INT_MAX - 9))
    assert chain.partition().sequences[0, 0][-1].last_sequence == INT_MAX + 10
    chain.do(small(chain.write(producer, NUMBER_MAX - INT_MAX - 12, sequence=INT_MAX + 11)))
    assert chain.partition().log_end == NUMBER_MAX - 1
    before = state_digest(chain.state)
    with pytest.raises(CorruptDataError, match="beyond the largest offset"):
        chain.decide(chain.write(producer, 2, sequence=NUMBER_MAX - 1))
    assert state_digest(chain.state) == before
    chain.do(chain.write(producer, 1, sequence=NUMBER_MAX - 1))


@case("ProducerStateManagerTest", "testOutOfSequenceAfterControlRecordEpochBump")
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_after_an_end_the_next_epoch_begins_at_0_and_nowhere_else(outcome: Outcome) -> None:
    chain = Chain("etl")
    chain.send("etl", 2)
    chain.end("etl", outcome)
    after = chain.producer("etl")
    assert after.epoch == 1
    for sequence in (1, 2):
        assert isinstance(refused_sequence(chain, after, sequence), UnknownProducerIdError)
    chain.do(chain.write(after, 1, sequence=0))


@case("ProducerStateManagerTest", "testRejectNonZeroSequenceForDirectEpochBump")
def test_an_init_begins_an_epoch_at_0_and_nowhere_else() -> None:
    chain = Chain("etl")
    chain.send("etl", 2)
    chain.do(OpenProducer("etl"))
    opened = chain.producer("etl")
    for sequence in (1, 2):
        assert isinstance(refused_sequence(chain, opened, sequence), UnknownProducerIdError)
    chain.do(chain.write(opened, 1, sequence=0), chain.write(opened, 1, sequence=1))


@case(
    "ProducerStateManagerTest",
    "testRejectNonZeroSequenceForTransactionsV2WithEmptyState",
    "testAllowNonZeroSequenceForTransactionsV1WithEmptyState",
)
@case("UnifiedLogTest", "testNonZeroSequenceOnFirstAppendNonZeroEpoch")
def test_a_partition_without_state_of_a_producer_takes_sequence_0_only_also_in_a_later_epoch() -> None:
    """Kafka's older protocol takes any: what was sent first and lost is then missing without a trace."""
    chain = Chain("etl")
    for _ in range(3):
        producer = chain.producer("etl")
        assert isinstance(refused_sequence(chain, producer, 1), UnknownProducerIdError)
        chain.do(chain.write(producer, 1, sequence=0, partitions=(1,)))
        assert isinstance(refused_sequence(chain, producer, 1), UnknownProducerIdError), (
            "of its own partition"
        )
        chain.do(OpenProducer("etl"))
    chain.do(chain.write(chain.producer("etl"), 1, sequence=0))


@case("ProducerStateManagerTest", "testThrowOutOfOrderSequenceWithVerificationSequenceCheck")
def test_a_later_batch_that_arrives_first_is_refused_until_the_earlier_one_has_landed() -> None:
    chain = Chain("etl")
    producer = chain.producer("etl")
    earlier, later = chain.write(producer, 3, sequence=0), chain.write(producer, 2, sequence=3)
    assert isinstance(chain.refusal(later), UnknownProducerIdError)
    assert isinstance(chain.refusal(later), UnknownProducerIdError), "a refusal leaves nothing behind"
    chain.do(earlier, later)


@case("UnifiedLogTest", "testDuplicateAppends")
def test_the_last_five_appends_are_known_again_and_nothing_that_is_older_or_overlaps() -> None:
    """Kafka's case: appends of several sizes; the last ones are repeats, older ones and parts are out of
    order."""
    chain, producer = idempotent()
    sent = []
    for number in range(WINDOW_APPENDS + 2):
        sent.append((chain.partition().log_end, chain.write(producer, 1 + number % 2)))
        chain.do(sent[-1][1])
    end = chain.partition().log_end
    for base_offset, write in sent[-WINDOW_APPENDS:]:
        verdict = chain.decide(write)
        assert isinstance(verdict, Done)
        assert verdict.offsets == {KEY: base_offset}
    for _, write in sent[:-WINDOW_APPENDS]:
        assert isinstance(chain.refusal(write), OutOfOrderSequenceError)
    last = end - 1
    for sequence, records in ((last - 1, 2), (last, 2), (last + 2, 1)):
        assert isinstance(refused_sequence(chain, producer, sequence, records), OutOfOrderSequenceError)
    assert chain.partition().log_end == end


@case("UnifiedLogTest", "testMultipleProducersWithDuplicatesInSingleAppend")
def test_repeats_of_several_producers_among_new_appends_are_told_apart() -> None:
    chain = Chain()
    chain.do(AllocateIds("process"))
    writes = [chain.write(ProducerRef(number, 0), 1) for number in range(4)]
    chain.do(writes[0], writes[1])
    verdicts = [chain.decide(write) for write in writes + writes]
    assert [type(verdict) for verdict in verdicts] == [Done, Done, Included, Included, Done, Done, Done, Done]
    assert [verdict.offsets for verdict in verdicts[4:] if isinstance(verdict, Done)] == [
        {KEY: number} for number in range(4)
    ]
    assert chain.partition().log_end == 4


@case("UnifiedLogTest", "testMultipleProducerIdsPerMemoryRecord")
def test_appends_of_several_producers_share_one_entry() -> None:
    chain = Chain()
    chain.do(AllocateIds("process"))
    made = chain.group(*(chain.write(ProducerRef(number, 0), 2) for number in range(3)))
    assert all(isinstance(verdict, Included) for verdict in made)
    partition = chain.partition()
    assert partition.extents.array()["producer_id"].tolist() == [0, 1, 2]
    assert {who: known[-1].base_offset for who, known in partition.sequences.items()} == {
        (0, 0): 0,
        (1, 0): 2,
        (2, 0): 4,
    }


@case("UnifiedLogTest", "testActiveProducers")
def test_a_partition_tells_its_producers_their_epochs_last_sequences_and_first_offsets() -> None:
    chain = Chain("etl")
    chain.do(AllocateIds("process"))
    chain.do(chain.write(ProducerRef(1, 0), 4), chain.write(ProducerRef(1, 0), 3))
    chain.send("etl", 2)
    partition = chain.partition()
    assert {who: known[-1].last_sequence for who, known in partition.sequences.items()} == {
        (1, 0): 6,
        (0, 0): 1,
    }
    assert partition.open == {(0, 0): 7}
    chain.end("etl", COMMIT)
    assert set(chain.partition().sequences) == {(1, 0)}


@case("UnifiedLogTest", "testProducerIdMapOffsetUpdatedForNonIdempotentData")
def test_records_without_a_producer_take_offsets_and_leave_no_producer_state() -> None:
    chain = Chain()
    chain.do(chain.write(None, 5))
    assert chain.partition().log_end == 5
    assert chain.partition().sequences == {}
    chain.check_reopening()


@case(
    "ProducerStateManagerTest",
    "testEntryForVerification",
    "testSequenceAndEpochInVerificationEntry",
    "testVerificationStateEntryExpiration",
)
@case(
    "UnifiedLogTest",
    "testTransactionIsOngoingAndVerificationGuardTV1",
    "testTransactionIsOngoingAndVerificationGuardTV2",
    "testDisabledVerificationClearsVerificationGuard",
    "testEnablingVerificationWhenRequestIsAtLogLayer",
    "testNextTransactionVerificationGuardNotCleared",
)
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_an_append_that_comes_after_its_transactions_end_is_refused_by_the_entry_that_would_place_it(
    outcome: Outcome,
) -> None:
    """The hanging transactions of Kafka before verification: a late append opens a transaction that nobody
    ends.

    The epoch grows at each end, and whoever assigns offsets compares it: no guard has to be kept, turned on,
    cleared or expired, and a next transaction of the id is not confused with the last.
    """
    chain = Chain("etl")
    late = chain.write(chain.producer("etl"), 2, partitions=(1,), sequence=0)
    chain.send("etl", 1)
    chain.end("etl", outcome)
    before = state_digest(chain.state)
    error = chain.refusal(late)
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == "transaction-ended"
    assert state_digest(chain.state) == before, "nothing that could expire is left"
    chain.send("etl", 1)
    assert chain.refusal(late).kind == "transaction-ended", "the next transaction does not let it in"
    assert chain.partition(1).log_end == 0
    assert chain.partition(1).open == {}


@case("UnifiedLogTest", "testEmptyTransactionStillClearsVerificationGuard")
def test_the_end_of_a_transaction_without_data_refuses_its_late_appends_as_well() -> None:
    chain = Chain("etl")
    late = chain.write(chain.producer("etl"), 2, sequence=0)
    chain.end("etl", ABORT)
    assert chain.refusal(late).kind == "transaction-ended"
    assert chain.partition().log_end == 0
