"""Commit entries: the links of the chain, each one atomic step. Bytes to values and back; no IO.

See the specification, section "Commit entries".
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from msgspec import Meta, Struct, defstruct, structs

from txnformat import keys
from txnformat.columns.arrow_types import json_field_count
from txnformat.core.lifecycle.operations import Replace
from txnformat.core.operation_codec import (
    OPERATIONS,
    OperationHead,
    check_operation,
    content_hook,
    stored_operation,
    unknown_operation,
)
from txnformat.core.operations import AlterTopic, Append, CreateTopic, Operation, Seal
from txnformat.core.wire.document import UNCOUNTED_BYTES_MAX, check_cost, plain_json
from txnformat.core.wire.entry_bytes import RESTORE, decode_stored, encode_stored
from txnformat.core.wire.typed import Typed, check_version, fail
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.field_types import LOG_PARTITIONS_MAX, Count, Item, LogTime, Positive, Sha256, Text
from txnformat.segments.payload import PayloadRecord, entry_bytes, head_of
from txnformat.store.object_sizes import ENTRY_BYTES_MAX
from txnformat.types import ObjectRecord

__all__ = [
    "ENTRY_BYTES_MAX",
    "FORMAT_VERSION",
    "ITEMS_MAX",
    "OPERATIONS_MAX",
    "CommitEntry",
    "decode_entry",
    "difference",
    "encode_entry",
    "listed",
    "missing_entry",
    "sha256_hex",
]

FORMAT_VERSION = 1
OVERHEAD_BYTES = 128
"""At least the bytes of the checksum's field, and of its frame."""
OPERATIONS_MAX = 10_000
"""Most operations of one entry."""
ITEMS_MAX = LOG_PARTITIONS_MAX
"""Most items that the operations of one entry list together, each counted by its longest list
(:func:`listed`)."""


class CommitEntry(Struct, frozen=True, kw_only=True):
    """One atomic step of a log."""

    entry: Count
    """Number in the chain, from 0."""
    log_id: Text
    write_id: Text
    """Names this attempt: a reader of the slot learns whose bytes won."""
    previous: Sha256
    """sha256 of the bytes of the entry before; of format.json for entry 0."""
    timestamp_ms: LogTime
    """Milliseconds since the epoch, at least one above the entry before."""
    engine: Text
    """The program that wrote the entry, for people."""
    intents: Annotated[
        tuple[Item, ...], Meta(max_length=OPERATIONS_MAX, description=f"at most {OPERATIONS_MAX} intents")
    ]
    operations: Annotated[
        tuple[Operation, ...],
        Meta(max_length=OPERATIONS_MAX, description=f"at most {OPERATIONS_MAX} operations"),
    ]
    payload: PayloadRecord | None = None
    """The payload behind the head. If None, it is left out: the entry has none."""


_ENTRY: Typed[CommitEntry] = Typed(CommitEntry, content_hook)
# First the fields that tell whether this version knows the rest.
_HEAD: Typed[Any] = Typed(
    defstruct("Head", [("format", Positive), ("operations", tuple[OperationHead, ...])])
)


def sha256_hex(data: bytes) -> str:
    """Return the lower-case hex sha256 of ``data``."""
    return hashlib.sha256(data).hexdigest()


def difference(data: bytes | None, named: ObjectRecord) -> str | None:
    """Return what the store has in place of an object that the log names, for an error; None: it is that
    object.
    """
    if data is None:
        return "nothing"
    sha256 = sha256_hex(data)
    return (
        None if (len(data), sha256) == (named.size, named.sha256) else f"{len(data)} bytes, sha256 {sha256}"
    )


def missing_entry(number: int, hint: str = RESTORE, **values: object) -> CorruptDataError:
    """Return the error about a slot below the tip that is empty although its entry cannot have been
    deleted.
    """
    return CorruptDataError(
        "a commit entry is missing, but later entries exist",
        kind="missing-entry",
        hint=hint,
        object=keys.entry_key(number),
        **values,
    )


def listed(operation: Operation) -> int:
    """Return the length of the longest list of an operation: of its partitions, markers, positions, columns
    or names.

    Columns are counted with the fields of structs, and a seal by the partitions of all its segments.
    """
    if isinstance(operation, Seal):
        partitions = sum(len(one.partitions) for one in operation.segments)
        return max(partitions, len(operation.segments), len(operation.replaced_lists))
    if isinstance(operation, Replace):
        return max(sum(len(one.partitions) for one in operation.segments), len(operation.lists))
    longest = max([len(value) for value in structs.astuple(operation) if type(value) is tuple], default=0)
    if isinstance(operation, CreateTopic | AlterTopic):
        return max(longest, json_field_count(operation.fields))
    return longest


