"""What is answered from entries of others is made durable first; what is not answered from costs nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.core.intents import AppRef, CommitResult, Intent, Write
from txnformat.core.state import LogState
from txnformat.core.topics.creation import new_topic
from txnformat.errors import CommitStateUnknownError, ConflictError, StorageError
from txnformat.protocol.commit import Answers, CommitSettings, commit_group
from txnformat.protocol.effects import Effect, MakeDurable
from txnformat.protocol.follow import open_view, refresh
from txnformat.protocol.slot import Ours, Unknown, create_slot
from txnformat.protocol.view import View
from txnformat.store.base import CreateOutcome, CreateResult
from txnlog_testing.simulator.hand import Hand

LOST_ANSWER = CreateResult(CreateOutcome.AMBIGUOUS, StorageError("no answer came", transient=True))
BROKEN = StorageError("the file system failed", kind="io-error")


def app(hand: Hand, version: int) -> Intent:
    return Intent(hand.new_id(), 0, Write(app=AppRef("unit", "app", version)))


def log(entries: int = 2) -> tuple[Hand, LogState]:
    """Return a log with entries of others, and its state."""
    hand = Hand()
    state = hand.empty()
    for version in range(entries):
        state = hand.others_commit(state, app(hand, version))
    return hand, state


def commit(hand: Hand, view: View, *intents: Intent) -> tuple[View, Answers]:
    return hand.run(commit_group(view, list(intents), CommitSettings(deadline_ms=1_000, attempts_max=3)))


def fail_to_make_durable(hand: Hand) -> None:
    def fail(effect: Effect) -> None:
        if isinstance(effect, MakeDurable):
            raise BROKEN

    hand.before = fail


def test_opening_makes_format_and_tip_durable() -> None:
    hand, state = log()
    view = hand.run(open_view())
    assert view.state.entry == state.entry
    assert hand.made_durable() == [keys.FORMAT_KEY, keys.entry_key(state.entry)]


def test_opening_a_log_without_an_entry_makes_its_format_durable() -> None:
    hand = Hand()
    hand.run(open_view())
    assert hand.made_durable() == [keys.FORMAT_KEY]


def test_a_refresh_makes_the_new_tip_durable_once() -> None:
    hand, state = log()
    view = hand.view(state)
    for version in (5, 6):
        state = hand.others_commit(state, app(hand, version))
    view = hand.run(refresh(view))
    assert hand.made_durable() == [keys.entry_key(state.entry)], "the tip stands for all before it"
    assert hand.run(refresh(view)).state is view.state
    assert len(hand.made_durable()) == 1, "nothing new costs nothing"


@pytest.mark.parametrize("what", ["open", "refresh"])
def test_a_view_that_cannot_be_made_durable_is_an_error(what: str) -> None:
    hand, state = log()
    view = hand.view(state)
    hand.others_commit(state, app(hand, 5))
    fail_to_make_durable(hand)
    with pytest.raises(StorageError) as caught:
        hand.run(open_view() if what == "open" else refresh(view))
    assert caught.value is BROKEN


def test_ours_by_reading_back_is_made_durable_and_ours_at_once_needs_nothing() -> None:
    hand = Hand()
    assert isinstance(hand.run(create_slot(7, b"mine", deadline_ms=1_000)), Ours)
    assert hand.made_durable() == []
    hand.creates = [LOST_ANSWER]
    assert isinstance(hand.run(create_slot(7, b"mine", deadline_ms=1_000)), Ours)
    assert hand.made_durable() == [keys.entry_key(7)]
    fail_to_make_durable(hand)
    hand.creates = [LOST_ANSWER]
    assert hand.run(create_slot(7, b"mine", deadline_ms=1_000)) == Unknown(BROKEN)


def test_a_commit_makes_all_before_it_durable_by_itself() -> None:
    """Others' entries that were folded on the way cost no sync of their own."""
    hand, state = log()
    view = hand.view(state)
    state = hand.others_commit(state, app(hand, 5))
    view, answers = commit(hand, view, app(hand, 6))
    assert [type(answer) for answer in answers.values()] == [CommitResult]
    assert view.state.entry == state.entry + 1
    assert hand.made_durable() == []


def test_done_already_is_answered_after_its_entry_was_made_durable() -> None:
    hand, state = log()
    view = hand.view(state)
    repeated = app(hand, 5)
    state = hand.others_commit(state, repeated)
    view, answers = commit(hand, view, repeated)
    answer = answers[repeated.intent_id]
    assert isinstance(answer, CommitResult)
    assert answer.repeated
    assert hand.made_durable() == [keys.entry_key(state.entry)]
    commit(hand, view, repeated)
    assert len(hand.made_durable()) == 1, "known to be durable: not asked for again"


def test_done_already_that_cannot_be_made_durable_is_unknown_and_forgotten() -> None:
    hand, state = log()
    view = hand.view(state)
    repeated = app(hand, 5)
    hand.others_commit(state, repeated)
    fail_to_make_durable(hand)
    after, answers = commit(hand, view, repeated)
    answer = answers[repeated.intent_id]
    assert isinstance(answer, CommitStateUnknownError)
    assert after.state.entry == view.state.entry, (
        "what cannot be made durable is not shown by the next call either"
    )


def test_a_refusal_is_given_after_what_it_rests_on_was_made_durable() -> None:
    hand, state = log()
    view = hand.view(state)

    def topic(number: int) -> Intent:
        schema = pa.schema([("n", pa.int64())])
        return Intent(hand.new_id(), 0, new_topic("t", schema, f"{number:08x}-0000-4000-8000-00000000aaaa"))

    state = hand.others_commit(state, topic(1))
    mine = topic(2)
    _, answers = commit(hand, view, mine)
    assert isinstance(answers[mine.intent_id], ConflictError)
    assert hand.made_durable() == [keys.entry_key(state.entry)]
    fail_to_make_durable(hand)
    _, answers = commit(hand, view, mine)
    assert answers[mine.intent_id] is BROKEN


def test_a_commit_that_fails_leaves_a_view_that_is_durable() -> None:
    """Others' entries were folded, and nothing of ours landed."""
    hand, state = log()
    view = hand.view(state)
    state = hand.others_commit(state, app(hand, 5))
    full = StorageError("no space left", kind="disk-full")
    hand.creates = [None, CreateResult(CreateOutcome.REFUSED, full)]
    mine = app(hand, 6)
    after, answers = commit(hand, view, mine)
    assert answers[mine.intent_id] is full
    assert after.state.entry == state.entry
    assert hand.made_durable() == [keys.entry_key(state.entry)]
    fail_to_make_durable(hand)
    hand.creates = [None, CreateResult(CreateOutcome.REFUSED, full)]
    after, answers = commit(hand, view, mine)
    assert answers[mine.intent_id] is full
    assert after is view
