"""Followers that are some entries behind read them by tens, and trust only what the slots hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from txnformat import keys
from txnformat.core.intents import AppRef, Intent, Write
from txnformat.core.state import KNOWN_FEATURES, LogState
from txnformat.core.wire.bundle import decode_payloads, encode_payloads
from txnformat.persistent import replace
from txnformat.protocol.effects import GetObject, Simultaneous
from txnformat.protocol.follow import TENS_AHEAD, refresh
from txnformat.protocol.view import View
from txnformat.store.requests import KeyClass, key_class
from txnlog_testing.simulator.hand import Hand


def _app(hand: Hand, version: int) -> Intent:
    return Intent(hand.new_id(), version, Write(app=AppRef("unit", "app", version)))


def _key(first: int) -> str:
    return keys.payloads_key(first, first + 9)


def _log(entries: int) -> tuple[Hand, list[LogState]]:
    """Return a log with all its tens, and its state after each entry, of which its followers believe that it
    embeds."""
    hand = Hand()
    states = [hand.empty()]
    for version in range(entries):
        states.append(hand.others_commit(states[-1], _app(hand, version)))
    for first in range(0, entries - entries % 10, 10):
        data = encode_payloads([hand.objects[keys.entry_key(slot)] for slot in range(first, first + 10)])
        assert data is not None
        hand.objects[_key(first)] = data
    return hand, [replace(state, features=KNOWN_FEATURES) for state in states[1:]]


def _followed(hand: Hand, view: View, ahead: int = 1) -> tuple[View, Counter[KeyClass]]:
    hand.effects.clear()
    found = hand.run(refresh(view, ahead=ahead))
    gets: Counter[KeyClass] = Counter()
    for effect in hand.effects:
        requests = effect.requests if isinstance(effect, Simultaneous) else (effect,)
        gets.update(key_class(one.key) for one in requests if isinstance(one, GetObject))
    return found, gets


def test_how_many_requests_a_follower_needs() -> None:
    hand, states = _log(97)
    view, gets = _followed(hand, View(states[3]))
    assert (view.state.entry, view.behind) == (96, 93)
    # Three slots; the ten of the next one, more tens, and the hundred that is not there; the last entry of a
    # ten, six more, and the tip.
    assert gets[KeyClass.PAYLOADS] <= 9 + 1
    assert gets[KeyClass.BUNDLE] == 1
    assert gets[KeyClass.ENTRY] <= 3 + 1 + 6 + TENS_AHEAD
    _, gets = _followed(hand, View(states[3], behind=93))
    assert gets[KeyClass.ENTRY] <= 1 + 1 + 6 + TENS_AHEAD
    assert _followed(hand, View(states[-1], behind=93)) == (
        View(states[-1], hand.view(states[-1]).proof, 46),
        {KeyClass.ENTRY: 1},
    )


def test_no_ten_is_asked_for_of_two_entries() -> None:
    hand, states = _log(97)
    assert _followed(hand, View(states[-3]))[1] == {KeyClass.ENTRY: 1 + 2}
    assert _followed(hand, View(states[-5]))[1][KeyClass.PAYLOADS] == 1


def test_tens_are_asked_for_neither_where_there_are_none_nor_of_what_is_just_being_written() -> None:
    hand, states = _log(97)
    old = replace(states[3], features=hand.empty().features)
    assert _followed(hand, View(old, behind=20))[1][KeyClass.PAYLOADS] == 0
    assert _followed(hand, View(states[3], behind=20), ahead=2)[1][KeyClass.PAYLOADS] == 0


def test_an_author_that_writes_no_tens_costs_one_request() -> None:
    hand, states = _log(97)
    for first in range(0, 90, 10):
        del hand.objects[_key(first)]
    view, gets = _followed(hand, View(states[3], behind=50))
    assert view.state.entry == 96
    assert gets[KeyClass.PAYLOADS] == 1


def _missing(hand: Hand, first: int) -> None:
    del hand.objects[_key(first)]


def _cut(hand: Hand, first: int) -> None:
    hand.objects[_key(first)] = hand.objects[_key(first)][:-1]


def _flipped(hand: Hand, first: int) -> None:
    data = hand.objects[_key(first)]
    at = data.rindex(b'"version":') + 10
    hand.objects[_key(first)] = data[:at] + b"9" + data[at + 1 :]


def _another(hand: Hand, first: int) -> None:
    hand.objects[_key(first)] = hand.objects[_key(10 if first != 10 else 20)]


def _forged(hand: Hand, first: int) -> None:
    """The last entry is one that chains and fits, but is not what the slot holds."""
    _, states = _log(first + 10)
    forged, _ = hand.entry(replace(states[-2], features=hand.empty().features), _app(hand, 77_777))
    entries = decode_payloads(hand.objects[_key(first)], "ten", 10)
    data = encode_payloads([*entries[:-1], forged.data])
    assert data is not None
    hand.objects[_key(first)] = data


def test_a_look_that_finds_nothing_asks_for_a_hundred_only_a_while_after_one_that_found_some() -> None:
    hand, states = _log(97)
    view = replace(hand.view(states[-1]), behind=150)
    assert _followed(hand, view)[1] == {KeyClass.ENTRY: 1}
    hand.pass_time(1_001)
    found, gets = _followed(hand, view)
    assert gets == {KeyClass.BUNDLE: 1, KeyClass.ENTRY: 1}
    hand.pass_time(1_001)
    assert _followed(hand, found)[1] == {KeyClass.ENTRY: 1}, "it expects half as much each time"


@pytest.mark.parametrize("damage", [_missing, _cut, _flipped, _another, _forged])
@pytest.mark.parametrize("first", [0, 30, 80])  # 80: ends at the tip
@pytest.mark.parametrize("behind", [0, 60])
def test_a_bad_ten_changes_nothing(damage: Callable[[Hand, int], None], first: int, behind: int) -> None:
    hand, states = _log(90)
    damage(hand, first)
    view, _ = _followed(hand, View(states[1], behind=behind))
    assert view.state.entry_sha256 == states[-1].entry_sha256
    assert view.state.app_versions == states[-1].app_versions


def test_a_ten_stands_for_no_lost_entry() -> None:
    """The newest slot is gone: with or without a ten that holds it, nobody may go on as if it were there."""
    hand, states = _log(90)
    del hand.objects[keys.entry_key(89)]
    assert _followed(hand, View(states[1], behind=60))[0].state.entry == 88
