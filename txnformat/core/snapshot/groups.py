"""Consumer groups in the JSON section of a snapshot. Pure. See :mod:`txnformat.core.snapshot.state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType, structs

from txnformat import keys
from txnformat.core.groups.operations import GroupKey
from txnformat.core.groups.state import Committed, GroupState, Member, PendingPosition
from txnformat.core.wire.typed import fail
from txnformat.field_types import (
    Count,
    Flag,
    LogTime,
    Name,
    PartitionNumber,
    Positive,
    ReaderName,
    Text,
    TransactionalId,
    Uuid,
    bounded,
)
from txnformat.types import TopicPartition

__all__ = [
    "CommittedRow",
    "GroupRow",
    "MemberRow",
    "PendingPositionRow",
    "PendingRow",
    "PositionRow",
    "decode_group",
    "encode_group",
]

MemberName = Annotated[str, bounded(keys.TRANSACTIONAL_ID_BYTES_MAX)]


class MemberRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A group's member."""

    name: MemberName
    session_timeout_ms: Positive
    joined_entry: Count


class PositionRow(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A position in a partition (the first three), or a foreign one (the next two)."""

    topic_id: Uuid | None = None
    partition: PartitionNumber | None = None
    offset: Count | None = None
    name: Name | None = None
    position: Name | None = None
    metadata: Text
    order: Count


class CommittedRow(PositionRow, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A position that is in force."""

    entry: Count
    timestamp_ms: LogTime


class PendingPositionRow(PositionRow, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A position of a transaction."""

    holds: Flag


class PendingRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """The positions of a transaction."""

    transactional_id: TransactionalId
    positions: tuple[PendingPositionRow, ...]


class GroupRow(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A group."""

    group: ReaderName
    generation: Count
    member: MemberRow | UnsetType | None = UNSET
    commits: Count
    committed: tuple[CommittedRow, ...]
    pending: tuple[PendingRow, ...]
    used_entry: Count
    used_ms: LogTime


def encode_group(name: str, group: GroupState) -> GroupRow:
    """Return the row of a group."""
    return GroupRow(
        group=name,
        generation=group.generation,
        member=group.member and MemberRow(*group.member),
        commits=group.commits,
        committed=tuple(
            CommittedRow(**_position(key, one), entry=one.entry, timestamp_ms=one.timestamp_ms)
            for key, one in _sorted(group.committed)
        ),
        pending=tuple(
            PendingRow(
                transactional_id,
                tuple(
                    PendingPositionRow(**_position(key, one), holds=int(one.holds))
                    for key, one in _sorted(found)
                ),
            )
            for transactional_id, found in sorted(group.pending.items())
        ),
        used_entry=group.used_entry,
        used_ms=group.used_ms,
    )


def _sorted(found: Mapping[GroupKey, Any]) -> Iterable[tuple[GroupKey, Any]]:
    """Return partitions by topic id and number, then foreign positions by name."""
    return sorted(found.items(), key=lambda item: (isinstance(item[0], str), item[0]))


def _position(key: GroupKey, one: Committed | PendingPosition) -> dict[str, Any]:
    rest = {"metadata": one.metadata, "order": one.order}
    if isinstance(key, str):
        return {"name": key, "position": one.value, **rest}
    return {"topic_id": key.topic_id, "partition": key.partition, "offset": one.value, **rest}


def decode_group(row: GroupRow, path: str) -> tuple[str, GroupState]:
    """Return the group that a row says, and its name."""
    return row.group, GroupState(
        row.generation,
        Member(*structs.astuple(row.member)) if row.member else None,
        row.commits,
        {
            key: Committed(value, one.metadata, one.order, one.entry, one.timestamp_ms)
            for one in row.committed
            for key, value in (_key_and_value(one, path),)
        },
        {
            pending.transactional_id: {
                key: PendingPosition(value, one.metadata, one.order, bool(one.holds))
                for one in pending.positions
                for key, value in (_key_and_value(one, path),)
            }
            for pending in row.pending
        },
        row.used_entry,
        row.used_ms,
    )


def _key_and_value(row: PositionRow, path: str) -> tuple[GroupKey, int | str]:
    if row.name is not None:
        return row.name, row.position or fail(path, "position", "text that is not empty", row.position)
    if row.topic_id is None or row.partition is None or row.offset is None:
        fail(path, "offset", "a partition and its offset, or a name and its position", row)
    return TopicPartition(row.topic_id, row.partition), row.offset
