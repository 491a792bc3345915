"""Batch tables: the batches of an append that has too many of them for its entry, as one Arrow object.

Offsets are not in it: the entry assigns one base per partition, and the batches follow in order, so a lost
race never rewrites a table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import structs

from txnformat.columns.arrow_file import decode_arrow_file, encode_arrow_file, rows_of
from txnformat.core.entry import difference
from txnformat.errors import CorruptDataError
from txnformat.field_types import SIZE_MAX
from txnformat.persistent import Rows
from txnformat.types import BatchRecord, ObjectRecord

__all__ = [
    "BATCHES_IN_ENTRY_MAX",
    "BATCH_TABLE_SCHEMA",
    "TABLE_ROW",
    "decode_batch_table",
    "encode_batch_table",
]

BATCHES_IN_ENTRY_MAX = 1_000
"""Batches that an entry names itself; with more it refers to a batch table."""

TABLE_ROW: np.dtype[Any] = np.dtype(
    [
        ("section", "<i4"),  # which append of the object's entry
        ("partition", "<i4"),
        ("file", "<i4"),  # index into the append's files
        ("row_group", "<i4"),
        ("row_group_count", "<i4"),
        ("records", "<i8"),
        ("size", "<i8"),
        ("min_timestamp_ms", "<i8"),
        ("max_timestamp_ms", "<i8"),
    ]
)
BATCH_TABLE_SCHEMA = pa.schema(
    [pa.field(name, pa.from_numpy_dtype(TABLE_ROW[name]), nullable=False) for name in TABLE_ROW.names or ()]
)
_MINIMA = {
    "section": 0,
    "partition": 0,
    "file": 0,
    "row_group": 0,
    "row_group_count": 1,
    "records": 1,
    "size": 0,
}


def encode_batch_table(sections: Iterable[tuple[int, Iterable[BatchRecord]]]) -> bytes:
    """Return the Arrow IPC file (zstd) of the batches of several appends, in log order."""
    rows = [(section, *structs.astuple(batch)) for section, batches in sections for batch in batches]
    table = np.array(rows, TABLE_ROW)
    batch = pa.record_batch(
        [pa.array(np.ascontiguousarray(table[name])) for name in TABLE_ROW.names or ()], BATCH_TABLE_SCHEMA
    )
    return encode_arrow_file(batch)


def decode_batch_table(data: bytes | None, named: ObjectRecord) -> Rows:
    """Return the rows (dtype TABLE_ROW) of a batch table, verified against what its entry says first."""
    got = difference(data, named)
    if data is None or got is not None:
        raise CorruptDataError(
            "a batch table differs from the one that the log names",
            hint="restore the object; the data that it describes cannot be read without it",
            object=named.key,
            expected=f"{named.size} bytes, sha256 {named.sha256}",
            got=got,
        )
    rows = rows_of(decode_arrow_file(data, BATCH_TABLE_SCHEMA, partial(_corrupt, named)), TABLE_ROW)
    for name, least in _MINIMA.items() if len(rows) else ():
        if rows[name].min() < least:
            raise _beyond(named, name, f"at least {least}", rows[name].min())
    if len(rows) and rows["size"].max() > SIZE_MAX:
        raise _beyond(named, "size", f"at most {SIZE_MAX}", rows["size"].max())
    return rows


def _beyond(named: ObjectRecord, name: str, expected: str, got: Any) -> CorruptDataError:
    what = "a batch table holds a number that cannot be"
    return CorruptDataError(what, object=named.key, field=name, expected=expected, got=int(got))


def _corrupt(named: ObjectRecord, got: str) -> CorruptDataError:
    return CorruptDataError("a batch table cannot be decoded", object=named.key, got=got)
