"""Creating one slot: which answers of the store mean ours, lost, gone, refused, unknown."""

from __future__ import annotations

from txnformat import keys
from txnformat.errors import StorageError
from txnformat.protocol.effects import CreateObject, Effect, GetObject
from txnformat.protocol.slot import Gone, Lost, Ours, Refused, SlotOutcome, Unknown, create_slot
from txnformat.store.base import CreateOutcome, CreateResult
from txnlog_testing.simulator.hand import Hand

KEY = keys.entry_key(7)
THEIRS = b'{"format": 1}'
NO_ANSWER = StorageError("no answer came", transient=True)
AMBIGUOUS = CreateResult(CreateOutcome.AMBIGUOUS, NO_ANSWER)
EXISTS = CreateResult(CreateOutcome.EXISTS)


def _create(hand: Hand, deadline_ms: int = 120_000) -> SlotOutcome:
    return hand.run(create_slot(7, b"mine", deadline_ms=deadline_ms))


def test_created_is_ours_with_the_clocks_before_the_first_attempt() -> None:
    hand = Hand()
    outcome = _create(hand)
    assert isinstance(outcome, Ours)
    assert outcome.sent.wall_ms == 1_000_000
    assert len(hand.requests()) == 1


def test_exists_with_our_own_bytes_is_ours() -> None:
    hand = Hand()
    hand.objects[KEY] = b"mine"
    assert isinstance(_create(hand), Ours)


def test_exists_with_other_bytes_is_lost_and_brings_them() -> None:
    hand = Hand()
    hand.objects[KEY] = THEIRS
    assert _create(hand) == Lost(THEIRS)


def test_exists_and_then_absent_is_gone_and_nothing_is_sent_again() -> None:
    hand = Hand()
    hand.creates = [EXISTS]
    assert _create(hand) == Gone()
    assert hand.slots_created() == [7]


def test_no_answer_and_absent_sends_the_same_bytes_to_the_same_key_again() -> None:
    hand = Hand()
    hand.creates = [AMBIGUOUS, AMBIGUOUS]
    assert isinstance(_create(hand), Ours)
    sent = [effect for effect in hand.effects if isinstance(effect, CreateObject)]
    assert sent == [CreateObject(KEY, b"mine")] * 3
    assert len(hand.sleeps()) == 2


def test_no_answer_but_landed_is_ours_without_another_request_than_the_read_back() -> None:
    hand = Hand()
    hand.creates = [AMBIGUOUS]
    hand.objects[KEY] = b"mine"
    assert isinstance(_create(hand), Ours)
    assert hand.requests() == [CreateObject(KEY, b"mine"), GetObject(KEY)]


def test_no_answer_and_others_bytes_is_lost() -> None:
    hand = Hand()
    hand.creates = [AMBIGUOUS]
    hand.objects[KEY] = THEIRS
    assert _create(hand) == Lost(THEIRS)


def test_an_error_that_no_repeat_can_mend_is_unknown_without_reading_back() -> None:
    hand = Hand()
    error = StorageError("fsync failed after the link")
    hand.creates = [CreateResult(CreateOutcome.AMBIGUOUS, error)]
    hand.objects[KEY] = b"mine"
    assert _create(hand) == Unknown(error)
    assert len(hand.requests()) == 1


def test_refused_at_once_is_refused() -> None:
    hand = Hand()
    error = StorageError("the store is read-only")
    hand.creates = [CreateResult(CreateOutcome.REFUSED, error)]
    assert _create(hand) == Refused(error)


def test_refused_after_an_unclear_attempt_is_unknown_since_the_first_may_still_land() -> None:
    hand = Hand()
    error = StorageError("no space left")
    hand.creates = [AMBIGUOUS, CreateResult(CreateOutcome.REFUSED, error)]
    assert _create(hand) == Unknown(error)


def test_a_read_back_that_fails_is_unknown() -> None:
    hand = Hand()
    hand.creates = [EXISTS]
    error = StorageError("permission denied")

    def deny(effect: Effect) -> None:
        if isinstance(effect, GetObject):
            raise error

    hand.before = deny
    assert _create(hand) == Unknown(error)


def test_unclear_until_the_deadline_is_unknown() -> None:
    hand = Hand()
    hand.creates = [AMBIGUOUS] * 100
    assert _create(hand, deadline_ms=1_000) == Unknown(NO_ANSWER)
    assert 900 < sum(hand.sleeps()) < 7_000


def test_a_wall_clock_that_jumps_uses_up_no_deadline() -> None:
    hand = Hand()
    hand.creates = [AMBIGUOUS, AMBIGUOUS]

    def jump(request: object) -> None:
        hand.wall_ms += 150_000

    hand.before = jump
    assert isinstance(_create(hand), Ours)


def test_without_a_clock_that_counts_suspended_time_the_wall_clock_keeps_the_deadline() -> None:
    hand = Hand()
    hand.boot_ms = None
    hand.creates = [AMBIGUOUS] * 100
    assert _create(hand, deadline_ms=1_000) == Unknown(NO_ANSWER)
