"""Segment files: what is written comes back, only asked bytes are fetched, damage is found before it is
decoded."""

from __future__ import annotations

import datetime
import hashlib
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.errors import (
    CorruptDataError,
    InternalError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from txnformat.persistent import replace
from txnformat.segments.footer import FooterError
from txnformat.segments.footer_schema import decode_schema
from txnformat.segments.ranged_file import RangedFile
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.running_digest import crc32_of_part
from txnformat.segments.sinks import PIECE_BYTES
from txnformat.segments.writer import CHUNK_CRC32_KEY, SegmentFileWriter
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnformat.store.uploads import Writer
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

KEY = "t-00000000/data/00000000000000000000-00000000-0000-4000-8000-000000000000.parquet"
UTC = pa.timestamp("us", tz="UTC")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def write(
    store: ObjectStore, batches: Sequence[pa.Table], **options: Any
) -> tuple[FileRecord, list[BatchRecord]]:
    writer = SegmentFileWriter(store.open_write(KEY), KEY, batches[0].schema, **options)
    records = [writer.write_batch(partition, batch) for partition, batch in enumerate(batches)]
    return writer.close(), records


def read(
    store: ObjectStore,
    file: FileRecord,
    schema: pa.Schema,
    groups: Sequence[int],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    names = schema.names if columns is None else columns
    batches = SegmentFileReader(store, file, schema).read(groups, names, 65_536)
    return pa.Table.from_batches(batches, schema=pa.schema([schema.field(name) for name in names]))


def numbers(rows: int, start: int = 0, columns: int = 10) -> pa.Table:
    """Return columns c0 to c9 of numbers that do not compress well."""
    values = np.random.default_rng(start).integers(0, 2**62, (columns, rows))
    return pa.table({f"c{index}": values[index] for index in range(columns)})


def every_type() -> pa.Table:
    """Return a table with all supported types: nulls at every level, empty lists, extreme values."""
    far = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
    old = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
    item = pa.struct([("k", pa.string()), ("v", pa.binary())])
    big = Decimal(10**38 - 1)  # unary minus would round it to the context
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "bool": (pa.bool_(), [True, False, None]),
        "int8": (pa.int8(), [-128, 127, None]),
        "int16": (pa.int16(), [-(2**15), 2**15 - 1, None]),
        "int32": (pa.int32(), [-(2**31), 2**31 - 1, None]),
        "int64": (pa.int64(), [-(2**63), 2**63 - 1, None]),
        "float32": (pa.float32(), [float("inf"), -0.0, None]),
        "float64": (pa.float64(), [float("-inf"), 5e-324, None]),
        "decimal": (pa.decimal128(38, 0), [big, big.copy_negate(), None]),
        "fraction": (pa.decimal128(38, 38), [Decimal("0." + "9" * 38), None, Decimal("-0." + "9" * 38)]),
        "small": (pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.01"), None]),
        "string": (pa.string(), ["", "žluťoučký\0🐎", None]),
        "binary": (pa.binary(), [b"", b"\0\xff", None]),
        "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
        "time": (UTC, [old, far, None]),
        "local": (pa.timestamp("us"), [old.replace(tzinfo=None), far.replace(tzinfo=None), None]),
        "list": (pa.list_(pa.field("element", pa.int64())), [[], [None, 1], None]),
        "lists": (
            pa.list_(pa.field("element", pa.list_(pa.field("element", item)))),
            [[[], None], [[None]], None],
        ),
        "map": (
            pa.map_(pa.string(), pa.list_(pa.field("element", UTC))),
            [[], [("a", None), ("b", [EPOCH])], None],
        ),
        "struct": (
            pa.struct([("a.b", item), ("c", pa.int8())]),
            [{"a.b": None, "c": 1}, {"a.b": None, "c": None}, None],
        ),
        "a": (pa.int64(), [1, 2, 3]),
        "a.b": (pa.int64(), [4, 5, 6]),
    }
    fields = [pa.field(name, type_) for name, (type_, _) in columns.items()]
    return pa.table([pa.array(values, type_) for type_, values in columns.values()], schema=pa.schema(fields))


@pytest.mark.parametrize("copies", [1, 2000])
def test_every_type_comes_back_exactly(copies: int) -> None:
    table = pa.concat_tables([every_type()] * copies).combine_chunks()
    store = MemoryStore()
    file, _ = write(store, [table, table.slice(1, 1)])
    found = read(store, file, table.schema, [0, 1])
    assert found.equals(pa.concat_tables([table, table.slice(1, 1)]))
    assert found.schema.equals(table.schema, check_metadata=True)
    assert str(found.schema) == str(table.schema)
    for name in table.schema.names:  # one at a time: a name with a dot is one column, not a path
        assert read(store, file, table.schema, [0], [name]).column(name).equals(table.column(name))


def test_the_deepest_nesting_can_be_written_and_read() -> None:
    type_, value = pa.int8(), 1
    for level in range(63):
        nested: Any = [value] if level % 2 else {"s": value}
        type_, value = (
            (pa.list_(pa.field("element", type_)) if level % 2 else pa.struct([("s", type_)])),
            nested,
        )
    table = pa.table({"c": pa.array([value, None], type_)})
    store = MemoryStore()
    file, _ = write(store, [table])
    assert read(store, file, table.schema, [0]).equals(table)


def test_the_records_say_what_was_written() -> None:
    store = MemoryStore()
    small, large = numbers(100), numbers(50_000, 1)
    file, batches = write(store, [small, large, small], file=7, row_group_bytes_max=1024 * 1024)
    data = store.get(KEY)
    assert data is not None
    assert (file.key, file.size, file.rows) == (KEY, len(data), 50_200)
    assert file.sha256 == hashlib.sha256(data).hexdigest()
    assert file.footer_bytes == int.from_bytes(data[-8:-4], "little") + 8
    assert file.footer_sha256 == hashlib.sha256(data[-file.footer_bytes :]).hexdigest()
    assert [(b.partition, b.file, b.row_group, b.row_group_count, b.records) for b in batches] == [
        (0, 7, 0, 1, 100),
        (1, 7, 1, 4, 50_000),
        (2, 7, 5, 1, 100),
    ]
    footer = pq.read_metadata(pa.BufferReader(data))
    for batch in batches:
        groups = range(batch.row_group, batch.row_group + batch.row_group_count)
        chunks = [footer.row_group(group).column(column) for group in groups for column in range(10)]
        assert batch.size == sum(chunk.total_compressed_size for chunk in chunks)
        assert batch.records == sum(footer.row_group(group).num_rows for group in groups)
    assert read(store, file, large.schema, range(1, 5)).equals(large)


def test_any_parquet_reader_reads_the_file_and_the_checksums_are_those_of_the_chunks() -> None:
    store = MemoryStore()
    table = pa.concat_tables([every_type()] * 2000)
    file, _ = write(store, [table, table])
    data = store.get(KEY) or b""
    parquet = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    assert parquet.read().equals(pa.concat_tables([table, table]))
    footer = parquet.metadata
    text = footer.metadata[CHUNK_CRC32_KEY].decode()
    assert len(text) == 8 * footer.num_row_groups * footer.num_columns
    for index in range(footer.num_row_groups * footer.num_columns):
        chunk = footer.row_group(index // footer.num_columns).column(index % footer.num_columns)
        start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        assert int(text[8 * index : 8 * index + 8], 16) == zlib.crc32(
            data[start : start + chunk.total_compressed_size]
        )
    assert file.rows == 12_000


def test_values_that_look_like_the_place_of_the_checksums_stay_as_they_are() -> None:
    store = MemoryStore()
    table = pa.table({"c": ["????????"]})
    file, _ = write(store, [table])
    footer = pq.read_metadata(pa.BufferReader(store.get(KEY)))
    assert footer.row_group(0).column(0).statistics.min == "????????"
    assert read(store, file, table.schema, [0]).equals(table)


@pytest.mark.parametrize(
    ("micros", "expected"),
    [
        ([1_999, None, 5_000], (1, 5)),
        ([-1, -1_001], (-2, -1)),
        ([None, None], (NO_TIMESTAMP_MS, NO_TIMESTAMP_MS)),
    ],
)
@pytest.mark.parametrize("type_", [UTC, pa.timestamp("us")])
def test_timestamps_are_rounded_down_to_milliseconds(
    micros: list[int | None], expected: tuple[int, int], type_: pa.DataType
) -> None:
    table = pa.table({"t": pa.array(micros, type_)})
    _, (batch,) = write(MemoryStore(), [table], timestamp_column="t")
    assert (batch.min_timestamp_ms, batch.max_timestamp_ms) == expected
    _, (batch,) = write(MemoryStore(), [table])
    assert batch.min_timestamp_ms == batch.max_timestamp_ms == NO_TIMESTAMP_MS


def test_only_asked_row_groups_and_columns_are_fetched() -> None:
    """The byte budget: 30 % of the row groups skipped, 1 of 10 columns."""
    store = CountingStore(MemoryStore())
    file, _ = write(store, [numbers(20_000, start) for start in range(20)])
    footer = pq.read_metadata(pa.BufferReader(store.get(KEY)))
    wanted = [group for group in range(20) if group % 10 >= 3]
    asked = sum(footer.row_group(group).column(4).total_compressed_size for group in wanted)
    with store.measure() as measured:
        found = read(store, file, numbers(1).schema, wanted, ["c4"])
    assert found.num_rows == 14 * 20_000
    fetched = measured.counts.bytes_read()
    assert asked + file.footer_bytes <= fetched <= 1.02 * (asked + file.footer_bytes)
    assert measured.counts.count() == measured.counts.count(RequestKind.GET_RANGE) == 15


def test_adjacent_chunks_are_one_request() -> None:
    store = CountingStore(MemoryStore())
    file, _ = write(store, [numbers(1_000, start) for start in range(5)])
    with store.measure() as measured:
        read(store, file, numbers(1).schema, range(5))
    assert measured.counts.count() == 2  # the footer, and everything else
    with store.measure() as measured:
        assert read(store, file, numbers(1).schema, [1, 1]).num_rows == 2_000
    assert measured.counts.count() == 2
    with store.measure() as measured:
        read(store, file, numbers(1).schema, [0, 2], ["c1", "c2", "c8"])
    assert measured.counts.count() == 5


def test_without_columns_rows_are_counted_and_no_data_is_read() -> None:
    store = CountingStore(MemoryStore())
    file, _ = write(store, [numbers(250), numbers(30)])
    with store.measure() as measured:
        reader = SegmentFileReader(store, file, numbers(1).schema, has_data=False)
        batches = list(reader.read([1, 0], [], 100))
    assert [batch.num_rows for batch in batches] == [30, 100, 100, 50]
    assert measured.counts.bytes_read() == file.footer_bytes


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_order_and_batch_size_are_the_callers(threads: int) -> None:
    store = MemoryStore()
    tables = [numbers(120_000, start) for start in range(3)]
    file, _ = write(store, tables)
    reader = SegmentFileReader(store, file, tables[0].schema, threads=threads)
    batches = list(reader.read([2, 0, 0, 1], ["c3", "c0"], 50_000))
    assert max(batch.num_rows for batch in batches) <= 50_000
    expected = pa.concat_tables([tables[index] for index in (2, 0, 0, 1)]).select(["c3", "c0"])
    assert pa.Table.from_batches(batches).equals(expected)
    stopped = reader.read([0, 1, 2], tables[0].schema.names, 50_000)
    next(stopped)
    stopped.close()  # type: ignore[attr-defined]  # a generator


def test_a_batch_never_shares_a_row_group_and_a_crash_leaves_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writer = SegmentFileWriter(store.open_write(KEY), KEY, numbers(1).schema)
    writer.write_batch(0, numbers(10))
    assert writer.rows == 10
    assert writer.size > 0
    assert list(store.list("")) == []
    writer.abort()
    writer.abort()
    assert store.head(KEY) is None
    file, _ = write(store, [numbers(10), numbers(20)])
    assert [group.num_rows for group in _groups(store, file)] == [10, 20]
    assert read(store, file, numbers(1).schema, [0]).equals(numbers(10))


def _groups(store: ObjectStore, file: FileRecord) -> list[Any]:
    footer = pq.read_metadata(pa.BufferReader(store.get(file.key)))
    return [footer.row_group(index) for index in range(footer.num_row_groups)]


def test_a_failed_upload_keeps_its_error_and_ends_the_writer() -> None:
    def plan(operation: RequestKind, key: str, call: int) -> Fault | None:
        return Fault(FaultKind.DISK_FULL) if operation is RequestKind.OPEN_WRITE else None

    store = FaultyStore(MemoryStore(), plan)
    with pytest.raises(StorageError):
        write(store, [numbers(10)])
    assert store.head(KEY) is None


class _FullDisk(MemoryStore):
    """A store whose uploads fail in the middle."""

    def open_write(self, key: str) -> Any:
        out = super().open_write(key)
        sent = out.write

        def limited(data: bytes | memoryview) -> int:
            if len(data) > 5_000:
                raise StorageError("no space left", kind="disk-full")
            return sent(data)

        out.write = limited  # type: ignore[method-assign]  # one instance
        return out


def test_an_error_of_the_store_in_the_middle_of_a_write_comes_through_as_it_is() -> None:
    store = _FullDisk()
    writer = SegmentFileWriter(store.open_write(KEY), KEY, numbers(1).schema)
    writer.write_batch(0, numbers(10))
    with pytest.raises(StorageError) as caught:
        writer.write_batch(0, numbers(10_000))
    assert caught.value.kind == "disk-full"
    for call in (writer.close, lambda: writer.write_batch(0, numbers(10))):
        with pytest.raises(InternalError):
            call()
    assert store.head(KEY) is None


class _Pieces(Writer):
    """An upload that remembers the size of every piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: bytes | memoryview) -> int:
        self.pieces.append(bytes(data))
        return len(data)

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def test_pieces_keep_their_order_and_a_small_batch_is_one() -> None:
    out = _Pieces()
    batches = [numbers(rows, columns=1) for rows in (10, 100_000, 10)]
    writer = SegmentFileWriter(out, KEY, batches[0].schema)
    counts = []
    for batch in batches:
        writer.write_batch(0, batch)
        counts.append(len(out.pieces))
        assert sum(map(len, out.pieces)) == writer.size  # a batch that was written is with the store
    record = writer.close()
    content = b"".join(out.pieces)
    assert (counts[0], counts[2] - counts[1], len(out.pieces) - counts[2]) == (1, 1, 1)
    assert max(map(len, out.pieces)) >= PIECE_BYTES
    assert hashlib.sha256(content).hexdigest() == record.sha256
    assert pq.read_table(pa.BufferReader(content)).equals(pa.concat_tables(batches))


def test_misuse_and_unwritable_values_abort_the_file() -> None:
    store = MemoryStore()
    schema = numbers(1).schema
    for batch in (schema.empty_table(), numbers(1, columns=9)):
        writer = SegmentFileWriter(store.open_write(KEY), KEY, schema)
        with pytest.raises(InternalError):
            writer.write_batch(0, batch)
        with pytest.raises(InternalError):
            writer.close()
    strict = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    writer = SegmentFileWriter(store.open_write(KEY), KEY, strict)
    with pytest.raises(InvalidInputError) as caught:
        writer.write_batch(0, pa.table([pa.array([None], pa.int64())], schema=strict))
    assert caught.value.kind == "unwritable-batch"
    assert list(store.list("")) == []


def damaged(data: bytes, file: FileRecord) -> tuple[MemoryStore, FileRecord]:
    store = MemoryStore()
    store.put(file.key, data)
    return store, file


def test_every_flipped_byte_is_found() -> None:
    store = MemoryStore()
    table = pa.table({"a": ["x", None, "y"] * 3, "b": range(9)})
    file, _ = write(store, [table])
    data = store.get(KEY) or b""
    for place in range(4, file.size):
        for bit in (1, 128):
            changed = bytearray(data)
            changed[place] ^= bit
            with pytest.raises(CorruptDataError) as caught:
                read(*damaged(bytes(changed), file), table.schema, [0])
            assert caught.value.values["object"] == KEY


def test_a_truncated_or_missing_object_is_named() -> None:
    store = MemoryStore()
    table = numbers(100)
    file, _ = write(store, [table])
    data = store.get(KEY) or b""
    for size in (0, 1, 100, file.size - file.footer_bytes, file.size - 1):
        with pytest.raises(CorruptDataError):
            read(*damaged(data[:size], file), table.schema, [0])
    with pytest.raises(NotFoundError) as caught:
        read(MemoryStore(), file, table.schema, [0])
    assert caught.value.kind == "segment-file-missing"
    assert caught.value.values["object"] == KEY


def test_a_record_that_does_not_fit_the_object_is_corrupt() -> None:
    store = MemoryStore()
    table = numbers(100)
    file, _ = write(store, [table])
    footer = (store.get(KEY) or b"")[-file.footer_bytes - 1 :]
    records = [
        replace(file, rows=99),
        replace(file, footer_bytes=0),
        replace(file, footer_bytes=file.size + 1),
        replace(file, footer_bytes=len(footer), footer_sha256=hashlib.sha256(footer).hexdigest()),
        replace(file, footer_sha256="0" * 64),
    ]
    for record in records:
        with pytest.raises(CorruptDataError):
            read(store, record, table.schema, [0])
    for schema in (table.schema.remove(0), table.schema.set(0, pa.field("c0", pa.int32()))):
        with pytest.raises(CorruptDataError, match="another schema"):
            read(store, file, schema, [0])
    for group in (1, -1):
        with pytest.raises(CorruptDataError, match="is not there"):
            read(store, file, table.schema, [group])
    with pytest.raises(InvalidInputError, match="'nope'"):
        list(SegmentFileReader(store, file, table.schema).read([0], ["nope"], 10))


def foreign(
    table: pa.Table, extra: dict[bytes, bytes] | None = None, **options: Any
) -> tuple[bytes, FileRecord]:
    """Return a Parquet file as another writer makes it, and its record."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(extra or {})
    data = sink.getvalue().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little") + 8
    tail = data[-length:]
    sums = hashlib.sha256(data).hexdigest(), length, hashlib.sha256(tail).hexdigest()
    return data, FileRecord(KEY, len(data), *sums, table.num_rows)


def test_files_of_other_writers_are_read_with_page_checksums() -> None:
    table = pa.table({"b": range(1000)})
    data, file = foreign(table, write_page_checksum=True, compression="none", use_dictionary=False)
    assert read(*damaged(data, file), table.schema, [0]).equals(table)
    changed = bytearray(data)
    changed[2_000] ^= 1
    with pytest.raises(CorruptDataError, match="cannot be decoded"):
        read(*damaged(bytes(changed), file), table.schema, [0])


def test_malformed_chunk_checksums_are_corrupt() -> None:
    table = pa.table({"b": range(10)})
    for text in (b"", b"0123456g", b"0" * 16, b"\xff" * 8):
        data, file = foreign(table, {CHUNK_CRC32_KEY: text})
        with pytest.raises(CorruptDataError, match="malformed"):
            read(*damaged(data, file), table.schema, [0])


def test_a_read_outside_the_planned_ranges_is_our_defect() -> None:
    file = RangedFile("x", 100, {10: b"0123456789", 20: b"abc"})
    assert file.seek(12) == 12
    assert file.read(3) == b"234"
    assert file.tell() == 15
    assert file.seek(0, 2) == 100
    assert file.read(5) == b""
    for start, length in ((9, 1), (15, 6), (20, 4), (50, 1), (19, 2)):
        file.seek(start)
        with pytest.raises(InternalError):
            file.read(length)
    with pytest.raises(InternalError):  # not swallowed on its way through pyarrow
        pq.read_table(pa.PythonFile(RangedFile("x", 100, {}), mode="r"))


def test_the_crc_of_a_part_comes_from_the_values_at_its_ends() -> None:
    data = np.random.default_rng(0).bytes(70_000)
    for start, end in ((0, 0), (0, 1), (5, 5), (1, 70_000), (65_535, 65_537), (123, 4_567)):
        found = crc32_of_part(zlib.crc32(data[:start]), zlib.crc32(data[:end]), end - start)
        assert found == zlib.crc32(data[start:end])


def test_a_footer_tells_its_schema() -> None:
    table = every_type()
    store = MemoryStore()
    file, _ = write(store, [table])
    data = store.get(KEY) or b""
    assert decode_schema(data[-file.footer_bytes :]).equals(table.schema)
    with pytest.raises(FooterError, match="cannot be parsed"):
        decode_schema(data[-file.footer_bytes + 5 :])
