"""Bundles: their bytes, who writes them, and that whoever follows through them trusts only what the slots
hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import AllocateIds, AppRef, Intent, TakeCheckpoint, Write
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.wire.bundle import (
    BUNDLE_BYTES_MAX,
    BUNDLE_ENTRIES,
    bundle_first,
    bundles_in,
    decode_bundle,
    encode_bundle,
)
from txnformat.core.wire.document import encode_json, plain_bytes_max
from txnformat.errors import CorruptDataError, StorageError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.protocol.effects import CreateObject, Effect, GetObject, ListObjects, Simultaneous
from txnformat.protocol.follow import open_view, refresh, refresh_roughly
from txnformat.protocol.tail import FILL_IN_MAX, bundle_due, usable_bundle, write_bundles
from txnformat.protocol.view import View
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog_testing.simulator.hand import Hand
from txnlog_testing.stores.counting import CountingStore

ENTRIES = [bytes([number]) * (number + 1) for number in range(BUNDLE_ENTRIES)]


def bundle_key(first: int) -> str:
    return keys.bundle_key(first, first + BUNDLE_ENTRIES - 1)


# --- bytes --------------------------------------------------------------------------------------------------


def test_a_bundle_holds_the_exact_bytes_of_a_hundred_entries() -> None:
    data = encode_bundle(ENTRIES)
    assert data is not None
    assert data[:13] == b"TXNLOGB1" + b"\0\0\0\1" + b"\0"
    assert decode_bundle(data, "name") == ENTRIES


@pytest.mark.parametrize("count", [0, 99, 101])
def test_other_than_a_hundred_entries_are_no_bundle(count: int) -> None:
    with pytest.raises(ValueError, match="100 entries"):
        encode_bundle([b"x"] * count)


def test_entries_that_are_too_large_together_are_not_bundled() -> None:
    assert encode_bundle([b"x" * (BUNDLE_BYTES_MAX // BUNDLE_ENTRIES)] * BUNDLE_ENTRIES) is None


def test_every_cut_and_every_addition_is_seen() -> None:
    data = encode_bundle(ENTRIES)
    assert data is not None
    for end in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode_bundle(data[:end], "name")
    for more in (b"x", b"\0\0\0\0", b"\0\0\0\1x"):
        with pytest.raises(CorruptDataError):
            decode_bundle(data + more, "name")


@pytest.mark.parametrize(
    "data", [b"", b"TXNLOGB2", b"TXNLOGB1" + b"\xff" * 400, b"TXNLOGB1" + b"\0" * BUNDLE_BYTES_MAX]
)
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptDataError) as caught:
        decode_bundle(data, "a/key")
    assert caught.value.values["object"] == "a/key"


def test_a_bundle_that_decompresses_to_too_much_is_passed_over() -> None:
    """A hundred small entries may be gigabytes; one object of this size may not."""
    most = plain_bytes_max(0) // 100  # of each entry, where the bundle has less than 1 MiB
    for size, is_used in ((most - 3, True), (most + 1, False)):
        entry = encode_json("x" * size)
        bundle = encode_bundle([entry] * 100)
        assert bundle is not None
        assert len(bundle) < 1024 * 1024
        assert (usable_bundle(bundle, 0) is not None) is is_used


def test_a_bundle_of_entries_with_several_frames_is_counted_whole() -> None:
    frame = encode_json("x" * 200_000)
    bundle = encode_bundle([frame * 2] * 100)
    assert bundle is not None
    assert usable_bundle(bundle, 0) is None


def test_the_hundreds_of_a_range() -> None:
    assert bundle_first(199) == 100
    assert bundles_in(range(300)) == [0, 100, 200]
    assert bundles_in(range(1, 300)) == [100, 200]
    assert bundles_in(range(100, 299)) == [100]
    assert bundles_in(range(50, 149)) == []


# --- writing ------------------------------------------------------------------------------------------------


def _app(hand: Hand, version: int) -> Intent:
    return Intent(hand.new_id(), version, Write(app=AppRef("unit", "app", version)))


def _log(entries: int, *, bundles: bool = True) -> tuple[Hand, list[LogState]]:
    """Return a log, with all its bundles, and its state after each entry."""
    hand = Hand()
    states = [hand.empty()]
    for version in range(entries):
        states.append(hand.others_commit(states[-1], _app(hand, version)))
    if bundles:
        _bundle_all(hand, entries)
    return hand, states[1:]


def _bundle_all(hand: Hand, entries: int) -> None:
    for first in range(0, entries - entries % BUNDLE_ENTRIES, BUNDLE_ENTRIES):
        slots = range(first, first + BUNDLE_ENTRIES)
        data = encode_bundle([hand.objects[keys.entry_key(slot)] for slot in slots])
        assert data is not None
        hand.objects[bundle_key(first)] = data


@pytest.fixture(scope="module")
def long_log() -> tuple[dict[str, bytes], LogState, LogState]:
    """Return the objects of a log of 10,050 entries, and its first and its last state."""
    hand = Hand()
    first = state = hand.others_commit(hand.empty(), _app(hand, 0))
    for version in range(1, 10_050):
        state = hand.others_commit(state, _app(hand, version))
    _bundle_all(hand, 10_050)
    return hand.objects, first, state


def _gets(effects: list[Effect]) -> Counter[KeyClass]:
    found: Counter[KeyClass] = Counter()
    for effect in effects:
        requests = effect.requests if isinstance(effect, Simultaneous) else (effect,)
        found.update(key_class(one.key) for one in requests if isinstance(one, GetObject))
    return found


def test_whoever_completes_a_hundred_writes_its_bundle() -> None:
    assert [entry for entry in range(301) if bundle_due([entry]) is not None] == [99, 199, 299]
    assert bundle_due([197, 199, 201]) == 100
    assert bundle_due([]) is None


def test_writing_fills_in_what_others_have_not_written() -> None:
    hand, _ = _log(1_300)
    expected = dict(hand.objects)
    for first in (0, 700, 1_200):
        del hand.objects[bundle_key(first)]
    assert hand.run(write_bundles(1_200)) == 2
    assert bundle_key(0) not in hand.objects  # further back than it looks
    assert hand.objects == {key: data for key, data in expected.items() if key != bundle_key(0)}
    assert [effect.key for effect in hand.effects if isinstance(effect, CreateObject)] == [
        bundle_key(1_200),
        bundle_key(700),
    ]
    assert FILL_IN_MAX == 10
    hand.effects.clear()
    assert hand.run(write_bundles(1_200)) == 0
    assert hand.requests() == [ListObjects(keys.BUNDLE_PREFIX, bundle_key(100))]


def _delete(hand: Hand) -> None:
    del hand.objects[keys.entry_key(150)]


def _garble(hand: Hand) -> None:
    hand.objects[keys.entry_key(150)] = b"{}"


def _exchange(hand: Hand) -> None:
    hand.objects[keys.entry_key(150)] = hand.objects[keys.entry_key(150)].replace(
        b'"version":150', b'"version":250'
    )


@pytest.mark.parametrize("damage", [_delete, _garble, _exchange])
def test_entries_that_do_not_chain_are_not_bundled(damage: Callable[[Hand], None]) -> None:
    hand, _ = _log(200, bundles=False)
    damage(hand)
    assert hand.run(write_bundles(100)) == 1
    assert bundle_key(0) in hand.objects
    assert bundle_key(100) not in hand.objects


def test_a_bundle_is_only_created_never_replaced() -> None:
    hand, _ = _log(100, bundles=False)
    hand.creates = [CreateResult(CreateOutcome.EXISTS)]
    assert hand.run(write_bundles(0)) == 0
    hand.creates = [CreateResult(CreateOutcome.REFUSED, StorageError("read-only", kind="read-only-store"))]
    with pytest.raises(StorageError):
        hand.run(write_bundles(0))
    assert bundle_key(0) not in hand.objects


# --- following ----------------------------------------------------------------------------------------------


def test_a_follower_10_000_entries_behind_needs_about_100_requests(
    long_log: tuple[dict[str, bytes], LogState, LogState],
) -> None:
    hand = Hand()
    hand.objects, first, last = long_log
    view = hand.run(refresh(View(first)))
    assert view.state.entry_sha256 == last.entry_sha256
    gets = _gets(hand.effects)
    assert gets[KeyClass.BUNDLE] <= 101 + 8  # some more were asked for at once than there are
    # The first ones, before it knows; the last ones, which are no hundred yet.
    assert gets[KeyClass.ENTRY] <= 31 + 1 + 50 + 32
    assert len(hand.requests()) <= 35


def test_an_opener_without_a_snapshot_needs_about_100_requests(
    long_log: tuple[dict[str, bytes], LogState, LogState],
) -> None:
    hand = Hand()
    hand.objects, _, last = long_log
    view = hand.run(open_view())
    assert view.state.entry_sha256 == last.entry_sha256
    assert _gets(hand.effects) == {
        KeyClass.FORMAT: 1,
        KeyClass.LATEST: 1,
        KeyClass.BUNDLE: 100,
        KeyClass.ENTRY: 50 + 1 + 1,
    }
    assert len(hand.requests()) == 4


def test_a_follower_that_is_not_far_behind_asks_for_no_bundle() -> None:
    hand, states = _log(130)
    hand.run(refresh(View(states[99])))
    assert _gets(hand.effects)[KeyClass.BUNDLE] == 0


@pytest.mark.parametrize("tail", [150, 250])
def test_opening_from_a_snapshot_still_takes_four_round_trips(tail: int) -> None:
    hand, states = _log(250)
    first = 249 - tail
    if first >= 0:
        data = encode_snapshot(states[first])
        named = Checkpoint(
            first,
            keys.snapshot_key(first, hand.new_id()),
            len(data),
            sha256_hex(data),
            state_digest(states[first]),
        )
        hand.objects[named.key] = data
        tip = hand.others_commit(states[-1], Intent(hand.new_id(), 0, TakeCheckpoint(named)))
        hand.objects[keys.LATEST_KEY] = encode_json(
            {"entry": first, "key": named.key, "sha256": named.sha256}
        )
    else:
        tip = states[-1]
    assert hand.run(open_view()).state.entry_sha256 == tip.entry_sha256
    assert len(hand.requests()) == 4
    assert _gets(hand.effects)[KeyClass.BUNDLE] == (1 if tail == 150 else 2)


def _missing(hand: Hand, first: int) -> None:
    del hand.objects[bundle_key(first)]


def _cut(hand: Hand, first: int) -> None:
    hand.objects[bundle_key(first)] = hand.objects[bundle_key(first)][:-1]


def _flipped(hand: Hand, first: int) -> None:
    data = hand.objects[bundle_key(first)]
    at = data.rindex(b'"version":') + 10
    hand.objects[bundle_key(first)] = data[:at] + b"9" + data[at + 1 :]


def _another(hand: Hand, first: int) -> None:
    hand.objects[bundle_key(first)] = hand.objects[bundle_key(100 if first != 100 else 200)]


def _forged(hand: Hand, first: int) -> None:
    """The last entry is one that chains and fits, but is not what the slot holds."""
    _, states = _log(first + BUNDLE_ENTRIES, bundles=False)
    forged, _ = hand.entry(states[-2], _app(hand, 77_777))
    entries = decode_bundle(hand.objects[bundle_key(first)], "bundle")
    data = encode_bundle([*entries[:-1], forged.data])
    assert data is not None
    hand.objects[bundle_key(first)] = data


DAMAGE = pytest.mark.parametrize("damage", [_missing, _cut, _flipped, _another, _forged])
WHERE = pytest.mark.parametrize("first", [0, 200, 400])  # 400: ends at the tip


@DAMAGE
@WHERE
def test_a_bad_bundle_changes_nothing_for_a_follower(damage: Callable[[Hand, int], None], first: int) -> None:
    hand, states = _log(500)
    damage(hand, first)
    view = hand.run(refresh(View(states[10])))
    assert state_digest(view.state) == state_digest(states[-1])


@DAMAGE
@WHERE
def test_a_bad_bundle_changes_nothing_for_a_rough_look(
    damage: Callable[[Hand, int], None], first: int
) -> None:
    hand, states = _log(530)
    damage(hand, first)
    rough = hand.run(refresh_roughly(replace(hand.view(states[10]), behind=150)))
    assert rough.state.entry_sha256 == states[rough.state.entry].entry_sha256
    assert rough.state.entry >= 99


def test_a_rough_look_ends_with_the_last_hundred_and_proves_no_tip() -> None:
    hand, states = _log(330)
    view = replace(hand.view(states[10]), behind=150)
    hand.pass_time(50_000)
    rough = hand.run(refresh_roughly(view))
    assert (rough.state.entry, rough.proof) == (299, view.proof)
    assert hand.made_durable() == [keys.entry_key(299)], "a power cut takes nothing away that a view shows"
    assert _gets(hand.effects) == {KeyClass.BUNDLE: 3 + 1, KeyClass.ENTRY: 1}
    hand.pass_time(11_000)  # the proof is too old to go on from: the boundary is read
    assert hand.run(refresh_roughly(rough)).state.entry == 329


@DAMAGE
@WHERE
def test_a_bad_bundle_changes_nothing_for_an_opener(damage: Callable[[Hand, int], None], first: int) -> None:
    hand, states = _log(500)
    damage(hand, first)
    view = hand.run(open_view())
    assert state_digest(view.state) == state_digest(states[-1])


def test_a_bundle_stands_for_no_lost_entry() -> None:
    """The newest slot is gone: with or without a bundle that holds it, nobody may go on as if it were
    there.
    """
    hand, states = _log(500)
    del hand.objects[keys.entry_key(499)]
    assert hand.run(refresh(View(states[10]))).state.entry == 498
    assert hand.run(open_view()).state.entry == 498


def test_an_entry_that_is_lost_after_the_listing_is_not_taken_from_a_bundle() -> None:
    hand, _ = _log(500)
    newest = keys.entry_key(499)

    def lose(effect: Effect) -> None:
        if isinstance(effect, GetObject) and effect.key == newest:
            hand.objects.pop(newest, None)

    hand.before = lose
    with pytest.raises(CorruptDataError) as caught:
        hand.run(open_view())
    assert caught.value.kind == "missing-entry"


def test_slots_created_again_below_the_boundary_lead_to_a_reload_through_bundles_too() -> None:
    hand, states = _log(300)
    data = encode_snapshot(states[250])
    named = Checkpoint(
        250, keys.snapshot_key(250, hand.new_id()), len(data), sha256_hex(data), state_digest(states[250])
    )
    hand.objects[named.key] = data
    tip = hand.others_commit(states[-1], Intent(hand.new_id(), 0, TakeCheckpoint(named)))
    hand.objects[keys.boundary_key(200)] = b""
    again, _ = hand.entry(states[198], _app(hand, 99_999))
    hand.objects[keys.entry_key(199)] = again.data  # deleted, and created again by a writer that slept
    hand.pass_time(8 * 86_400_000)
    assert hand.run(refresh(hand.view(states[0]))).state.entry_sha256 == tip.entry_sha256


# --- a committer --------------------------------------------------------------------------------------------


def test_a_committer_writes_the_bundle_of_every_hundred_after_the_answer() -> None:
    store = CountingStore(MemoryStore())
    with TxnLog.create(store) as log:
        for index in range(250):
            log.committer.commit(log.committer.intend(AllocateIds("p", 1)))
            if index % 50 == 0:
                log.close()  # waits: who is busy with one hundred leaves the next to whoever completes the one after
    bundles = [info.key for info in store.list(keys.BUNDLE_PREFIX)]
    assert bundles == [bundle_key(0), bundle_key(100)]
    for first in (0, 100):
        data = store.get(bundle_key(first))
        assert data is not None
        assert decode_bundle(data, "bundle") == [
            store.get(keys.entry_key(first + index)) for index in range(100)
        ]


def test_a_log_opens_through_bundles_where_its_snapshots_are_lost() -> None:
    store = CountingStore(MemoryStore())
    with TxnLog.create(store) as log:
        for index in range(330):
            log.committer.commit(log.committer.intend(AllocateIds("p", 1)))
            if index % 50 == 0:
                log.close()
    expected = state_digest(TxnLog.open(store).state)
    for info in [*store.list(keys.SNAPSHOT_PREFIX), *store.list(keys.LATEST_KEY)]:
        store.delete(info.key)
    with store.measure() as measured:
        assert state_digest(TxnLog.open(store).state) == expected
    assert measured.counts.count(RequestKind.GET, KeyClass.BUNDLE) == 3
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) < 50
