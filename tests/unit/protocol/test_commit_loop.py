"""The commit loop by hand: who gets which answer, and after which requests."""

from __future__ import annotations

import pytest

from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.intents import (
    Action,
    AllocateIds,
    AppRef,
    CommitResult,
    Intent,
    OpenProducer,
    ProducerRef,
    TakeCheckpoint,
    Write,
)
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import encode_snapshot, state_digest
from txnformat.core.state import INTENT_WINDOW_ENTRIES, IntentWindow, LogState
from txnformat.errors import CommitStateUnknownError, ConflictError, NotFoundError, StorageError, TxnLogError
from txnformat.protocol.commit import Answers, CommitSettings, backoff_ms, commit_group
from txnformat.protocol.effects import CreateObject, Effect, GetObject, ListObjects, Simultaneous
from txnformat.protocol.view import View
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.types import Outcome
from txnlog_testing.simulator.clients import create_topic
from txnlog_testing.simulator.hand import Hand

NO_ANSWER = StorageError("no answer came", transient=True)
AMBIGUOUS = CreateResult(CreateOutcome.AMBIGUOUS, NO_ANSWER)
REFUSED = CreateResult(CreateOutcome.REFUSED, StorageError("no space left", kind="disk-full"))
UNMENDABLE = CreateResult(CreateOutcome.AMBIGUOUS, StorageError("fsync failed"))


def _intent(hand: Hand, state: LogState, action: Action | None = None) -> Intent:
    return Intent(hand.new_id(), state.entry + 1, action or AllocateIds("unit", 1))


def _log(entries: int = 1) -> tuple[Hand, LogState]:
    hand = Hand()
    state = hand.empty()
    for _ in range(entries):
        state = hand.others_commit(state, _intent(hand, state))
    return hand, state


def _commit(
    hand: Hand, view: View, *intents: Intent, settings: CommitSettings | None = None
) -> tuple[View, Answers]:
    return hand.run(commit_group(view, intents, settings or CommitSettings()))


def _result(answer: CommitResult | TxnLogError) -> CommitResult:
    assert isinstance(answer, CommitResult), answer
    return answer


def _error(answer: CommitResult | TxnLogError) -> TxnLogError:
    assert isinstance(answer, TxnLogError), answer
    return answer


def test_a_fresh_view_commits_with_one_request() -> None:
    hand, state = _log()
    intent = _intent(hand, state)
    view, answers = _commit(hand, hand.view(state), intent)
    assert _result(answers[intent.intent_id]).entry == 1
    assert view.state.entry == 1
    assert len(hand.requests()) == 1


def test_an_empty_log_gets_entry_0_first() -> None:
    hand = Hand()
    intent = _intent(hand, hand.empty())
    _, answers = _commit(hand, hand.view(hand.empty()), intent)
    assert _result(answers[intent.intent_id]).entry == 1
    assert hand.slots_created() == [0, 1]


def test_a_lost_slot_is_folded_and_the_intent_moves_to_the_next() -> None:
    hand, state = _log()
    intent = _intent(hand, state)
    hand.others_commit(state, _intent(hand, state))
    view, answers = _commit(hand, hand.view(state), intent)
    assert _result(answers[intent.intent_id]).entry == 2
    assert hand.slots_created() == [1, 2]
    assert len(view.state.blocks) == 3


def test_an_unclear_answer_keeps_the_intent_on_its_slot_until_somebody_holds_it() -> None:
    hand, state = _log()
    hand.creates = [AMBIGUOUS] * 5
    intent = _intent(hand, state)
    _, answers = _commit(hand, hand.view(state), intent)
    assert _result(answers[intent.intent_id]).entry == 1
    assert hand.slots_created() == [1] * 6
    sent = {effect.data for effect in hand.effects if isinstance(effect, CreateObject)}
    assert len(sent) == 1


def test_on_unknown_all_of_the_group_are_unknown_and_a_repeat_finds_what_landed() -> None:
    hand, state = _log()
    hand.creates = [UNMENDABLE]
    intents = [_intent(hand, state) for _ in range(3)]
    view, answers = _commit(hand, hand.view(state), *intents)
    assert {type(answer) for answer in answers.values()} == {CommitStateUnknownError}
    assert view.state.entry == state.entry
    sent = next(effect for effect in hand.effects if isinstance(effect, CreateObject))
    hand.objects[sent.key] = sent.data  # it had landed after all
    _, answers = _commit(hand, view, *intents)
    assert [(_result(a).entry, _result(a).repeated) for a in answers.values()] == [(1, True)] * 3
    assert max(hand.objects) == keys.entry_key(1)


