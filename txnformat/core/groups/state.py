"""The state of a consumer group in a log. A value, as all of the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from txnformat.core.groups.operations import NO_OFFSET, NO_POSITION, GroupKey
from txnformat.persistent import put, replace, update

__all__ = ["Committed", "GroupState", "Member", "PendingPosition"]


class Member(NamedTuple):
    """The one consumer that has joined a group."""

    name: str
    session_timeout_ms: int
    joined_entry: int


class Committed(NamedTuple):
    """A position that is in force."""

    value: int | str
    """Next offset to read; of a foreign position its text."""
    metadata: str
    order: int
    """Which of the group's commit operations it was, from 0: the last by log position wins, not the last to
    end."""
    entry: int
    """Entry in which it came into force: that of the operation, or of the end of its transaction."""
    timestamp_ms: int
    """Log time of that entry."""


class PendingPosition(NamedTuple):
    """A position of a transaction that is not decided."""

    value: int | str
    metadata: str
    order: int
    holds: bool
    """Whether it was compared with what is committed, which must then stay so until the transaction ends."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """One consumer group."""

    generation: int = 0
    """Grows whenever a member joins, leaves or is put out. A new group begins with
    LogState.retired_generation."""
    member: Member | None = None
    commits: int = 0
    """Commit operations so far."""
    committed: Mapping[GroupKey, Committed] = field(default_factory=dict)
    pending: Mapping[str, Mapping[GroupKey, PendingPosition]] = field(default_factory=dict)
    """The positions that an open or prepared transaction has committed, by transactional id."""
    used_entry: int = 0
    """Last entry that had an operation of the group, or ended a transaction that did."""
    used_ms: int = 0
    """Log time of that entry."""

    def value(self, key: GroupKey) -> int | str:
        """Return what is committed, NO_OFFSET or NO_POSITION if nothing is."""
        found = self.committed.get(key)
        if found is not None:
            return found.value
        return NO_POSITION if isinstance(key, str) else NO_OFFSET

    def pending_in(self, key: GroupKey, *, beside: str | None = None) -> dict[str, PendingPosition]:
        """Return what is pending of a key, by transactional id, but for that of ``beside``."""
        return {name: found[key] for name, found in self.pending.items() if key in found and name != beside}

    def lives_until_ms(self) -> int | None:
        """Return until when its member counts as live (log time, exclusive); None without a member."""
        return None if self.member is None else self.used_ms + self.member.session_timeout_ms

    def with_pending(self, transactional_id: str, more: Mapping[GroupKey, PendingPosition]) -> GroupState:
        """Return the group with more that is pending in a transaction."""
        found = update(self.pending.get(transactional_id, {}), more)
        return replace(self, pending=put(self.pending, transactional_id, found))
