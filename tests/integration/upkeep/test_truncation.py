"""What a truncation deletes, keeps and refuses; and what a truncated log still tells. The specification,
section 5.18."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator

import pytest

from tests.integration.clients.failing import NUMBERS
from tests.integration.upkeep.truncation_world import (
    BOUNDARY,
    HOUR_S,
    TruncationWorld,
    entries_in,
    one_by_one,
)
from tests.integration.upkeep.vacuum_world import Interposed
from tests.older_logs import older_log
from txnformat import keys
from txnformat.admin.truncation import Act, TruncatedKind
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, decode_bundle, encode_bundle
from txnformat.persistent import replace
from txnformat.protocol.truncation import check_snapshots
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnformat.types import Outcome
from txnlog import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    TxnLog,
    TxnLogError,
    UnsupportedFeatureError,
)

BUNDLE = keys.bundle_key(0, BUNDLE_ENTRIES - 1)


@pytest.fixture(scope="module")
def template() -> TruncationWorld:
    return TruncationWorld()


@pytest.fixture
def world(template: TruncationWorld) -> Iterator[TruncationWorld]:
    with one_by_one():
        yield template.copied()


@pytest.fixture
def truncated(world: TruncationWorld) -> TruncationWorld:
    world.age()
    world.truncate()
    world.truncate()
    return world


def test_entries_go_an_hour_after_the_boundary_and_nothing_else_changes(world: TruncationWorld) -> None:
    before, entries = world.shown(), entries_in(world.store)
    assert entries[0] == 0
    world.age()
    first = world.truncate()
    assert (first.boundary, first.new_boundary, first.deleted_below) == (BOUNDARY, True, 0)
    assert entries_in(world.store) == entries
    world.clock.sleep(HOUR_S - 1)
    assert world.opened().truncate().count(Act.DELETED) == 0
    assert entries_in(world.store) == entries
    world.clock.sleep(1)
    second = world.opened().truncate()
    assert (second.new_boundary, second.deleted_below, second.waits_until_ms) == (False, BOUNDARY, None)
    assert second.count(Act.DELETED, TruncatedKind.ENTRY) == BOUNDARY
    assert entries_in(world.store) == entries[BOUNDARY:]
    assert world.shown() == before
    assert world.truncate().rows == ()


def test_entries_are_deleted_in_ascending_order(world: TruncationWorld) -> None:
    world.age()
    world.truncate()
    store = Interposed(world.store)
    world.truncate(store)
    assert store.deletes == [keys.entry_key(number) for number in range(BOUNDARY)]


def test_young_entries_stay(world: TruncationWorld) -> None:
    """The boundary lies below the first entry that is not old enough."""
    week = datetime.timedelta(days=7)
    young = decode_entry(world.store.get(keys.entry_key(BOUNDARY - 1)) or b"", BOUNDARY - 1).timestamp_ms
    world.clock.ms = young + 7 * 24 * 3_600_000 - 1
    report = world.opened().truncate(week)
    assert (report.boundary, report.limited_by) == (0, "the age of the entries")
    world.clock.ms += 1
    assert world.opened().truncate(datetime.timedelta(days=8)).boundary == 0
    assert world.opened().truncate(week).boundary == BOUNDARY


def test_the_boundary_stays_below_the_second_newest_snapshot(world: TruncationWorld) -> None:
    world.age()
    report = world.truncate()
    older = world.opened().state.checkpoints[0]
    assert report.boundary <= older.entry < report.boundary + BUNDLE_ENTRIES
    assert "second newest snapshot" in report.limited_by


def test_a_log_with_less_than_two_snapshots_has_no_boundary() -> None:
    world = TruncationWorld.__new__(TruncationWorld)
    world.clock = TruncationWorld().clock
    world.store = MemoryStore(world.clock)
    log = TxnLog.create(world.store, clock=world.clock)
    log.create_topic("t", NUMBERS)
    world.grow(log, range(120))
    world.age()
    report = world.truncate()
    assert (report.boundary, report.rows) == (0, ())
    assert "has not named two" in report.limited_by


def test_a_boundary_that_waits_is_not_overtaken(world: TruncationWorld) -> None:
    """A run every minute, each with a higher boundary, would let none become an hour old."""
    world.age()
    world.truncate()
    world.grow(world.opened(), range(1_000, 1_150))
    world.age()
    world.store.create(keys.boundary_key(BOUNDARY + 1), b"{}")
    assert world.opened().truncate().boundary == BOUNDARY + 1
    report = world.truncate()
    assert (report.boundary, report.new_boundary) == (200, True)


def test_all_boundaries_but_the_two_highest_go(world: TruncationWorld) -> None:
    for old in (1, 2, 3):
        world.store.create(keys.boundary_key(old), b"{}")
    world.age()
    world.truncate()
    left = [info.key for info in world.store.list(keys.BOUNDARY_PREFIX)]
    assert left == [keys.boundary_key(3), keys.boundary_key(BOUNDARY)]


def test_a_dry_run_changes_nothing_and_says_what_a_run_does(world: TruncationWorld) -> None:
    world.age()
    for _ in range(2):
        world.clock.sleep(HOUR_S + 1)
        objects = world.store.list("")
        planned = world.opened().truncate(dry_run=True)
        assert world.store.list("") == objects
        done = world.opened().truncate()
        assert planned.rows == done.rows != ()
        assert planned.dry_run


def test_snapshots_and_the_hint_that_are_of_no_use_go(world: TruncationWorld) -> None:
    lost = keys.snapshot_key(40, "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f")
    world.store.create(lost, b"no entry names it")
    hint = world.store.get(keys.LATEST_KEY)
    world.store.delete(keys.LATEST_KEY)
    world.age()
    world.truncate()
    report = world.truncate()
    assert report.count(Act.DELETED, TruncatedKind.SNAPSHOT) == 1
    assert world.store.get(lost) is None
    assert world.store.get(keys.LATEST_KEY) == hint


def test_maintenance_writes_the_snapshots_that_a_quiet_log_lacks(world: TruncationWorld) -> None:
    """The log has entries 200 to 212, all of them old, and its second newest snapshot is of entry 101."""
    world.age()
    history = [one.sha256 for one in world.opened().history(limit=None)]

    def maintained() -> int:
        """Return the number of entries that maintenance has made."""
        world.clock.sleep(HOUR_S + 1)
        before = world.opened().state.entry
        log = world.opened()
        log.maintain("truncate", truncate_older_than=datetime.timedelta(days=7))
        log.close()
        return world.opened().state.entry - before

    assert [maintained() for _ in range(3)] == [
        1,
        0,
        0,
    ]  # the newest snapshot of before becomes the second newest
    assert entries_in(world.store)[0] == 200
    assert [one.sha256 for one in world.opened().history(limit=None)][1:] == history
    world.age()  # what maintenance has written is old now, and is no hundred
    assert maintained() == 0


def test_maintenance_truncates_by_the_age_that_the_log_has_and_the_callers_wins(
    world: TruncationWorld,
) -> None:
    week, long = datetime.timedelta(days=7), datetime.timedelta(days=3_000)
    world.age()
    assert world.opened().maintain().truncation is None
    world.opened().alter(truncate_older_than=long)
    report = world.opened().maintain().truncation
    assert report is not None
    assert (report.older_than_ms, report.boundary) == (long // datetime.timedelta(milliseconds=1), 0)
    report = world.opened().maintain(truncate_older_than=week).truncation
    assert report is not None
    assert report.boundary == 2 * BOUNDARY
    world.opened().alter(truncate_older_than=week)
    assert world.opened().state.truncate_older_than_ms == report.older_than_ms
    with world.opened() as log, one_by_one():
        before = log.state.entry
        assert log.alter(truncate_older_than=week).entry == before  # nothing to change, no entry
    world.clock.sleep(HOUR_S + 1)
    report = world.opened().maintain().truncation
    assert report is not None
    assert report.count(Act.DELETED, TruncatedKind.ENTRY) > 0
    world.opened().alter(truncate_older_than=None)
    assert world.opened().maintain().truncation is None


def test_a_cold_open_takes_four_round_trips_as_before(truncated: TruncationWorld) -> None:
    store = Interposed(truncated.store)
    log = truncated.opened(store)
    lists = [key for operation, key in store.seen if operation is RequestKind.LIST]
    assert lists == [keys.LOG_PREFIX, keys.BOUNDARY_PREFIX]
    tail = log.state.entry - log.state.checkpoints[-1].entry
    assert len(store.seen) == 3 + 2 + tail + 1


# --- what stops it ------------------------------------------------------------------------------------------


def _pick(world: TruncationWorld, of: KeyClass, index: int) -> str:
    return [info.key for info in world.store.list("") if key_class(info.key) is of][index]


def _older(world: TruncationWorld) -> str:
    return _pick(world, KeyClass.SNAPSHOT, 0)


def _newer(world: TruncationWorld) -> str:
    return _pick(world, KeyClass.SNAPSHOT, 1)


def _entry_after(world: TruncationWorld) -> str:
    return keys.entry_key(world.opened().state.checkpoints[0].entry + 1)


def _bundle(world: TruncationWorld) -> str:
    return BUNDLE


@pytest.mark.parametrize("run", ["first", "second"])
@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("what", [_older, _newer, _entry_after, _bundle])
def test_what_cannot_be_read_stops_it_before_anything_changes(
    world: TruncationWorld, what: Callable[[TruncationWorld], str], run: str, is_gone: bool
) -> None:
    """A bundle that is gone is written again while its entries are there."""
    world.age()
    if run == "second":
        world.truncate()
    log = world.opened()
    world.clock.sleep(HOUR_S + 1)
    key = what(world)
    data = world.store.get(key)
    assert data is not None
    world.store.delete(key)
    if not is_gone:
        world.store.create(key, data[: len(data) // 2])
    if what is _bundle:
        log.truncate()
        assert (world.store.get(BUNDLE) == data) is is_gone
        # A damaged one is passed over, and the hundred stays in its slots.
        assert (entries_in(world.store)[0] == 0) is (run == "first" or not is_gone)
        assert len(list(world.opened().history(limit=None))) == world.opened().state.entry + 1
        return
    before = world.store.list("")
    with pytest.raises(CorruptDataError):
        log.truncate()
    assert world.store.list("") == before


def test_a_bundle_of_another_chain_stops_it(world: TruncationWorld) -> None:
    """Every entry in it is whole by itself."""
    entries = decode_bundle(world.store.get(BUNDLE) or b"", BUNDLE)
    for number in (5, BUNDLE_ENTRIES - 1):
        other = world.copied()
        forged = encode_entry(replace(decode_entry(entries[number], number), engine="another"))
        bundle = encode_bundle([*entries[:number], forged, *entries[number + 1 :]])
        other.store.put(BUNDLE, bundle or b"")
        other.age()
        before = other.store.list("")
        with pytest.raises(CorruptDataError) as caught:
            other.truncate()
        assert caught.value.kind == "broken-chain"
        assert other.store.list("") == before


def test_a_damaged_bundle_of_entries_of_which_some_are_deleted_stops_it(world: TruncationWorld) -> None:
    """The run that deleted some of them was killed: the others are all that is left of the history."""
    world.age()
    world.truncate()
    world.store.delete(keys.entry_key(0))
    world.store.put(BUNDLE, b"damaged")
    before = world.store.list("")
    with pytest.raises(CorruptDataError) as caught:
        world.truncate()
    assert caught.value.kind == "damaged-bundle"
    assert world.store.list("") == before


def test_a_run_that_is_asked_for_older_entries_leaves_those_below_the_boundary(
    world: TruncationWorld,
) -> None:
    world.age()
    world.truncate()
    world.clock.sleep(HOUR_S + 1)
    report = world.opened().truncate(datetime.timedelta(days=30))
    assert (report.boundary, report.deleted_below) == (BOUNDARY, 0)
    assert entries_in(world.store)[0] == 0


def test_a_boundary_that_is_too_high_deletes_nothing_that_an_opener_needs(world: TruncationWorld) -> None:
    world.age()
    world.store.create(keys.boundary_key(BOUNDARY + 60), b"{}")
    assert world.truncate().deleted_below == BOUNDARY
    assert entries_in(world.store)[0] == BOUNDARY


def test_a_missing_entry_below_the_new_boundary_stops_it(world: TruncationWorld) -> None:
    """Without its bundle nothing has it: what is lost is said, and no more is."""
    world.store.delete(BUNDLE)
    world.store.delete(keys.entry_key(30))
    world.age()
    with pytest.raises(CorruptDataError, match="missing") as caught:
        world.truncate()
    assert caught.value.kind == "missing-entry"
    assert 31 in entries_in(world.store)


def test_a_snapshot_of_another_state_stops_it(world: TruncationWorld) -> None:
    """The fold of this process and that of whoever opens the log must agree."""
    log = world.opened()
    log.committer.read(check_snapshots(log.state))
    for other in (replace(log.state, retired_below=1), replace(log.state, entry_sha256="0" * 64)):
        with pytest.raises(CorruptDataError) as caught:
            log.committer.read(check_snapshots(other))
        assert caught.value.kind == "snapshot-differs"


def test_a_hundred_that_is_too_large_for_a_bundle_stays(world: TruncationWorld) -> None:
    world.store.delete(BUNDLE)
    world.age()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.core.wire.bundle.BUNDLE_BYTES_MAX", 1_000)
        world.truncate()
        report = world.truncate()
    assert report.count(Act.KEPT, TruncatedKind.ENTRY) == BOUNDARY
    assert entries_in(world.store)[0] == 0
    assert len(list(world.opened().history(limit=None))) == world.opened().state.entry + 1
    assert world.opened().read("t", timestamp_as_of=world.clock.now().wall_ms).read_all().num_rows > 0


def test_an_older_log_needs_the_upgrade(world: TruncationWorld) -> None:
    log = older_log(MemoryStore(world.clock), clock=world.clock)
    with pytest.raises(UnsupportedFeatureError) as caught:
        log.truncate()
    assert caught.value.kind == "upgrade-required"


@pytest.mark.parametrize("older_than", [datetime.timedelta(days=6), datetime.timedelta(), "7d", 7, None])
def test_no_shorter_age(world: TruncationWorld, older_than: object) -> None:
    for call in (
        lambda: world.opened().truncate(older_than),  # type: ignore[arg-type]
        lambda: world.opened().maintain(truncate_older_than=older_than),  # type: ignore[arg-type]
    ):
        if older_than is None and call.__code__.co_names[-1] == "maintain":
            continue
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert caught.value.kind == "invalid-age"


def test_a_store_that_cannot_tell_when_an_object_was_made_keeps_its_entries(world: TruncationWorld) -> None:
    world.age()
    world.truncate()
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(MemoryStore, "created_ms")
        assert world.truncate().deleted_below == 0
    assert entries_in(world.store)[0] == 0


# --- what a truncated log tells -----------------------------------------------------------------------------


def test_history_outcomes_times_and_versions_are_those_of_before(world: TruncationWorld) -> None:
    def told() -> list[object]:
        log = world.opened()
        times = [log.snapshot(version_as_of=entry).timestamp_ms for entry in (0, 50, 99, 100)]
        return [
            [log.outcome("etl", epoch) for epoch in range(3)],
            times,
            [log.read("t", timestamp_as_of=time).read_all().to_pydict() for time in times[1:]],
            [one.entry for one in log.history(limit=3, start=60)],
        ]

    before = told()
    assert [one.outcome for one in before[0]] == [Outcome.COMMIT, Outcome.ABORT, Outcome.COMMIT]  # type: ignore[attr-defined]
    world.age()
    world.truncate()
    world.truncate()
    assert entries_in(world.store)[0] == BOUNDARY
    assert told() == before


def test_what_no_bundle_has_any_more_is_one_clear_error(truncated: TruncationWorld) -> None:
    time_ms = truncated.opened().snapshot(version_as_of=50).timestamp_ms
    late_ms = truncated.opened().snapshot(version_as_of=150).timestamp_ms
    truncated.store.delete(BUNDLE)
    log = truncated.opened()
    calls: list[Callable[[], object]] = [
        lambda: log.snapshot(version_as_of=50).timestamp_ms,
        lambda: log.read("t", timestamp_as_of=time_ms),
        lambda: log.outcome("etl", 0),
    ]
    for call in calls:
        with pytest.raises(NotFoundError) as caught:
            call()
        assert caught.value.kind == "history-gone"
        assert caught.value.values["earliest"] == BOUNDARY
        assert caught.value.values["latest"] == log.state.entry
    assert log.read("t", version_as_of=50).read_all().num_rows > 0
    assert log.snapshot(timestamp_as_of=late_ms).entry == 150
    assert [one.entry for one in log.history(limit=log.state.entry + 1 - BOUNDARY)][-1] == BOUNDARY
    assert log.vacuum(datetime.timedelta(days=9)).floor == 0


def test_verify_finds_nothing_wrong_and_says_what_it_cannot_check(truncated: TruncationWorld) -> None:
    report = truncated.opened().verify(deep=True)
    assert report.problems == ()
    assert report.first_entry == BOUNDARY
    assert [(note.kind, note.count) for note in report.notes] == [("deleted-entries", BOUNDARY)]


def test_describe_shows_the_boundary(truncated: TruncationWorld) -> None:
    assert truncated.opened().describe().boundary == BOUNDARY


def test_maintenance_truncates_only_if_it_is_asked_for(world: TruncationWorld) -> None:
    world.age()
    log = world.opened()
    assert log.maintain().truncation is None
    done = log.maintain(truncate_older_than=datetime.timedelta(days=7)).truncation
    assert done is not None
    assert done.boundary == 2 * BOUNDARY  # it has written the snapshot that this needs
    world.clock.sleep(HOUR_S)
    assert log.maintain(truncate_older_than=datetime.timedelta(days=7)).truncation is None  # it rests
    world.clock.sleep(5 * HOUR_S)
    again = log.maintain(truncate_older_than=datetime.timedelta(days=7)).truncation
    assert again is not None
    assert again.deleted_below == 2 * BOUNDARY
    named = log.maintain("truncate").truncation
    assert named is not None
    with pytest.raises(TxnLogError):
        log.maintain("truncation")
