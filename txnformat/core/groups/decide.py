"""Deciding what concerns consumer groups: who is its member, what may be committed, what may be deleted.

Pure.

Rejections are raised here; :mod:`txnformat.core.decide` makes values of them.
"""

from __future__ import annotations

from typing import Any

from txnformat.core.groups.checks import (
    SESSION_TIMEOUT_MS_MAX,
    check_generation,
    check_group_offsets,
    check_member,
)
from txnformat.core.groups.comparing import position_conflict
from txnformat.core.groups.listing import known_group
from txnformat.core.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    GroupKey,
    JoinGroup,
    OffsetCommit,
    PositionCommit,
)
from txnformat.core.groups.state import GroupState
from txnformat.core.intents import (
    GroupOffsets,
    JoinAsMember,
    LeaveGroup,
    ProducerRef,
    RemoveGroup,
    ResetOffsets,
)
from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionalIdState
from txnformat.errors import (
    ConflictError,
    InvalidInputError,
    OffsetOutOfRangeError,
    repr_of,
)

__all__ = [
    "commit_offsets",
    "join_group",
    "leave_group",
    "remove_group",
    "reset_offsets",
]


def join_group(state: LogState, action: JoinAsMember) -> JoinGroup:
    """Return the operation that makes a consumer the one member of a group, and fences the member before."""
    if not 1 <= action.session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise InvalidInputError(
            f"session_timeout_ms is {repr_of(action.session_timeout_ms)}, not 1 to "
            f"{SESSION_TIMEOUT_MS_MAX} ms",
            kind="invalid-session-timeout",
        )
    check_member(action.group, action.member)
    group = state.group(action.group)
    return JoinGroup(
        group=action.group,
        generation=group.generation + 1,
        member=action.member,
        session_timeout_ms=action.session_timeout_ms,
    )


def leave_group(state: LogState, action: LeaveGroup) -> JoinGroup:
    """Return the operation by which a member leaves; raise if it is not the member any more."""
    group = state.group(action.group)
    check_generation(action.group, group, action.generation)
    return JoinGroup(group=action.group, generation=group.generation + 1, session_timeout_ms=0)


def commit_offsets(
    state: LogState,
    wanted: GroupOffsets,
    producer: ProducerRef | None,
    owner: TransactionalIdState | None,
) -> CommitOffsets:
    """Return the operation that commits positions of a group, in the producer's transaction or at once."""
    group = state.group(wanted.group)
    check_generation(wanted.group, group, wanted.generation)
    identity: tuple[str, int, int] | tuple[()] = ()
    if producer is not None and owner is not None and producer.transactional_id is not None:
        identity = (producer.transactional_id, producer.producer_id, producer.epoch)
    for offset in wanted.offsets:
        _check_offset(state, wanted, offset)
    commits: tuple[OffsetCommit | PositionCommit, ...] = (*wanted.offsets, *wanted.positions)
    for commit in commits:
        _check_compare(state, wanted.group, group, commit, identity[0] if identity else None)
    return CommitOffsets(wanted.group, wanted.offsets, wanted.positions, wanted.generation, *identity)


def _check_offset(state: LogState, wanted: GroupOffsets, commit: OffsetCommit) -> None:
    topic = state.topic_of(commit.topic_id, "an offset")
    topic.check_partition(commit.partition)
    partition = state.partition(commit.key)
    latest = partition.log_end if wanted.read_uncommitted else partition.last_stable_offset
    if commit.offset > latest:
        raise OffsetOutOfRangeError(
            "the offset is beyond the last readable offset",
            hint="commit the offset of the next record to read, which is at most the last stable offset",
            topic=topic.name,
            partition=commit.partition,
            got=commit.offset,
            earliest=partition.log_start,
            latest=latest,
        )


_CONFLICTS = {
    "offsets-held": (
        "another transaction has compared this position, and holds it until it ends",
        "abort, and try again when that transaction has ended",
    ),
    "offsets-changed": (
        "the group's position differs from the expected one: another consumer has committed",
        "abort, read the committed position again, and continue from there",
    ),
    "offsets-pending": (
        "another transaction has a pending position, so the expected position cannot be compared",
        "abort, and try again when that transaction has ended",
    ),
}
_HELD_BY_PREPARED = (
    "a prepared transaction has compared this position, and holds it until it ends",
    "its coordinator must commit or abort that transaction first",
)


def _check_compare(
    state: LogState,
    name: str,
    group: GroupState,
    commit: OffsetCommit | PositionCommit,
    transactional_id: str | None,
) -> None:
    others = group.pending_in(commit.key, beside=transactional_id)
    holding = [other for other, pending in others.items() if pending.holds]
    conflict = position_conflict(state, group, commit, others, holding)
    if conflict is None:
        return
    what, hint = _CONFLICTS[conflict.kind] if commit.expected is not None else _HELD_BY_PREPARED
    values: dict[str, Any] = {"group": name, **_named(state, commit.key)}
    if conflict.transactional_id is None:
        values |= {"expected": commit.expected, "got": group.value(commit.key)}
    else:
        values |= {"transactional_id": conflict.transactional_id}
    raise ConflictError(what, kind=conflict.kind, hint=hint, **values)


def _named(state: LogState, key: GroupKey) -> dict[str, Any]:
    if isinstance(key, str):
        return {"position": key}
    topic = state.topics.get(key.topic_id)
    return {"topic": topic.name if topic else key.topic_id, "partition": key.partition}


def reset_offsets(state: LogState, action: ResetOffsets) -> tuple[JoinGroup, CommitOffsets]:
    """Return the operations that put a group's member out and set its positions."""
    name = action.offsets.group
    check_group_offsets((action.offsets,))
    group = state.group(name)
    _check_idle(name, group, action.store_time_ms, force=action.force)
    # A member that only slept is fenced: it must not commit over what was set.
    put_out = JoinGroup(group=name, generation=group.generation + 1, session_timeout_ms=0)
    return put_out, commit_offsets(state, action.offsets, None, None)


def remove_group(state: LogState, action: RemoveGroup) -> DeleteGroup:
    """Return the operation that deletes a group."""
    group = known_group(state, action.group)
    if group.pending:
        raise ConflictError(
            "the group has positions that are pending in open transactions",
            kind="offsets-pending",
            hint="end those transactions first, or abort them: txnlog transactions abort",
            group=action.group,
            transactional_ids=sorted(group.pending),
        )
    _check_idle(action.group, group, action.store_time_ms, force=action.force)
    return DeleteGroup(action.group)


def _check_idle(name: str, group: GroupState, store_time_ms: int, *, force: bool) -> None:
    until = group.lives_until_ms()
    if force or until is None or group.member is None or store_time_ms >= until:
        return
    raise ConflictError(
        "the group has a live member",
        kind="group-active",
        hint="stop it first, or use force (--force); it counts as live until its session timeout after "
        "its last "
        "commit is over",
        group=name,
        member=group.member.name,
        generation=group.generation,
        live_until_ms=until,
        store_time_ms=store_time_ms,
    )
