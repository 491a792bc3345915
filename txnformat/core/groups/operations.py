"""The operations of consumer groups: plain values. See :mod:`txnformat.core.operations`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from txnformat.field_types import (
    LEFT_OUT,
    Count,
    Name,
    OrMinusOne,
    PartitionNumber,
    Positive,
    ReaderName,
    Text,
    TransactionalId,
    Uuid,
)
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
"""As what is expected: the group has no offset of this partition yet (Kafka's offset of an unknown commit).
"""
NO_POSITION = ""
"""Likewise of a foreign position."""

SessionMs = Annotated[int, Meta(ge=0, le=2**53)]
GroupKey = TopicPartition | str
"""The object of a group's position: a partition of the log, or something else that has this name."""


class JoinGroup(Struct, frozen=True, tag_field="operation", tag="join_group", kw_only=True):
    """A group gets its next generation, and with it one member, which alone may commit as such; or none."""

    group: ReaderName
    generation: Positive
    """Generation from here on: the one before + 1."""
    member: TransactionalId | None = None
    """A name for people. If None, the group has no member, since it left or was put out."""
    session_timeout_ms: SessionMs
    """For how long after its last commit the member counts as live; 0 without a member."""
    intent: Count = 0


class OffsetCommit(Struct, frozen=True, gc=False, omit_defaults=True):
    """The next offset that a group wants to read of a partition."""

    topic_id: Uuid
    partition: PartitionNumber
    offset: Count
    metadata: Text = ""
    """A text of the application."""
    expected: OrMinusOne | None = None
    """The position that must be committed so far (NO_OFFSET: none). If None, any."""

    @property
    def key(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic_id, self.partition)

    @property
    def value(self) -> int:
        """Return the offset."""
        return self.offset


class PositionCommit(Struct, frozen=True, gc=False, omit_defaults=True):
    """A group's position in something that is not of this log: nothing is known of either but their texts."""

    name: Name
    position: Name
    metadata: Text = ""
    expected: Text | None = None
    """The position that must be committed so far (NO_POSITION: none). If None, any."""

    @property
    def key(self) -> str:
        """Return the name."""
        return self.name

    @property
    def value(self) -> str:
        """Return the position."""
        return self.position


class CommitOffsets(Struct, frozen=True, tag_field="operation", tag="commit_offsets"):
    """Positions of one group: at once, or with the end of a transaction."""

    group: ReaderName
    offsets: tuple[OffsetCommit, ...]
    positions: Annotated[tuple[PositionCommit, ...], LEFT_OUT] = ()
    generation: Positive | None = None
    """Generation of the group, if its member commits. If None, any."""
    transactional_id: TransactionalId | None = None
    """The transaction that commits: positions are pending until it ends. If None, they are committed at once.
    """
    producer_id: OrMinusOne = -1
    epoch: OrMinusOne = -1
    intent: Count = 0

    def commits(self) -> Iterator[OffsetCommit | PositionCommit]:
        """Iterate over all of them."""
        yield from self.offsets
        yield from self.positions


class DeleteGroup(Struct, frozen=True, tag_field="operation", tag="delete_group"):
    """A group leaves the state, with all its positions."""

    group: ReaderName
    intent: Count = 0
