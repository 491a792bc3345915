"""Snapshots: a whole LogState as the bytes of one object, deterministic in both directions. Pure.

The specification, section "Snapshots", has the format. The *digest* of a state depends on nothing but the state: not on compression, on a
library's version, nor on how a state came about.

A decoder checks size and sha256 against the ``checkpoint`` operation before it parses anything, and log id, entry and
digest after. Whatever does not fit is CorruptDataError with object, expected, got.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat import keys
from txnformat.columns.arrow_file import rows_of
from txnformat.columns.arrow_messages import ArrowFileError, check_stream, decoded_bytes_max
from txnformat.core.entry import sha256_hex
from txnformat.core.operations import Checkpoint
from txnformat.core.ownership import check_snapshot
from txnformat.core.records.state import ABORTED, EXTENT, MARKER, SEGMENT
from txnformat.core.snapshot.rows import StateRow
from txnformat.core.snapshot.state import Tables, decode_state, encode_state, read_state
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
_OUTER = pa.schema(
    [pa.field("section", pa.string(), nullable=False), pa.field("data", pa.large_binary(), nullable=False)]
)
_FILES = {
    "number": pa.int64(),
    "key": pa.string(),
    "size": pa.int64(),
    "sha256": pa.string(),
    "footer_bytes": pa.int64(),
    "footer_sha256": pa.string(),
    "rows": pa.int64(),
    "schema_id": pa.int32(),
}
_TABLES = {"number": pa.int64(), "key": pa.string(), "size": pa.int64(), "sha256": pa.string()}
_ROWS = {"extents": EXTENT, "markers": MARKER, "aborted": ABORTED, "segments": SEGMENT}
_HEX_64 = r"^[0-9a-f]{64}$"


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

    Readers bound what they build by the bytes as stored. A state that compresses better than that, such as thousands of
    topics with the same columns, is stored without compression.

    Raises InvalidInputError of kind ``metadata-too-large`` above 256 MiB of JSON, or of tables, which no reader would accept.
    """
    parts = _parts(state)
    columns = [
        *(
            {name: pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()}
            for rows in parts.rows
        ),
        _record_arrays(parts.files, _FILES),
        _record_arrays(parts.tables, _TABLES),
    ]
    batches = [_batch(arrays) for arrays in columns]
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
            f"a snapshot would have {size} bytes of {what}, more than the cap of {METADATA_BYTES_MAX}: the log has too many "
            f"{many}",
            kind="metadata-too-large",
            hint="use several logs; this one is whole and takes commits, but opening it reads all entries since its last snapshot",
        )


def _encoded(plain: bytes, batches: Iterable[Any], document: bytes, compression: str | None) -> bytes:
    """Return the bytes of a snapshot; raise CorruptDataError or ArrowFileError if no reader takes them."""
    data = [document, *(_stream(batch, compression) for batch in batches)]
    outer = pa.record_batch([pa.array(_SECTIONS), pa.array(data, pa.large_binary())], schema=_OUTER)
    made = _stream(outer, None)
    check_cost(plain, len(made), name="snapshot")
    _check_tables(dict(zip(_SECTIONS, data, strict=True)), len(made), _beside(plain, len(made)))
    return made


def _record_arrays(records: Vector[Any], types: dict[str, Any]) -> dict[str, Any]:
    arrays = {name: [getattr(one, name) for one in records] for name in types if name != "number"}
    return {name: pa.array(arrays.get(name, list(records.numbers())), kind) for name, kind in types.items()}


def _batch(arrays: dict[str, Any]) -> Any:
    return pa.record_batch(
        list(arrays.values()), schema=_schema({name: array.type for name, array in arrays.items()})
    )


def _stream(batch: Any, compression: str | None) -> bytes:
    sink = pa.BufferOutputStream()
    # One thread: the bytes must not depend on how many cores there are.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def decode_snapshot(data: bytes, checkpoint: Checkpoint, log_id: str) -> LogState:
    """Return the state that a snapshot holds, checked against the operation of a commit entry that names it, and the log's id.

    Raises CorruptDataError (the bytes are not those that were named, or do not hold such a state) and UnsupportedFeatureError (the log needs a
    reader feature that this version does not have).
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
    start, _ = check_stream(memoryview(data), _OUTER, len(data))
    outer = _read(data, start, _OUTER, name)
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
        return _read(sections[section], starts[section], _INNER[section], name)

    tables = Tables(
        rows_of(read("extents"), EXTENT),
        rows_of(read("markers"), MARKER),
        rows_of(read("aborted"), ABORTED),
        rows_of(read("segments"), SEGMENT),
        [(row[0], FileRecord(*row[1:])) for row in _records(read("files"), name, keys.parse_data_key)],
        [(row[0], ObjectRecord(*row[1:])) for row in _records(read("tables"), name, keys.parse_table_key)],
    )
    state = decode_state(said, tables, name)
    check_snapshot(state, name)
    return state


def _beside(text: bytes, stored: int) -> int:
    """Return how much less the tables may declare because of what the JSON takes: they take twice that, as columns and as rows."""
    most = PARSED_BYTES_PER_BYTE * max(stored, OBJECT_BYTES_MIN)
    return max(0, decoded_bytes_max(stored) - max(0, most - parsed_bytes(text)) // 2)


def _check_tables(sections: Mapping[str, Any], stored: int, declared: int) -> dict[str, int]:
    """Return where the record batches of the tables begin in their streams.

    Raises ArrowFileError unless they declare no more together than a snapshot may hold, beside what is ``declared`` already.
    """
    starts = {}
    for section, schema in _INNER.items():
        starts[section], found = check_stream(
            memoryview(sections[section]).cast("B"), schema, stored, declared
        )
        declared += found
    return starts


def _read(data: Any, start: int, schema: pa.Schema, name: str) -> Any:
    """Return the record batch at ``start`` of an untrusted Arrow stream whose schema was checked: every buffer checked."""
    message = pa.ipc.read_message(pa.BufferReader(pa.py_buffer(data).slice(start)))
    table = pa.ipc.read_record_batch(message, schema)
    table.validate(full=True)
    if table.nbytes > METADATA_BYTES_MAX:
        raise CorruptDataError(
            "a metadata object is too large when decompressed",
            kind="metadata-too-large",
            object=name,
            expected=f"at most {METADATA_BYTES_MAX} bytes",
            got=f"{table.nbytes} bytes",
        )
    nulls = sum(column.null_count for column in table.columns)
    _expect(name, "nulls", 0, nulls)
    return table


def _records(
    table: Any, name: str, parse: Callable[[str], keys.ObjectName | None]
) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of ``files`` or ``tables``; keys and hashes are checked as in an entry."""
    fields = table.schema.names
    for field in fields:
        if field.endswith("sha256"):
            valid = pc.all(pc.match_substring_regex(table.column(field), _HEX_64)).as_py()
            expected = "64 hex digits in each row"
            _expect(name, field, expected, "another text" if valid is False else expected)
    for key in table.column("key").to_pylist():
        keys.check_key(key, parse, where=name)
    return zip(*(table.column(field).to_pylist() for field in fields), strict=True)


def _schema(types: dict[str, Any]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


_INNER = {
    **{
        section: _schema({name: pa.from_numpy_dtype(dtype[name]) for name in dtype.names or ()})
        for section, dtype in _ROWS.items()
    },
    "files": _schema(_FILES),
    "tables": _schema(_TABLES),
}
"""The schemas of the tables, in the order of their sections."""
