"""A log start moves forward, over sealed records only, and the state remembers what went."""

from __future__ import annotations

import pytest

from tests.unit.core.memory_log import COMMIT, ORDERS, Log, rows
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import (
    Acks,
    ChangeLog,
    EnableFeatures,
    Included,
    OpenProducer,
    SealSegments,
    TrimTopic,
    Undecidable,
    Write,
)
from txnformat.core.invariants import check_whole
from txnformat.core.lifecycle.operations import Trim, TrimmedPartition
from txnformat.core.operations import Upgrade
from txnformat.core.ranges import Ranges
from txnformat.core.records.state import SealedTotals
from txnformat.core.state import (
    FEATURES,
    INTENT_WINDOW_ENTRIES,
    LIFECYCLE,
    Features,
    IntentWindow,
    LogState,
)
from txnformat.core.subscriptions.invariants import _check_acks
from txnformat.core.subscriptions.operations import AckedPartition, AckMode, CreateSubscription
from txnformat.core.subscriptions.state import REMOVED_RANGES_MAX, PartitionAcks, PendingAcks
from txnformat.errors import (
    AckConflictError,
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UnsupportedFeatureError,
)
from txnformat.persistent import replace
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.seal_of import seal_of

KEY = TopicPartition(ORDERS.topic_id, 0)
SUBSCRIPTION = (ORDERS.topic_id, "billing")


def part(log_start: int = 2, commit_entry: int = 2, **sums: int) -> TrimmedPartition:
    found = dict.fromkeys(("records", "size", "aborted_records", "aborted_size"), 0) | sums
    return TrimmedPartition(0, log_start, commit_entry, **found)


def trim(*parts: TrimmedPartition, seen: int = 0) -> TrimTopic:
    return TrimTopic(Trim(ORDERS.topic_id, parts or (part(),)), (seen,) * max(1, len(parts)))


UPGRADED = Features(*(names | {LIFECYCLE} for names in FEATURES))


def sealed(*, upgraded: bool = True) -> Log:
    """Return a log with 4 sealed records in partition 0, and 2 that are not."""
    log = Log(ORDERS, OpenProducer("etl"))
    log.commit(Write(log.producer(), rows(), end=COMMIT))
    log.commit(Write(log.producer(), rows(content="more"), end=COMMIT))
    log.commit(SealSegments(seal_of(log.state)))
    log.commit(Write(log.producer(), rows(content="open")))
    if upgraded:
        log.commit(EnableFeatures((LIFECYCLE,)))
    return log


def test_a_trim_moves_the_log_start_and_keeps_the_largest_entry_that_committed_what_went() -> None:
    log = sealed()
    before = log.state.partition(KEY)
    assert (before.log_start, before.sealed_end, before.trimmed_entry) == (0, 6, -1)
    assert isinstance(log.commit(trim(part(2, 3))), Included)
    assert isinstance(log.commit(trim(part(5, 2, records=4, size=before.sealed.size), seen=2)), Included)
    after = log.state.partition(KEY)
    assert (after.log_start, after.trimmed_entry) == (5, 3)
    assert after.sealed == SealedTotals(0, 0, 0, 0, 0)
    assert after.last_stable_offset == 6
    assert check_whole(log.state) == []


def test_a_log_must_be_upgraded_first() -> None:
    log = sealed(upgraded=False)
    error = log.refusal(trim())
    assert isinstance(error, UnsupportedFeatureError)
    assert error.kind == "upgrade-required"
    verdict = log.commit(EnableFeatures((LIFECYCLE,)))
    assert isinstance(verdict, Included)
    both = ("base-1", LIFECYCLE)
    assert verdict.operations == (Upgrade(both, both, both),)
    assert log.state.features == UPGRADED
    assert isinstance(log.commit(trim()), Included)


def test_an_upgrade_to_an_unknown_feature_is_refused() -> None:
    error = sealed().refusal(EnableFeatures(("base-1", "teleport")))
    assert isinstance(error, InvalidInputError)
    assert error.kind == "unknown-feature"
    assert "teleport" in str(error)


