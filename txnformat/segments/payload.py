"""The payload of a commit entry: segment files that are too small for objects of their own, behind the
entry's document.

Pure.

Layout of such an entry, integers big-endian::

    head      the document, as that of any other entry; it has the size and the sha256 of the payload
    payload   the embedded files, one after the other
    size      u32     bytes of the payload
    magic     8 bytes "TXNLROWS"

The chain binds heads: an entry's ``previous`` is the hash of a head, and bundles hold heads. So history can
be read, and folded, without any row.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Annotated

import msgspec

from txnformat.field_types import Sha256

__all__ = [
    "END_BYTES",
    "PAYLOAD_BYTES_MAX",
    "PayloadRecord",
    "entry_bytes",
    "head_of",
    "payload_of",
    "payload_problem",
    "payload_record",
    "with_payload",
]

PAYLOAD_BYTES_MAX = 4 * 1024 * 1024
"""Largest payload of an entry."""

_MAGIC = b"TXNLROWS"
_SIZE = struct.Struct(">I")
END_BYTES = _SIZE.size + len(_MAGIC)
"""Bytes of an entry behind its payload."""


class PayloadRecord(msgspec.Struct, frozen=True):
    """A payload as the head of its entry names it."""

    size: Annotated[int, msgspec.Meta(ge=1, le=PAYLOAD_BYTES_MAX)]
    """Bytes."""
    sha256: Sha256
    """SHA-256 of the payload, lower-case hex."""


def payload_record(payload: bytes) -> PayloadRecord | None:
    """Return what a head says about a payload; None of an empty one."""
    return PayloadRecord(len(payload), hashlib.sha256(payload).hexdigest()) if payload else None


def payload_problem(named: PayloadRecord | None, data: bytes) -> str | None:
    """Return what an entry's bytes have in place of the payload that their head names, for an error; None: it
    is that payload.
    """
    payload = payload_of(data)
    found = payload_record(payload)
    if found == named:
        return None
    return f"{found.size} bytes, sha256 {found.sha256}" if found else "nothing"


def entry_bytes(head: bytes, named: PayloadRecord | None) -> int:
    """Return the size of the entry with this head, which names this payload."""
    return len(head) + (0 if named is None else named.size + END_BYTES)


def with_payload(head: bytes, payload: bytes) -> bytes:
    """Return the bytes of an entry; those of one without a payload are its head."""
    return b"".join((head, payload, _SIZE.pack(len(payload)), _MAGIC)) if payload else head


def head_of(data: bytes) -> bytes:
    """Return the head of the entry that ``data`` holds.

    Of bytes that are no entry it returns some: decoding them tells.
    """
    return data[: _head_bytes(data)]


def payload_of(data: bytes) -> bytes:
    """Return the payload of the entry that ``data`` holds, unchecked; empty: it has none."""
    return data[_head_bytes(data) : -END_BYTES] if data.endswith(_MAGIC) else b""


def _head_bytes(data: bytes) -> int:
    if not data.endswith(_MAGIC) or len(data) < END_BYTES:
        return len(data)
    (size,) = _SIZE.unpack_from(data, len(data) - END_BYTES)
    return max(0, len(data) - END_BYTES - int(size))
