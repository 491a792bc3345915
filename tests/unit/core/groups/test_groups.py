"""Consumer groups in the core: members, positions, positions in transactions, holds, what a fold refuses."""

from __future__ import annotations

import pytest

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.groups.positions import GROUP, JOIN, KEY, at, now, with_records, within
from tests.unit.core.memory_log import ABORT, COMMIT, NOW_MS, ORDERS, Log, rows
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import (
    EndTransaction,
    GroupOffsets,
    Included,
    JoinAsMember,
    LeaveGroup,
    OpenProducer,
    RemoveGroup,
    ResetOffsets,
    Write,
)
from txnformat.core.invariants import check_whole
from txnformat.core.lifecycle.idle import GROUP_RETENTION_MS, expirable
from txnformat.core.operations import Cause
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    ProducerFencedError,
)
from txnformat.persistent import replace
from txnformat.types import TopicPartition


def committed(log: Log, key: TopicPartition | str = KEY) -> int | str:
    assert check_whole(log.state) == []
    return log.state.groups[GROUP].value(key)


def reread(log: Log) -> None:
    """A snapshot of the state holds all of it."""
    encoded = encode_snapshot(log.state)
    checkpoint = replace(checkpoint_of(log.state, encoded), digest=state_digest(log.state))
    assert decode_snapshot(encoded, checkpoint, log.state.log_id).groups == log.state.groups


# --- members ------------------------------------------------------------------------------------------------


def test_every_member_begins_a_generation_and_fences_the_one_before() -> None:
    log, _ = with_records()
    log.commit(JOIN)
    log.commit(now(3, generation=1))
    log.commit(JoinAsMember(GROUP, "another process", 1_000))
    error = log.refusal(now(4, generation=1))
    assert isinstance(error, ConflictError)
    assert error.kind == "member-fenced"
    assert isinstance(log.commit(now(5, generation=2)), Included)
    assert committed(log) == 5
    assert log.state.groups[GROUP].member is not None
    reread(log)


def test_a_member_leaves_once_and_nobody_commits_in_its_generation_after() -> None:
    log, _ = with_records()
    log.commit(JOIN)
    log.commit(LeaveGroup(GROUP, 1))
    assert log.state.groups[GROUP].member is None
    for action in (LeaveGroup(GROUP, 1), LeaveGroup(GROUP, 2), now(3, generation=1), now(3, generation=2)):
        assert log.refusal(action).kind == "member-fenced"
    assert isinstance(log.commit(now(3)), Included), "without a generation everybody commits"


@pytest.mark.parametrize("timeout", [0, -1, 30 * 60_000 + 1])
def test_a_session_timeout_that_no_member_may_have_is_refused(timeout: int) -> None:
    log, _ = with_records()
    assert isinstance(log.refusal(JoinAsMember(GROUP, "a process", timeout)), InvalidInputError)


@pytest.mark.parametrize(
    ("group", "member"), [("", "m"), ("_g", "m"), ("a/b", "m"), ("g", ""), ("g", "m" * 250), ("g", "\ud800")]
)
def test_a_name_that_no_group_or_member_may_have_is_refused(group: str, member: str) -> None:
    log, _ = with_records()
    assert isinstance(log.refusal(JoinAsMember(group, member, 1_000)), InvalidInputError)


