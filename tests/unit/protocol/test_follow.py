"""Following a log: what a cold open and a refresh cost, and what they do not trust."""

from __future__ import annotations

import pytest

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import AppRef, Intent, TakeCheckpoint, Write
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.wire.document import encode_json
from txnformat.errors import CorruptDataError, NotFoundError, StorageError
from txnformat.protocol.effects import Effect, GetObject, ListObjects, Simultaneous
from txnformat.protocol.follow import open_view, refresh
from txnlog_testing.entries import replaced_in_entry
from txnlog_testing.simulator.hand import Hand

CORRUPT = b'{"format": 1, "entry": 0}'


def _app(hand: Hand, version: int) -> Intent:
    return Intent(hand.new_id(), 0, Write(app=AppRef("unit", "app", version)))


def _log(entries: int) -> tuple[Hand, list[LogState]]:
    """Return a log and its state after each entry."""
    hand = Hand()
    states = [hand.empty()]
    for version in range(entries):
        states.append(hand.others_commit(states[-1], _app(hand, version)))
    return hand, states[1:]


def _snapshot(hand: Hand, state: LogState, tip: LogState) -> tuple[Checkpoint, LogState]:
    """Store a snapshot of ``state``, name it in the entry after ``tip``, and hint at it."""
    data = encode_snapshot(state)
    key = keys.snapshot_key(state.entry, hand.new_id())
    named = Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state))
    hand.objects[key] = data
    after = hand.others_commit(tip, Intent(hand.new_id(), 0, TakeCheckpoint(named)))
    hand.objects[keys.LATEST_KEY] = encode_json({"entry": state.entry, "key": key, "sha256": named.sha256})
    return named, after


@pytest.mark.parametrize("tail", [0, 1, 40])
def test_a_cold_open_takes_four_sequential_round_trips_whatever_the_tail(tail: int) -> None:
    hand, states = _log(3)
    _, tip = _snapshot(hand, states[1], states[2])
    for version in range(tail):
        tip = hand.others_commit(tip, _app(hand, 100 + version))
    view = hand.run(open_view())
    assert view.state.entry_sha256 == tip.entry_sha256
    assert len(hand.requests()) == 4
    last = hand.requests()[-1]
    assert isinstance(last, ListObjects)
    assert last.prefix == keys.BOUNDARY_PREFIX


def test_no_format_json_is_no_log() -> None:
    hand = Hand()
    hand.objects.clear()
    with pytest.raises(NotFoundError) as caught:
        hand.run(open_view())
    assert caught.value.kind == "no-log"


@pytest.mark.parametrize("hint", ["missing", "not json", "another place", "no such snapshot"])
def test_a_hint_that_says_nothing_usable_costs_a_listing_and_nothing_else(hint: str) -> None:
    hand, states = _log(3)
    _, tip = _snapshot(hand, states[1], states[2])
    gone = keys.snapshot_key(2, "0" * 8 + "-0000-4000-8000-000000000000")
    hand.objects[keys.LATEST_KEY] = {
        "missing": b"",
        "not json": b"\xff\xfe",
        "another place": encode_json({"entry": 1, "key": "_txnlog/format.json"}),
        "no such snapshot": encode_json({"entry": 2, "key": gone}),
    }[hint]
    if hint == "missing":
        del hand.objects[keys.LATEST_KEY]
    assert hand.run(open_view()).state.entry_sha256 == tip.entry_sha256


def test_a_stale_hint_below_the_boundary_leads_to_the_newest_snapshot() -> None:
    hand, states = _log(3)
    old, tip = _snapshot(hand, states[0], states[2])
    stale = hand.objects[keys.LATEST_KEY]
    _, after = _snapshot(hand, tip, hand.others_commit(tip, _app(hand, 50)))
    hand.objects[keys.LATEST_KEY] = stale
    for slot in range(tip.entry + 1):
        del hand.objects[keys.entry_key(slot)]
    hand.objects[keys.boundary_key(tip.entry + 1)] = b""
    assert hand.run(open_view()).state.entry_sha256 == after.entry_sha256
    # A deleted slot, created again by a writer that slept, chains from the stale snapshot and not to what
    # follows.
    again, _ = hand.entry(states[0], _app(hand, 99))
    hand.objects[keys.entry_key(1)] = again.data
    assert hand.run(open_view()).state.entry_sha256 == after.entry_sha256
    assert old.entry == 0


