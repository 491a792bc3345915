"""Segment files of a few hundred bytes that would take gigabytes: chunks that overlap, levels of lists."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.segments.footer import Chunk, FooterError, decode_footer
from txnformat.segments.footer_encoding import encode_footer
from txnformat.segments.footer_shape import shape_of
from txnformat.segments.pages import (
    CRUDE_BYTES_MAX,
    NUMBERED_MAX,
    Effort,
    Lists,
    Pages,
    _longest,
    check_lists,
    decoded_bytes,
    look,
)
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    field_header,
    list_header,
    numbers,
    varint,
    zigzag,
)
from txnformat.segments.writer import (
    ROW_GROUP_BYTES_MAX,
    UNEVEN_MIN,
    SegmentFileWriter,
    _bounds,
    _lists_bytes,
    _row_groups,
    is_uneven,
)
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnformat.types import BatchRecord, FileRecord
from txnlog_testing.stores.counting import CountingStore

KEY = "t-00000000/data/00000000000000000000-00000000-0000-4000-8000-000000000000.parquet"


def chunk(start: int, length: int, values: int) -> Chunk:
    """Return a chunk without compression or dictionary; :func:`file_of` adds its metadata."""
    return Chunk(start, length, 0, values, length, False, 0, b"")


def page(values: int, levels: Sequence[tuple[int, int]], *, body: bytes = b"") -> bytes:
    """Return a data page whose values have, but for the first, all the same levels.

    Parameters
    ----------
    levels : sequence of tuple
        Largest and usual level: of repetition, where it is a list, and of definition.
    """
    for number, (largest, usual) in enumerate(levels):
        octets = -(-largest.bit_length() // 8)
        first = 0 if number < len(levels) - 1 else usual
        runs = b"".join(
            varint(count << 1) + level.to_bytes(octets, "little")
            for count, level in ((1, first), (values - 1, usual))
        )
        body += len(runs).to_bytes(4, "little") + runs
    inner = numbers([(I32, 1, values), (I32, 2, 0), (I32, 3, 3), (I32, 4, 3)])
    head = numbers([(I32, 1, 0), (I32, 2, len(body)), (I32, 3, len(body))])
    return head + field_header(12, 5, 3) + inner + b"\0\0" + body


def file_of(
    schema: pa.Schema, body: bytes, groups: Sequence[tuple[int, Sequence[Chunk]]]
) -> SegmentFileReader:
    """Return a reader of a file with these row groups."""
    shape = shape_of(schema)
    described = []
    for rows, chunks in groups:
        made = []
        for found, leaf in zip(chunks, shape.leaves, strict=True):
            metadata = b"".join((
                numbers([(I32, 1, leaf.physical)]), field_header(LIST, 2, 1), list_header(I32, 1), zigzag(0),
                field_header(LIST, 3, 2), list_header(BINARY, len(leaf.path)),
                *(varint(len(name)) + name for name in leaf.path), field_header(I32, 4, 3), zigzag(0),
                *(field_header(I64, number, before) + zigzag(value) for number, before, value in (
                    (5, 4, found.num_values), (6, 5, found.length), (7, 6, found.length), (9, 7, found.start)
                )),
            ))  # fmt: skip
            made.append(found._replace(metadata=metadata))
        described.append((rows, made))
    footer = encode_footer(shape, described)
    data = b"PAR1" + body + footer
    store = MemoryStore()
    store.put(KEY, data)
    file = FileRecord(
        KEY, len(data), hashlib.sha256(data).hexdigest(), len(footer), hashlib.sha256(footer).hexdigest(),
        sum(rows for rows, _ in groups),
    )  # fmt: skip
    return SegmentFileReader(CountingStore(store), file, schema)


def rows_of(reader: SegmentFileReader, columns: Sequence[str], groups: Sequence[int] = (0,)) -> int:
    return sum(batch.num_rows for batch in reader.read(groups, columns, 65_536))


def integers(count: int) -> pa.Schema:
    return pa.schema([(f"c{number}", pa.int32()) for number in range(count)])


def test_the_files_made_here_can_be_read() -> None:
    nothing = page(5, [(1, 0)])
    size = len(nothing)
    groups = [(5, [chunk(4 + 2 * size * g + size * c, size, 5) for c in range(2)]) for g in range(2)]
    assert rows_of(file_of(integers(2), nothing * 4, groups), ["c0", "c1"], [0, 1]) == 10
    lists = pa.schema([("l", pa.list_(pa.field("element", pa.int32())))])
    nulls = page(1000, [(1, 1), (3, 2)])
    assert rows_of(file_of(lists, nulls, [(1, [chunk(4, len(nulls), 1000)])]), ["l"]) == 1


@pytest.mark.parametrize("step", [0, 1, 30])
def test_column_chunks_that_overlap_are_refused_before_they_are_fetched(step: int) -> None:
    one = page(5, [(1, 0)], body=b"")
    size = len(one) + 100
    body = (one + bytes(100)) + bytes(60 * step)
    reader = file_of(integers(50), body, [(5, [chunk(4 + step * number, size, 5) for number in range(50)])])
    with pytest.raises(CorruptDataError, match="overlap"):
        rows_of(reader, [f"c{number}" for number in range(50)])
    assert requests(reader) == 1


def requests(reader: Any) -> int:
    return int(reader.object._store.counts.count(RequestKind.GET_RANGE))


@pytest.mark.parametrize(("second", "third"), [(4, 4), (8, 12), (44, 4)])
def test_row_groups_that_overlap_are_refused(second: int, third: int) -> None:
    one = page(5, [(1, 0)])
    size = len(one)
    groups = [(5, [chunk(start, size, 5)]) for start in (4, second, third)]
    reader = file_of(integers(1), one * 9, groups)
    for asked in ([0, 2], [1, 2], [0, 1], [0, 1, 2]):
        with pytest.raises(CorruptDataError, match="overlap"):
            rows_of(reader, ["c0"], asked)
    assert requests(reader) == 1


# --- levels of lists ----------------------------------------------------------------------------------------


def lists_of(type_: pa.DataType, levels: int) -> pa.DataType:
    for _ in range(levels):
        type_ = pa.list_(pa.field("element", type_))
    return type_


def structs_of(count: int, type_: pa.DataType) -> pa.DataType:
    return lists_of(pa.struct([(f"f{number}", type_) for number in range(count)]), 1)


@pytest.mark.parametrize(
    ("type_", "columns", "values", "levels"),
    [
        (lists_of(pa.int32(), 30), 1, 700_000, [(30, 1), (61, 60)]),
        (lists_of(pa.int32(), 1), 1, 6_500_000, [(1, 1), (3, 2)]),
        (lists_of(pa.decimal128(9, 2), 1), 1, 3_000_000, [(1, 1), (3, 2)]),
        (structs_of(1, pa.bool_()), 1, 8_500_000, [(1, 1), (4, 3)]),
        (structs_of(1, pa.string()), 1, 6_500_000, [(1, 1), (4, 3)]),
        (structs_of(40, pa.int32()), 40, 165_000, [(1, 1), (4, 3)]),
    ],
)
def test_levels_of_lists_count_for_all_columns_of_a_row_group(
    type_: pa.DataType, columns: int, values: int, levels: list[tuple[int, int]]
) -> None:
    schema = pa.schema([("c", type_)])
    for count in (values, values // 2):
        one = page(count, levels)
        chunks = [chunk(4 + len(one) * number, len(one), count) for number in range(columns)]
        reader = file_of(schema, one * columns, [(1, chunks)])
        if count == values:
            with pytest.raises(CorruptDataError, match="lists of a segment file are too large"):
                rows_of(reader, ["c"])
        else:
            assert rows_of(reader, ["c"]) == 1


def test_lists_of_several_columns_are_too_large_together() -> None:
    schema = pa.schema([(f"c{number}", lists_of(pa.int64(), 1)) for number in range(4)])
    one = page(1_300_000, [(1, 1), (3, 2)])
    chunks = [chunk(4 + len(one) * number, len(one), 1_300_000) for number in range(4)]
    reader = file_of(schema, one * 4, [(1, chunks)])
    assert rows_of(reader, ["c0", "c1", "c3"]) == 1
    with pytest.raises(CorruptDataError, match="lists of a segment file are too large"):
        rows_of(reader, ["c0", "c1", "c2", "c3"])


def test_levels_of_lists_without_a_length_are_refused() -> None:
    schema = pa.schema([("c", lists_of(pa.int32(), 1))])
    one = page(5, [(1, 1), (3, 2)])
    for changed in (
        one.replace(b"\x15\x06\x15\x06", b"\x15\x08\x15\x06"),
        one.replace(b"\x15\x06\x15\x06", b"\x15\x06\x15\x08"),
    ):
        with pytest.raises(CorruptDataError, match="levels in an encoding"):
            rows_of(file_of(schema, changed, [(1, [chunk(4, len(one), 5)])]), ["c"])


def test_what_is_too_much_without_its_texts_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a thousand million numbers would itself take gigabytes."""
    leaf = shape_of(pa.schema([("c", lists_of(pa.string(), 1))])).leaves[0]
    data = memoryview(bytes(100))
    pages = Pages(0, 0, 10**9, (0, 4, 4, 1), ((4, 20, 20, 10**9),))
    found = chunk(4, 100, 10**9)
    monkeypatch.setattr("txnformat.segments.pages._numbered_bytes", None)
    with pytest.raises(FooterError, match="too large when decoded"):
        check_lists([Lists(data, found, leaf, pages, 10**12)])