UNREADABLE = {
    "a group's name": GroupOffsets("a group", (OffsetCommit(ORDERS.topic_id, 0, 1),)),
    "nothing": GroupOffsets(GROUP),
    "an offset below 0": at(-1),
    "an offset that is a number of another kind": at(True),
    "a partition below 0": at(1, partition=-1),
    "an expected offset below none": at(1, -2),
    "a generation of another kind": at(1, generation=True),
    "a generation that is no whole number": at(1, generation=1.0),
    "a partition twice": GroupOffsets(GROUP, at(1).offsets + at(2).offsets),
    "metadata too long": GroupOffsets(GROUP, (OffsetCommit(ORDERS.topic_id, 0, 1, "x" * 4_097),)),
    "metadata that is no UTF-8": GroupOffsets(GROUP, (OffsetCommit(ORDERS.topic_id, 0, 1, "\ud800"),)),
    "metadata that is no text": GroupOffsets(GROUP, (OffsetCommit(ORDERS.topic_id, 0, 1, b"x"),)),  # type: ignore[arg-type]
    "a position without a name": GroupOffsets(GROUP, positions=(PositionCommit("", "1"),)),
    "a position without a value": GroupOffsets(GROUP, positions=(PositionCommit("a", ""),)),
    "a position too long": GroupOffsets(GROUP, positions=(PositionCommit("a", "x" * 4_097),)),
    "a position's name too long": GroupOffsets(GROUP, positions=(PositionCommit("a" * 4_097, "1"),)),
    "a position twice": GroupOffsets(GROUP, positions=(PositionCommit("a", "1"), PositionCommit("a", "2"))),
    "an expected position too long": GroupOffsets(
        GROUP, positions=(PositionCommit("a", "1", "", "x" * 4_097),)
    ),
}


@pytest.mark.parametrize("offsets", UNREADABLE.values(), ids=UNREADABLE)
def test_what_no_entry_can_say_is_refused_before_it_is_written(offsets: GroupOffsets) -> None:
    """It would be an entry that nobody can decode: the end of the log."""
    log, (producer,) = with_records()
    log.commit(JoinAsMember(GROUP, "a process", 1))
    for action in (
        Write(offsets=(offsets,)),
        Write(producer, rows(), COMMIT, offsets=(offsets,)),
        ResetOffsets(offsets, NOW_MS),
    ):
        error = log.refusal(action)
        assert isinstance(error, InvalidInputError)
        assert error.kind in ("invalid-group-name", "invalid-offset-commit")
    assert log.state.groups[GROUP].committed == {}
    assert log.state.partition(KEY).log_end == 10


def test_one_step_commits_once_for_each_group() -> None:
    log, _ = with_records()
    assert isinstance(log.refusal(Write(offsets=(at(1), at(2, partition=1)))), InvalidInputError)


def test_the_generation_is_checked_in_a_transaction_too() -> None:
    log, (producer,) = with_records()
    log.commit(JOIN)
    log.commit(JOIN)
    error = log.refusal(Write(producer, rows(), COMMIT, offsets=(at(3, generation=1),)))
    assert error.kind == "member-fenced"
    assert log.state.partition(KEY).log_end == 10, "its records are not committed either"


# --- positions ----------------------------------------------------------------------------------------------


def test_a_position_is_in_force_at_once_and_the_next_replaces_it() -> None:
    log, _ = with_records()
    log.commit(now(7))
    log.commit(now(3))
    assert committed(log) == 3, "positions may go back"
    assert log.state.groups[GROUP].value(TopicPartition(ORDERS.topic_id, 1)) == -1
    reread(log)


def test_foreign_positions_are_texts() -> None:
    log, (producer,) = with_records()
    foreign = PositionCommit("another log/0", "17", "a note", "")
    log.commit(Write(producer, offsets=(GroupOffsets(GROUP, positions=(foreign,)),)))
    assert committed(log, "another log/0") == ""
    reread(log)
    log.commit(Write(producer, end=COMMIT))
    assert committed(log, "another log/0") == "17"
    reread(log)
    error = log.refusal(Write(offsets=(GroupOffsets(GROUP, positions=(foreign,)),)))
    assert error.kind == "offsets-changed"


def test_offsets_that_nobody_can_have_read_up_to_are_refused() -> None:
    log, (producer,) = with_records()
    assert isinstance(log.commit(now(10)), Included)
    log.commit(Write(producer, rows()))
    error = log.refusal(now(11))
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.values["earliest"], error.values["latest"], error.values["got"]) == (0, 10, 11)
    assert isinstance(log.commit(now(11, read_uncommitted=True)), Included)
    assert isinstance(log.refusal(now(13, read_uncommitted=True)), OffsetOutOfRangeError)