def test_a_stale_hint_into_a_deletion_in_progress_leads_to_the_newest_snapshot() -> None:
    hand, states = _log(3)
    _, tip = _snapshot(hand, states[0], states[2])
    stale = hand.objects[keys.LATEST_KEY]
    _, after = _snapshot(hand, tip, hand.others_commit(tip, _app(hand, 50)))
    hand.objects[keys.LATEST_KEY] = stale
    hand.objects[keys.boundary_key(tip.entry + 1)] = b""
    del hand.objects[keys.entry_key(0)]
    again, _ = hand.entry(
        states[0], _app(hand, 99)
    )  # slot 1 is deleted and created again, slot 2 is still there
    hand.objects[keys.entry_key(1)] = again.data
    assert hand.run(open_view()).state.entry_sha256 == after.entry_sha256


def test_a_snapshot_that_no_entry_names_is_not_used() -> None:
    hand, states = _log(3)
    key = keys.snapshot_key(2, hand.new_id())
    hand.objects[key] = b"anything"
    hand.objects[keys.LATEST_KEY] = encode_json({"entry": 2, "key": key})
    assert hand.run(open_view()).state.entry_sha256 == states[2].entry_sha256


def test_a_snapshot_that_is_not_what_its_checkpoint_says_is_not_used() -> None:
    hand, states = _log(3)
    named, tip = _snapshot(hand, states[1], states[2])
    hand.objects[named.key] = hand.objects[named.key][:-1] + b"?"
    assert hand.run(open_view()).state.entry_sha256 == tip.entry_sha256


def test_a_hole_in_the_listing_is_a_lost_entry_and_no_shorter_log() -> None:
    hand, states = _log(6)
    _, tip = _snapshot(hand, states[1], states[5])
    del hand.objects[keys.entry_key(4)]
    _snapshot(hand, states[1], states[2])  # names the snapshot within the part that is contiguous
    with pytest.raises(CorruptDataError) as caught:
        hand.run(open_view())
    assert caught.value.kind == "missing-entry"
    assert caught.value.values["object"] == keys.entry_key(4)
    assert tip.entry == 6


def test_a_broken_chain_is_corrupt_data() -> None:
    hand, states = _log(3)
    alien, _ = hand.entry(states[0], _app(hand, 99))
    hand.objects[keys.entry_key(2)] = replaced_in_entry(alien.data, b'"entry":1,', b'"entry":2,')
    with pytest.raises(CorruptDataError) as caught:
        hand.run(refresh(hand.view(states[1])))
    assert caught.value.kind == "broken-chain"
    with pytest.raises(CorruptDataError):
        hand.run(open_view())


@pytest.mark.parametrize("boundary", [2, 3])
def test_a_slot_created_again_below_the_boundary_makes_a_follower_reload(boundary: int) -> None:
    """With boundary 2 the slot created again is the last deleted one, and the first kept one does not
    chain.
    """
    hand, states = _log(3)
    _, tip = _snapshot(hand, states[2], states[2])
    asleep = hand.view(states[0])
    again, _ = hand.entry(states[0], _app(hand, 99))
    hand.objects[keys.entry_key(1)] = again.data
    hand.objects[keys.boundary_key(boundary)] = b""
    hand.pass_time(8 * 86_400_000)
    assert hand.run(refresh(asleep)).state.entry_sha256 == tip.entry_sha256


def test_an_undecodable_slot_is_corrupt_data() -> None:
    hand, states = _log(2)
    hand.objects[keys.entry_key(2)] = CORRUPT
    with pytest.raises(CorruptDataError):
        hand.run(refresh(hand.view(states[1])))


def test_a_warm_refresh_with_nothing_new_is_one_get() -> None:
    hand, states = _log(2)
    view = hand.run(refresh(hand.view(states[1])))
    assert hand.requests() == [Simultaneous((GetObject(keys.entry_key(2)),))]
    assert view.state.entry == 1


@pytest.mark.parametrize("boot", [True, False])
def test_a_view_of_more_than_60_s_adds_a_listing_of_the_boundary(boot: bool) -> None:
    hand, states = _log(2)
    view = hand.view(states[1])
    if boot:
        hand.pass_time(60_001)
        hand.wall_ms -= 60_001  # a wall clock that was set back does not make a view younger
    else:
        hand.wall_ms += 60_001
    hand.run(refresh(view))
    assert hand.requests()[1:] == [ListObjects(keys.BOUNDARY_PREFIX)]


def test_at_60_s_exactly_a_view_is_still_fresh() -> None:
    hand, states = _log(2)
    view = hand.view(states[1])
    hand.pass_time(60_000)
    hand.run(refresh(view))
    assert len(hand.requests()) == 1


def test_without_a_clock_that_counts_suspended_time_the_boundary_is_always_read() -> None:
    hand, states = _log(2)
    hand.boot_ms = None
    hand.run(refresh(hand.view(states[1])))
    assert hand.requests()[1:] == [ListObjects(keys.BOUNDARY_PREFIX)]


