"""States of a transactional id: which may follow which, and that time never stands in the way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, COMMIT, NAME, CoreLog, rows
from txnformat.core.entry import CommitEntry, decode_entry
from txnformat.core.fold import apply
from txnformat.core.intents import AllocateIds, OpenProducer, ProducerRef, Write
from txnformat.core.operations import EndTxn, InitProducer
from txnformat.core.transactions.state import LEGAL_TRANSITIONS, TransactionStatus, is_legal_transition
from txnformat.errors import CorruptDataError
from txnformat.persistent import replace

KAFKA_STATES = {
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
}
UNSEEN = {
    "PrepareCommit": "the decision and the markers are one entry",
    "PrepareAbort": "likewise",
    "PrepareEpochFence": "an init fences and aborts in one entry",
}
"""States of Kafka's coordinator that nobody can observe here."""

STEPS: dict[str, Callable[[CoreLog], None]] = {
    "open": lambda log: log.do(OpenProducer(NAME)),
    "append": lambda log: log.append(log.producer(NAME)),
    "commit": lambda log: log.do(Write(log.producer(NAME), log.fresh(rows(2)), COMMIT)),
    "abort": lambda log: log.do(Write(log.producer(NAME), end=ABORT)),
}


@case("TransactionMetadataTest", "testTransactionStateIdAndNameMapping", "testAllTransactionStatesAreMapped")
def test_states_have_kafkas_names_and_the_table_of_transitions_has_all_of_them() -> None:
    """Tools show these names; a state without a row would be one that nobody has thought about."""
    for status in TransactionStatus:
        assert TransactionStatus(status.value) is status
        assert TransactionStatus[status.name] is status
        assert str(status) == status.value
    names = {status.value for status in TransactionStatus}
    assert names - {"Prepared"} <= KAFKA_STATES - set(UNSEEN)
    assert {"Empty", "Ongoing", "CompleteCommit", "CompleteAbort"} <= names
    assert set(LEGAL_TRANSITIONS) == set(TransactionStatus)