def test_refused_is_told_as_it_is_and_nothing_lands() -> None:
    hand, state = _log()
    hand.creates = [REFUSED]
    intent = _intent(hand, state)
    _, answers = _commit(hand, hand.view(state), intent)
    assert _error(answers[intent.intent_id]).kind == "disk-full"
    assert keys.entry_key(1) not in hand.objects


@pytest.mark.parametrize("outcome", [REFUSED, UNMENDABLE])
def test_who_is_in_the_log_already_is_told_so_even_if_the_groups_entry_fails(outcome: CreateResult) -> None:
    hand, state = _log()
    done = _intent(hand, state)
    state = hand.others_commit(state, done)
    hand.creates = [outcome]
    _, answers = _commit(hand, hand.view(state), done, _intent(hand, state))
    assert _result(answers[done.intent_id]).entry == 1


def test_a_rejected_intent_is_left_out_and_the_others_land() -> None:
    hand, state = _log()
    good = [_intent(hand, state), _intent(hand, state)]
    bad = _intent(hand, state, Write(ProducerRef(7, 0, "nobody"), end=Outcome.COMMIT))
    view, answers = _commit(hand, hand.view(state), good[0], bad, good[1])
    assert [_result(answers[intent.intent_id]).entry for intent in good] == [1, 1]
    assert _error(answers[bad.intent_id]).kind == "unknown-transactional-id"
    entry = decode_entry(hand.objects[keys.entry_key(1)], 1)
    assert entry.intents == tuple(intent.intent_id for intent in good)
    assert view.state.entry == 1


def test_no_rejection_comes_from_a_view_that_was_not_refreshed() -> None:
    hand, state = _log()
    open_it = OpenProducer("tx")
    ahead = hand.others_commit(state, _intent(hand, state, open_it))
    known = ahead.transactional_ids["tx"]
    abort = Write(ProducerRef(known.producer_id, known.epoch, "tx"), end=Outcome.ABORT)
    intent = _intent(hand, state, abort)
    _, answers = _commit(hand, hand.view(state), intent)  # the view is fresh, but does not know "tx"
    assert _result(answers[intent.intent_id]).entry == 2
    assert hand.requests()[0] == Simultaneous((GetObject(keys.entry_key(1)),))


def test_a_rejection_costs_one_refresh_and_is_given_without_an_entry() -> None:
    hand, state = _log()
    intent = _intent(hand, state, Write(ProducerRef(7, 0, "nobody"), end=Outcome.COMMIT))
    _, answers = _commit(hand, hand.view(state), intent)
    assert _error(answers[intent.intent_id]).kind == "unknown-transactional-id"
    assert hand.requests() == [Simultaneous((GetObject(keys.entry_key(1)),))]


def test_an_intent_from_before_the_window_is_neither_applied_nor_denied() -> None:
    hand, state = _log()
    late = LogState(
        log_id=state.log_id,
        entry=state.entry,
        entry_sha256=state.entry_sha256,
        timestamp_ms=state.timestamp_ms,
        window=IntentWindow(INTENT_WINDOW_ENTRIES, ()),
    )
    intent = Intent(hand.new_id(), 3, AllocateIds("unit", 1))
    _, answers = _commit(hand, hand.view(late), intent)
    error = _error(answers[intent.intent_id])
    assert isinstance(error, CommitStateUnknownError)
    assert error.kind == "commit-too-old"
    assert hand.slots_created() == []


def _rival(hand: Hand, state: LogState) -> None:
    """Somebody else takes every slot just before it is asked for."""
    states = [state]

    def take(effect: Effect) -> None:
        if isinstance(effect, CreateObject) and effect.key not in hand.objects:
            states.append(hand.others_commit(states[-1], _intent(hand, states[-1])))

    hand.before = take