def test_an_old_view_below_the_boundary_is_reloaded() -> None:
    hand, states = _log(4)
    _, tip = _snapshot(hand, states[3], states[3])
    view = hand.view(states[0])
    for slot in range(3):
        del hand.objects[keys.entry_key(slot)]
    hand.objects[keys.boundary_key(3)] = b""
    hand.pass_time(8 * 86_400_000)
    assert hand.run(refresh(view)).state.entry_sha256 == tip.entry_sha256


def test_a_refresh_catches_up_with_growing_batches() -> None:
    hand, states = _log(40)
    assert hand.run(refresh(hand.view(states[0]))).state.entry_sha256 == states[39].entry_sha256
    sizes = [len(effect.requests) for effect in hand.requests() if isinstance(effect, Simultaneous)]
    assert sizes == [1, 2, 4, 8, 16, 1, 16]  # the 1 in between asks for a bundle


def test_a_read_that_fails_transiently_is_repeated_and_then_given_up() -> None:
    hand, states = _log(2)
    failures = [StorageError("no answer came", transient=True)] * 4

    def fail(effect: Effect) -> None:
        if isinstance(effect, GetObject) and failures:
            raise failures.pop()

    hand.before = fail
    assert hand.run(refresh(hand.view(states[1]))).state.entry == 1
    failures += [StorageError("no answer came", transient=True)] * 10
    with pytest.raises(StorageError):
        hand.run(refresh(hand.view(states[1])))


def test_an_opener_that_a_truncation_overtakes_starts_over() -> None:
    """The listing of snapshots is empty, and when the opener wakes up again the log's beginning is
    deleted.
    """
    hand, states = _log(4)
    listed: list[bool] = []

    def truncate(effect: Effect) -> None:
        if isinstance(effect, ListObjects) and effect.prefix == keys.LOG_PREFIX:
            listed.append(True)
        if isinstance(effect, GetObject) and effect.key == keys.entry_key(0) and len(listed) == 1:
            listed.append(True)
            _snapshot(hand, states[3], states[3])
            del hand.objects[keys.LATEST_KEY]
            for slot in range(3):
                del hand.objects[keys.entry_key(slot)]
            hand.objects[keys.boundary_key(3)] = b""

    hand.before = truncate
    assert hand.run(open_view()).state.entry == 4


def test_deleted_entries_without_a_usable_snapshot_are_a_clear_error() -> None:
    hand, _ = _log(4)
    del hand.objects[keys.entry_key(0)]
    hand.objects[keys.boundary_key(1)] = b""
    with pytest.raises(CorruptDataError) as caught:
        hand.run(open_view())
    assert caught.value.kind == "no-usable-snapshot"


@pytest.mark.parametrize("born", ["below", "among", "above"])
def test_snapshots_that_no_entry_names_are_not_tried(born: str) -> None:
    """Of 51 junk snapshots none is fetched, and each entry is read at most twice: to find the named one, and
    to fold."""
    hand, states = _log(60)
    named, tip = _snapshot(hand, states[55], states[-1])
    for number in range(51):
        at = {"below": 0, "among": number, "above": 1_000 + number}[born]
        hand.objects[keys.snapshot_key(at, hand.new_id())] = b"junk"
    del hand.objects[keys.LATEST_KEY]
    view = hand.run(open_view())
    assert view.state.entry_sha256 == tip.entry_sha256
    got = [key for effect in hand.requests() for key in _keys_got(effect)]
    assert [key for key in got if key.startswith(keys.SNAPSHOT_PREFIX)] == [named.key]
    assert max(got.count(keys.entry_key(number)) for number in range(62)) <= 2
    assert len(hand.requests()) <= 12


def _keys_got(effect: Effect) -> list[str]:
    asked = effect.requests if isinstance(effect, Simultaneous) else (effect,)
    return [one.key for one in asked if isinstance(one, GetObject)]


def test_a_damaged_snapshot_leads_to_the_one_before_and_no_entry_is_read_again() -> None:
    hand, states = _log(300)
    older, tip = _snapshot(hand, states[10], states[-1])
    newer, tip = _snapshot(hand, states[250], tip)
    hand.objects[newer.key] = b"damaged"
    del hand.objects[keys.LATEST_KEY]
    assert hand.run(open_view()).state.entry_sha256 == tip.entry_sha256
    got = [key for effect in hand.requests() for key in _keys_got(effect)]
    assert [key for key in got if key.startswith(keys.SNAPSHOT_PREFIX)] == [newer.key, older.key]
    assert max(got.count(keys.entry_key(number)) for number in range(302)) == 1
