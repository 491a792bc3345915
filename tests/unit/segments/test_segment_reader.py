"""What a reader of segment files makes of what Arrow gives it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from txnformat.columns.variants import VARIANT, is_variant
from txnformat.errors import CorruptDataError
from txnformat.segments.reader import SegmentFileReader, _Decoding
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord

KEY = "rows-00000000/data/00000000000000000002-00000000-0000-4000-8000-000000000000.parquet"


def write(store: MemoryStore, table: pa.Table) -> FileRecord:
    """Write a file of one batch."""
    writer = SegmentFileWriter(store.open_write(KEY), KEY, table.schema)
    writer.write_batch(0, table)
    return writer.close()


def test_a_lack_of_memory_is_no_damage_of_the_file() -> None:
    store, table = MemoryStore(), pa.table({"n": [1, 2]})
    reader = SegmentFileReader(store, write(store, table), table.schema)
    with pytest.raises(MemoryError), _Decoding(reader):
        raise pa.ArrowMemoryError("malloc of 1 byte failed")
    with pytest.raises(CorruptDataError, match="cannot be decoded"), _Decoding(reader):
        raise pa.ArrowInvalid("of the bytes")


def test_batches_have_the_marks_of_the_readers_schema_whatever_was_read_before() -> None:
    """Schemas that differ in marks alone are equal to Arrow, and the shape of their files is kept once."""
    marked = pa.schema([pa.field("c", VARIANT), pa.field("n", pa.int64())])
    plain = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())])
    unmarked = pa.schema([pa.field("c", plain), pa.field("n", pa.int64())])
    rows = {"c": [{"value": b"v", "metadata": b"m"}], "n": [1]}
    store = MemoryStore()
    file = write(store, pa.table(rows, schema=unmarked))
    for schema in (unmarked, marked, unmarked):
        for columns in (["c", "n"], ["c"]):
            (batch,) = SegmentFileReader(store, file, schema).read([0], columns, 10)
            assert batch.schema.equals(pa.schema([schema.field(name) for name in columns]))
            assert is_variant(batch.schema.field("c").type) == (schema is marked)


@pytest.mark.parametrize("joined_max", [0, 2**20])
@pytest.mark.parametrize("columns", [["a", "b", "c"], ["a", "c"], ["b"]])
def test_a_small_file_reads_the_same_out_of_one_piece_of_memory(
    joined_max: int, columns: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txnformat.segments.reader.JOINED_BYTES_MAX", joined_max)
    groups = [
        pa.table(
            {"a": range(first, first + 500), "b": [f"{first}-{n}" for n in range(500)], "c": [0.5] * 500}
        )
        for first in (0, 500, 1_000)
    ]
    store = MemoryStore()
    writer = SegmentFileWriter(store.open_write(KEY), KEY, groups[0].schema)
    for group in groups:
        writer.write_batch(0, group)
    reader = SegmentFileReader(store, writer.close(), groups[0].schema)
    found = pa.Table.from_batches(reader.read([0, 2], columns, 100))
    assert found.equals(pa.concat_tables([groups[0], groups[2]]).select(columns))


def test_a_small_file_is_read_without_a_thread_or_a_file_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both take longer than decoding it."""
    table = pa.table({"a": range(2_000), "b": [0.5] * 2_000})
    store = MemoryStore()
    file = write(store, table)

    def unexpected(*_: object, **__: object) -> None:
        raise AssertionError("a small file was read as a large one")

    monkeypatch.setattr("txnformat.segments.reader.RangedFile", unexpected)
    monkeypatch.setattr("txnformat.segments.reader.together", unexpected)
    found = pa.Table.from_batches(SegmentFileReader(store, file, table.schema).read([0], ["a", "b"], 10_000))
    assert found.equals(table)


def test_columns_of_a_large_window_are_decoded_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def together(function: Any, items: Any, *, threads: int) -> list[Any]:
        asked.append(threads)
        return [function(item) for item in items]

    monkeypatch.setattr("txnformat.segments.reader.together", together)
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)
    table = pa.table({"a": range(200_000), "b": [0.5] * 200_000})
    store = MemoryStore()
    file = write(store, table)
    assert (
        sum(
            batch.num_rows
            for batch in SegmentFileReader(store, file, table.schema).read([0], ["a", "b"], 10_000)
        )
        == 200_000
    )
    assert asked == [2]
