"""The abort index of a partition: which transactions were aborted, in Kafka's ``.txnindex`` format.

One entry per aborted transaction with data in the partition, in the order of the ABORT markers. Committed
transactions have no entry, and neither has an abort that touched no data. An entry is 34 bytes, big-endian::

    version i16 (0) | producer_id i64 | first_offset i64 | last_offset i64 | last_stable_offset i64

Source: Kafka's ``AbortedTxn`` and ``TransactionIndex``. Everything here is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from txnformat.errors import CorruptDataError, InternalError, UnsupportedFeatureError

__all__ = ["ENTRY_BYTES", "VERSION", "AbortedTransaction", "Collected", "collect", "decode", "encode"]

VERSION = 0
"""The only version of an entry that exists."""

_VERSION = struct.Struct(">h")
_ENTRY = struct.Struct(">hqqqq")

ENTRY_BYTES = _ENTRY.size
"""Bytes of one entry: 34."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One aborted transaction in one partition. All fields are signed 64-bit."""

    producer_id: int
    """Producer id of the transaction."""
    first_offset: int
    """Offset of its first record in this partition (inclusive). May precede the log start after retention."""
    last_offset: int
    """Offset of its ABORT marker (inclusive): above all of its records, below the producer's next
    transaction."""
    last_stable_offset: int
    """The partition's last stable offset (exclusive) once the marker was written: the first offset of the
    oldest transaction still open, else ``last_offset + 1``. No later entry begins below it."""


class Collected(NamedTuple):
    """The result of :func:`collect`."""

    entries: tuple[AbortedTransaction, ...]
    """The aborted transactions that can touch the range, in the order of their markers."""
    is_complete: bool
    """True when no later entry can touch the range; False when the entries ran out first."""


def encode(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the bytes of a ``.txnindex``; entries in the order of their markers.

    Raises InternalError when ``last_offset`` does not strictly increase, or a value does not fit 64 bits: the
    caller's state is broken.
    """
    parts: list[bytes] = []
    previous: int | None = None
    for entry in entries:
        if previous is not None and entry.last_offset <= previous:
            raise InternalError(
                "aborted transactions are not in the order of their markers",
                expected=f"last_offset > {previous}",
                got=entry.last_offset,
            )
        previous = entry.last_offset
        try:
            parts.append(
                _ENTRY.pack(
                    VERSION,
                    entry.producer_id,
                    entry.first_offset,
                    entry.last_offset,
                    entry.last_stable_offset,
                )
            )
        except struct.error as exc:
            raise InternalError("an aborted transaction does not fit 64-bit fields", entry=entry) from exc
    return b"".join(parts)


def decode(data: bytes, *, name: str = ".txnindex") -> list[AbortedTransaction]:
    """Return the entries of a whole ``.txnindex`` (``name``: its key), in the order of their markers; none
    for no bytes.

    Raises UnsupportedFeatureError about a version above 0, CorruptDataError about a negative version, a
    partial entry, or a ``last_offset`` that does not increase; values name the object, the entry's position
    in bytes, what was expected and what was there.
    """
    entries: list[AbortedTransaction] = []
    previous: int | None = None
    for position in range(0, len(data), ENTRY_BYTES):
        _check_entry_head(data, position, name)
        _, producer_id, first_offset, last_offset, last_stable_offset = _ENTRY.unpack_from(data, position)
        if previous is not None and last_offset <= previous:
            raise _corrupt("last offset does not increase", name, position, f"> {previous}", last_offset)
        previous = last_offset
        entries.append(AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset))
    return entries


def _check_entry_head(data: bytes, position: int, name: str) -> None:
    """Refuse an entry of another version or cut short.

    The version comes first: entries of a later version may have another size, which would look like a cut.
    """
    available = len(data) - position
    if available >= _VERSION.size:
        (version,) = _VERSION.unpack_from(data, position)
        if version > VERSION:
            raise UnsupportedFeatureError(
                "abort index entry of a later version",
                object=name,
                position=position,
                expected=VERSION,
                got=version,
                hint="read it with a newer txnlog",
            )
        if version < 0:
            raise _corrupt("negative version", name, position, VERSION, version)
    if available < ENTRY_BYTES:
        raise _corrupt("partial entry", name, position, f"{ENTRY_BYTES} bytes", f"{available} bytes")


def _corrupt(what: str, name: str, position: int, expected: object, got: object) -> CorruptDataError:
    return CorruptDataError(
        f"abort index is damaged: {what}",
        object=name,
        position=position,
        expected=expected,
        got=got,
        hint="the index can be derived again from the commit entries: run verify",
    )


def collect(entries: Iterable[AbortedTransaction], fetch_offset: int, upper_bound: int) -> Collected:
    """Return the aborted transactions that can touch ``[fetch_offset, upper_bound)``.

    The rule is Kafka's ``TransactionIndex.collectAbortedTxns``: take every entry that overlaps the range, and
    stop at the first whose last stable offset has reached the upper bound, because each later abort began at
    or above that offset. A caller with several segments goes on with the next one's entries until the answer
    is complete or the log ends; ``upper_bound`` may lie above what is read (more entries, the same rows).
    ``entries`` are in the order of their markers, from the segment that holds ``fetch_offset`` on, or from
    earlier.
    """
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
            found.append(entry)
        if entry.last_stable_offset >= upper_bound:
            return Collected(tuple(found), is_complete=True)
    return Collected(tuple(found), is_complete=False)
