"""Segment files that decode to far more than they have bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.limits.case import Case
from txnformat.segments.reader import SegmentFileReader
from txnformat.store.local import LocalStore
from txnformat.types import FileRecord

__all__ = ["CASES"]

LIST = pa.list_(pa.field("element", pa.int64()))
LISTS = 30
NESTED = pa.int32()
for _ in range(LISTS):
    NESTED = pa.list_(pa.field("element", NESTED))
STRUCTS = pa.list_(pa.field("element", pa.struct([(f"f{number}", pa.int32()) for number in range(40)])))
BATCHES = 100
"""As many are read: what can be decoded in pieces is no error."""
KEY = "t-00000000/data/00000000000000000000-00000000-0000-4000-8000-000000000000.parquet"


def _repeated() -> Iterator[pa.Table]:
    """Yield row groups of one text of 64 KiB, 7,000 times: a dictionary of one value."""
    for _ in range(16):
        yield pa.table(
            {"c": pa.DictionaryArray.from_arrays(pa.array([0] * 7_000, pa.int32()), ["x" * 65_536])}
        )


def _same_number() -> Iterator[pa.Table]:
    yield pa.table({"c": pa.repeat(pa.scalar(7, pa.int64()), 100_000_000)})


def _nulls() -> Iterator[pa.Table]:
    yield pa.table({"c": pa.nulls(100_000_000, pa.int64())})


def _large_page() -> Iterator[pa.Table]:
    yield pa.table({"c": pa.array(["x" * 1_000_000_000])})


def _one_list() -> Iterator[pa.Table]:
    values = pa.nulls(50_000_000, pa.int64())
    yield pa.table({"c": pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=LIST)})


def _nested_lists() -> Iterator[pa.Table]:
    values = pa.nulls(4_000_000, pa.int32())
    each = pa.array(range(len(values) + 1), pa.int32())
    for _ in range(LISTS - 1):
        values = pa.ListArray.from_arrays(each, values)
    yield pa.table(
        {"c": pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values).cast(NESTED)}
    )


def _structs() -> Iterator[pa.Table]:
    values = pa.nulls(8_000_000, STRUCTS.value_type)
    yield pa.table(
        {"c": pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=STRUCTS)}
    )


def _row_groups() -> Iterator[pa.Table]:
    for _ in range(4_000):
        yield pa.table({"c": pa.array([1])})


STRUCTS_DEEP = pa.bool_()
for _ in range(60):
    STRUCTS_DEEP = pa.struct([("f", STRUCTS_DEEP)])


def _deep_structs() -> Iterator[pa.Table]:
    yield pa.table({"c": pa.nulls(30_000_000, STRUCTS_DEEP)})


def _decimals() -> Iterator[pa.Table]:
    yield pa.table({"c": pa.nulls(80_000_000, pa.decimal128(2, 0))})


def _texts_side_by_side() -> Iterator[pa.Table]:
    text = pa.array(["x" * (70 << 20)])
    yield pa.table({"c": pa.StructArray.from_arrays([text] * 20, [f"f{number}" for number in range(20)])})


TEXTS = pa.struct([(f"f{number}", pa.string()) for number in range(20)])


def _large_windows() -> Iterator[pa.Table]:
    """Yield row groups whose footers say less than they are: of a dictionary's value, once."""
    for _ in range(12):
        yield pa.table({"c": pa.array(["x" * (70 << 20)])})


def _make(tables: Callable[[], Iterator[pa.Table]], folder: Path) -> int:
    path = folder / KEY
    path.parent.mkdir(parents=True)
    writer = None
    for table in tables():
        if writer is None:
            writer = pq.ParquetWriter(
                path, table.schema, compression="zstd", store_schema=False, write_page_checksum=True
            )
        writer.write_table(table, row_group_size=table.num_rows)
    if writer is not None:
        writer.close()
    return path.stat().st_size


def _use(type_: pa.DataType, folder: Path) -> object:
    data = (folder / KEY).read_bytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    footer = pq.read_metadata(folder / KEY)
    file = FileRecord(
        KEY, len(data), hashlib.sha256(data).hexdigest(), length,
        hashlib.sha256(data[-length:]).hexdigest(), footer.num_rows,
    )  # fmt: skip
    reader = SegmentFileReader(LocalStore(folder), file, pa.schema([("c", type_)]))
    batches = islice(reader.read(range(footer.num_row_groups), ["c"], 65_536), BATCHES)
    # The lambda lets go of each batch before it asks for the next one: what a caller keeps is the caller's.
    rows = sum(map(lambda batch: batch.num_rows, batches))  # noqa: C417
    return f"read in batches, {rows:,} rows of {BATCHES} batches"


CASES = tuple(
    Case(f"parquet-{key}", f"data file: {what}", partial(_make, tables), partial(_use, type_))
    for key, what, tables, type_ in (
        ("repeated", "16 row groups, each a text of 64 KiB 7,000 times", _repeated, pa.string()),
        ("same-number", "100,000,000 times the same number in one row group", _same_number, pa.int64()),
        ("nulls", "100,000,000 nulls in one row group", _nulls, pa.int64()),
        ("large-page", "a text of 1 GB", _large_page, pa.string()),
        ("one-list", "one list of 50,000,000 nulls", _one_list, LIST),
        ("nested-lists", "30 lists in each other, of 4,000,000 nulls in one row", _nested_lists, NESTED),
        ("structs", "one list of 8,000,000 nulls of structs of 40 numbers", _structs, STRUCTS),
        ("row-groups", "4,000 row groups of one row", _row_groups, pa.int64()),
        ("decimals", "80,000,000 nulls of decimals of two digits", _decimals, pa.decimal128(2, 0)),
        ("deep-structs", "30,000,000 nulls under 60 structs", _deep_structs, STRUCTS_DEEP),
        ("side-by-side", "20 columns of a text of 70 MiB each", _texts_side_by_side, TEXTS),
        ("windows", "12 row groups of a text of 70 MiB each", _large_windows, pa.string()),
    )
)
