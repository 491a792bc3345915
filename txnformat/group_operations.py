"""The operations of consumer groups: plain values. See :mod:`txnformat.operations`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from txnformat.types import TopicPartition

__all__ = [
    "NO_OFFSET",
    "NO_POSITION",
    "CommitOffsets",
    "DeleteGroup",
    "GroupKey",
    "JoinGroup",
    "OffsetCommit",
    "PositionCommit",
]

NO_OFFSET = -1
"""As what is expected: the group has no offset of this partition yet (Kafka's offset of an unknown commit)."""
NO_POSITION = ""
"""Likewise of a foreign position."""

GroupKey = TopicPartition | str
"""What a group has a position in: a partition of the log, or something else that has this name."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A group gets its next generation, and with it one member, which alone may commit as such; or none."""

    group: str
    generation: int
    """From here on: the one before + 1."""
    member: str | None
    """A name for people; None: the group has no member, since it left or was put out."""
    session_timeout_ms: int
    """For how long after its last commit the member counts as live; 0 without a member."""
    intent: int = 0


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """The next offset that a group wants to read of a partition."""

    topic_id: str
    partition: int
    offset: int
    metadata: str = ""
    """A text of the application."""
    expected: int | None = None
    """What must be committed so far (NO_OFFSET: nothing); None: whatever it is."""

    @property
    def key(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic_id, self.partition)

    @property
    def value(self) -> int:
        """Return the offset."""
        return self.offset


@dataclass(frozen=True, slots=True)
class PositionCommit:
    """A group's position in something that is not of this log: nothing is known of either but their texts."""

    name: str
    position: str
    metadata: str = ""
    expected: str | None = None
    """What must be committed so far (NO_POSITION: nothing); None: whatever it is."""

    @property
    def key(self) -> str:
        """Return the name."""
        return self.name

    @property
    def value(self) -> str:
        """Return the position."""
        return self.position


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Positions of one group: at once, or with the end of a transaction."""

    group: str
    offsets: tuple[OffsetCommit, ...]
    positions: tuple[PositionCommit, ...] = ()
    generation: int | None = None
    """The group's, if its member commits; None: whoever it is."""
    transactional_id: str | None = None
    """None: committed at once. Else pending until that id's transaction ends."""
    producer_id: int = -1
    epoch: int = -1
    intent: int = 0

    def commits(self) -> Iterator[OffsetCommit | PositionCommit]:
        """Iterate over all of them."""
        yield from self.offsets
        yield from self.positions


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A group leaves the state, with all its positions."""

    group: str
    intent: int = 0