def test_offsets_of_what_does_not_exist_are_refused() -> None:
    log, _ = with_records()
    unknown = GroupOffsets(GROUP, (OffsetCommit("00000000-0000-4000-8000-000000000000", 0, 0),))
    for offsets, kind in ((unknown, "topic-gone"), (at(0, partition=77), "unknown-partition")):
        error = log.refusal(Write(offsets=(offsets,)))
        assert isinstance(error, NotFoundError)
        assert error.kind == kind


# --- in transactions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "expected"), [(COMMIT, 4), (ABORT, 1)])
def test_a_position_in_a_transaction_is_in_force_with_its_commit_only(outcome: object, expected: int) -> None:
    log, (producer,) = with_records()
    log.commit(now(1))
    log.commit(within(producer, 4))
    assert committed(log) == 1
    assert list(log.state.groups[GROUP].pending) == ["etl"]
    assert log.state.transactional_ids["etl"].status is TransactionStatus.ONGOING
    reread(log)
    log.commit(Write(producer, end=outcome))  # type: ignore[arg-type]
    assert committed(log) == expected
    assert log.state.groups[GROUP].pending == {}
    assert log.state.partition(KEY).log_end == 10, "there is no marker where nothing was appended"


def test_records_and_positions_of_one_entry_come_together() -> None:
    log, (producer,) = with_records()
    verdict = log.commit(Write(producer, rows(0, 2), COMMIT, offsets=(at(4, -1),)))
    assert isinstance(verdict, Included)
    assert [type(op).__name__ for op in verdict.operations] == ["Append", "CommitOffsets", "EndTxn"]
    assert (committed(log), log.state.partition(KEY).log_end) == (4, 13)


def test_a_transaction_that_holds_nothing_but_positions_can_be_committed_in_one_entry() -> None:
    log, (producer,) = with_records()
    log.commit(Write(producer, end=COMMIT, offsets=(at(4),)))
    assert committed(log) == 4


@pytest.mark.parametrize("cause", ["init", Cause.TIMEOUT, Cause.OPERATOR])
def test_whoever_ends_the_transaction_its_positions_are_forgotten(cause: object) -> None:
    log, (producer,) = with_records()
    log.commit(within(producer, 4, -1))
    if isinstance(cause, Cause):
        time = log.state.transactional_ids["etl"].expires_ms if cause is Cause.TIMEOUT else None
        ended = EndTransaction("etl", producer.producer_id, producer.epoch, cause, time)
        assert isinstance(log.commit(ended), Included)
    else:
        log.commit(OpenProducer("etl"))
    assert committed(log) == -1
    assert log.state.groups[GROUP].pending == {}
    assert log.refusal(within(producer, 5)).kind != "internal", "and later ones of that epoch are refused"


def test_positions_of_an_older_epoch_are_fenced() -> None:
    log, (producer,) = with_records()
    log.commit(OpenProducer("etl"))
    assert isinstance(log.refusal(within(producer, 4)), ProducerFencedError)


def test_nothing_joins_a_prepared_transaction() -> None:
    log, (producer,) = with_records()
    log.commit(Write(producer, offsets=(at(4),), prepare=True))
    assert isinstance(log.refusal(within(producer, 5)), InvalidTransactionStateError)
    log.commit(Write(producer, end=COMMIT))
    assert committed(log) == 4


def test_the_last_by_log_position_wins_not_the_last_to_end() -> None:
    log, (first, second) = with_records("first", "second")
    log.commit(within(first, 3))
    log.commit(within(second, 5))
    log.commit(Write(second, end=COMMIT))
    log.commit(Write(first, end=COMMIT))
    assert committed(log) == 5
    log.commit(within(log.producer("first"), 6))
    log.commit(now(2))
    log.commit(Write(log.producer("first"), end=COMMIT))
    assert committed(log) == 2, "a plain commit that stands behind it, too"


