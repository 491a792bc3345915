"""Lists and descriptions of consumer groups, with bounds of their lag, read off one state. Pure.

The questions, and the names of the states, are those of Kafka's ``kafka-consumer-groups.sh``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from txnformat.core.groups.operations import GroupKey
from txnformat.core.groups.state import Committed, GroupState
from txnformat.core.records.scan import committed
from txnformat.core.records.state import PartitionState
from txnformat.core.state import LogState
from txnformat.core.transactions.listing import named_states
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import NotFoundError
from txnformat.patterns import Pattern
from txnformat.persistent import Rows
from txnformat.types import OffsetRange, TopicPartition

__all__ = [
    "ForeignPosition",
    "GroupDetails",
    "GroupListing",
    "GroupMember",
    "GroupPosition",
    "GroupStatus",
    "LagBound",
    "PendingCommit",
    "Unread",
    "describe_group",
    "group_status",
    "known_group",
    "list_groups",
]

Count = Callable[[TopicPartition, OffsetRange], int]
"""Counts the records of a partition in a range that a reader at read_committed sees."""


class GroupStatus(StrEnum):
    """Where a group stands."""

    STABLE = "Stable"
    """It has a live member."""
    EMPTY = "Empty"
    """It has no live member, but positions, or some that are pending."""
    DEAD = "Dead"
    """It has neither: the log forgets it after 30 days without use."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One line of a list of groups."""

    group: str
    state: GroupStatus
    generation: int
    """How often a member has joined, left or been put out."""
    member: str | None
    """The last that joined and has not left; only in state "Stable" it is live."""
    live_until_ms: int | None
    """Until when it counts as live (log time, exclusive)."""
    positions: int
    """Number of positions that are in force, foreign ones included."""
    pending_transactions: int
    """Transactions that are not decided and have positions of the group."""
    used_entry: int
    """Last entry that had to do with the group."""
    used_ms: int
    """Its log time."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The one consumer that has joined a group."""

    name: str
    live: bool
    live_until_ms: int
    """Log time (exclusive): its session timeout after the last entry that used the group."""
    session_timeout_ms: int
    joined_entry: int


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A position of a transaction that is not decided: it may come into force."""

    transactional_id: str
    position: int | str
    """The next offset to read; a text where the position is foreign."""
    metadata: str
    holds: bool
    """It was compared with what is committed, which only the transaction's end may change."""
    prepared: bool
    """The transaction's outcome is decided elsewhere; no timeout ends it."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A group's position in one partition."""

    topic: str
    partition: int
    current_offset: int | None
    """Next offset to read. If None, nothing is committed, only pending."""
    last_stable_offset: int
    """Where read_committed ends (exclusive)."""
    log_end: int
    """Offset of the next record: where read_uncommitted ends (exclusive)."""
    lag: int | None
    """Records from the current offset to the last stable offset that read_committed shows: neither markers
    nor aborted ones. None without a current offset."""
    pending: tuple[PendingCommit, ...]
    """The pending commits, by transactional id."""
    metadata: str
    committed_entry: int | None
    """Entry in which the current offset came into force."""
    committed_ms: int | None
    """Its log time."""


@dataclass(frozen=True, slots=True)
class ForeignPosition:
    """A group's position in something that is not of this log."""

    name: str
    position: str | None
    """The committed position. If None, positions are pending only."""
    pending: tuple[PendingCommit, ...]
    metadata: str
    committed_entry: int | None
    committed_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """One consumer group."""

    group: str
    state: GroupStatus
    generation: int
    member: GroupMember | None
    """The last that joined and has not left."""
    used_entry: int
    """Last entry that had to do with the group."""
    used_ms: int
    """Its log time."""
    positions: tuple[GroupPosition, ...]
    """The positions, by topic and partition."""
    foreign_positions: tuple[ForeignPosition, ...]
    """The foreign positions, by name."""

    @property
    def lag(self) -> int:
        """Return the records that are still to be read in all partitions with a current offset."""
        return sum(one.lag or 0 for one in self.positions)


def group_status(group: GroupState, now_ms: int) -> GroupStatus:
    """Return where a group stands at a time (log time)."""
    until = group.lives_until_ms()
    if until is not None and now_ms < until:
        return GroupStatus.STABLE
    return GroupStatus.EMPTY if group.committed or group.pending else GroupStatus.DEAD


def known_group(state: LogState, name: str) -> GroupState:
    """Return what the log knows of a group, or raise NotFoundError of kind ``unknown-group``."""
    group = state.groups.get(name)
    if group is None:
        raise NotFoundError(
            "no such group",
            kind="unknown-group",
            hint="list them with: txnlog groups list",
            group=name,
            groups=sorted(state.groups)[:20],
        )
    return group


def list_groups(
    state: LogState, now_ms: int, *, states: Iterable[str] | None = None, pattern: str | None = None
) -> list[GroupListing]:
    """Return the groups that meet every condition, by name; see :meth:`Groups.list`."""
    statuses = named_states(states, GroupStatus, "group", "unknown-group-state")
    names = sorted(state.groups)
    found = []
    for name in names if pattern is None else Pattern(pattern).matching(names):
        group = state.groups[name]
        status = group_status(group, now_ms)
        if statuses and status not in statuses:
            continue
        found.append(
            GroupListing(
                name,
                status,
                group.generation,
                None if group.member is None else group.member.name,
                group.lives_until_ms(),
                len(group.committed),
                len(group.pending),
                group.used_entry,
                group.used_ms,
            )
        )
    return found