def test_attempts_used_up_is_contention_and_nothing_has_landed() -> None:
    hand, state = _log()
    _rival(hand, state)
    intent = _intent(hand, state)
    _, answers = _commit(hand, hand.view(state), intent, settings=CommitSettings(attempts_max=3))
    error = _error(answers[intent.intent_id])
    assert isinstance(error, ConflictError)
    assert error.kind == "commit-contention"
    assert hand.slots_created() == [1, 2, 3]
    entries = [decode_entry(hand.objects[keys.entry_key(slot)], slot) for slot in range(4)]
    assert all(intent.intent_id not in entry.intents for entry in entries)


def test_time_used_up_is_contention_too() -> None:
    hand, state = _log()
    _rival(hand, state)
    hand.uniform = 0.99
    intent = _intent(hand, state)
    _, answers = _commit(hand, hand.view(state), intent, settings=CommitSettings(deadline_ms=0))
    assert _error(answers[intent.intent_id]).kind == "commit-contention"
    assert hand.slots_created() == [1]


def test_giving_up_sees_that_an_earlier_attempt_took_the_slot_late() -> None:
    hand, state = _log()
    intent = _intent(hand, state)
    earlier, _ = hand.entry(state, intent)

    def land_late(effect: Effect) -> None:
        if isinstance(effect, CreateObject):
            hand.objects[keys.entry_key(1)] = earlier.data

    hand.before = land_late
    _, answers = _commit(hand, hand.view(state), intent, settings=CommitSettings(attempts_max=1))
    assert _result(answers[intent.intent_id]).entry == 1


def test_an_error_after_the_first_entry_keeps_the_answers_of_those_in_it() -> None:
    hand, state = _log()
    first = _intent(hand, state, OpenProducer("tx"))
    second = _intent(hand, state, OpenProducer("tx"))  # never in one entry with the first
    error = StorageError("permission denied", kind="permission-denied")

    def deny(effect: Effect) -> None:
        if isinstance(effect, CreateObject) and keys.parse_entry_key(effect.key) == 2:
            hand.objects[effect.key] = b"x"
        if isinstance(effect, GetObject) and keys.parse_entry_key(effect.key) == 2:
            raise error

    hand.before = deny
    view, answers = _commit(hand, hand.view(state), first, second)
    assert _result(answers[first.intent_id]).entry == 1
    assert isinstance(answers[second.intent_id], TxnLogError)
    assert view.state.entry == 1


def _truncated(hand: Hand, state: LogState) -> LogState:
    """Let others commit, snapshot and truncate past ``state``; returns the state at the tip."""
    tip = state
    for _ in range(3):
        tip = hand.others_commit(tip, _intent(hand, tip))
    data = encode_snapshot(tip)
    key = keys.snapshot_key(tip.entry, hand.new_id())
    hand.objects[key] = data
    named = Checkpoint(tip.entry, key, len(data), sha256_hex(data), state_digest(tip))
    after = hand.others_commit(tip, _intent(hand, tip, TakeCheckpoint(named)))
    for slot in range(tip.entry):
        del hand.objects[keys.entry_key(slot)]
    hand.objects[keys.boundary_key(tip.entry)] = b""
    return after


@pytest.mark.parametrize("why", ["old view", "strict", "no suspend-counting clock"])
def test_a_created_slot_below_the_boundary_is_lost_and_decided_again_from_a_reloaded_view(why: str) -> None:
    hand, state = _log()
    view = hand.view(state)
    intent = _intent(hand, state)
    tips: list[LogState] = []

    def fall_asleep(effect: Effect) -> None:
        if isinstance(effect, CreateObject) and not tips:
            tips.append(_truncated(hand, state))
            if why == "old view":
                hand.pass_time(8 * 86_400_000)

    hand.before = fall_asleep
    if why == "no suspend-counting clock":
        hand.boot_ms = None
    after, answers = _commit(
        hand, view, intent, settings=CommitSettings(strict_boundary=why == "strict", deadline_ms=10**10)
    )
    assert _result(answers[intent.intent_id]).entry == tips[0].entry + 1 == 5
    assert hand.slots_created() == [1, 5]
    assert after.state.entry == 5
    assert ListObjects(keys.BOUNDARY_PREFIX) in hand.requests()


