"""Consumer groups in the JSON section of a snapshot. Pure. See :mod:`txnformat.snapshot_state`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from txnformat import keys
from txnformat.codec_fields import name_of, number_of, reader_of, transactional_id_of, uuid_of
from txnformat.document import Document
from txnformat.group_operations import GroupKey
from txnformat.group_state import Committed, GroupState, Member, PendingPosition
from txnformat.types import TopicPartition

__all__ = ["decode_group", "encode_group"]

Json = dict[str, Any]


def encode_group(name: str, group: GroupState) -> Json:
    """Return the JSON object of a group."""
    return {
        "group": name,
        "generation": group.generation,
        "member": group.member and group.member._asdict(),
        "commits": group.commits,
        "committed": [
            {**_encode_position(key, one), "entry": one.entry, "timestamp_ms": one.timestamp_ms}
            for key, one in _sorted(group.committed)
        ],
        "pending": [
            {
                "transactional_id": transactional_id,
                "positions": [
                    {**_encode_position(key, one), "holds": int(one.holds)} for key, one in _sorted(found)
                ],
            }
            for transactional_id, found in sorted(group.pending.items())
        ],
        "used_entry": group.used_entry,
        "used_ms": group.used_ms,
    }


def _sorted(found: dict[GroupKey, Any]) -> Iterable[tuple[GroupKey, Any]]:
    """Return partitions by topic id and number, then foreign positions by name."""
    return sorted(found.items(), key=lambda item: (isinstance(item[0], str), item[0]))


def _encode_position(key: GroupKey, one: Committed | PendingPosition) -> Json:
    rest = {"metadata": one.metadata, "order": one.order}
    if isinstance(key, str):
        return {"name": key, "position": one.value, **rest}
    return {"topic_id": key.topic_id, "partition": key.partition, "offset": one.value, **rest}


def decode_group(doc: Document) -> tuple[str, GroupState]:
    """Return the group that a JSON object says, and its name, checked."""
    return reader_of(doc, "group"), GroupState(
        doc.integer("generation"),
        _member(doc.document("member")) if doc.has("member") else None,
        doc.integer("commits"),
        {
            key: Committed(value, metadata, order, one.integer("entry"), one.integer("timestamp_ms"))
            for one in doc.documents("committed")
            for key, value, metadata, order in (_position(one),)
        },
        {
            transactional_id_of(one): dict(map(_pending, one.documents("positions")))
            for one in doc.documents("pending")
        },
        doc.integer("used_entry"),
        doc.integer("used_ms"),
    )


def _member(doc: Document) -> Member:
    return Member(
        doc.text("name", bytes_max=keys.TRANSACTIONAL_ID_BYTES_MAX),
        doc.integer("session_timeout_ms", minimum=1),
        doc.integer("joined_entry"),
    )


def _pending(doc: Document) -> tuple[GroupKey, PendingPosition]:
    key, value, metadata, order = _position(doc)
    return key, PendingPosition(value, metadata, order, bool(doc.integer("holds", maximum=1)))


def _position(doc: Document) -> tuple[GroupKey, int | str, str, int]:
    metadata, order = doc.text("metadata"), doc.integer("order")
    if doc.has("name"):
        return name_of(doc, "name"), name_of(doc, "position"), metadata, order
    key = TopicPartition(uuid_of(doc, "topic_id"), number_of(doc))
    return key, doc.integer("offset"), metadata, order
