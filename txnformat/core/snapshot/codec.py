"""Snapshots: a whole LogState as the bytes of one object, deterministic in both directions. Pure.

The specification, section "Snapshots", has the format. The *digest* of a state depends on nothing but the
state: not on compression, on a library's version, nor on how a state came about.

A decoder checks size and sha256 against the ``checkpoint`` operation before it parses anything, and log id,
entry and digest after. Any mismatch is a CorruptDataError with object, expected, got.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from txnformat import keys
from txnformat.columns.arrow_file import rows_of
from txnformat.columns.arrow_messages import ArrowFileError, check_stream, decoded_bytes_max
from txnformat.core.entry import sha256_hex
from txnformat.core.operations import Checkpoint
from txnformat.core.ownership import check_snapshot
from txnformat.core.records.state import ABORTED, EXTENT, MARKER, SEGMENT
from txnformat.core.snapshot.partitions import Tables
from txnformat.core.snapshot.rows import StateRow
from txnformat.core.snapshot.sections import (
    FILES,
    OUTER,
    TABLES,
    arrays_of,
    batch_of,
    read_stream,
    record_arrays,
    records_of,
    schema_of,
    schema_of_rows,
    stream_of,
)
from txnformat.core.snapshot.state import decode_state, encode_state, read_state
from txnformat.core.state import LogState
from txnformat.core.wire.document import (
    METADATA_BYTES_MAX,
    OBJECT_BYTES_MIN,
    PARSED_BYTES_PER_BYTE,
    check_cost,
    packed,
    parsed_bytes,
    plain_chunks,
    plain_json,
    plain_text,
)
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.persistent import Columns, Rows, Vector
from txnformat.types import FileRecord, ObjectRecord

__all__ = ["decode_snapshot", "encode_snapshot", "state_digest"]

_SECTIONS = ("state", "extents", "markers", "aborted", "segments", "files", "tables")
_ROWS = {"extents": EXTENT, "markers": MARKER, "aborted": ABORTED, "segments": SEGMENT}


class _Parts(NamedTuple):
    """A state cut into its sections, before they are encoded."""

    state: StateRow
    rows: tuple[Rows, Rows, Rows, Rows]
    """Extents, markers, aborted, segments: of all partitions, in the order of ``state["partitions"]``."""
    files: Vector[FileRecord]
    tables: Vector[ObjectRecord]


def _parts(state: LogState) -> _Parts:
    partitions = [state.partitions[key] for key in sorted(state.partitions)]
    rows = (
        _joined(EXTENT, (partition.extents for partition in partitions)),
        _joined(MARKER, (partition.markers for partition in partitions)),
        _joined(ABORTED, (partition.aborted for partition in partitions)),
        _joined(SEGMENT, (partition.segments for partition in partitions)),
    )
    return _Parts(encode_state(state), rows, state.files, state.tables)


def _joined(dtype: np.dtype[Any], columns: Iterable[Columns]) -> Rows:
    arrays = [one.array() for one in columns if len(one)]
    return np.ascontiguousarray(np.concatenate(arrays)) if arrays else np.empty(0, dtype)


def state_digest(state: LogState) -> str:
    """Return the digest of a state (lower-case hex): equal for equal states, however they came about."""
    return _digest(_parts(state))


def _digest(parts: _Parts) -> str:
    digest = hashlib.sha256()
    for text in plain_chunks(parts.state):
        digest.update(text)
    for rows in parts.rows:
        digest.update(rows.view(np.uint8).data if len(rows) else b"")
    for number, file in zip(parts.files.numbers(), parts.files, strict=True):
        version = f" {file.schema_id}" if file.schema_id else ""
        hashes = f"{file.sha256} {file.footer_bytes} {file.footer_sha256}"
        digest.update(f"{number} {file.key} {file.size} {hashes} {file.rows}{version}\n".encode())
    for number, table in zip(parts.tables.numbers(), parts.tables, strict=True):
        digest.update(f"{number} {table.key} {table.size} {table.sha256}\n".encode())
    return digest.hexdigest()


def encode_snapshot(state: LogState) -> bytes:
    """Return the bytes of a snapshot: the same for equal states and the same versions of the libraries.

    Readers bound what they build by the bytes as stored. A state that compresses better than that, such as
    thousands of topics with the same columns, is stored without compression.

    Raises InvalidInputError of kind ``metadata-too-large`` above 256 MiB of JSON, or of tables, which no
    reader would accept.
    """
    parts = _parts(state)
    columns = [
        *map(arrays_of, parts.rows),
        record_arrays(parts.files, FILES),
        record_arrays(parts.tables, TABLES),
    ]
    batches = [batch_of(arrays) for arrays in columns]
    plain = plain_json(parts.state)
    _check_size(len(plain), "JSON", "topics and their columns, partitions, producers and ids")
    _check_size(
        sum(batch.nbytes for batch in batches), "tables", "batches that are not sealed, and their files"
    )
    try:
        return _encoded(plain, batches, packed(plain), "zstd")
    except (CorruptDataError, ArrowFileError):
        return _encoded(plain, batches, plain, None)


def _check_size(size: int, what: str, many: str) -> None:
    if size > METADATA_BYTES_MAX:
        raise InvalidInputError(
            f"a snapshot would have {size} bytes of {what}, more than the cap of {METADATA_BYTES_MAX}: "
            "the log has too many "
            f"{many}",
            kind="metadata-too-large",
            hint="use several logs; this one is whole and takes commits, but opening it reads all entries "
            "since its last snapshot",
        )


def _encoded(plain: bytes, batches: Iterable[Any], document: bytes, compression: str | None) -> bytes:
    """Return the bytes of a snapshot; raise CorruptDataError or ArrowFileError if no reader takes them."""
    data = [document, *(stream_of(batch, compression) for batch in batches)]
    outer = pa.record_batch([pa.array(_SECTIONS), pa.array(data, pa.large_binary())], schema=OUTER)
    made = stream_of(outer, None)
    check_cost(plain, len(made), name="snapshot")
    _check_tables(dict(zip(_SECTIONS, data, strict=True)), len(made), _beside(plain, len(made)))
    return made


def decode_snapshot(data: bytes, checkpoint: Checkpoint, log_id: str) -> LogState:
    """Return the state that a snapshot holds, checked against the operation of a commit entry that names it,
    and the log's id.

    Raises CorruptDataError (the bytes are not those that were named, or do not hold such a state) and
    UnsupportedFeatureError (the log needs a reader feature that this version does not have).
    """
    name = checkpoint.key
    _expect(name, "size", checkpoint.size, len(data))
    _expect(name, "sha256", checkpoint.sha256, sha256_hex(data))
    try:
        state = _decode(data, name, log_id, checkpoint.entry)
    except (OSError, pa.ArrowException, ArrowFileError) as error:  # OSError: a stream that ends too early
        raise CorruptDataError(
            "a snapshot is not valid Arrow data", object=name, expected="Arrow IPC", got=str(error)
        ) from error
    _expect(name, "digest", checkpoint.digest, state_digest(state))
    return state


def _expect(name: str, field: str, expected: object, got: object) -> None:
    if expected != got:
        raise CorruptDataError(
            "a snapshot does not match its checkpoint", object=name, field=field, expected=expected, got=got
        )


def _decode(data: bytes, name: str, log_id: str, entry: int) -> LogState:
    start, _ = check_stream(memoryview(data), OUTER, len(data))
    expect = partial(_expect, name)
    outer = read_stream(data, start, OUTER, name, expect)
    _expect(name, "sections", list(_SECTIONS), outer.column("section").to_pylist())
    sections = dict(zip(_SECTIONS, (value.as_buffer() for value in outer.column("data")), strict=True))
    text = plain_text(sections["state"].to_pybytes(), name=name, stored=len(data))
    others = _beside(text, len(data))
    said = read_state(text, name)
    del text
    _expect(name, "log_id", log_id, said.log_id)
    _expect(name, "entry", entry, said.entry)
    starts = _check_tables(sections, len(data), others)

    def read(section: str) -> Any:
        return read_stream(sections[section], starts[section], _INNER[section], name, expect)

    tables = Tables(
        rows_of(read("extents"), EXTENT),
        rows_of(read("markers"), MARKER),
        rows_of(read("aborted"), ABORTED),
        rows_of(read("segments"), SEGMENT),
        [
            (row[0], FileRecord(*row[1:]))
            for row in records_of(read("files"), name, keys.parse_any_file_key, expect)
        ],
        [
            (row[0], ObjectRecord(*row[1:]))
            for row in records_of(read("tables"), name, keys.parse_table_key, expect)
        ],
    )
    state = decode_state(said, tables, name)
    check_snapshot(state, name)
    return state


def _beside(text: bytes, stored: int) -> int:
    """Return how much less the tables may declare because of what the JSON takes: they take twice that, as
    columns and as rows.
    """
    most = PARSED_BYTES_PER_BYTE * max(stored, OBJECT_BYTES_MIN)
    return max(0, decoded_bytes_max(stored) - max(0, most - parsed_bytes(text)) // 2)


def _check_tables(sections: Mapping[str, Any], stored: int, declared: int) -> dict[str, int]:
    """Return where the record batches of the tables begin in their streams.

    Raises ArrowFileError unless they declare no more together than a snapshot may hold, beside what is
    ``declared`` already.
    """
    starts = {}
    for section, schema in _INNER.items():
        starts[section], found = check_stream(
            memoryview(sections[section]).cast("B"), schema, stored, declared
        )
        declared += found
    return starts


_INNER = {
    **{section: schema_of_rows(dtype) for section, dtype in _ROWS.items()},
    "files": schema_of(FILES),
    "tables": schema_of(TABLES),
}
"""The schemas of the tables, in the order of their sections."""
