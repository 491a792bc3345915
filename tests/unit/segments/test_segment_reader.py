"""What a reader of segment files makes of what Arrow gives it."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.columns.variants import VARIANT, is_variant
from txnformat.errors import CorruptDataError
from txnformat.segments import merged as merged_module
from txnformat.segments.joint_reads import load_together
from txnformat.segments.reader import SegmentFileReader, SegmentRead, _Decoding
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord

KEY = "rows-00000000/data/00000000000000000002-00000000-0000-4000-8000-000000000000.parquet"


def write(store: MemoryStore, *tables: pa.Table, key: str = KEY) -> FileRecord:
    """Write a file of one batch for each table."""
    writer = SegmentFileWriter(store.open_write(key), key, tables[0].schema)
    for table in tables:
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


def mixed(first: int, rows: int) -> pa.Table:
    """Return rows with a column of each kind of encoding."""
    numbers = range(first, first + rows)
    return pa.table(
        {
            "n": pa.array([None if n % 7 == 3 else n % 1_000 for n in numbers], pa.int32()),
            "few": [f"few-{n % 3}" for n in numbers],
            "text": [f"{n:09}" for n in numbers],
            "list": [[n] * (n % 3) for n in numbers],
            "nested": [{"a": n, "b": None if n % 2 else "b"} for n in numbers],
            "x": [0.5 * n for n in numbers],
        }
    )


def reads_of(files: list[pa.Table], columns: list[str], groups: list[int]) -> list[SegmentRead]:
    """Write a file of two row groups for each table, and begin to read them."""
    store, found = MemoryStore(), []
    for number, table in enumerate(files):
        half = table.num_rows // 2
        file = write(
            store, table.slice(0, half), table.slice(half), key=KEY.replace("0000-4000", f"{number:04}-4000")
        )
        found.append(SegmentFileReader(store, file, table.schema).start(groups, columns, 1_000))
    return found


@pytest.mark.parametrize(
    "columns", [["n", "few", "text", "list", "nested", "x"], ["x", "n"], ["few"], ["list", "few"], []]
)
@pytest.mark.parametrize("groups", [[0, 1], [1]])
def test_small_reads_of_several_files_are_decoded_together_and_give_each_its_rows(
    columns: list[str], groups: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    open_file = merged_module.parquet_file

    def counted(*given: Any, **options: Any) -> Any:
        opened.append(given)
        return open_file(*given, **options)

    for place in ("reader", "joint_reads"):
        monkeypatch.setattr(f"txnformat.segments.{place}.parquet_file", counted)
    files = [mixed(first, rows) for first, rows in ((0, 9_000), (10_000, 8_500), (20_000, 9_000))]
    reads = reads_of(files, columns, groups)
    chunks = [chunk for read in reads if read._window is not None for chunk in read._window.chunks]
    assert any(chunk.has_dictionary for chunk in chunks) or not columns
    load_together(reads, 2**30)
    assert len(opened) == bool(columns), "one call of the decoder for all of them"
    for read, table in zip(reads, files, strict=True):
        begin = table.num_rows // 2 if groups == [1] else 0
        batches = list(read.batches())
        assert all(batch.num_rows <= 1_000 for batch in batches)
        if columns:
            assert pa.Table.from_batches(batches).equals(table.slice(begin).select(columns))
        else:
            assert sum(batch.num_rows for batch in batches) == table.num_rows - begin


def test_reads_that_take_more_memory_than_may_be_are_decoded_when_they_are_asked_for() -> None:
    """However small a file claims to be, its pages say what it takes."""
    files = [mixed(first, 100) for first in (0, 100, 200)]
    reads = reads_of(files, ["n", "text"], [0, 1])
    load_together(reads, 1)
    assert [isinstance(read.first, pa.Table) for read in reads] == [True, False, False]
    for read, table in zip(reads, files, strict=True):
        assert pa.Table.from_batches(read.batches()).equals(table.select(["n", "text"]))


def test_the_file_that_cannot_be_decoded_is_named_though_it_was_decoded_with_others() -> None:
    """Its bytes are as its writer left them: only a decoder sees that they are no data."""
    table, sink = pa.table({"n": pa.array(range(1_000))}), pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    whole = sink.getvalue().to_pybytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    chunk = pq.read_metadata(pa.BufferReader(whole)).row_group(0).column(0)
    broken = bytearray(whole)
    end = chunk.data_page_offset + chunk.total_compressed_size
    broken[end - 200 : end] = bytes(200)
    store, reads = MemoryStore(), []
    for number, data in enumerate((whole, bytes(broken), whole)):
        key = KEY.replace("0000-4000", f"{number:04}-4000")
        store.create(key, data)
        whole_hash, footer_hash = (hashlib.sha256(part).hexdigest() for part in (data, data[-footer:]))
        file = FileRecord(key, len(data), whole_hash, footer, footer_hash, 1_000)
        reads.append(SegmentFileReader(store, file, table.schema).start([0], ["n"], 1_000))
    with pytest.raises(CorruptDataError, match="cannot be decoded") as caught:
        load_together(reads, 2**30)
    assert "0001-4000" in str(caught.value)
    assert pa.Table.from_batches(reads[0].batches()).equals(table)
