"""Bundles: entries in a row as one object. Pure.

*Bundles* have the heads of a hundred, for clients that are far behind, and for history. *Payload bundles*
have ten or a hundred entries with their payloads, for readers of rows, and for clients that are a little
behind; they go when nothing needs them any more.

Layout, integers big-endian::

    magic    8 bytes  "TXNLOGB1"; of a payload bundle "TXNLOGP1"
    entry    u32      bytes of the entry's head, or of the entry, then these bytes: of each entry

A bundle is only ever a hint. Nothing in it says that it is right: what is read from it counts once the chain
of hashes leads from it to an entry that was read from its own slot.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from txnformat.core.entry import ENTRY_BYTES_MAX
from txnformat.errors import CorruptDataError
from txnformat.segments.payload import head_of
from txnformat.store.object_sizes import BUNDLE_BYTES_MAX

__all__ = [
    "BUNDLE_BYTES_MAX",
    "BUNDLE_ENTRIES",
    "PAYLOAD_SIZES",
    "bundle_first",
    "bundles_in",
    "decode_bundle",
    "decode_payloads",
    "encode_bundle",
    "encode_payloads",
]

BUNDLE_ENTRIES = 100
"""Entries of a bundle; its first is a multiple of it."""

PAYLOAD_SIZES = (100, 10)
"""Entries of payload bundles, whose first entry is a multiple of their number: so a hundred of entries has a
hundred of them, and ten tens."""

_MAGIC = b"TXNLOGB1"
_PAYLOAD_MAGIC = b"TXNLOGP1"
_LENGTH = struct.Struct(">I")


def bundle_first(entry: int) -> int:
    """Return the first entry of the bundle that ``entry`` belongs to."""
    return entry - entry % BUNDLE_ENTRIES


def bundles_in(slots: range) -> list[int]:
    """Return the first entries of the bundles that lie wholly in ``slots`` (step 1)."""
    first = bundle_first(slots.start + BUNDLE_ENTRIES - 1)
    return list(range(first, slots.stop - BUNDLE_ENTRIES + 1, BUNDLE_ENTRIES))


def encode_bundle(entries: Sequence[bytes]) -> bytes | None:
    """Return the bundle of a hundred entries, of which it has the heads, or None when they are too large for
    one.
    """
    if len(entries) != BUNDLE_ENTRIES:
        raise ValueError(f"a bundle has {BUNDLE_ENTRIES} entries, not {len(entries)}")
    return _encode(_MAGIC, [head_of(data) for data in entries])


def decode_bundle(data: bytes, name: str) -> list[bytes]:
    """Return the bytes of the hundred entries.

    Raises CorruptDataError unless it is a bundle; what one holds is not checked: the chain does that.
    """
    return _decode(_MAGIC, data, name, BUNDLE_ENTRIES)


def encode_payloads(entries: Sequence[bytes]) -> bytes | None:
    """Return the payload bundle of entries, or None when they are too large for one."""
    if len(entries) not in PAYLOAD_SIZES:
        raise ValueError(f"a payload bundle has one of {PAYLOAD_SIZES} entries, not {len(entries)}")
    return _encode(_PAYLOAD_MAGIC, entries)


def decode_payloads(data: bytes, name: str, count: int) -> list[bytes]:
    """Return the entries of a payload bundle of ``count``.

    Raises CorruptDataError unless it is one; what the entries hold is not checked.
    """
    return _decode(_PAYLOAD_MAGIC, data, name, count)


def _encode(magic: bytes, entries: Sequence[bytes]) -> bytes | None:
    if len(magic) + sum(_LENGTH.size + len(data) for data in entries) > BUNDLE_BYTES_MAX:
        return None
    return magic + b"".join(part for data in entries for part in (_LENGTH.pack(len(data)), data))


def _decode(magic: bytes, data: bytes, name: str, count: int) -> list[bytes]:
    if len(data) > BUNDLE_BYTES_MAX or data[: len(magic)] != magic:
        raise _corrupt(name, "its magic, and at most 16 MiB", f"{data[: len(magic)]!r}, {len(data)} bytes")
    entries: list[bytes] = []
    position = len(magic)
    while position < len(data):
        if len(entries) == count or position + _LENGTH.size > len(data):
            raise _corrupt(name, f"{count} entries", f"more bytes after {len(entries)}")
        (length,) = _LENGTH.unpack_from(data, position)
        start = position + _LENGTH.size
        position = start + length
        if length > ENTRY_BYTES_MAX or position > len(data):
            raise _corrupt(name, f"entry {len(entries)} within the object", f"{length} bytes from {start}")
        entries.append(data[start:position])
    if len(entries) != count:
        raise _corrupt(name, f"{count} entries", len(entries))
    return entries


def _corrupt(name: str, expected: object, got: object) -> CorruptDataError:
    return CorruptDataError(
        "a bundle cannot be decoded",
        hint="delete it: the entries themselves are read instead",
        object=name,
        expected=expected,
        got=got,
    )
