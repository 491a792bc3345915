"""Folding what concerns consumer groups: members, positions, positions in transactions. Pure.

A position that was compared with what is committed holds it until its transaction ends: no other commit can
compare, and a commit without comparing makes that transaction one that can only be aborted. So what a
transaction brings and the position that it brings it for come together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from txnformat.core.folding import At, corrupt
from txnformat.core.groups.comparing import position_conflict
from txnformat.core.groups.ends import pending_index
from txnformat.core.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    GroupKey,
    JoinGroup,
    OffsetCommit,
    PositionCommit,
)
from txnformat.core.groups.state import Committed, GroupState, Member, PendingPosition
from txnformat.core.state import LogState
from txnformat.core.transactions.fold import ongoing, owner_of
from txnformat.core.transactions.state import TransactionStatus, is_legal_transition
from txnformat.persistent import including, put, replace, update

__all__ = ["commit_offsets", "delete_group", "join_group"]


def join_group(state: LogState, op: JoinGroup, at: At) -> LogState:
    """Return the state after a member has joined a group, or the group has lost its member."""
    group = state.group(op.group)
    if op.generation != group.generation + 1:
        corrupt(at, "a group's generation does not follow", group=op.group, got=op.generation)
    member = None if op.member is None else Member(op.member, op.session_timeout_ms, at.entry)
    return _with_group(state, op.group, replace(group, generation=op.generation, member=member), at)


def _with_group(state: LogState, name: str, group: GroupState, at: At) -> LogState:
    used = replace(group, used_entry=at.entry, used_ms=at.timestamp_ms)
    return replace(state, groups=put(state.groups, name, used))


def delete_group(state: LogState, op: DeleteGroup, at: At) -> LogState:
    """Return the state without a group."""
    group = state.groups.get(op.group)
    if group is None or group.pending:
        corrupt(at, "a group is deleted that is not there, or has pending positions", group=op.group)
    return state.without_groups([op.group])


def commit_offsets(state: LogState, op: CommitOffsets, at: At) -> LogState:
    """Return the state after positions of a group were committed, or have become pending in a transaction."""
    group = state.group(op.group)
    if op.generation is not None and op.generation != group.generation:
        corrupt(at, "positions are of another generation of their group", group=op.group, got=op.generation)
    broken: set[str] = set()
    index = pending_index(group, op.group, at)
    found: dict[GroupKey, OffsetCommit | PositionCommit] = {}
    for commit in op.commits():
        _check_commit(state, op, group, commit, at)
        if commit.key in found:
            corrupt(at, "an operation commits a position twice", group=op.group, key=commit.key)
        found[commit.key] = commit
        broken |= index.holding.get(commit.key, set()) - {op.transactional_id}
    if not found:
        corrupt(at, "an operation commits no position", group=op.group)
    state, group = _broken(state, op.group, group, broken, found, at)
    order = group.commits
    group = replace(group, commits=order + 1)
    if op.transactional_id is None:
        now = {
            key: Committed(commit.value, commit.metadata, order, at.entry, at.timestamp_ms)
            for key, commit in found.items()
        }
        return _with_group(state, op.group, replace(group, committed=update(group.committed, now)), at)
    owner = owner_of(state, op.transactional_id, op.producer_id, op.epoch, at)
    if not is_legal_transition(owner.status, TransactionStatus.ONGOING):
        corrupt(at, "positions join a transaction that is prepared", producer_id=op.producer_id)
    before = group.pending.get(op.transactional_id, {})
    pending = {
        key: PendingPosition(
            commit.value,
            commit.metadata,
            order,
            commit.expected is not None or (key in before and before[key].holds),
        )
        for key, commit in found.items()
    }
    for key, one in pending.items():
        index.add(op.transactional_id, key, holds=one.holds)
    joined = ongoing(owner, at, groups=including(owner.groups, op.group))
    state = _with_group(state, op.group, group.with_pending(op.transactional_id, pending), at)
    return state.with_transactional_id(op.transactional_id, joined)


def _check_commit(
    state: LogState, op: CommitOffsets, group: GroupState, commit: OffsetCommit | PositionCommit, at: At
) -> None:
    if isinstance(commit, OffsetCommit):
        topic = state.topics.get(commit.topic_id)
        if topic is None or commit.partition >= topic.partitions:
            corrupt(
                at,
                "an offset is committed of a partition that does not exist",
                topic_id=commit.topic_id,
                partition=commit.partition,
            )
        log_end = state.partition(commit.key).log_end
        if commit.offset > log_end:
            corrupt(at, "an offset is committed beyond the log end", expected=log_end, got=commit.offset)
    index = pending_index(group, op.group, at)
    others = (ids.get(commit.key, set()) - {op.transactional_id} for ids in (index.ids, index.holding))
    conflict = position_conflict(state, group, commit, *others)
    if conflict is not None:
        corrupt(
            at,
            "a position is committed though another is in force than was expected, or a transaction has "
            "it pending",
            group=op.group,
            key=commit.key,
            conflict=conflict.kind,
            expected=commit.expected,
            got=group.value(commit.key),
        )


def _broken(
    state: LogState,
    name: str,
    group: GroupState,
    broken: set[str],
    found: dict[GroupKey, OffsetCommit | PositionCommit],
    at: At,
) -> tuple[LogState, GroupState]:
    """Return state and group after commits that did not compare: transactions that had compared can only
    abort.
    """
    changed: dict[str, Mapping[GroupKey, PendingPosition]] = {}
    index = pending_index(group, name, at)
    for transactional_id in broken:
        known = state.transactional_ids[transactional_id]
        state = state.with_transactional_id(transactional_id, replace(known, abort_only=True))
        held = group.pending[transactional_id]
        free = {key: held[key]._replace(holds=False) for key in found if key in held}
        for key in free:
            index.release(transactional_id, key)
        changed[transactional_id] = update(held, free)
    return state, replace(group, pending=update(group.pending, changed)) if broken else group
