"""ProducerStateManagerTest and UnifiedLogTest: markers, epochs, fencing of producers and of coordinators."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, ORDERS, Chain
from txnformat.core.assemble import assemble
from txnformat.core.decide import decide
from txnformat.core.fold import At, apply_operation
from txnformat.core.intents import Done, Included, Intent, OpenProducer, ProducerRef, Write
from txnformat.core.operations import Append, Cause, EndTxn
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    CorruptDataError,
    InvalidTransactionStateError,
    ProducerFencedError,
    UnknownProducerIdError,
)
from txnformat.persistent import replace
from txnformat.protocol.commit import CommitSettings, commit_group
from txnformat.protocol.follow import fold_bytes
from txnformat.types import Outcome
from txnlog_testing.simulator.hand import Hand
from txnlog_testing.strategies import make_append


def markers(chain: Chain, number: int = 0) -> list[tuple[int, int, int, int]]:
    """Return (offset, producer id, epoch, 1 for a commit) of each marker."""
    rows = chain.partition(number).markers.array()
    return [(int(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in rows.tolist()]


@case("ProducerStateManagerTest", "testAppendTxnMarkerWithNoProducerState")
def test_an_end_counts_where_the_partition_knows_nothing_of_the_producer() -> None:
    """It fences the epoch that it ends, everywhere, though it is only for the partitions that have data."""
    chain = Chain("etl")
    stale = chain.producer("etl")
    chain.end("etl", ABORT)
    assert chain.partition().sequences == {}
    assert isinstance(chain.refusal(chain.write(stale, 1, sequence=0)), InvalidTransactionStateError)
    chain.do(chain.write(chain.producer("etl"), 1, sequence=0))


@case("ProducerStateManagerTest", "testControlRecordBumpsProducerEpoch")
@case("UnifiedLogTest", "testTV2MarkerWithBumpedEpochSucceeds")
@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_end_writes_its_marker_and_begins_the_next_epoch(outcome: Outcome) -> None:
    chain = Chain("etl")
    chain.send("etl", 3)
    chain.end("etl", outcome)
    assert markers(chain) == [(3, 0, 0, int(outcome is COMMIT))]
    assert chain.producer("etl").epoch == 1
    chain.send("etl", 1)
    assert chain.partition().sequences[0, 1][0].first_sequence == 0


@case("ProducerStateManagerTest", "testProducerStateAfterFencingAbortMarker")
def test_the_abort_of_an_init_takes_the_window_and_keeps_the_fence() -> None:
    chain = Chain("etl")
    stale = chain.producer("etl")
    chain.send("etl", 1)
    chain.do(OpenProducer("etl"))
    partition = chain.partition()
    assert (partition.sequences, partition.open) == ({}, {})
    assert markers(chain) == [(1, 0, 0, 0)]
    known = chain.state.transactional_ids["etl"]
    assert (known.status, known.epoch, known.partitions) == (TransactionStatus.EMPTY, 1, {})
    assert known.last_end is not None
    assert (known.last_end.outcome, known.last_end.cause) == (ABORT, Cause.INIT)
    for write in (chain.write(stale, 1, sequence=1), Write(stale, end=COMMIT), Write(stale, end=ABORT)):
        assert isinstance(chain.refusal(write), ProducerFencedError)


@case("ProducerStateManagerTest", "testOldEpochForControlRecord")
@case("UnifiedLogTest", "testEndTxnWithFencedProducerEpoch")
@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_end_with_an_older_epoch_is_fenced_and_touches_nothing(outcome: Outcome) -> None:
    chain = Chain("etl")
    stale = chain.producer("etl")
    chain.do(OpenProducer("etl"))
    chain.send("etl", 2)
    before = state_digest(chain.state)
    assert isinstance(chain.refusal(Write(stale, end=outcome)), ProducerFencedError)
    assert state_digest(chain.state) == before
    assert chain.partition().open == {(0, 1): 0}


@case(
    "UnifiedLogTest",
    "testOldProducerEpoch",
    "testStaleProducerEpochReturnsRecoverableErrorForTV1Clients",
    "testStaleProducerEpochReturnsRecoverableErrorForTV2Clients",
)
def test_an_append_with_an_older_epoch_is_refused_by_a_class_that_says_what_to_do() -> None:
    """Fenced by another instance: stop. After an end of its own: begin a transaction. Kafka gives one code
    for both."""
    chain = Chain("etl")
    first = chain.producer("etl")
    chain.send("etl", 1)
    chain.end("etl", COMMIT)
    own = chain.refusal(chain.write(first, 1, sequence=1))
    assert isinstance(own, InvalidTransactionStateError)
    assert own.kind == "transaction-ended"
    second = chain.producer("etl")
    chain.do(OpenProducer("etl"))
    fenced = chain.refusal(chain.write(second, 1, sequence=0))
    assert isinstance(fenced, ProducerFencedError)
    assert fenced.values["current_epoch"] == second.epoch + 1
    assert chain.partition().log_end == 2


def rival() -> tuple[Hand, Intent, Intent]:
    """Return a log in which a transaction is open, the intent that ends it, and that of an init."""
    hand = Hand()
    state = hand.empty()
    producer = ProducerRef(0, 0, "etl")
    append = make_append(ORDERS, {0: (0, 3)}, content="rows")
    for action in (ORDERS, OpenProducer("etl"), Write(producer, (append,))):
        state = hand.others_commit(state, Intent(hand.new_id(), state.entry + 1, action))
    slot = state.entry + 1
    return (
        hand,
        Intent(hand.new_id(), slot, Write(producer, end=COMMIT)),
        Intent(hand.new_id(), slot, OpenProducer("etl")),
    )


@case("ProducerStateManagerTest", "testCoordinatorFencing")
@case("UnifiedLogTest", "testZombieCoordinatorFenced")
def test_a_decision_on_an_old_view_loses_its_slot_and_is_made_again_on_what_happened() -> None:
    hand, commit, init = rival()
    old = hand.empty()
    for slot in range(3):
        old = fold_bytes(old, hand.objects[f"_txnlog/log/{slot:020}.json"])
    view = hand.view(old)
    after = hand.others_commit(old, init)
    _, answers = hand.run(commit_group(view, [commit], CommitSettings()))
    assert isinstance(answers[commit.intent_id], ProducerFencedError)
    assert hand.slots_created() == [3], "it tried its slot once, and wrote nothing else"
    stale = assemble(old, [commit], store_time_ms=hand.wall_ms, write_id="zombie")
    assert stale.entry is not None
    with pytest.raises(CorruptDataError) as caught:
        fold_bytes(replace(after, entry=old.entry), stale.data)
    assert caught.value.kind == "broken-chain"


@case("ProducerStateManagerTest", "testCoordinatorFencingAfterReload")
@case("UnifiedLogTest", "testZombieCoordinatorFencedEmptyTransaction")
def test_a_decision_on_a_view_that_was_loaded_from_a_snapshot_is_fenced_too_also_without_data() -> None:
    chain = Chain("etl")
    stale = chain.producer("etl")
    at = len(chain.entries) - 1
    commit = Intent("zombie", at + 1, Write(stale, end=ABORT))
    loaded = chain.reopened(at)
    made = assemble(loaded, [commit], store_time_ms=chain.now_ms, write_id="zombie")
    assert made.entry is not None, "on what it knows, it decides to end"
    chain.do(OpenProducer("etl"))
    with pytest.raises(CorruptDataError) as caught:
        fold_bytes(replace(chain.state, entry=at), made.data)
    assert caught.value.kind == "broken-chain"
    again = assemble(chain.reopened(at), [commit], store_time_ms=chain.now_ms, write_id="zombie")
    assert again.entry is None
    assert isinstance(chain.refusal(commit.action), ProducerFencedError)


@case("ProducerStateManagerTest", "testNonTransactionalAppendWithOngoingTransaction")
def test_an_append_outside_of_the_transaction_under_the_identity_of_its_producer_is_refused() -> None:
    """Readers would see it while the transaction is open, and its sequences would be the transaction's."""
    chain = Chain("etl")
    chain.send("etl", 2)
    plain = replace(chain.producer("etl"), transactional_id=None)
    for sequence in (0, 2):
        assert isinstance(chain.refusal(chain.write(plain, 1, sequence=sequence)), UnknownProducerIdError)
    verdict = decide(chain.state, chain.intent(chain.write(chain.producer("etl"), 1, sequence=2)))
    assert isinstance(verdict, Included)
    (append,) = verdict.operations
    assert isinstance(append, Append)
    at = At(chain.state.entry + 1, chain.state.timestamp_ms + 1)
    apply_operation(chain.state, append, at)
    with pytest.raises(CorruptDataError, match="transactional id"):
        apply_operation(chain.state, replace(append, transactional_id=None), at)
    chain.end("etl", COMMIT)
    plain = replace(chain.producer("etl"), transactional_id=None)
    assert isinstance(chain.refusal(chain.write(plain, 1, sequence=0)), UnknownProducerIdError)