def encode_entry(entry: CommitEntry) -> bytes:
    """Return the head of an entry, with its checksum.

    Raises InvalidInputError above a cap (size, number of operations).
    """
    if len(entry.operations) > OPERATIONS_MAX:
        raise _too_large(
            f"one commit would need {len(entry.operations)} operations, more than the cap of "
            f"{OPERATIONS_MAX}",
            "topics",
        )
    items = sum(map(listed, entry.operations))
    if items > ITEMS_MAX:
        raise _too_large(
            f"one commit would list {items} partitions or names, more than the cap of {ITEMS_MAX}",
            "partitions",
        )
    operations = [stored_operation(operation) for operation in entry.operations]
    fields = {**structs.asdict(entry), "format": FORMAT_VERSION, "operations": operations}
    if entry.payload is None:
        del fields["payload"]
    plain = plain_json(fields)
    data = encode_stored(plain)
    if len(plain) > UNCOUNTED_BYTES_MAX:
        _check_readable(plain, len(data))
    size = entry_bytes(data, entry.payload)
    if size > ENTRY_BYTES_MAX:
        raise _too_large(f"one commit entry would have {size} bytes, more than the cap of {ENTRY_BYTES_MAX}")
    return data


def _too_large(what: str, touched: str = "topics and partitions") -> InvalidInputError:
    return InvalidInputError(what, kind="entry-too-large", hint=f"touch fewer {touched} in one transaction")


def _check_readable(plain: bytes, stored: int) -> None:
    try:
        check_cost(plain + bytes(OVERHEAD_BYTES), stored - OVERHEAD_BYTES, name="entry")
    except CorruptDataError as error:
        raise _too_large(
            f"one commit entry would have {len(plain)} bytes of JSON in {stored}, more than any reader takes"
        ) from error


def decode_entry(data: bytes, number: int) -> CommitEntry:
    """Return the entry that the head of slot ``number`` says; everything in it is checked, its own checksum
    first.

    Raises CorruptDataError (not an entry, not of this slot; kind ``wrong-checksum``: not what was written)
    and UnsupportedFeatureError (a newer format version, an unknown operation).
    """
    name = keys.entry_key(number)
    data = head_of(data)
    if len(data) > ENTRY_BYTES_MAX:
        raise CorruptDataError(
            "a commit entry is above the cap",
            object=name,
            expected=f"at most {ENTRY_BYTES_MAX} bytes",
            got=f"{len(data)} bytes",
        )
    text = decode_stored(data, name=name)
    head = _HEAD.decode(text, name=name)
    check_version("a commit entry", FORMAT_VERSION, head.format, name=name)
    for index, there in enumerate(head.operations):
        if there.operation not in OPERATIONS:
            raise unknown_operation(there.operation, f"{name}.operations[{index}]")
    entry = _ENTRY.decode(text, name=name)
    if entry.entry != number:
        fail(name, "entry", str(number), entry.entry)
    items = sum(map(listed, entry.operations))
    if items > ITEMS_MAX:
        fail(name, "operations", f"lists of at most {ITEMS_MAX} items together", f"{items} items")
    operations = tuple(
        check_operation(op, there, len(entry.intents), path=f"{name}.operations[{index}]")
        for index, (op, there) in enumerate(zip(entry.operations, head.operations, strict=True))
    )
    entry = structs.replace(entry, operations=operations)
    _check_places(entry, name)
    return entry


def _check_places(entry: CommitEntry, name: str) -> None:
    """Raise CorruptDataError unless the embedded files of an entry are its payload, one after the other."""
    end = 0
    for op in entry.operations:
        if not isinstance(op, Append):
            continue
        for file in op.files:
            place = file.place
            if place is None:
                continue
            if place != (entry.entry, end):
                fail(
                    name, "files", f"embedded files of entry {entry.entry}, the next from {end} on", file.key
                )
            end += file.size
    size = 0 if entry.payload is None else entry.payload.size
    if end != size:
        fail(name, "payload", f"as many bytes as its files have, {end}", size)