WEEK_MS = 7 * 24 * 3_600_000


def test_the_age_at_which_entries_go_is_a_setting_of_the_log() -> None:
    log = sealed()
    assert log.state.truncate_older_than_ms == -1
    log.commit(ChangeLog(WEEK_MS))
    assert (log.state.truncate_older_than_ms, log.state.features) == (WEEK_MS, UPGRADED)
    log.commit(ChangeLog(-1))
    assert log.state.truncate_older_than_ms == -1


def test_an_upgrade_without_the_age_leaves_it_as_it_was() -> None:
    log = sealed()
    log.commit(ChangeLog(WEEK_MS))
    both = ("base-1", LIFECYCLE)
    state = apply_operation(log.state, Upgrade(both, both, both), At(log.state.entry + 1, 2**40))
    assert state.truncate_older_than_ms == WEEK_MS


def test_the_age_needs_the_feature_and_at_least_a_week() -> None:
    error = sealed(upgraded=False).refusal(ChangeLog(WEEK_MS))
    assert isinstance(error, UnsupportedFeatureError)
    for age_ms in (-2, 0, WEEK_MS - 1):
        error = sealed().refusal(ChangeLog(age_ms))
        assert isinstance(error, InvalidInputError)
        assert error.kind == "invalid-age"
    state = sealed().state
    both, old = ("base-1", LIFECYCLE), ("base-1",)
    for reader, age_ms in ((both, WEEK_MS - 1), (old, WEEK_MS), (old, -1)):
        op = Upgrade(reader, both, both, truncate_older_than_ms=age_ms)
        with pytest.raises(CorruptDataError, match="deletes entries younger than allowed, or lacks"):
            apply_operation(state, op, At(state.entry + 1, 2**40))


@pytest.mark.parametrize("seen", [1, 3])
def test_numbers_that_were_counted_from_another_log_start_are_refused(seen: int) -> None:
    log = sealed()
    log.commit(trim())
    error = log.refusal(trim(part(4), seen=seen))
    assert isinstance(error, ConflictError)
    assert (error.kind, error.values["got"]) == ("trim-superseded", 2)


def test_retention_is_refused_where_a_reader_has_not_read_and_holds_more_than_is_free() -> None:
    """The decision looks: the reader may have gone back since the caller asked."""
    log = sealed()
    log.commit(CreateSubscription(ORDERS.topic_id, "billing"))
    error = log.refusal(replace(trim(part(2)), unpinned=(1,)))
    assert isinstance(error, ConflictError)
    assert (error.kind, error.values["unread_from"]) == ("records-pinned", 0)
    assert isinstance(log.commit(replace(trim(part(2)), unpinned=(2,))), Included)
    assert isinstance(log.commit(trim(part(4), seen=2)), Included), (
        "a removal that a user asks for is not held"
    )


def test_a_trim_of_no_topic_is_refused() -> None:
    other = "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f"
    assert isinstance(sealed().refusal(TrimTopic(Trim(other, (part(),)), (0,))), NotFoundError)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ((part(0),), "a log start does not go"),
        ((part(7),), "a log start does not go"),
        ((part(), part(4)), "a partition is trimmed twice"),
        ((part(commit_entry=99),), "does not have"),
        ((part(records=5),), "does not have"),
        ((part(size=10**9),), "does not have"),
        ((part(aborted_records=1),), "does not have"),
        ((part(aborted_size=1),), "does not have"),
    ],
)
def test_a_trim_that_does_not_fit_is_corrupt(changed: tuple[TrimmedPartition, ...], what: str) -> None:
    state = sealed().state
    with pytest.raises(CorruptDataError, match=what):
        apply_operation(state, Trim(ORDERS.topic_id, changed), At(state.entry + 1, state.timestamp_ms + 1))


