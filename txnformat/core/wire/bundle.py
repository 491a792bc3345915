"""Bundles: the heads of a hundred entries in a row as one object, for clients that are far behind, and for history. Pure.

Layout, integers big-endian::

    magic    8 bytes  "TXNLOGB1"
    entry    u32      bytes of the entry's head, then these bytes: a hundred times

A bundle is only ever a hint. Nothing in it says that it is right: what is read from it counts once the chain of hashes
leads from it to an entry that was read from its own slot.
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
    "bundle_first",
    "bundles_in",
    "decode_bundle",
    "encode_bundle",
]

BUNDLE_ENTRIES = 100
"""Entries of a bundle; its first is a multiple of it."""

_MAGIC = b"TXNLOGB1"
_LENGTH = struct.Struct(">I")


def bundle_first(entry: int) -> int:
    """Return the first entry of the bundle that ``entry`` belongs to."""
    return entry - entry % BUNDLE_ENTRIES


def bundles_in(slots: range) -> list[int]:
    """Return the first entries of the bundles that lie wholly in ``slots`` (step 1)."""
    first = bundle_first(slots.start + BUNDLE_ENTRIES - 1)
    return list(range(first, slots.stop - BUNDLE_ENTRIES + 1, BUNDLE_ENTRIES))


def encode_bundle(entries: Sequence[bytes]) -> bytes | None:
    """Return the bundle of a hundred entries, of which it has the heads, or None when they are too large for one."""
    entries = [head_of(data) for data in entries]
    if len(entries) != BUNDLE_ENTRIES:
        raise ValueError(f"a bundle has {BUNDLE_ENTRIES} entries, not {len(entries)}")
    if len(_MAGIC) + sum(_LENGTH.size + len(data) for data in entries) > BUNDLE_BYTES_MAX:
        return None
    return _MAGIC + b"".join(part for data in entries for part in (_LENGTH.pack(len(data)), data))


def decode_bundle(data: bytes, name: str) -> list[bytes]:
    """Return the bytes of the hundred entries. Raises CorruptDataError unless it is a bundle; what one holds is not checked: the chain does that."""
    if len(data) > BUNDLE_BYTES_MAX or data[: len(_MAGIC)] != _MAGIC:
        raise _corrupt(name, "its magic, and at most 16 MiB", f"{data[: len(_MAGIC)]!r}, {len(data)} bytes")
    entries: list[bytes] = []
    position = len(_MAGIC)
    while position < len(data):
        if len(entries) == BUNDLE_ENTRIES or position + _LENGTH.size > len(data):
            raise _corrupt(name, f"{BUNDLE_ENTRIES} entries", f"more bytes after {len(entries)}")
        (length,) = _LENGTH.unpack_from(data, position)
        start = position + _LENGTH.size
        position = start + length
        if length > ENTRY_BYTES_MAX or position > len(data):
            raise _corrupt(name, f"entry {len(entries)} within the object", f"{length} bytes from {start}")
        entries.append(data[start:position])
    if len(entries) != BUNDLE_ENTRIES:
        raise _corrupt(name, f"{BUNDLE_ENTRIES} entries", len(entries))
    return entries


def _corrupt(name: str, expected: object, got: object) -> CorruptDataError:
    return CorruptDataError(
        "a bundle cannot be decoded",
        hint="delete it: the entries themselves are read instead",
        object=name,
        expected=expected,
        got=got,
    )