@case("ProducerStateManagerTest", "testAppendEmptyControlBatch")
def test_the_end_of_a_transaction_without_data_has_no_marker_and_takes_no_offset() -> None:
    chain = Chain("etl")
    chain.do(chain.write(None, 2))
    before = chain.partition()
    verdict = chain.decide(Write(chain.producer("etl"), end=ABORT))
    assert isinstance(verdict, Included)
    (end,) = verdict.operations
    assert isinstance(end, EndTxn)
    assert end.markers == ()
    assert chain.partition() is before or chain.partition() == before
    assert chain.stable() == 2


@case("ProducerStateManagerTest", "testSkipEmptyTransactions")
def test_only_partitions_with_data_get_a_marker_and_only_an_abort_with_data_an_index_entry() -> None:
    chain = Chain("a", "b")
    chain.end("a", ABORT)  # empty
    chain.send("a", 2, 0)  # 0-1
    chain.send("b", 2, 1)
    chain.end("a", ABORT)  # 2
    chain.end("b", ABORT)
    chain.end("b", ABORT)  # empty
    chain.send("a", 1, 0)  # 3
    chain.end("a", COMMIT)  # 4
    chain.send("a", 1, 0)  # 5
    chain.end("a", ABORT)  # 6
    assert [(entry.first_offset, entry.last_offset) for entry in chain.index()] == [(0, 2), (5, 6)]
    assert [(entry.first_offset, entry.last_offset) for entry in chain.index(number=1)] == [(0, 2)]
    assert [marker[0] for marker in markers(chain)] == [2, 4, 6]
    assert chain.offsets() == [3]
    assert chain.index(number=2) == []
    assert chain.partition(2).log_end == 0


@case("ProducerStateManagerTest", "testIdempotentTransactionMarkerRetryTV2")
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_repeated_end_is_done_and_writes_no_second_marker(outcome: Outcome) -> None:
    """Kafka appends the marker again; here the repeat finds the entry of the first."""
    chain = Chain("etl")
    chain.send("etl", 2)
    end = Write(chain.producer("etl"), end=outcome)
    chain.do(end)
    ended = len(chain.entries) - 1
    assert chain.decide(end) == Done(ended)
    chain.send("etl", 2)
    assert chain.decide(end) == Done(ended), "nor is the next transaction ended by it"
    assert [marker[0] for marker in markers(chain)] == [2]
    assert chain.partition().open == {(0, 1): 3}
