"""Arrow files that claim or hold far more than they have bytes: sidecars, segment lists, batch tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.limits.case import Case
from txnformat.batch_table import TABLE_ROW, decode_batch_table
from txnformat.entry import sha256_hex
from txnformat.sidecar import INDEX_ROW, MARKER_ROW, decode_index, decode_markers
from txnformat.types import ObjectRecord

__all__ = ["CASES"]

NAME = "t-00000000/index/x"
ROWS = 8_000_000
BATCHES = 400


def _file(schema: pa.Schema, batches: int, rows: int) -> bytes:
    """Return a file of equal record batches that are all zeros."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    arrays = [pa.array(np.zeros(rows, field.type.to_pandas_dtype())) for field in schema]
    batch = pa.record_batch(arrays, schema=schema)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _schema(dtype: np.dtype[np.void]) -> pa.Schema:
    names = dtype.names or ()
    return pa.schema([pa.field(name, pa.from_numpy_dtype(dtype[name]), nullable=False) for name in names])


def _make(dtype: np.dtype[np.void], batches: int, rows: int, folder: Path) -> int:
    data = _file(_schema(dtype), batches, rows)
    (folder / "object").write_bytes(data)
    return len(data)


def _use(decode: Callable[[bytes, ObjectRecord], object], folder: Path) -> object:
    data = (folder / "object").read_bytes()
    return decode(data, ObjectRecord(NAME, len(data), sha256_hex(data)))


def _cases() -> list[Case]:
    found = []
    for name, dtype, decode in (
        (".markers", MARKER_ROW, decode_markers),
        (".index", INDEX_ROW, decode_index),
        ("batch table", TABLE_ROW, decode_batch_table),
    ):
        key = name.strip(".").replace(" ", "-")
        what = f"`{name}`" if name.startswith(".") else name
        found += [
            Case(
                f"{key}-rows",
                f"{what}: one batch of {ROWS:,} rows of zeros",
                partial(_make, dtype, 1, ROWS),
                partial(_use, decode),
            ),
            Case(
                f"{key}-batches",
                f"{what}: {BATCHES} batches of 100,000 rows",
                partial(_make, dtype, BATCHES, 100_000),
                partial(_use, decode),
            ),
        ]
    return found


CASES = tuple(_cases())