def test_dictionaries_that_are_too_large_are_not_looked_at_value_by_value() -> None:
    leaf = shape_of(pa.schema([("c", lists_of(pa.string(), 1))])).leaves[0]
    pages = Pages(0, 0, 1_000, (0, 4, 4 * (NUMBERED_MAX + 1), NUMBERED_MAX + 1))
    with pytest.raises(FooterError, match="values of dictionaries"):
        check_lists([Lists(memoryview(b""), chunk(4, 100, 1_000), leaf, pages, 10**12)])


@pytest.mark.parametrize(("most", "taken"), [(8, True), (7, False)])
def test_runs_of_all_pages_and_columns_are_counted_together(
    most: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page of a few bytes may have as many: one by one they would take hours."""
    monkeypatch.setattr("txnformat.segments.pages.RUNS_MAX", most)
    leaf = shape_of(pa.schema([("c", lists_of(pa.string(), 1))])).leaves[0]
    dictionary = (5).to_bytes(4, "little") + b"x" * 5
    # No levels, numbers of one bit: two runs of no number, one of three times number 0.
    body = bytes(8) + b"\x01" + b"\x00\x00" * 1 + b"\x06\x00"
    data = memoryview(dictionary + body)
    numbered = ((9, len(body), len(body), 3),) * 2
    pages = Pages(0, 0, 6, (0, 9, 9, 1), numbered)
    one = Lists(data, chunk(4, 1, 6), leaf, pages, 10**9)
    if taken:
        check_lists([one, one])
    else:
        with pytest.raises(FooterError, match="too many runs"):
            check_lists([one, one])


def test_pages_that_a_decoder_holds_side_by_side_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txnformat.segments.pages_ahead.PAGE_BYTES_MAX", 500_000)
    text = pa.array(["x" * 200_000])
    for dictionary in (False, True):
        for count in (2, 3):
            table = pa.table({f"c{number}": text for number in range(count)})
            store = MemoryStore()
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="zstd", store_schema=False, use_dictionary=dictionary)
            data = sink.getvalue().to_pybytes()
            store.put(KEY, data)
            length = int.from_bytes(data[-8:-4], "little") + 8
            digests = [hashlib.sha256(part).hexdigest() for part in (data, data[-length:])]
            file = FileRecord(KEY, len(data), digests[0], length, digests[1], 1)
            reader = SegmentFileReader(store, file, table.schema)
            assert rows_of(reader, ["c0"]) == 1
            if count == 2:
                assert rows_of(reader, table.column_names) == 1
            else:
                with pytest.raises(CorruptDataError, match="side by side"):
                    rows_of(reader, table.column_names)


def deep(levels: int) -> pa.DataType:
    return pa.struct([("f", deep(levels - 1))]) if levels else pa.bool_()


@pytest.mark.parametrize(
    ("type_", "width"),
    [
        (pa.decimal128(2, 0), 16),
        (pa.decimal128(38, 0), 16),
        (pa.int64(), 8),
        (pa.struct([("f", pa.bool_())]), 4),
        (deep(20), 6),
    ],
)
def test_what_a_value_takes_when_decoded_is_counted(type_: pa.DataType, width: int) -> None:
    """Levels and marks of nulls of structs, and the 16 bytes of a decimal, which may be one byte in
    Parquet.
    """
    leaf = shape_of(pa.schema([("c", type_)])).leaves[0]
    assert leaf.width + leaf.level_bytes == width


def test_the_pages_of_a_wide_table_are_small() -> None:
    """Else no reader takes them side by side: pages of 20,000 rows have 80 kB for each column."""
    zeros = pa.array([0] * 20_000, pa.int8())
    table = pa.table({f"c{number}": zeros for number in range(1_500)})
    store = MemoryStore()
    file, _ = write(store, [table.slice(0, 1), table])
    reader = SegmentFileReader(store, file, table.schema)
    assert rows_of(reader, table.column_names, (0, 1)) == 20_001


def test_the_longest_value_of_a_large_dictionary_is_not_searched_in_all_its_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where all bytes are zeros, each of them may begin a length."""
    size = CRUDE_BYTES_MAX + 8
    values = size // 4 - 1
    monkeypatch.setattr(np, "flatnonzero", None)
    assert _longest(memoryview(bytes(size)), 0, size, values) == 4


# --- the writer ---------------------------------------------------------------------------------------------


def write(store: MemoryStore, batches: Sequence[pa.Table]) -> tuple[FileRecord, list[BatchRecord]]:
    """Return the records of a file as a producer writes it, and of its batches."""
    writer = SegmentFileWriter(
        store.open_write(KEY),
        KEY,
        batches[0].schema,
        is_compressed=not any(is_uneven(one, one.schema) for one in batches),
    )
    records = [writer.write_batch(0, batch) for batch in batches]
    return writer.close(), records


@pytest.mark.parametrize("seed", range(20))
def test_a_writer_counts_at_least_what_a_reader_counts(seed: int) -> None:
    """Else a reader would refuse a row group that a writer made."""
    rng = random.Random(seed)

    def type_of(depth: int) -> pa.DataType:
        kind = rng.randrange(7) if depth else rng.randrange(4)
        if kind < 4:
            return [pa.string(), pa.bool_(), pa.int64(), pa.decimal128(9, 2)][kind]
        if kind == 4:
            return pa.struct([(name, type_of(depth - 1)) for name in "abc"[: rng.randint(1, 3)]])
        if kind == 5:
            return pa.map_(pa.string(), type_of(depth - 1))
        return pa.list_(pa.field("element", type_of(depth - 1)))

    def value_of(type_: pa.DataType, *, null: bool = True) -> Any:
        if null and rng.random() < 0.2:
            return None
        if pa.types.is_struct(type_):
            return {field.name: value_of(field.type) for field in type_}
        if pa.types.is_map(type_):
            return [(f"k{n}", value_of(type_.item_type)) for n in range(rng.choice([0, 0, 1, 3]))]
        if pa.types.is_list(type_):
            return [value_of(type_.value_type) for _ in range(rng.choice([0, 0, 1, 5]))]
        if pa.types.is_string(type_):
            return rng.choice("abcdefgh") * rng.randint(0, 30)
        return (
            Decimal(rng.randint(0, 99))
            if pa.types.is_decimal(type_)
            else rng.random() < 0.5
            if pa.types.is_boolean(type_)
            else rng.randint(0, 1)
        )

    schema = pa.schema(
        [("a", type_of(3)), ("n", pa.int64()), ("b", pa.list_(pa.field("element", type_of(2))))]
    )
    rows = [{field.name: value_of(field.type) for field in schema} for _ in range(500)]
    table = pa.concat_tables([pa.Table.from_pylist(rows, schema)] * 2).slice(130, 600)
    store = MemoryStore()
    file, _ = write(store, [table])
    data = store.get_range(file.key, 0, file.size)
    end = file.size - file.footer_bytes
    footer = decode_footer(data[end:], shape_of(schema), end)
    read_bytes = 0
    for index, leaf in enumerate(footer.shape.leaves):
        if leaf.repeated:
            found = footer.chunk(0, index)
            view = memoryview(data)[found.start : found.start + found.length]
            read_bytes += decoded_bytes(
                view, found, leaf, look(view, found, leaf), Effort(0), as_numbers=False
            )[0]
    leaves = _bounds(schema, None).repeated
    assert read_bytes <= _lists_bytes(table, leaves) + 100 * len(leaves)  # what a page has besides its values
    assert _lists_bytes(table.slice(0, 0), leaves) == 0


def test_a_row_that_no_reader_would_take_is_not_written() -> None:
    values = pa.nulls(20_000_000, pa.int8())
    lists = pa.ListArray.from_arrays(
        pa.array([0, len(values)], pa.int32()), values, type=pa.list_(pa.field("element", pa.int8()))
    )
    table = pa.table({"c": lists})
    assert is_uneven(table, table.schema)
    store = MemoryStore()
    with pytest.raises(InvalidInputError, match="too many nulls") as caught:
        write(store, [table])
    assert caught.value.kind == "unwritable-batch"
    assert store.get(KEY) is None


def test_rows_that_are_nearly_alike_are_compressed() -> None:
    """Of two row groups with the same rows one is always a little above the largest."""
    short, long = pa.array(["x" * 40]), pa.array(["x" * 44])
    rows = 1_000_000
    texts = pa.chunked_array(
        [pa.concat_arrays([long] * 1_000).take(pa.array(np.arange(rows) % 1_000)),
         pa.concat_arrays([short] * 1_000).take(pa.array(np.arange(rows) % 1_000))]
    )  # fmt: skip
    table = pa.table({"c": texts})
    first = table.slice(0, _row_groups(table, _bounds(table.schema, None))[0][1])
    assert ROW_GROUP_BYTES_MAX < first.nbytes < UNEVEN_MIN * ROW_GROUP_BYTES_MAX
    assert not is_uneven(table, table.schema)
    much_longer = pa.chunked_array([pa.array(["x" * 80_000_000]), texts])
    assert is_uneven(pa.table({"c": much_longer}), table.schema)


def test_row_groups_of_lists_are_halved_where_the_values_are() -> None:
    ends = np.concatenate([np.arange(1000), np.arange(1, 9) * 1_000_000 + 999]).astype(np.int32)
    values = pa.nulls(int(ends[-1]), pa.int8())
    lists = pa.ListArray.from_arrays(pa.array(ends), values, type=pa.list_(pa.field("element", pa.int8())))
    table = pa.table({"c": lists})
    assert not is_uneven(table, table.schema)
    store = MemoryStore()
    file, (record, after) = write(store, [table, table.slice(0, 3)])
    reader = SegmentFileReader(store, file, table.schema)
    counts = reader.row_group_counts()
    assert len(counts) == record.row_group_count + 1 == after.row_group + 1
    assert sum(counts[:-1]) == table.num_rows
    assert len(set(counts[:-2])) > 1
    batches = reader.read(range(record.row_group_count), ["c"], 65_536)
    assert pa.Table.from_batches(batches).equals(table)
