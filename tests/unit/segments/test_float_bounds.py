"""Files tell no smallest and largest value of floats that have NaN or -0.0: engines would pass over rows that
they look for."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txnformat.columns.file_columns import FileColumns
from txnformat.segments.column_values import columns_without_bounds
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import Indexing, SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord

KEY = "t-00000000/data/00000000000000000000-00000000-0000-4000-8000-000000000000.parquet"
NAN = math.nan
VALUES = st.sampled_from([None, NAN, -NAN, 0.0, -0.0, 1.0, -2.5, 1e300, math.inf, -math.inf])


def _file(batches: list[pa.Table], **options: Any) -> tuple[MemoryStore, FileRecord, pq.FileMetaData]:
    store = MemoryStore()
    writer = SegmentFileWriter(store.open_write(KEY), KEY, batches[0].schema, **options)
    for batch in batches:
        writer.write_batch(0, batch)
    record = writer.close()
    return store, record, pq.read_metadata(pa.BufferReader(store.get(KEY) or b""))


def _bounds(metadata: pq.FileMetaData, group: int, column: int) -> tuple[object, object] | None:
    statistics = metadata.row_group(group).column(column).statistics
    assert statistics is not None
    return (statistics.min, statistics.max) if statistics.has_min_max else None


def _read(store: MemoryStore, record: FileRecord, schema: pa.Schema, groups: int) -> pa.Table:
    reader = SegmentFileReader(store, record, FileColumns.own(schema))
    return pa.Table.from_batches(reader.read(range(groups), schema.names, 1000), schema)


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([1.0, 2.0, None], (1.0, 2.0)),
        ([0.0, 2.0], (-0.0, 2.0)),
        ([NAN, 1.0], None),
        ([1.0, -NAN], None),
        ([NAN], None),
        ([-0.0, 1.0], None),
        ([None, None], None),
    ],
    ids=str,
)
@pytest.mark.parametrize("indexing", [None, Indexing(("n",), 10)], ids=["plain", "indexed"])
def test_bounds_are_told_where_they_do_not_mislead(
    type_: pa.DataType, values: list[float | None], bounds: object, indexing: Indexing | None
) -> None:
    table = pa.table({"n": range(len(values)), "x": pa.array(values, type_), "last": ["é"] * len(values)})
    store, record, metadata = _file([table], indexing=indexing)
    assert _bounds(metadata, 0, 1) == bounds
    assert metadata.row_group(0).column(1).statistics.null_count == values.count(None)
    assert _bounds(metadata, 0, 0) == (0, len(values) - 1)
    assert _bounds(metadata, 0, 2) == ("é", "é")
    misled = bounds is None and any(value is not None for value in values)
    assert metadata.row_group(0).column(1).has_column_index is (indexing is not None and not misled)
    assert metadata.row_group(0).column(0).has_column_index is (indexing is not None)
    _same(_read(store, record, table.schema, 1), table)


def _same(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema.equals(wanted.schema)
    assert repr(found.to_pylist()) == repr(wanted.to_pylist())  # NaN and -0.0 show themselves there


def test_each_row_group_has_its_own() -> None:
    batches = [pa.table({"x": values}) for values in ([1.0, 2.0], [NAN, 5.0], [3.0, 4.0])]
    _, _, metadata = _file(batches)
    assert [_bounds(metadata, group, 0) for group in range(3)] == [(1.0, 2.0), None, (3.0, 4.0)]
    parts = [pa.table({"x": [1.0] * 10 + [NAN]})]
    _, _, metadata = _file(parts, row_group_bytes_max=40)
    assert metadata.num_row_groups > 1
    assert {_bounds(metadata, group, 0) for group in range(metadata.num_row_groups)} == {None}


def test_parts_of_nested_columns_have_their_own() -> None:
    table = pa.table(
        {
            "s": pa.array([{"a": 1.0, "b": NAN}, None]),
            "l": pa.array([[1.0, -0.0], []]),
            "m": pa.array([[("k", 1.0)], []], pa.map_(pa.string(), pa.float32())),
            "t": pa.array([[{"q": 2.5}], [{"q": NAN}]]),
        }
    )
    assert columns_without_bounds(table) == {1, 2, 5}
    store, record, metadata = _file([table])
    found = [_bounds(metadata, 0, column) is None for column in range(metadata.num_columns)]
    assert found == [False, True, True, False, False, True]
    _same(_read(store, record, table.schema, 1), table)


def test_what_lies_beneath_nulls_and_beside_a_slice_does_not_count() -> None:
    numbers = pa.array([NAN, 1.0, -0.0, 2.0, NAN, -0.0])
    masked = pa.array([NAN, 1.0, -0.0], mask=np.array([True, False, True]))
    columns = [
        *(pa.nulls(3, pa.float64()), masked, masked.slice(1), pa.nulls(0, pa.float32())),
        *(
            numbers.slice(1, 1),
            numbers.slice(3, 1),
            pa.chunked_array([numbers.slice(1, 1), numbers.slice(3, 1)]),
        ),
    ]
    assert [columns_without_bounds(pa.table({"x": column})) for column in columns] == [frozenset()] * 7
    for column in (
        numbers,
        numbers.slice(2, 1),
        numbers.slice(4),
        pa.array([None, NAN, -0.0]),
        pa.array([-0.0, None]),
    ):
        assert columns_without_bounds(pa.table({"x": column})) == {0}


@settings(max_examples=15)  # 50 queries each
@given(
    st.lists(
        st.lists(st.tuples(VALUES, st.lists(VALUES, max_size=3)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    )
)
def test_an_engine_finds_in_the_file_what_it_finds_in_memory(rows: list[list[Any]]) -> None:
    batches = [
        pa.table(
            {
                "x": pa.array([x for x, _ in batch], pa.float64()),
                "s": pa.array(
                    [{"y": x, "l": l} for x, l in batch],
                    pa.struct([("y", pa.float32()), ("l", pa.list_(pa.float64()))]),
                ),
            }
        )
        for batch in rows
    ]
    store, record, metadata = _file(batches, indexing=Indexing())
    whole = pa.concat_tables(batches)
    _same(_read(store, record, whole.schema, len(batches)), whole)
    assert metadata.num_rows == whole.num_rows
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as engine:
        path = Path(folder) / "file.parquet"
        path.write_bytes(store.get(KEY) or b"")
        engine.register("memory", whole)
        for column, value, operator in itertools.product(
            ("x", "s.y"), ("0.0", "-0.0", "5.0", "-3.0", "'NaN'::DOUBLE"), (">", ">=", "=", "<", "<>")
        ):
            query = f"SELECT count(*) FROM {{}} WHERE {column} {operator} {value}"
            found = engine.execute(query.format(f"read_parquet('{path}')")).fetchone()
            assert found == engine.execute(query.format("memory")).fetchone(), query
