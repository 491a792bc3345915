"""Intents that were never sent, and answers that one intent of a group must not spoil for the others."""

from __future__ import annotations

import pytest

from txnformat import keys
from txnformat.core.intents import AllocateIds, AppRef, CommitResult, Intent, Write
from txnformat.core.state import INTENT_WINDOW_ENTRIES, LogState
from txnformat.errors import CommitStateUnknownError
from txnformat.protocol.commit import Answers, CommitSettings, commit_group
from txnformat.protocol.effects import CreateObject, Effect, ReadClock
from txnformat.protocol.view import View
from txnformat.types import TopicPartition
from txnlog_testing.simulator.clients import create_topic
from txnlog_testing.simulator.hand import Hand
from txnlog_testing.strategies import make_append


def _ids(hand: Hand, state: LogState) -> Intent:
    return Intent(hand.new_id(), state.entry + 1, AllocateIds("unit", 1))


def _grown(hand: Hand, state: LogState, entries: int) -> LogState:
    for _ in range(entries):
        state = hand.others_commit(state, _ids(hand, state))
    return state


def _commit(hand: Hand, view: View, *intents: Intent, unsent: bool) -> Answers:
    ids = frozenset(intent.intent_id for intent in intents if unsent)
    return hand.run(commit_group(view, intents, CommitSettings(), unsent=ids))[1]


@pytest.mark.parametrize("fresh", [True, False], ids=["lost slot", "stale view"])
def test_an_intent_that_was_never_sent_is_applied_however_far_the_log_went_on(fresh: bool) -> None:
    """A process that slept while others committed more entries than the window keeps may still commit."""
    hand = Hand()
    old = _grown(hand, hand.empty(), 1)
    intent = _ids(hand, old)
    view = hand.view(old)
    newest = _grown(hand, old, INTENT_WINDOW_ENTRIES + 5)
    if not fresh:
        hand.pass_time(3_600_000)
    answer = _commit(hand, view, intent, unsent=True)[intent.intent_id]
    assert isinstance(answer, CommitResult)
    assert answer.entry == newest.entry + 1


def test_an_intent_that_may_have_been_sent_long_ago_is_never_applied() -> None:
    hand = Hand()
    old = _grown(hand, hand.empty(), 1)
    intent = _ids(hand, old)
    view = hand.view(old)
    newest = _grown(hand, old, INTENT_WINDOW_ENTRIES + 5)
    answer = _commit(hand, view, intent, unsent=False)[intent.intent_id]
    assert isinstance(answer, CommitStateUnknownError)
    assert answer.kind == "commit-too-old"
    assert keys.entry_key(newest.entry + 1) not in hand.objects


def test_an_intent_whose_slot_was_taken_and_deleted_may_have_landed_there() -> None:
    """The holder of the slot cannot be told any more; so the window must reach back to it, or nothing is
    applied."""
    hand = Hand()
    old = _grown(hand, hand.empty(), 1)
    intent = _ids(hand, old)
    slot = old.entry + 1
    newest = _grown(hand, old, INTENT_WINDOW_ENTRIES + 5)
    occupant = hand.objects[keys.entry_key(slot)]
    hidden = [False]

    def truncated_after_the_create(effect: Effect) -> None:
        if isinstance(effect, CreateObject) and effect.key == keys.entry_key(slot):
            hidden[0] = True
        elif isinstance(effect, ReadClock):
            pass
        elif hidden[0] and keys.entry_key(slot) in hand.objects:
            del hand.objects[keys.entry_key(slot)]
            hidden[0] = False
        else:
            hand.objects.setdefault(keys.entry_key(slot), occupant)

    hand.before = truncated_after_the_create
    answer = _commit(hand, hand.view(old), intent, unsent=True)[intent.intent_id]
    assert isinstance(answer, CommitStateUnknownError)
    assert answer.kind == "commit-too-old"
    assert keys.entry_key(newest.entry + 1) not in hand.objects


def test_a_result_that_cannot_be_read_does_not_become_the_answer_of_those_who_landed() -> None:
    hand = Hand()
    state = _grown(hand, hand.empty(), 1)
    done = _ids(hand, state)
    state = hand.others_commit(state, done)
    hand.objects[keys.entry_key(state.entry)] = b"damaged"
    other = _ids(hand, state)
    answers = _commit(hand, hand.view(state), done, other, unsent=False)
    landed, unread = answers[other.intent_id], answers[done.intent_id]
    assert isinstance(landed, CommitResult)
    assert landed.entry == state.entry + 1
    assert isinstance(unread, CommitStateUnknownError)


def test_a_repeat_gets_the_offsets_of_its_own_namespace() -> None:
    """One entry holds application "app" of two namespaces: each repeat is answered with its own append."""
    hand = Hand()
    topic = create_topic("t", 1, hand.new_id())
    state = _grown(hand, hand.empty(), 1)
    state = hand.others_commit(state, Intent(hand.new_id(), state.entry + 1, topic))
    writes = [
        Write(
            appends=(make_append(topic, {0: (-1, records)}, content=str(records)),),
            app=AppRef(namespace, "app", 1),
        )
        for namespace, records in (("first", 3), ("second", 5))
    ]
    state = hand.others_commit(state, *(Intent(hand.new_id(), state.entry + 1, write) for write in writes))
    again = [Intent(hand.new_id(), state.entry + 1, write) for write in writes]
    answers = _commit(hand, hand.view(state), *again, unsent=True)
    found = [answers[intent.intent_id] for intent in again]
    assert all(isinstance(answer, CommitResult) and answer.repeated for answer in found)
    key = TopicPartition(topic.topic_id, 0)
    assert [answer.offsets[key] for answer in found if isinstance(answer, CommitResult)] == [0, 3]
