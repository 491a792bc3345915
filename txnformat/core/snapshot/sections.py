"""Parts of metadata objects that are Arrow streams in columns of a stream: written the same way, and checked
when read.

Pure.

Snapshots (:mod:`txnformat.core.snapshot.codec`) and spills (:mod:`txnformat.core.snapshot.spilled`) are made
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat import keys
from txnformat.core.wire.document import METADATA_BYTES_MAX
from txnformat.errors import CorruptDataError
from txnformat.persistent import Rows, Vector

__all__ = [
    "FILES",
    "OUTER",
    "TABLES",
    "arrays_of",
    "batch_of",
    "read_stream",
    "record_arrays",
    "records_of",
    "schema_of",
    "schema_of_rows",
    "stream_of",
]

Expect = Callable[[str, object, object], None]
"""Raises CorruptDataError about a field unless what is expected is what was got."""

FILES = {
    "number": pa.int64(),
    "key": pa.string(),
    "size": pa.int64(),
    "sha256": pa.string(),
    "footer_bytes": pa.int64(),
    "footer_sha256": pa.string(),
    "rows": pa.int64(),
    "schema_id": pa.int32(),
}
TABLES = {"number": pa.int64(), "key": pa.string(), "size": pa.int64(), "sha256": pa.string()}
_HEX_64 = r"^[0-9a-f]{64}$"
OUTER = pa.schema(
    [pa.field("section", pa.string(), nullable=False), pa.field("data", pa.large_binary(), nullable=False)]
)
"""An object: its sections by name."""


def schema_of_rows(dtype: np.dtype[Any]) -> pa.Schema:
    """Return the schema of structured rows."""
    return schema_of({name: pa.from_numpy_dtype(dtype[name]) for name in dtype.names or ()})


def arrays_of(rows: Rows) -> dict[str, Any]:
    """Return the columns of structured rows."""
    return {name: pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()}


def record_arrays(records: Vector[Any], types: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of numbered records, as in FILES or TABLES."""
    arrays = {name: [getattr(one, name) for one in records] for name in types if name != "number"}
    return {name: pa.array(arrays.get(name, list(records.numbers())), kind) for name, kind in types.items()}


def batch_of(arrays: dict[str, Any]) -> Any:
    """Return columns as one record batch."""
    return pa.record_batch(
        list(arrays.values()), schema=schema_of({name: array.type for name, array in arrays.items()})
    )


def stream_of(batch: Any, compression: str | None) -> bytes:
    """Return a record batch as an Arrow stream; ``compression``: of its buffers."""
    sink = pa.BufferOutputStream()
    # One thread: the bytes must not depend on how many cores there are.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    result: bytes = sink.getvalue().to_pybytes()
    return result


def schema_of(types: dict[str, Any]) -> pa.Schema:
    """Return a schema without nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def read_stream(data: Any, start: int, schema: pa.Schema, name: str, expect: Expect) -> Any:
    """Return the record batch at ``start`` of an untrusted Arrow stream whose schema was checked: every
    buffer checked.
    """
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
    expect("nulls", 0, nulls)
    return table


def records_of(
    table: Any, name: str, parse: Callable[[str], keys.ObjectName | None], expect: Expect
) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of ``files`` or ``tables``; keys and hashes are checked as in an entry."""
    fields = table.schema.names
    for field in fields:
        if field.endswith("sha256"):
            valid = pc.all(pc.match_substring_regex(table.column(field), _HEX_64)).as_py()
            expected = "64 hex digits in each row"
            expect(field, expected, "another text" if valid is False else expected)
    for key in table.column("key").to_pylist():
        keys.check_key(key, parse, where=name)
    return zip(*(table.column(field).to_pylist() for field in fields), strict=True)