def test_what_stays_has_at_least_what_is_aborted_of_it() -> None:
    state = sealed().state
    known = state.partition(KEY)
    totals = SealedTotals(4, 40, 3, 30, 1)
    state = replace(state, partitions={**state.partitions, KEY: replace(known, sealed=totals)})
    for sums in ({"records": 2}, {"size": 20}):
        with pytest.raises(CorruptDataError, match="does not have"):
            apply_operation(state, Trim(ORDERS.topic_id, (part(**sums),)), At(state.entry + 1, 2**40))


@pytest.mark.parametrize("change", [{"topics": {}}, {"features": FEATURES}])
def test_a_trim_of_no_topic_or_of_a_log_without_the_feature_is_corrupt(change: dict[str, object]) -> None:
    state = replace(sealed().state, **change)
    with pytest.raises(CorruptDataError, match="of no topic, or of a log without the feature"):
        apply_operation(state, Trim(ORDERS.topic_id, (part(),)), At(state.entry + 1, 2**40))


def late(log: Log, action: TrimTopic | EnableFeatures) -> object:
    """Decide an intent that was sent before the window begins."""
    first = log.state.entry + INTENT_WINDOW_ENTRIES
    intent = log.intent(action)
    log.state = replace(log.state, window=IntentWindow(first))
    return log.assemble(intent).verdicts[intent.intent_id]


def test_a_log_start_proves_that_a_trim_has_not_landed() -> None:
    assert isinstance(late(sealed(), trim()), Included)
    log = sealed()
    log.commit(trim())
    assert isinstance(late(log, trim(seen=2)), Undecidable)


def test_a_feature_that_is_missing_proves_that_an_upgrade_has_not_landed() -> None:
    assert isinstance(late(sealed(upgraded=False), EnableFeatures((LIFECYCLE,))), Included)
    assert isinstance(late(sealed(), EnableFeatures((LIFECYCLE,))), Undecidable)


def acknowledging(partition: AckedPartition, mode: AckMode = AckMode.INDIVIDUAL) -> Acks:
    return Acks(*SUBSCRIPTION, mode, (partition,))


def refused(log: Log, wanted: AckedPartition) -> str:
    mode = AckMode.INDIVIDUAL if wanted.position is None else AckMode.CUMULATIVE
    error = log.refusal(Write(acks=(acknowledging(wanted, mode),)))
    assert isinstance(error, AckConflictError)
    return error.kind


def test_what_lies_below_the_log_start_counts_as_acknowledged_for_readers() -> None:
    log = sealed()
    log.commit(CreateSubscription(*SUBSCRIPTION))
    log.commit(Write(acks=(acknowledging(AckedPartition(0, ((3, 4),))),)))
    log.commit(trim(part(4)))
    known = log.state.subscriptions[SUBSCRIPTION]
    acks = log.state.acks(known, KEY)
    assert (acks.mark, len(acks.acked)) == (4, 0)
    log.commit(Write(acks=(acknowledging(AckedPartition(0, ((4, 5),))),)))
    assert log.state.acks(log.state.subscriptions[SUBSCRIPTION], KEY).mark == 5
    assert check_whole(log.state) == []


def test_a_removed_record_is_acknowledged_once() -> None:
    """Two clients received it before it was removed: one of them may make something of it."""
    log = sealed()
    log.commit(CreateSubscription(*SUBSCRIPTION))
    log.commit(Write(acks=(acknowledging(AckedPartition(0, ((1, 2),))),)))
    log.commit(trim(part(4)))
    assert refused(log, AckedPartition(0, ((1, 2), (5, 6)))) == "already-acknowledged"
    log.commit(Write(acks=(acknowledging(AckedPartition(0, ((2, 3), (5, 6)))),)))
    assert refused(log, AckedPartition(0, ((2, 3),))) == "already-acknowledged"
    log.commit(Write(acks=(acknowledging(AckedPartition(0, position=3), AckMode.CUMULATIVE),)))
    assert refused(log, AckedPartition(0, position=3)) == "already-acknowledged"
    assert refused(log, AckedPartition(0, ((0, 1),))) == "already-acknowledged"
    acks = log.state.acks(log.state.subscriptions[SUBSCRIPTION], KEY)
    assert (acks.mark, acks.acked.pairs()) == (4, [(5, 6)])
    assert check_whole(log.state) == []