def test_entry_0_of_a_writer_that_slept_is_judged_by_the_boundary_as_well() -> None:
    hand = Hand()
    intent = _intent(hand, hand.empty())
    tips: list[LogState] = []

    def fall_asleep(effect: Effect) -> None:
        if isinstance(effect, CreateObject) and not tips:
            tips.append(_truncated(hand, hand.empty()))
            hand.pass_time(8 * 86_400_000)

    hand.before = fall_asleep
    _, answers = _commit(hand, hand.view(hand.empty()), intent)
    assert _result(answers[intent.intent_id]).entry == tips[0].entry + 1


def test_a_boundary_that_cannot_be_read_makes_the_outcome_unknown() -> None:
    hand, state = _log()

    def deny(effect: Effect) -> None:
        if isinstance(effect, ListObjects):
            raise StorageError("permission denied")

    hand.before = deny
    intent = _intent(hand, state)
    _, answers = _commit(hand, hand.view(state), intent, settings=CommitSettings(strict_boundary=True))
    assert isinstance(answers[intent.intent_id], CommitStateUnknownError)


def test_who_may_have_had_a_deleted_slot_is_not_told_that_nothing_landed() -> None:
    """The create lands, its answer is lost, others truncate the log behind it, and then the log cannot be
    read."""
    hand, state = _log()
    intent = _intent(hand, state)
    gone: list[LogState] = []

    def lose(effect: Effect) -> None:
        if isinstance(effect, CreateObject) and not gone:
            gone.append(_truncated(hand, hand.others_commit(state, intent)))
        elif gone and isinstance(effect, GetObject) and effect.key == keys.FORMAT_KEY:
            raise StorageError("permission denied", kind="permission-denied")

    hand.before = lose
    hand.creates = [CreateResult(CreateOutcome.EXISTS)]
    view, answers = _commit(hand, hand.view(state), intent)
    assert isinstance(answers[intent.intent_id], CommitStateUnknownError)
    hand.before = lambda effect: None
    hand.pass_time(3_600_000)
    assert _result(_commit(hand, view, intent)[1][intent.intent_id]).repeated


