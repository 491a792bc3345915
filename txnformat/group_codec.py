"""JSON form of the operations of consumer groups. See :mod:`txnformat.operation_codec`. Pure."""

from __future__ import annotations

from txnformat import keys
from txnformat.codec_fields import PARTITIONS_MAX, Json, transactional_id_of, uuid_of
from txnformat.document import Document
from txnformat.errors import InvalidInputError
from txnformat.group_operations import (
    NO_OFFSET,
    CommitOffsets,
    DeleteGroup,
    JoinGroup,
    OffsetCommit,
    PositionCommit,
)

__all__ = [
    "decode_commit_offsets",
    "decode_delete_group",
    "decode_join_group",
    "encode_commit_offsets",
    "encode_delete_group",
    "encode_join_group",
    "group_of",
    "position_name_of",
    "position_of",
]


def group_of(doc: Document) -> str:
    """Return the name of a group in a JSON object, checked."""
    try:
        return keys.check_reader_name(doc.text("group"), "group")
    except InvalidInputError:
        doc.fail("group", "group name")


def position_name_of(doc: Document) -> str:
    """Return the name of a foreign position in a JSON object, checked."""
    return doc.text("name") or doc.fail("name", "text that is not empty")


def position_of(doc: Document) -> str:
    """Return a foreign position in a JSON object, checked."""
    return doc.text("position") or doc.fail("position", "text that is not empty")


def encode_join_group(op: JoinGroup) -> Json:
    """Return the fields of ``join_group``."""
    return {
        "group": op.group,
        "generation": op.generation,
        "member": op.member,
        "session_timeout_ms": op.session_timeout_ms,
    }


def decode_join_group(doc: Document, intent: int) -> JoinGroup:
    """Return the operation that a JSON object says, checked."""
    member = doc.text("member", bytes_max=keys.TRANSACTIONAL_ID_BYTES_MAX) if doc.has("member") else None
    if member == "":
        doc.fail("member", "text that is not empty, or null")
    timeout = doc.integer("session_timeout_ms", maximum=2**53)
    if (timeout > 0) != (member is not None):
        doc.fail("session_timeout_ms", "at least 1 with a member, 0 without")
    return JoinGroup(group_of(doc), doc.integer("generation", minimum=1), member, timeout, intent)


def encode_commit_offsets(op: CommitOffsets) -> Json:
    """Return the fields of ``commit_offsets``."""
    encoded: Json = {
        "group": op.group,
        "generation": op.generation,
        "transactional_id": op.transactional_id,
        "producer_id": op.producer_id,
        "epoch": op.epoch,
        "offsets": [_encode_offset(commit) for commit in op.offsets],
    }
    if op.positions:
        encoded["positions"] = [_encode_position(commit) for commit in op.positions]
    return encoded


def _encode_offset(commit: OffsetCommit) -> Json:
    encoded: Json = {"topic_id": commit.topic_id, "partition": commit.partition, "offset": commit.offset}
    return encoded | _rest(commit)


def _encode_position(commit: PositionCommit) -> Json:
    return {"name": commit.name, "position": commit.position} | _rest(commit)


def _rest(commit: OffsetCommit | PositionCommit) -> Json:
    encoded: Json = {"metadata": commit.metadata} if commit.metadata else {}
    return encoded if commit.expected is None else {**encoded, "expected": commit.expected}


def decode_commit_offsets(doc: Document, intent: int) -> CommitOffsets:
    """Return the operation that a JSON object says, checked."""
    transactional_id = transactional_id_of(doc) if doc.has("transactional_id") else None
    producer_id, epoch = doc.integer("producer_id", minimum=-1), doc.integer("epoch", minimum=-1)
    if (producer_id < 0) != (transactional_id is None) or (epoch < 0) != (transactional_id is None):
        doc.fail("producer_id", "-1, as epoch, exactly when transactional_id is null")
    return CommitOffsets(
        group_of(doc),
        tuple(map(_offset, doc.documents("offsets"))),
        tuple(map(_position, doc.documents("positions"))) if doc.has("positions") else (),
        doc.integer("generation", minimum=1) if doc.has("generation") else None,
        transactional_id,
        producer_id,
        epoch,
        intent,
    )


def _offset(doc: Document) -> OffsetCommit:
    return OffsetCommit(
        uuid_of(doc, "topic_id"),
        doc.integer("partition", maximum=PARTITIONS_MAX - 1),
        doc.integer("offset"),
        doc.text("metadata") if doc.has("metadata") else "",
        doc.integer("expected", minimum=NO_OFFSET) if doc.has("expected") else None,
    )


def _position(doc: Document) -> PositionCommit:
    return PositionCommit(
        position_name_of(doc),
        position_of(doc),
        doc.text("metadata") if doc.has("metadata") else "",
        doc.text("expected") if doc.has("expected") else None,
    )


def encode_delete_group(op: DeleteGroup) -> Json:
    """Return the fields of ``delete_group``."""
    return {"group": op.group}


def decode_delete_group(doc: Document, intent: int) -> DeleteGroup:
    """Return the operation that a JSON object says, checked."""
    return DeleteGroup(group_of(doc), intent)