# --- compare and hold ---------------------------------------------------------------------------------------


def test_a_compare_takes_what_is_committed_and_nothing_else() -> None:
    log, (producer,) = with_records()
    assert isinstance(log.commit(now(3, -1)), Included)
    for expected in (-1, 2, 4):
        error = log.refusal(now(5, expected))
        assert isinstance(error, ConflictError)
        assert (error.kind, error.values["got"]) == ("offsets-changed", 3)
    assert isinstance(log.commit(now(5, 3)), Included)
    assert log.refusal(within(producer, 6, 3)).kind == "offsets-changed"


def test_of_two_transactions_that_compare_one_position_one_holds_it() -> None:
    log, (first, second) = with_records("first", "second")
    log.commit(within(first, 3, -1))
    for action in (within(second, 3, -1), now(3, -1)):
        error = log.refusal(action)
        assert (error.kind, error.values["transactional_id"]) == ("offsets-held", "first")
    log.commit(Write(first, end=ABORT))
    assert isinstance(log.commit(within(second, 3, -1)), Included)


def test_nobody_compares_while_something_is_pending() -> None:
    log, (first, second) = with_records("first", "second")
    log.commit(within(first, 3))
    assert log.refusal(within(second, 3, -1)).kind == "offsets-pending"
    assert log.refusal(now(3, -1)).kind == "offsets-pending"
    assert isinstance(log.commit(within(first, 4, -1)), Included), "but for the transaction itself"


def test_a_transaction_compares_with_what_is_committed_each_time_and_holds_on() -> None:
    log, (first, second) = with_records("first", "second")
    log.commit(within(first, 3, -1))
    log.commit(within(first, 5))
    assert log.refusal(within(second, 3, -1)).kind == "offsets-held"
    log.commit(within(first, 6, -1))
    log.commit(Write(first, end=COMMIT))
    assert committed(log) == 6


@pytest.mark.parametrize("in_transaction", [False, True])
def test_who_does_not_compare_breaks_the_hold_and_its_transaction_can_only_be_aborted(
    in_transaction: bool,
) -> None:
    log, (first, second) = with_records("first", "second")
    log.commit(Write(first, rows(0, 2), offsets=(at(3, -1),)))
    assert isinstance(log.commit(within(second, 5) if in_transaction else now(5)), Included)
    assert log.state.transactional_ids["first"].abort_only
    assert check_whole(log.state) == []
    for action in (Write(first, end=COMMIT), Write(first, rows(2, 1), COMMIT), Write(first, prepare=True)):
        error = log.refusal(action)
        assert isinstance(error, ConflictError)
        assert error.kind == "offsets-hold-broken"
    reread(log)
    log.commit(Write(first, end=ABORT))
    if in_transaction:
        log.commit(Write(second, end=COMMIT))
    assert committed(log) == 5
    assert not log.state.transactional_ids["first"].abort_only


def test_the_hold_of_a_prepared_transaction_cannot_be_broken() -> None:
    log, (first, second) = with_records("first", "second")
    log.commit(Write(first, offsets=(at(3, -1),), prepare=True))
    for action in (now(5), within(second, 5)):
        assert log.refusal(action).kind == "offsets-held"
    log.commit(Write(first, end=COMMIT))
    assert committed(log) == 3


def test_a_hold_is_of_one_position_only() -> None:
    log, (first, second) = with_records("first", "second")
    log.commit(within(first, 3, -1))
    elsewhere = Write(second, offsets=(at(5, -1, partition=1),))
    assert isinstance(log.commit(elsewhere), Included)
    assert isinstance(log.commit(Write(second, end=COMMIT)), Included)
    assert isinstance(log.commit(Write(first, end=COMMIT)), Included)