@pytest.mark.parametrize("is_one_entry", [True, False])
def test_a_transaction_commits_what_was_removed_of_its_acknowledgements(is_one_entry: bool) -> None:
    log = sealed()
    log.commit(OpenProducer("acks"))
    log.commit(OpenProducer("other"))
    log.commit(CreateSubscription(*SUBSCRIPTION))
    acks = (acknowledging(AckedPartition(0, ((2, 6),))),)
    if not is_one_entry:
        log.commit(Write(log.producer("acks"), acks=acks))
    log.commit(trim(part(4)))
    if not is_one_entry:
        error = log.refusal(Write(log.producer("other"), acks=acks, end=Outcome.COMMIT))
        assert error.kind == "ack-pending"
    log.commit(Write(log.producer("acks"), acks=acks if is_one_entry else (), end=Outcome.COMMIT))
    error = log.refusal(Write(log.producer("other"), acks=acks, end=Outcome.COMMIT))
    assert error.kind == "already-acknowledged"
    assert log.state.acks(log.state.subscriptions[SUBSCRIPTION], KEY).mark == 6
    assert check_whole(log.state) == []


def test_ranges_of_removed_records_join_the_mark_but_the_highest() -> None:
    """The state keeps the highest of them, whichever way it goes on; ranges above the log start are all
    kept.
    """
    start = 3 * REMOVED_RANGES_MAX
    acked = Ranges.of([(at, at + 1) for at in range(1, 2 * start, 2)])
    pending = {"t": PendingAcks(Ranges.of([(0, 1), (start - 2, start - 1)]))}
    acks = PartitionAcks(acked=acked, pending=pending)
    kept = acks.kept(start)
    assert kept.mark == start - 2 * REMOVED_RANGES_MAX
    assert len(kept.acked.below(start)) == REMOVED_RANGES_MAX
    assert kept.acked == acked.above(kept.mark)
    assert kept.pending == pending
    assert kept.kept(start) == kept
    assert acks.kept(2 * REMOVED_RANGES_MAX) is acks
    assert list(_check_acks(kept, start, 2 * start)) == []
    assert list(_check_acks(kept, kept.mark, 2 * start)) == []
    ended = kept.ended("t", commit=True)
    assert ended.acked == kept.acked | Ranges.of([(start - 2, start - 1)])


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("wanted", [AckedPartition(0, ((1, 3),)), AckedPartition(0, position=3)])
def test_what_is_pending_below_the_log_start_adds_nothing(wanted: AckedPartition, commits: bool) -> None:
    log = sealed()
    log.commit(OpenProducer("acks"))
    log.commit(CreateSubscription(*SUBSCRIPTION))
    mode = AckMode.INDIVIDUAL if wanted.position is None else AckMode.CUMULATIVE
    log.commit(Write(log.producer("acks"), acks=(acknowledging(wanted, mode),)))
    log.commit(trim(part(4)))
    log.commit(Write(acks=(acknowledging(AckedPartition(0, ((5, 6),))),)))
    assert check_whole(log.state) == []
    log.commit(Write(log.producer("acks"), end=Outcome.COMMIT if commits else Outcome.ABORT))
    kept = log.state.subscriptions[SUBSCRIPTION].partition(0)
    acks = log.state.acks(log.state.subscriptions[SUBSCRIPTION], KEY)
    assert (acks.mark, acks.acked.pairs(), dict(acks.pending)) == (4, [(5, 6)], {})
    assert kept.whole().offsets_below(4) == (wanted.position or 2) * commits
    assert check_whole(log.state) == []


def test_a_state_of_an_older_program_knows_no_log_start() -> None:
    assert LogState("log").partition(KEY).trimmed_entry == -1