@case(
    "TransactionMetadataTest",
    "testTransitFromEmptyToPrepareAbortInV2",
    "testTransitFromCompleteAbortToPrepareAbortInV2",
    "testTransitFromCompleteCommitToPrepareAbortInV2",
    "testEpochBumpOnEndTxn",
)
@pytest.mark.parametrize("status", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_an_abort_is_legal_in_every_state_and_begins_the_next_epoch(status: str) -> None:
    """A producer that does not know what became of its data can always settle it, as with KIP-890."""
    log = CoreLog()
    log.open()
    if status != "Empty":
        log.append(log.producer(NAME))
    if status.startswith("Complete"):
        log.finish(log.producer(NAME), COMMIT if status == "CompleteCommit" else ABORT)
    assert log.id().status == status
    before = log.id()
    log.finish(log.producer(NAME), ABORT)
    after = log.id()
    assert (after.status, after.epoch) == (TransactionStatus.COMPLETE_ABORT, before.epoch + 1)
    assert (after.producer_id, after.partitions, after.started_ms) == (before.producer_id, {}, None)


@case(
    "TransactionMetadataTest",
    "testInvalidTransitionFromCompleteCommitToFence",
    "testInvalidTransitionFromCompleteAbortToFence",
)
def test_every_reachable_step_is_in_the_table_and_an_entry_with_another_is_corrupt() -> None:
    """All sequences of four steps: what happens is legal, and a commit of nothing never happens."""
    seen: set[tuple[TransactionStatus, TransactionStatus]] = set()
    for steps in product(STEPS, repeat=4):
        log = CoreLog(OpenProducer(NAME))
        for step in steps:
            before = log.id()
            if step == "append" and before.status is TransactionStatus.ONGOING:
                continue  # its sequence would be a repeat
            STEPS[step](log)
            seen.add((before.status, log.id().status))
    # A commit with its records goes through Ongoing within its entry.
    stepwise = {
        (source, target)
        for source, target in seen
        if is_legal_transition(source, target) or target is TransactionStatus.COMPLETE_COMMIT
    }
    assert stepwise == seen
    assert {source for source, _ in seen} == {target for _, target in seen}
    assert not is_legal_transition(TransactionStatus.COMPLETE_ABORT, TransactionStatus.COMPLETE_COMMIT)


@case(
    "TransactionMetadataTest",
    "testInvalidTransitionFromCompleteCommitToFence",
    "testInvalidTransitionFromCompleteAbortToFence",
)
@pytest.mark.parametrize("before", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_entry_that_fences_or_commits_what_is_not_open_is_corrupt(before: str) -> None:
    """A client that folds it stops: no correct writer makes an init with markers, or a commit, of nothing."""
    log = CoreLog(OpenProducer(NAME))
    if before != "Empty":
        log.append(log.producer(NAME))
        log.finish(log.producer(NAME), COMMIT if before == "CompleteCommit" else ABORT)
    donor = CoreLog(OpenProducer(NAME))
    donor.append(donor.producer(NAME))
    init, end = _made(donor, OpenProducer(NAME)), _made(donor, Write(donor.producer(NAME), end=COMMIT))
    (opened,), (ended,) = init.operations, end.operations
    assert isinstance(opened, InitProducer)
    assert isinstance(ended, EndTxn)
    epoch = log.id().epoch
    for wrong in (replace(opened, epoch=epoch + 1), replace(ended, epoch=epoch, markers=())):
        good = _made(log, AllocateIds("process"))
        with pytest.raises(CorruptDataError):
            apply(log.state, replace(good, operations=(wrong,)), "0" * 64)


def _made(log: CoreLog, action: OpenProducer | Write | AllocateIds) -> CommitEntry:
    """Return the entry that would be made, without going on from it."""
    states, entries = list(log.states), list(log.entries)
    log.apply(action)
    entry = decode_entry(log.entries[-1], log.state.entry)
    log.states, log.entries = states, entries
    return entry


@case(
    "TransactionMetadataTest",
    "testTolerateUpdateTimeShiftDuringEpochBump",
    "testTolerateTimeShiftDuringAddPartitions",
    "testTolerateTimeShiftDuringPrepareCommit",
    "testTolerateTimeShiftDuringPrepareAbort",
    "testTolerateTimeShiftDuringCompleteCommit",
    "testTolerateTimeShiftDuringCompleteAbort",
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("back_ms", [1, 29_000])
def test_a_clock_that_went_back_stops_no_step_and_log_time_goes_on(step: str, back_ms: int) -> None:
    """Kafka takes the earlier time; here log time grows by 1 ms, so the start of a transaction is never after
    it."""
    log = CoreLog(OpenProducer(NAME))
    if step != "append":
        log.append(log.producer(NAME))
    before = log.state
    started = log.id().started_ms
    log.now_ms -= back_ms
    STEPS[step](log)
    assert log.state.timestamp_ms == before.timestamp_ms + 1
    after = log.id()
    if step == "append":
        assert after.started_ms == log.state.timestamp_ms
        log.append(log.producer(NAME), 1)
        assert log.id().started_ms == after.started_ms, "further appends leave the start as it is"
    else:
        assert started is not None
        assert started < log.state.timestamp_ms
        assert after.started_ms is None


@case(
    "TransactionMetadataTest",
    "testFenceProducerAfterEpochsExhausted",
    "testFenceProducerNotAllowedIfItWouldOverflow",
)
@pytest.mark.parametrize("epoch", [2**15 - 2, 2**15 - 1, 2**31 - 1, 2**61])
def test_an_open_transaction_can_be_fenced_at_every_epoch(epoch: int) -> None:
    """Kafka keeps 32767 in reserve so that it can fence once more; 64 bits need no reserve."""
    log = CoreLog(OpenProducer(NAME))
    known = log.id()
    ids = {**log.state.transactional_ids, NAME: replace(known, epoch=epoch)}
    log.replace_state(replace(log.state, transactional_ids=ids))
    old = log.producer(NAME)
    log.append(old)
    assert log.open() == ProducerRef(old.producer_id, epoch + 1, NAME)
    assert log.refusal(Write(old, end=COMMIT)).kind == "producer-fenced"