def describe_group(state: LogState, name: str, now_ms: int, count: Count) -> GroupDetails:
    """Return what the log knows of a group; see :meth:`Groups.describe`."""
    group = known_group(state, name)
    until = group.lives_until_ms()
    member = None
    if group.member is not None and until is not None:
        joined = group.member
        member = GroupMember(
            joined.name, now_ms < until, until, joined.session_timeout_ms, joined.joined_entry
        )
    keys: set[GroupKey] = set(group.committed).union(*group.pending.values())
    foreign = sorted(key for key in keys if isinstance(key, str))
    own = sorted(
        (key for key in keys if not isinstance(key, str)),
        key=lambda key: (state.topics[key.topic_id].name, key.partition),
    )
    return GroupDetails(
        name,
        group_status(group, now_ms),
        group.generation,
        member,
        group.used_entry,
        group.used_ms,
        tuple(_position(state, group, key, count) for key in own),
        tuple(_foreign(state, group, key) for key in foreign),
    )


def _position(state: LogState, group: GroupState, key: TopicPartition, count: Count) -> GroupPosition:
    partition = state.partition(key)
    stable = partition.last_stable_offset
    found = group.committed.get(key)
    offset = None if found is None else int(found.value)
    lag = None
    if offset is not None:
        # A consumer at read_uncommitted may have committed a position beyond the last stable offset.
        start = max(offset, partition.log_start)
        lag = count(key, OffsetRange(start, stable)) if start < stable else 0
    return GroupPosition(
        state.topics[key.topic_id].name,
        key.partition,
        offset,
        stable,
        partition.log_end,
        lag,
        _pending(state, group, key),
        *_whence(found),
    )


def _foreign(state: LogState, group: GroupState, key: str) -> ForeignPosition:
    found = group.committed.get(key)
    position = None if found is None else str(found.value)
    return ForeignPosition(key, position, _pending(state, group, key), *_whence(found))


def _whence(found: Committed | None) -> tuple[str, int | None, int | None]:
    return ("", None, None) if found is None else (found.metadata, found.entry, found.timestamp_ms)


def _pending(state: LogState, group: GroupState, key: GroupKey) -> tuple[PendingCommit, ...]:
    return tuple(
        PendingCommit(
            name,
            one.value,
            one.metadata,
            one.holds,
            state.transactional_ids[name].status is TransactionStatus.PREPARED,
        )
        for name, one in sorted(group.pending_in(key).items())
    )


class LagBound(NamedTuple):
    """How many records a group has still to read in a partition, as far as the state tells."""

    records: int
    """Never too few."""
    exact: bool


class Unread:
    """Counts, from the state alone, the records of one partition that read_committed shows from an offset on.

    Exact from the sealed end on, at the start of a segment that is not in the segment list, and at the log
    start if nothing was removed. Inside sealed segments, and below the end of what was spilled, it is a
    bound: their totals are known, what lies in which half is not.
    """

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition
        extents = partition.extents.array()
        extents = extents[extents["base_offset"] < partition.last_stable_offset]
        extents = extents[committed(partition, extents)] if len(extents) else extents
        self._bases: Rows = extents["base_offset"]
        self._spills = [one for one in partition.spills if one.start_offset < partition.last_stable_offset]
        self._extent_ends: Rows = extents["base_offset"] + extents["records"]
        self._from: Rows = np.concatenate([np.cumsum(extents["records"][::-1])[::-1], [0]])
        segments = partition.segments.array()
        segments = segments[segments["end_offset"] > partition.log_start]
        self._starts, self._ends = segments["start_offset"], segments["end_offset"]
        self._shown: Rows = segments["records"] - segments["aborted_records"]
        sealed = partition.sealed
        self._listed = sealed.records - sealed.aborted_records - int(self._shown.sum())

    def since(self, offset: int) -> LagBound:
        """Return the records from an offset (inclusive), or from the log start, to the last stable offset."""
        offset = max(offset, self._partition.log_start)
        first = int(np.searchsorted(self._extent_ends, offset, side="right"))
        total = int(self._from[first]) + int(self._shown[self._starts >= offset].sum())
        if first < len(self._bases):
            total -= max(0, offset - int(self._bases[first]))
        cut = (self._starts < offset) & (self._ends > offset)
        parts = [(int(shown), int(end)) for shown, end in zip(self._shown[cut], self._ends[cut], strict=True)]
        if offset < self._partition.listed_end:
            if offset == 0:
                total += self._listed
            else:
                parts.append((self._listed, self._partition.listed_end))
        # Only the object of a spill says which of its records were aborted.
        stable = self._partition.last_stable_offset
        ends = [(one.records, min(one.end_offset, stable)) for one in self._spills]
        parts += [(records, end) for records, end in ends if end > offset]
        bounds = [min(shown, end - offset) for shown, end in parts]
        return LagBound(total + sum(bounds), not any(bounds))
