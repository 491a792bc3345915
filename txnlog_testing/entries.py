"""Entries that say something else than was written, and whose checksum fits: what no accident makes, but a
defect may.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from txnformat.core.wire.document import ZSTD_MAGIC, decompressed, packed, plain_json
from txnformat.core.wire.entry_bytes import encode_stored
from txnformat.segments.payload import head_of, payload_of, with_payload

__all__ = ["changed_entry", "replaced_in_entry", "without_checksum"]


def changed_entry(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the bytes of an entry after ``change`` was made to its document."""
    document = _document(data)
    change(document)
    return with_payload(encode_stored(plain_json(document)), payload_of(data))


def replaced_in_entry(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return the bytes of an entry with ``old`` replaced in its JSON, everywhere."""
    return with_payload(encode_stored(plain_json(_document(data)).replace(old, new)), payload_of(data))


def without_checksum(data: bytes) -> bytes:
    """Return the bytes of an entry as a version writes them that knows no checksum."""
    plain = plain_json(_document(data))
    return packed(plain) if data.startswith(ZSTD_MAGIC) else plain


def _document(data: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(decompressed(head_of(data), name="entry"))
    document.pop("x_sha256", None)
    return document
