"""Commit entries: the links of the chain, each one atomic step. Bytes to values and back; no IO.

See the specification, section "Commit entries".
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from txnformat import keys
from txnformat.document import UNCOUNTED_BYTES_MAX, check_cost, plain_json
from txnformat.entry_bytes import decode_stored, encode_stored
from txnformat.errors import CorruptDataError, InvalidInputError, UnsupportedFeatureError
from txnformat.object_sizes import ENTRY_BYTES_MAX
from txnformat.operation_codec import decode_operation, encode_operation
from txnformat.operations import Operation

__all__ = [
    "ENTRY_BYTES_MAX",
    "FORMAT_VERSION",
    "OPERATIONS_MAX",
    "CommitEntry",
    "decode_entry",
    "encode_entry",
    "sha256_hex",
]

FORMAT_VERSION = 1
OVERHEAD_BYTES = 128
"""At least the bytes of the checksum's field, and of its frame."""
OPERATIONS_MAX = 10_000
"""Most operations of one entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """One atomic step of a log."""

    entry: int
    """Number in the chain, from 0."""
    log_id: str
    write_id: str
    """Names this attempt: whoever reads the slot back learns whose bytes won."""
    previous: str
    """sha256 of the bytes of the entry before; of format.json for entry 0."""
    timestamp_ms: int
    """Milliseconds since the epoch, at least one above the entry before."""
    engine: str
    """Who wrote it, for people."""
    intents: tuple[str, ...]
    operations: tuple[Operation, ...]


def sha256_hex(data: bytes) -> str:
    """Return the lower-case hex sha256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def encode_entry(entry: CommitEntry) -> bytes:
    """Return the bytes of an entry, with its checksum.

    Raises
    ------
    InvalidInputError
        The entry is above a cap (size, number of operations).
    """
    if len(entry.operations) > OPERATIONS_MAX:
        raise InvalidInputError(
            f"one commit would need {len(entry.operations)} operations, more than the cap of {OPERATIONS_MAX}",
            kind="entry-too-large",
            hint="touch fewer topics in one transaction",
        )
    plain = plain_json(
        {
            "format": FORMAT_VERSION,
            "entry": entry.entry,
            "log_id": entry.log_id,
            "write_id": entry.write_id,
            "previous": entry.previous,
            "timestamp_ms": entry.timestamp_ms,
            "engine": entry.engine,
            "intents": list(entry.intents),
            "operations": [encode_operation(operation) for operation in entry.operations],
        }
    )
    data = encode_stored(plain)
    if len(plain) > UNCOUNTED_BYTES_MAX:
        _check_readable(plain, len(data))
    if len(data) > ENTRY_BYTES_MAX:
        raise InvalidInputError(
            f"one commit entry would have {len(data)} bytes, more than the cap of {ENTRY_BYTES_MAX}",
            kind="entry-too-large",
            hint="touch fewer topics and partitions in one transaction",
        )
    return data


def _check_readable(plain: bytes, stored: int) -> None:
    try:
        check_cost(plain + bytes(OVERHEAD_BYTES), stored - OVERHEAD_BYTES, name="entry")
    except CorruptDataError as error:
        raise InvalidInputError(
            f"one commit entry would have {len(plain)} bytes of JSON in {stored}, more than any reader takes",
            kind="entry-too-large",
            hint="touch fewer topics and partitions in one transaction",
        ) from error


def decode_entry(data: bytes, number: int) -> CommitEntry:
    """Return the entry that bytes say; everything in it is checked, its own checksum first.

    Parameters
    ----------
    data : bytes
        The whole object.
    number : int
        The slot that the bytes were read from.

    Raises
    ------
    CorruptDataError
        Not an entry, not of this slot, or (kind ``wrong-checksum``) not what was written.
    UnsupportedFeatureError
        A newer format version, or an operation that this version does not know.
    """
    name = keys.entry_key(number)
    if len(data) > ENTRY_BYTES_MAX:
        raise CorruptDataError(
            "a commit entry is above the cap",
            object=name,
            expected=f"at most {ENTRY_BYTES_MAX} bytes",
            got=f"{len(data)} bytes",
        )
    doc = decode_stored(data, name=name)
    version = doc.integer("format", minimum=1)
    if version > FORMAT_VERSION:
        raise UnsupportedFeatureError(
            "a commit entry has a newer format",
            kind="newer-format",
            hint="upgrade txnlog",
            object=name,
            expected=f"at most {FORMAT_VERSION}",
            got=version,
        )
    if doc.integer("entry") != number:
        doc.fail("entry", str(number))
    if len(doc.items("intents")) > OPERATIONS_MAX:
        doc.fail("intents", f"at most {OPERATIONS_MAX} intents")
    intents = doc.texts("intents")
    if len(doc.items("operations")) > OPERATIONS_MAX:
        doc.fail("operations", f"at most {OPERATIONS_MAX} operations")
    return CommitEntry(
        entry=number,
        log_id=doc.text("log_id"),
        write_id=doc.text("write_id"),
        previous=doc.hexadecimal("previous", 64),
        timestamp_ms=doc.integer("timestamp_ms"),
        engine=doc.text("engine"),
        intents=intents,
        operations=tuple(decode_operation(op, len(intents)) for op in doc.documents("operations")),
    )
