"""Manners between writers: who has won holds back for those that it met, who is alone never waits."""

from __future__ import annotations

from txnformat.core.intents import AllocateIds, CommitResult, Intent
from txnformat.protocol.commit import CommitSettings, commit_group
from txnformat.protocol.effects import CreateObject, Simultaneous, Times
from txnformat.protocol.pace import HOLD_MS_MAX, STREAK, Pace
from txnformat.protocol.view import View
from txnlog_testing.simulator.hand import Hand

ROUND_TRIP_MS = 30


def _at(ms: float) -> Times:
    return Times(int(ms), int(ms), int(ms))


def _win(pace: Pace, now_ms: float, *, others: int, took_ms: float = ROUND_TRIP_MS) -> None:
    pace.won(_at(now_ms - took_ms), _at(now_ms - ROUND_TRIP_MS), _at(now_ms), others)


def _settled(others: int) -> tuple[Pace, float]:
    """Return the pace of a process that met so many others at each of its last commits, and the time."""
    pace, now_ms = Pace(), 0.0
    for _ in range(50):
        now_ms += 1_000 * ROUND_TRIP_MS
        _win(pace, now_ms, others=others, took_ms=(1 + others) * ROUND_TRIP_MS)
    return pace, now_ms


def test_who_is_alone_never_waits() -> None:
    pace, now_ms = _settled(0)
    assert pace.hold_ms(_at(now_ms)) == 0
    assert Pace().hold_ms(_at(0)) == 0


def test_a_winner_holds_back_for_most_of_the_turns_of_those_that_it_met() -> None:
    for others in (1, 7, 31):
        pace, now_ms = _settled(others)
        turns_ms = others * ROUND_TRIP_MS
        assert 0.5 * turns_ms < pace.hold_ms(_at(now_ms)) < turns_ms
        assert pace.others == others


def test_time_between_commits_counts_as_holding_back() -> None:
    pace, now_ms = _settled(7)
    held = pace.hold_ms(_at(now_ms))
    assert pace.hold_ms(_at(now_ms + 100)) == held - 100
    assert pace.hold_ms(_at(now_ms + 1_000)) == 0


def test_entries_from_before_the_call_do_not_count() -> None:
    """A client that comes back after a while finds a thousand entries of others that are gone by now."""
    pace = Pace()
    _win(pace, 1_000_000, others=10_000)
    assert pace.hold_ms(_at(1_000_000)) <= ROUND_TRIP_MS


def test_a_clock_that_jumps_back_holds_nobody_back_for_longer_than_before() -> None:
    pace, now_ms = _settled(7)
    assert pace.hold_ms(_at(now_ms - 3_600_000)) == pace.hold_ms(_at(now_ms))


def test_who_commits_without_a_break_and_meets_nobody_waits_a_moment_now_and_then() -> None:
    """Those who always lose leave no trace: only a break lets them in."""
    pace, now_ms, held = Pace(), 0.0, []
    for _ in range(4 * STREAK):
        now_ms += ROUND_TRIP_MS
        _win(pace, now_ms, others=0)
        held.append(pace.hold_ms(_at(now_ms)))
    assert sum(ms > 0 for ms in held) == 4
    assert ROUND_TRIP_MS < max(held) < 3 * ROUND_TRIP_MS


def test_breaks_of_its_own_are_enough() -> None:
    pace, now_ms = Pace(), 0.0
    for _ in range(4 * STREAK):
        now_ms += 3 * ROUND_TRIP_MS
        _win(pace, now_ms, others=0)
        assert pace.hold_ms(_at(now_ms)) == 0


def test_a_clock_that_jumps_ahead_during_a_create_holds_nobody_back_for_long() -> None:
    pace, now_ms = _settled(31)
    pace.won(_at(now_ms), _at(now_ms), _at(now_ms + 86_400_000), others=31)
    assert pace.hold_ms(_at(now_ms + 86_400_000)) <= HOLD_MS_MAX


def _commit(hand: Hand, view: View, pace: Pace) -> View:
    intent = Intent(hand.new_id(), view.state.entry + 1, AllocateIds("unit", 1))
    view, answers = hand.run(commit_group(view, [intent], CommitSettings(), pace=pace))
    assert isinstance(answers[intent.intent_id], CommitResult)
    return view


def test_a_winner_waits_and_looks_before_its_next_attempt() -> None:
    """After three entries of others it sleeps about three round trips, and asks for four slots at once."""
    hand = Hand()
    hand.before = lambda effect: hand.pass_time(ROUND_TRIP_MS) if isinstance(effect, CreateObject) else None
    state = hand.others_commit(hand.empty(), Intent(hand.new_id(), 0, AllocateIds("unit", 1)))
    pace, now_ms = _settled(3)
    hand.pass_time(int(now_ms) - hand.wall_ms)
    hand.effects.clear()
    view = _commit(hand, hand.view(state), pace)
    first, second = hand.requests()
    assert isinstance(first, Simultaneous)
    assert len(first.requests) == 4
    assert isinstance(second, CreateObject)
    (slept,) = hand.sleeps()
    assert ROUND_TRIP_MS < slept < 3 * ROUND_TRIP_MS
    hand.pass_time(10_000)
    hand.effects.clear()
    _commit(hand, view, pace)
    assert not hand.sleeps(), "who has been away for longer than that has waited already"
    assert [type(effect) for effect in hand.requests()] == [CreateObject]