# --- reset, delete, expire ----------------------------------------------------------------------------------


def test_a_reset_waits_for_the_members_session_and_fences_it() -> None:
    log, _ = with_records()
    log.commit(JOIN)
    until = log.state.groups[GROUP].lives_until_ms()
    assert until is not None
    error = log.refusal(ResetOffsets(at(2), until - 1))
    assert (type(error), error.kind) == (ConflictError, "group-active")
    assert isinstance(log.commit(ResetOffsets(at(2), until)), Included)
    assert committed(log) == 2
    assert log.refusal(now(9, generation=1)).kind == "member-fenced"


def test_a_forced_reset_fences_a_live_member() -> None:
    log, _ = with_records()
    log.commit(JOIN)
    assert isinstance(log.commit(ResetOffsets(at(2), NOW_MS, force=True)), Included)
    assert log.refusal(now(9, generation=1)).kind == "member-fenced"


def test_a_group_is_deleted_when_nobody_uses_it() -> None:
    log, (producer,) = with_records()
    assert log.refusal(RemoveGroup(GROUP, NOW_MS)).kind == "unknown-group"
    log.commit(JOIN)
    log.commit(within(producer, 3))
    assert log.refusal(RemoveGroup(GROUP, NOW_MS, force=True)).kind == "offsets-pending"
    log.commit(Write(producer, end=ABORT))
    assert log.refusal(RemoveGroup(GROUP, NOW_MS)).kind == "group-active"
    log.commit(LeaveGroup(GROUP, 1))
    assert isinstance(log.commit(RemoveGroup(GROUP, NOW_MS)), Included)
    assert GROUP not in log.state.groups


@pytest.mark.parametrize("expires", [False, True])
def test_a_group_that_comes_back_under_its_name_fences_the_members_of_the_one_before(expires: bool) -> None:
    log, (producer,) = with_records()
    log.commit(JOIN)
    if expires:
        wanted = expirable(replace(log.state, timestamp_ms=2**50), 2**50)
        assert wanted is not None
        assert isinstance(log.commit(wanted), Included)
    else:
        assert isinstance(log.commit(RemoveGroup(GROUP, NOW_MS, force=True)), Included)
    assert GROUP not in log.state.groups
    assert log.state.retired_generation == 1
    assert log.refusal(now(3, generation=1)).kind == "member-fenced", "while there is none"
    log.commit(JOIN)
    assert log.state.groups[GROUP].generation == 2
    for action in (now(3, generation=1), LeaveGroup(GROUP, 1)):
        assert log.refusal(action).kind == "member-fenced"
    if not expires:  # else the transactional id has expired, too
        assert log.refusal(Write(producer, offsets=(at(3, generation=1),))).kind == "member-fenced"
    assert isinstance(log.commit(now(4, generation=2)), Included)
    encoded = encode_snapshot(log.state)
    checkpoint = replace(checkpoint_of(log.state, encoded), digest=state_digest(log.state))
    assert decode_snapshot(encoded, checkpoint, log.state.log_id).retired_generation == 1


def test_an_idle_group_expires_unless_something_is_pending() -> None:
    log, (producer,) = with_records()
    log.commit(JOIN)
    used = log.state.groups[GROUP].used_ms
    long = 2**50

    def groups(timestamp_ms: int) -> tuple[str, ...]:
        found = expirable(replace(log.state, timestamp_ms=timestamp_ms), long)
        return found.expire.groups if found else ()

    assert groups(used + GROUP_RETENTION_MS) == (), "the session counts"
    assert groups(used + GROUP_RETENTION_MS + 45_000) == (GROUP,)
    log.commit(within(producer, 3))
    assert groups(long) == ()
    log.commit(Write(producer, end=ABORT))
    wanted = expirable(replace(log.state, timestamp_ms=long), long)
    assert wanted is not None
    assert isinstance(log.commit(wanted), Included)
    assert log.state.groups == {}
