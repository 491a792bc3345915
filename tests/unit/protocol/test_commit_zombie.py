"""A producer that slept, and was fenced meanwhile, learns it at once: it does not take its sleep for a slow
store."""

from __future__ import annotations

import pytest

from txnformat import keys
from txnformat.core.intents import AllocateIds, CommitResult, Intent, OpenProducer, ProducerRef, Write
from txnformat.core.state import LogState
from txnformat.errors import ProducerFencedError
from txnformat.protocol.commit import CommitSettings, commit_group
from txnformat.protocol.effects import CreateObject, Effect, GetObject, ListObjects, Simultaneous, Sleep
from txnformat.types import Outcome
from txnlog_testing.simulator.clients import create_topic
from txnlog_testing.simulator.hand import Hand
from txnlog_testing.strategies import make_append

ROUND_TRIP_MS = 20
SLEEP_MS = 240_000
STORE = GetObject | CreateObject | ListObjects | Simultaneous


def _intent(hand: Hand, state: LogState, action: OpenProducer | AllocateIds | Write) -> Intent:
    return Intent(hand.new_id(), state.entry + 1, action)


class _Asleep:
    """Every request takes a round trip, and the process sleeps once, just before the create."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self.meanwhile: list[Intent] = []
        self.state = hand.empty()
        self.is_over = False

    def __call__(self, effect: Effect) -> None:
        hand = self._hand
        if isinstance(effect, CreateObject) and not self.is_over:
            self.is_over = True
            for intent in self.meanwhile:
                self.state = hand.others_commit(self.state, intent)
            hand.pass_time(SLEEP_MS)
        elif isinstance(effect, STORE):
            hand.pass_time(ROUND_TRIP_MS)


@pytest.mark.parametrize("others", [0, 1, 20])
@pytest.mark.parametrize("is_fenced", [True, False])
def test_whoever_slept_before_its_attempt_looks_at_once(others: int, is_fenced: bool) -> None:
    """No wait is longer than the spread of a normal round trip, and 4 round trips after waking all is known.

    They are the attempt that fails, the read of its slot, the look at the tip and, for the view is old, the
    boundary; far behind one look more for each doubling of the entries at once. That more time passed than a
    commit may take is no reason to be told of contention.
    """
    hand = Hand()
    state = hand.others_commit(hand.empty(), _intent(hand, hand.empty(), AllocateIds("unit", 1)))
    topic = create_topic("orders", 1, hand.new_id())
    state = hand.others_commit(state, Intent(hand.new_id(), 1, topic))
    state = hand.others_commit(state, _intent(hand, state, OpenProducer("etl")))
    known = state.transactional_ids["etl"]
    zombie = ProducerRef(known.producer_id, known.epoch, "etl")
    commit = _intent(
        hand, state, Write(zombie, (make_append(topic, {0: (0, 2)}, content="rows"),), end=Outcome.COMMIT)
    )
    asleep = _Asleep(hand)
    asleep.state = state
    asleep.meanwhile = [
        *(_intent(hand, state, AllocateIds("unit", 1)) for _ in range(others)),
        _intent(hand, state, OpenProducer("etl") if is_fenced else AllocateIds("unit", 1)),
    ]
    hand.before = asleep
    hand.effects.clear()
    settings = CommitSettings(deadline_ms=SLEEP_MS // 2 if is_fenced else 10 * SLEEP_MS)
    _, answers = hand.run(commit_group(hand.view(state), [commit], settings))
    answer = answers[commit.intent_id]
    assert asleep.is_over
    assert sum(hand.sleeps()) <= 16 * ROUND_TRIP_MS
    if is_fenced:
        assert isinstance(answer, ProducerFencedError)
        assert len(hand.requests()) <= 4 + (others > 2) + 2 * (others > 10)
    else:
        assert isinstance(answer, CommitResult)
        assert answer.entry == asleep.state.entry + 1


def test_whoever_lost_to_another_waits_about_a_round_trip_by_its_own_measure() -> None:
    """A create whose answer took long, because the process slept meanwhile, does not count as a round
    trip.
    """
    hand = Hand()
    state = hand.others_commit(hand.empty(), _intent(hand, hand.empty(), AllocateIds("unit", 1)))
    intent = _intent(hand, state, AllocateIds("unit", 1))

    def before(effect: Effect) -> None:
        if (
            isinstance(effect, CreateObject)
            and keys.entry_key(1) == effect.key
            and effect.key not in hand.objects
        ):
            hand.others_commit(state, _intent(hand, state, AllocateIds("unit", 1)))
            hand.pass_time(900)
        elif isinstance(effect, STORE):
            hand.pass_time(ROUND_TRIP_MS)

    hand.before = before
    hand.effects.clear()
    _, answers = hand.run(commit_group(hand.view(state), [intent], CommitSettings()))
    assert isinstance(answers[intent.intent_id], CommitResult)
    assert len([one for one in hand.effects if isinstance(one, Sleep)]) == 1
    assert sum(hand.sleeps()) <= 16 * ROUND_TRIP_MS