def test_an_intent_that_may_have_had_a_deleted_slot_is_not_sent_to_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As before, and the window of intent ids has slid past the slot: nothing can tell whether it landed."""
    monkeypatch.setattr("txnformat.core.state.INTENT_WINDOW_ENTRIES", 2)
    hand, state = _log()
    intent = _intent(hand, state)
    gone: list[LogState] = []

    def lose(effect: Effect) -> None:
        if isinstance(effect, CreateObject) and not gone:
            gone.append(_truncated(hand, hand.others_commit(state, intent)))

    hand.before = lose
    hand.creates = [CreateResult(CreateOutcome.EXISTS)]
    settings = CommitSettings()
    unsent = frozenset({intent.intent_id})
    _, answers = hand.run(commit_group(hand.view(state), [intent], settings, unsent=unsent))
    assert _error(answers[intent.intent_id]).kind == "commit-too-old"
    assert hand.slots_created() == [1]


def test_a_view_within_60_s_creates_without_the_boundary() -> None:
    hand, state = _log()
    view = hand.view(state)
    hand.pass_time(60_000)
    _commit(hand, view, _intent(hand, state))
    assert len(hand.requests()) == 1


@pytest.mark.parametrize(
    ("skew_ms", "refuses"), [(30_000, False), (30_001, True), (-30_000, False), (-30_001, True)]
)
def test_a_writer_more_than_30_s_off_refuses_to_commit(skew_ms: int, refuses: bool) -> None:
    hand, state = _log()
    hand.store_offset_ms = -skew_ms
    intent = _intent(hand, state)
    _, answers = _commit(hand, hand.view(state), intent)
    if refuses:
        assert _error(answers[intent.intent_id]).kind == "clock-skew"
        assert hand.requests() == []
    elif skew_ms < 0:
        assert _result(answers[intent.intent_id]).entry == 1


def test_an_entry_more_than_30_s_ahead_of_store_time_is_refused() -> None:
    hand, state = _log()
    hand.wall_ms = state.timestamp_ms + 1 - 30_001
    intent = _intent(hand, state)
    _, answers = _commit(hand, hand.view(state), intent)
    assert _error(answers[intent.intent_id]).kind == "log-time-ahead"
    hand.wall_ms += 1
    view, answers = _commit(hand, hand.view(state), intent)
    assert view.state.timestamp_ms == state.timestamp_ms + 1


def test_log_time_is_the_stores_or_one_above_the_entry_before() -> None:
    hand, state = _log()
    view, _ = _commit(hand, hand.view(state), _intent(hand, state))
    assert view.state.timestamp_ms == state.timestamp_ms + 1  # no time has passed
    hand.pass_time(500)
    view, _ = _commit(hand, view, _intent(hand, view.state))
    assert view.state.timestamp_ms == hand.wall_ms


def test_the_result_of_a_deleted_entry_is_only_that_it_is_done() -> None:
    hand, state = _log()
    intent = _intent(hand, state)
    state = hand.others_commit(state, intent)
    del hand.objects[keys.entry_key(1)]
    _, answers = _commit(hand, hand.view(state), intent)
    assert _result(answers[intent.intent_id]) == CommitResult(1, None, (), repeated=True)
    # The same when a writer that slept has created the slot again.
    other, _ = hand.entry(_log()[1], _intent(hand, state))
    hand.objects[keys.entry_key(1)] = other.data
    _, answers = _commit(hand, hand.view(state), intent)
    assert _result(answers[intent.intent_id]) == CommitResult(1, None, (), repeated=True)


def test_a_done_intent_whose_entry_cannot_be_read_is_unknown_rather_than_failed() -> None:
    hand, state = _log()
    intent = _intent(hand, state)
    state = hand.others_commit(state, intent)

    def deny(effect: Effect) -> None:
        if isinstance(effect, GetObject) and effect.key == keys.entry_key(1):
            raise StorageError("permission denied")

    hand.before = deny
    _, answers = _commit(hand, hand.view(state), intent)
    assert isinstance(answers[intent.intent_id], CommitStateUnknownError)


def test_another_process_gets_the_same_answer_for_an_application_version() -> None:
    hand, state = _log()
    write = Write(app=AppRef("spark", "query", 3))
    state = hand.others_commit(state, _intent(hand, state, write))
    intent = _intent(hand, state, write)
    _, answers = _commit(hand, hand.view(state), intent)
    answer = _result(answers[intent.intent_id])
    assert (answer.entry, answer.repeated) == (1, True)


@pytest.mark.parametrize("boundary", [1, 2])
def test_a_result_is_not_read_from_a_deleted_slot_that_was_created_again(boundary: int) -> None:
    """Our own late attempt took the slot after it was deleted: the same intent, at a time that was never the
    log's."""
    hand, state = _log()
    intent = _intent(hand, state)
    landed = hand.others_commit(state, intent)
    original = hand.objects[keys.entry_key(1)]
    hand.pass_time(1)
    late, _ = hand.entry(state, intent)
    hand.objects[keys.entry_key(1)] = late.data if boundary > 1 else original
    hand.objects[keys.boundary_key(boundary)] = b"{}"
    _, answers = _commit(hand, hand.view(landed), intent)
    result = _result(answers[intent.intent_id])
    assert (result.entry, result.repeated) == (1, True)
    if boundary > 1:
        assert (result.timestamp_ms, result.operations) == (None, ())
    else:
        assert result.timestamp_ms == landed.timestamp_ms
        assert result.operations


def test_a_topic_that_is_missing_is_refused_and_one_created_in_the_group_is_there() -> None:
    hand, state = _log()
    create = create_topic("orders", 1, hand.new_id())
    again = create_topic("orders", 1, hand.new_id())
    intents = [_intent(hand, state, create), _intent(hand, state, again)]
    view, answers = _commit(hand, hand.view(state), *intents)
    assert _result(answers[intents[0].intent_id]).entry == 1
    assert _error(answers[intents[1].intent_id]).kind == "topic-exists"
    assert view.state.topic("orders").topic_id == create.topic_id
    with pytest.raises(NotFoundError):
        view.state.topic("audit")


def test_backoff_shrinks_with_age_and_an_old_waiter_goes_before_a_newcomer() -> None:
    waits = [backoff_ms(age, 10.0, 0.5) for age in (0, 10, 100, 640, 6_400)]
    assert waits == sorted(waits, reverse=True)
    assert backoff_ms(0, 10.0, 0.999) < 160
    longest_of_the_old = backoff_ms(640, 10.0, 0.999)
    assert longest_of_the_old <= 10.0
    assert backoff_ms(0, 10.0, 0.5) > longest_of_the_old
