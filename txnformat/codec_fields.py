"""JSON form of what several operations have: keys, files, objects, markers, identities. Checked on the way in. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from txnformat import keys
from txnformat.document import Document
from txnformat.operations import Marker
from txnformat.types import FileRecord, ObjectRecord

__all__ = [
    "INT32_MAX",
    "PARTITIONS_MAX",
    "SCHEMAS_MAX",
    "Json",
    "decode_file",
    "decode_marker",
    "decode_object",
    "encode_file",
    "encode_marker",
    "encode_object",
    "key_of",
    "timeout_of",
    "transactional_id_of",
    "uuid_of",
]

PARTITIONS_MAX = 10_000
"""Most partitions of one topic."""

SCHEMAS_MAX = 1_000
"""Most versions of one topic's schema."""

TIMEOUT_MS_MAX = 2**53
"""Far above any timeout."""

INT32_MAX = 2**31 - 1
Json = dict[str, Any]
T = TypeVar("T")


def encode_marker(marker: Marker) -> Json:
    """Return the JSON object of a marker."""
    return {"topic_id": marker.topic_id, "partition": marker.partition, "offset": marker.offset}


def decode_marker(doc: Document) -> Marker:
    """Return the marker that a JSON object says, checked."""
    return Marker(
        uuid_of(doc, "topic_id"), doc.integer("partition", maximum=PARTITIONS_MAX - 1), doc.integer("offset")
    )


def uuid_of(doc: Document, key: str) -> str:
    """Return the uuid in a field, checked."""
    value = doc.text(key)
    if not keys.check_uuid(value):
        doc.fail(key, "uuid")
    return value


def key_of(doc: Document, parse: Callable[[str], keys.ObjectName | None]) -> str:
    """Return the key of the object that a JSON object names, checked against the pattern of its kind."""
    return keys.check_key(doc.text("key"), parse, where=doc.path)


def transactional_id_of(doc: Document) -> str:
    """Return the transactional id in a JSON object, checked."""
    value = doc.text("transactional_id", bytes_max=keys.TRANSACTIONAL_ID_BYTES_MAX)
    if not value:
        doc.fail("transactional_id", "text that is not empty")
    return value


def timeout_of(doc: Document, field: str, default: T) -> int | T:
    """Return the milliseconds in a field, or the default when it is not there."""
    return doc.integer(field, minimum=1, maximum=TIMEOUT_MS_MAX) if doc.has(field) else default


def encode_file(file: FileRecord) -> Json:
    """Return the JSON object of a segment file."""
    encoded = {
        "key": file.key,
        "size": file.size,
        "sha256": file.sha256,
        "footer_bytes": file.footer_bytes,
        "footer_sha256": file.footer_sha256,
        "rows": file.rows,
    }
    return {**encoded, "schema_id": file.schema_id} if file.schema_id else encoded


def decode_file(doc: Document) -> FileRecord:
    """Return the segment file that a JSON object names, checked."""
    size = doc.integer("size", minimum=1)
    return FileRecord(
        key_of(doc, keys.parse_data_key),
        size,
        doc.hexadecimal("sha256", 64),
        doc.integer("footer_bytes", minimum=8, maximum=size),
        doc.hexadecimal("footer_sha256", 64),
        doc.integer("rows"),
        doc.integer("schema_id", maximum=SCHEMAS_MAX - 1) if doc.has("schema_id") else 0,
    )


def encode_object(record: ObjectRecord | None) -> Json | None:
    """Return the JSON object of an object that an entry or a snapshot names."""
    return None if record is None else {"key": record.key, "size": record.size, "sha256": record.sha256}


def decode_object(
    doc: Document, field: str, parse: Callable[[str], keys.ObjectName | None]
) -> ObjectRecord | None:
    """Return the object that a field names, checked; None for null."""
    if not doc.has(field):
        return None
    named = doc.document(field)
    return ObjectRecord(
        key_of(named, parse), named.integer("size", minimum=1), named.hexadecimal("sha256", 64)
    )
