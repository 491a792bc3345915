"""Arrow files that claim or hold far more than they have bytes: sidecars, segment lists, batch tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.limits.case import Case
from tests.limits.flatbuffers import names_file
from txnformat.columns.arrow_file import encode_arrow_file
from txnformat.columns.arrow_messages import WHOLE_BYTES_MAX
from txnformat.core.entry import sha256_hex
from txnformat.core.records.batch_table import decode_batch_table, encode_batch_table
from txnformat.core.sealing.segment_list import ROOT_SCHEMA, decode_root, decode_segment_list
from txnformat.core.sealing.segment_list import SCHEMA as LIST_SCHEMA
from txnformat.core.sealing.sidecar import (
    INDEX_SCHEMA,
    MARKERS_SCHEMA,
    RUNS_SCHEMA,
    decode_index,
    decode_markers,
)
from txnformat.keys import sidecar_key
from txnformat.types import LEAVES_MAX, BatchRecord, ObjectRecord, SegmentListRecord

__all__ = ["CASES"]

NAME = "t-00000000/index/x"
ROWS = 8_000_000
BATCHES = 300
BATCH_ROWS = 100_000
TEXT = 50_000_000
TEXTS = {
    **{
        f"{kind}_key": sidecar_key("t-00000000", 1, "00000000-0000-4000-8000-000000000000", kind)
        for kind in ("index", "markers", "txnindex")
    },
    **{f"{kind}_sha256": "0" * 64 for kind in ("index", "markers", "txnindex")},
}
TABLE_SCHEMA = pa.ipc.open_file(
    pa.BufferReader(encode_batch_table([(0, [BatchRecord(0, 0, 0, 1, 1, 1, 0, 0)])]))
).schema


def _file(schema: pa.Schema, batches: int, rows: int, text: int) -> bytes:
    """Return a file of equal record batches: zeros, and one text in each dictionary."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    arrays = []
    for field in schema:
        if pa.types.is_dictionary(field.type):
            numbers = pa.array(np.zeros(rows, np.int32))
            arrays.append(
                pa.DictionaryArray.from_arrays(numbers, pa.array([TEXTS.get(field.name, "x") * text]))
            )
        else:
            arrays.append(pa.array(np.zeros(rows, field.type.to_pandas_dtype())))
    batch = pa.record_batch(arrays, schema=schema)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


APART: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "partition": lambda rows: rows % 10_000,
    "index_size": lambda rows: rows,
    "base_offset": lambda rows: rows,
    "file": lambda rows: rows,
    "records": np.ones_like,
    "row_group_count": np.ones_like,
}
"""Columns of rows that have little in common, by the rows' numbers."""


def _make_apart(schema: pa.Schema, rows: int, folder: Path) -> int:
    """Write a file of one batch whose rows name as many things as they can, with one text in each
    dictionary.
    """
    numbers = np.arange(rows)
    arrays = []
    for field in schema:
        if pa.types.is_dictionary(field.type):
            places = pa.array(np.zeros(rows, np.int32))
            arrays.append(pa.DictionaryArray.from_arrays(places, pa.array([TEXTS.get(field.name, "x")])))
        elif schema is RUNS_SCHEMA and field.name.endswith("_offset"):
            arrays.append(pa.array(numbers + (field.name == "end_offset")))
        elif schema in (INDEX_SCHEMA, RUNS_SCHEMA) and field.name == "partition":
            arrays.append(pa.array(np.zeros(rows, np.int32)))
        else:
            values = APART.get(field.name, np.zeros_like)(numbers)
            arrays.append(pa.array(values.astype(field.type.to_pandas_dtype())))
    data = encode_arrow_file(pa.record_batch(arrays, schema=schema))
    (folder / "object").write_bytes(data)
    return len(data)


def _make(schema: pa.Schema, batches: int, rows: int, text: int, folder: Path) -> int:
    data = _file(schema, batches, rows, text)
    (folder / "object").write_bytes(data)
    return len(data)


def _make_names(folder: Path) -> int:
    data = names_file(1_000, b"x" * 900_000)
    (folder / "object").write_bytes(data)
    return len(data)


def _use(decode: Callable[[bytes, ObjectRecord], object], folder: Path) -> object:
    data = (folder / "object").read_bytes()
    decode(data, ObjectRecord(NAME, len(data), sha256_hex(data)))
    return "read"


def _decode_root(data: bytes, named: ObjectRecord) -> object:
    return decode_root(data, SegmentListRecord(named.key, named.size, named.sha256, leaves=LEAVES_MAX))


def _decode_runs(data: bytes, named: ObjectRecord) -> object:
    key = sidecar_key("t-00000000", 1, "00000000-0000-4000-8000-000000000000", "runs")
    return decode_index(data, ObjectRecord(key, named.size, named.sha256))


def _row_bytes(schema: pa.Schema) -> int:
    return sum(4 if pa.types.is_dictionary(field.type) else field.type.bit_width // 8 for field in schema)


def _cases() -> list[Case]:
    found = []
    for name, schema, decode in (
        (".markers", MARKERS_SCHEMA, decode_markers),
        (".index", INDEX_SCHEMA, decode_index),
        (".runs", RUNS_SCHEMA, _decode_runs),
        ("segment list", LIST_SCHEMA, partial(decode_segment_list, directories={})),
        ("root of a segment list", ROOT_SCHEMA, _decode_root),
        ("batch table", TABLE_SCHEMA, decode_batch_table),
    ):
        most = (WHOLE_BYTES_MAX - 4096) // _row_bytes(schema)
        if schema is ROOT_SCHEMA:
            most = LEAVES_MAX
        shapes = [
            ("rows", f"one batch of {ROWS:,} rows of zeros", 1, ROWS, 1),
            ("most", f"{most:,} rows of zeros, the most that are decoded", 1, most, 1),
            ("batches", f"{BATCHES} batches of {BATCH_ROWS:,} rows", BATCHES, BATCH_ROWS, 1),
        ]
        if schema in (INDEX_SCHEMA, RUNS_SCHEMA, LIST_SCHEMA):
            found.append(
                Case(
                    f"{name.strip('.').replace(' ', '-')}-apart",
                    f"`{name}`: a file for each row"
                    if schema is not LIST_SCHEMA
                    else f"{name}: a row for each partition, sizes that differ",
                    partial(_make_apart, schema, most * 2 // 3 if schema is RUNS_SCHEMA else most),
                    partial(_use, decode),
                )
            )
        if any(pa.types.is_dictionary(field.type) for field in schema):
            text = TEXT // 50 if "list" in name else TEXT  # keys are that long already
            shapes.append(("text", "dictionaries of one text of 50 MB and more", 1, 1_000, text))
        for key, what, batches, rows, text in shapes:
            found.append(
                Case(
                    f"{name.strip('.').replace(' ', '-')}-{key}",
                    f"`{name}`: {what}" if name.startswith(".") else f"{name}: {what}",
                    partial(_make, schema, batches, rows, text),
                    partial(_use, decode),
                )
            )
    found.append(
        Case(
            "markers-names",
            "`.markers`: 1,000 columns with one name of 900 kB",
            _make_names,
            partial(_use, decode_markers),
        )
    )
    return found


CASES = tuple(_cases())
