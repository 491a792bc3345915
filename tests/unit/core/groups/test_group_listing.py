"""What a state says of consumer groups, and what positions may be set to."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.unit.core.groups.positions import GROUP, JOIN, KEY, at, now, with_records, within
from tests.unit.core.memory_log import COMMIT, NOW_MS, ORDERS, rows
from txnformat.core.groups.listing import GroupStatus, PendingCommit, describe_group, list_groups
from txnformat.core.groups.operations import PositionCommit
from txnformat.core.groups.resets import (
    PartitionReset,
    Place,
    Shift,
    Target,
    as_commits,
    check_resets,
    plan_resets,
    read_target,
    reset_keys,
)
from txnformat.core.groups.state import GroupState
from txnformat.core.intents import GroupOffsets, JoinAsMember, LeaveGroup, Write
from txnformat.core.state import LogState
from txnformat.errors import InvalidInputError, NotFoundError, OffsetOutOfRangeError
from txnformat.types import OffsetRange, TopicPartition

LATER_MS = NOW_MS + 60_000
"""When the session of JOIN's member is over."""


def offsets_counted(_key: TopicPartition, within: OffsetRange) -> int:
    """Count every offset as a record."""
    return within.end - within.start


def states(state: LogState, now_ms: int = NOW_MS, **conditions: Any) -> dict[str, str]:
    return {one.group: one.state.value for one in list_groups(state, now_ms, **conditions)}


# --- lists and descriptions ---------------------------------------------------------------------------------


def test_a_group_is_stable_with_a_live_member_empty_with_positions_and_dead_with_neither() -> None:
    log, (producer,) = with_records()
    log.commit(JOIN)
    assert states(log.state) == {GROUP: "Stable"}
    assert states(log.state, LATER_MS) == {GROUP: "Dead"}, "nothing was ever committed"
    log.commit(within(producer, 3))
    assert states(log.state, LATER_MS) == {GROUP: "Empty"}, "a position is pending"
    log.commit(Write(producer, end=COMMIT))
    assert states(log.state, LATER_MS) == {GROUP: "Empty"}
    until = log.state.groups[GROUP].lives_until_ms()
    assert until is not None
    assert (states(log.state, until - 1), states(log.state, until)) == ({GROUP: "Stable"}, {GROUP: "Empty"})
    log.commit(LeaveGroup(GROUP, 1))
    assert states(log.state) == {GROUP: "Empty"}


def test_a_list_is_narrowed_by_state_and_pattern_and_sorted() -> None:
    log, _ = with_records()
    for name in ("b2", "a1", "a2"):
        log.commit(JoinAsMember(name, "somebody", 45_000))
    log.commit(LeaveGroup("a2", 1))
    assert list(states(log.state)) == ["a1", "a2", "b2"]
    assert list(states(log.state, states=["stable"])) == ["a1", "b2"]
    assert list(states(log.state, states="DEAD", pattern="a.*")) == ["a2"]
    assert list(states(log.state, pattern="a")) == [], "the pattern has to match as a whole"
    for conditions, kind in (
        ({"states": ["Gone"]}, "unknown-group-state"),
        ({"pattern": "("}, "invalid-pattern"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            states(log.state, **conditions)
        assert caught.value.kind == kind


def test_a_line_of_a_list_has_member_positions_and_pending_transactions() -> None:
    log, (one, two) = with_records("one", "two")
    log.commit(JOIN)
    log.commit(now(3))
    log.commit(within(one, 4))
    log.commit(within(two, 5))
    (found,) = list_groups(log.state, NOW_MS)
    group = log.state.groups[GROUP]
    assert (found.generation, found.member, found.positions, found.pending_transactions) == (
        1,
        "a process",
        1,
        2,
    )
    assert (found.live_until_ms, found.used_entry) == (group.used_ms + 45_000, log.state.entry)


def test_a_description_has_positions_what_is_pending_and_what_is_foreign() -> None:
    log, (producer,) = with_records()
    log.commit(JOIN)
    log.commit(
        Write(offsets=(GroupOffsets(GROUP, at(4).offsets, (PositionCommit("other/0", "9", "note"),)),))
    )
    committed = log.state.entry
    log.commit(Write(producer, rows(), offsets=(at(6, 4),)))
    log.commit(Write(producer, offsets=(at(2, partition=1),)))
    found = describe_group(log.state, GROUP, NOW_MS, offsets_counted)
    first, second = found.positions
    pending = PendingCommit("etl", 6, "", holds=True, prepared=False)
    assert (first.topic, first.partition, first.current_offset, first.committed_entry) == (
        "orders",
        0,
        4,
        committed,
    )
    assert (first.last_stable_offset, first.log_end, first.lag) == (10, 12, 6), "up to the open transaction"
    assert first.pending == (pending,)
    assert (second.partition, second.current_offset, second.lag, second.committed_ms) == (1, None, None, None)
    assert second.pending[0].holds is False
    (foreign,) = found.foreign_positions
    assert (foreign.name, foreign.position, foreign.metadata) == ("other/0", "9", "note")
    assert found.member is not None
    assert (found.member.live, found.lag, found.state) == (True, 6, GroupStatus.STABLE)
    log.commit(Write(producer, prepare=True))
    assert describe_group(log.state, GROUP, NOW_MS, offsets_counted).positions[0].pending[0].prepared
    late = describe_group(log.state, GROUP, LATER_MS, offsets_counted)
    assert late.member is not None
    assert not late.member.live


def test_who_reads_beyond_the_last_stable_offset_has_no_lag() -> None:
    log, (producer,) = with_records()
    log.commit(Write(producer, rows()))
    log.commit(now(12, read_uncommitted=True))
    (one,) = describe_group(log.state, GROUP, NOW_MS, offsets_counted).positions
    assert (one.current_offset, one.last_stable_offset, one.lag) == (12, 10, 0)


def test_an_unknown_group_is_named_with_those_that_there_are() -> None:
    log, _ = with_records()
    log.commit(JOIN)
    with pytest.raises(NotFoundError) as caught:
        describe_group(log.state, "raeders", NOW_MS, offsets_counted)
    assert (caught.value.kind, caught.value.values["groups"]) == ("unknown-group", [GROUP])


# --- what positions are set to ------------------------------------------------------------------------------


def test_every_way_to_say_where_to() -> None:
    moment, ago = datetime.datetime(2026, 8, 1, tzinfo=datetime.UTC), datetime.timedelta(hours=1)
    expected: dict[Any, Target] = {
        "earliest": Place.EARLIEST,
        "latest": Place.LATEST,
        "current": Place.CURRENT,
        "shift:3": Shift(3),
        "shift:+3": Shift(3),
        "shift:-3": Shift(-3),
        0: 0,
        moment: moment,
        ago: ago,
    }
    for to, target in expected.items():
        assert read_target(to, "orders") == target
    assert read_target({1: 7}, "orders") == {("orders", 1): 7}
    assert read_target({("orders", 1): 7}, None) == {("orders", 1): 7}


@pytest.mark.parametrize(
    ("to", "topic", "kind"),
    [
        (-1, "orders", "invalid-offset"),
        ({0: -1, 1: "x", 2: True}, "orders", "invalid-offset"),
        (True, "orders", "invalid-reset-target"),
        (None, "orders", "invalid-reset-target"),
        (1.5, "orders", "invalid-reset-target"),
        ("Earliest", "orders", "invalid-reset-target"),
        ("shift:", "orders", "invalid-reset-target"),
        ("shift:1.5", "orders", "invalid-reset-target"),
        ({}, "orders", "invalid-reset-target"),
        ({0: 1}, None, "invalid-reset-target"),
        ({("orders", 0): 1}, "orders", "invalid-reset-target"),
        ({"0": 1}, "orders", "invalid-reset-target"),
        (datetime.timedelta(seconds=-1), "orders", "invalid-reset-target"),
    ],
)
def test_what_is_no_way_to_say_where_to_is_refused(to: object, topic: str | None, kind: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_target(to, topic)
    assert caught.value.kind == kind


def plan(
    state: LogState, to: object, topic: str | None = None, partitions: Any = None
) -> list[tuple[Any, ...]]:
    """Return (partition, previous offset, offset) of what would be set."""
    group = state.groups.get(GROUP, GroupState())
    target = read_target(to, topic)
    keys = reset_keys(state, group, topic, partitions, target)
    resets = plan_resets(state, group, keys, target, lambda _key: 7)
    assert all(one.topic == "orders" for one in resets)
    return [(one.partition, one.previous_offset, one.offset) for one in resets]


def test_positions_are_planned_by_partition() -> None:
    log, (producer,) = with_records()
    log.commit(now(4))
    log.commit(Write(producer, rows()))
    state = log.state
    assert plan(state, "earliest", "orders") == [(0, 4, 0), (1, None, 0), (2, None, 0)]
    assert plan(state, "latest", "orders") == [(0, 4, 10), (1, None, 10), (2, None, 0)], "last stable offsets"
    assert plan(state, "current", "orders") == [(0, 4, 4), (1, None, 10), (2, None, 0)]
    assert plan(state, 3, "orders", [1]) == [(1, None, 3)]
    assert plan(state, "shift:-2") == [(0, 4, 2)], "without a topic where the group has a position"
    assert plan(state, {1: 2, 0: 1}, "orders") == [(0, 4, 1), (1, None, 2)]
    assert plan(state, {("orders", 1): 2}) == [(1, None, 2)]
    assert plan(state, datetime.timedelta(hours=1)) == [(0, 4, 7)]


@pytest.mark.parametrize(
    ("to", "topic", "partitions", "kind"),
    [
        ("earliest", "nix", None, "unknown-topic"),
        ("earliest", "orders", [0, 3], "unknown-partition"),
        ("earliest", "orders", [-1], "unknown-partition"),
        ({9: 0}, "orders", None, "unknown-partition"),
        ({("nix", 0): 0}, None, None, "unknown-topic"),
        ("earliest", None, [0], "invalid-reset"),
        ({0: 0}, "orders", [0], "invalid-reset"),
        ("earliest", "orders", "0", "invalid-reset"),
        ("earliest", "orders", 0, "invalid-reset"),
        ("earliest", "orders", [], "invalid-reset"),
        ("shift:1", "orders", None, "no-position"),
    ],
)
def test_what_cannot_be_set_is_named(to: object, topic: str | None, partitions: Any, kind: str) -> None:
    log, _ = with_records()
    log.commit(now(4))
    with pytest.raises((InvalidInputError, NotFoundError)) as caught:
        plan(log.state, to, topic, partitions)
    assert caught.value.kind == kind


def test_without_a_topic_a_group_needs_a_position() -> None:
    log, _ = with_records()
    log.commit(JOIN)
    log.commit(Write(offsets=(GroupOffsets(GROUP, (), (PositionCommit("other/0", "9"),)),)))
    with pytest.raises(InvalidInputError) as caught:
        plan(log.state, "earliest")
    assert caught.value.kind == "invalid-reset"


def test_a_position_is_never_moved_to_where_one_can_read() -> None:
    log, (producer,) = with_records()
    log.commit(Write(producer, rows()))
    for offset in (0, 10):
        check_resets(log.state, [PartitionReset("orders", 0, None, offset)])
    for offset in (-1, 11):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            check_resets(log.state, [PartitionReset("orders", number, None, offset) for number in (0, 1)])
        values = caught.value.values
        assert (values["got"], values["earliest"], values["latest"]) == (offset, 0, 10)
        assert values["also"] == ["orders-1"]


def test_only_who_shifts_relies_on_where_the_group_was() -> None:
    log, _ = with_records()
    log.commit(now(4))
    reset = [PartitionReset("orders", 0, 4, 3)]
    assert as_commits(log.state, reset, Shift(-1))[0].expected == 4
    assert as_commits(log.state, reset, 3)[0].expected is None
    assert as_commits(log.state, reset, 3)[0].key == KEY
    assert ORDERS.topic_id == KEY.topic_id
