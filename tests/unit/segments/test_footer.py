"""Footers and pages that lie: each claim that pyarrow would believe is checked first."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.segments.footer import ChunkStatistics, Footer, FooterError, decode_footer
from txnformat.segments.footer_encoding import encode_footer
from txnformat.segments.footer_shape import shape_of
from txnformat.segments.pages import (
    _DICTIONARY_PAGE,
    PAGE_BYTES_MAX,
    Effort,
    Lists,
    Pages,
    _data_pattern,
    _numbered_bytes,
    check_lists,
    decoded_bytes,
    look,
)
from txnformat.segments.thrift_compact import (
    DEPTH_MAX,
    ThriftError,
    list_header,
    read_struct,
    read_varint,
    signed,
    varint,
    zigzag,
)
from txnformat.segments.writer import CAN_FILTER, Indexing, SegmentFileWriter
from txnformat.store.memory import MemoryStore

TABLE = pa.table({"n": pa.array([1, None, 3], pa.int32()), "s": ["a", "bb", None]})


def thrift(value: Any) -> tuple[int, bytes]:
    """Return type and bytes of a value as :func:`read_struct` gives it."""
    match value:
        case bool():
            return (1 if value else 2), b""
        case int():
            return 6, zigzag(value)
        case bytes():
            return 8, varint(len(value)) + value
        case list():
            parts = [thrift(each) for each in value]
            return 9, list_header(parts[0][0] if parts else 12, len(parts)) + b"".join(p for _, p in parts)
        case _:
            data, before = b"", 0
            for number, each in sorted(value.items()):
                kind, part = thrift(each)
                data += bytes([(number - before) << 4 | kind]) + part
                before = number
            return 12, data + b"\0"


def file_of(table: pa.Table, **options: Any) -> tuple[bytes, int]:
    """Return a file, and where its footer begins."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **({"compression": "zstd"} | options))
    data: bytes = sink.getvalue().to_pybytes()
    return data, len(data) - int.from_bytes(data[-8:-4], "little") - 8


def footer_of(change: Callable[[Any], object]) -> Footer:
    """Return what the decoder makes of TABLE's footer, changed."""
    data, end = file_of(TABLE)
    fields, _ = read_struct(data[end:-8], 0)
    change(fields)
    _, changed = thrift(fields)
    return decode_footer(changed + len(changed).to_bytes(4, "little") + b"PAR1", shape_of(TABLE.schema), end)


def chunk(fields: Any) -> Any:
    """Return the metadata of the first column chunk."""
    return fields[4][0][1][0][3]


def test_a_footer_that_was_taken_apart_says_the_same() -> None:
    data, end = file_of(TABLE)
    shape = shape_of(TABLE.schema)
    footer, again = decode_footer(data[end:], shape, end), footer_of(lambda _: None)
    for leaf in range(2):
        assert footer.chunk(0, leaf) == again.chunk(0, leaf)
        assert footer.statistics(0, leaf) == again.statistics(0, leaf)
    assert footer.rows == again.rows == 3
    assert footer.statistics(0, 0) == ChunkStatistics(1, 1, 3)
    assert footer.statistics(0, 1) == ChunkStatistics(1, b"a", b"bb")


@pytest.mark.parametrize("filtered", [(), ("n", "s")])
def test_footers_with_page_indexes_and_filters_are_decoded_by_patterns_as_field_by_field(
    filtered: tuple[str, ...],
) -> None:
    """Compacted files have them; a footer of many row groups takes ten times as long field by field."""
    store, table = MemoryStore(), TABLE.append_column("x", pa.array([0.5, None, 2.5]))
    writer = SegmentFileWriter(store.open_write("f"), "f", table.schema, indexing=Indexing(filtered, 3))
    for _ in range(2):
        writer.write_batch(0, table)
    file = writer.close()
    data, end = (
        store.get_range("f", file.size - file.footer_bytes, file.footer_bytes),
        file.size - file.footer_bytes,
    )
    shape = shape_of(table.schema)
    footer = decode_footer(data, shape, end)
    assert not any(isinstance(found, dict) for group in footer.groups for found in group.chunks)
    fields, _ = read_struct(data[:-8], 0)
    assert {4, 5, 6, 7} <= set(fields[4][0][1][0]), "the places of page indexes"
    assert (14 in chunk(fields)) == bool(filtered and CAN_FILTER)
    _, changed = thrift(fields)
    again = decode_footer(changed + len(changed).to_bytes(4, "little") + b"PAR1", shape, end)
    for group in range(2):
        for leaf in range(3):
            assert footer.chunk(group, leaf) == again.chunk(group, leaf)
            assert footer.statistics(group, leaf) == again.statistics(group, leaf)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f[2][1].update({4: b"other"}), "another schema"),
        (lambda f: f[2][1].update({1: 2}), "another schema"),
        (lambda f: f[2][1].update({3: 0}), "another schema"),
        (lambda f: f[2][1].update({6: [1]}), "another schema"),
        (lambda f: f[2].append(f[2][1]), "another schema"),
        (lambda f: f.update({3: 4}), "do not sum to"),
        (lambda f: f[4][0].update({3: -3}), "number of rows"),
        (lambda f: f[4].append(f[4][0]), "do not sum to"),
        (lambda f: f[4][0][1].pop(), "another number of columns"),
        (lambda f: f.pop(4), "row groups"),
        (lambda f: f.update({8: {1: {}}}), "row groups"),
        (lambda f: f[4][0][1][0].update({1: b"/etc/passwd"}), "no path of another file"),
        (lambda f: f[4][0][1][0].pop(3), "column chunk cannot be parsed"),
        (lambda f: f.update({5: [1]}), "keys and values"),
    ],
)
def test_a_footer_that_is_another_is_refused(change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(FooterError, match=message):
        footer_of(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: 2}, "not that of its column"),
        ({3: [b"s"]}, "not that of its column"),
        ({2: [5]}, "encoding that segment files do not have"),
        ({2: []}, "encoding that segment files do not have"),
        ({4: 7}, "unknown compression"),
        ({4: [1]}, "unknown compression"),
        ({5: 4}, "another number of values"),
        ({5: 2}, "another number of values"),
        ({6: -1}, "outside the data"),
        ({6: 1 << 60}, "outside the data"),
        ({7: 1 << 40}, "outside the data"),
        ({9: 3, 11: 0}, "outside the data"),
        ({9: 1 << 62}, "outside the data"),
        ({11: 2}, "outside the data"),
        ({8: [{1: b"k"}]}, "no other fields"),
        ({16: 1}, "no other fields"),
        ({7: b"x"}, "a number in field 7"),
    ],
)
def test_a_column_chunk_that_cannot_be_is_refused(change: dict[int, Any], message: str) -> None:
    footer = footer_of(lambda fields: chunk(fields).update(change))
    with pytest.raises(FooterError, match=message):
        footer.chunk(0, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda f: chunk(f)[12].update({5: b"xxxxx"}),
        lambda f: chunk(f)[12].pop(6),
        lambda f: f.pop(7),  # the order of values is not known then
    ],
)
def test_statistics_that_are_unusual_are_unknown(change: Callable[[Any], object]) -> None:
    assert footer_of(change).statistics(0, 0) == ChunkStatistics(1, None, None)


def test_thrift_is_read_within_bounds() -> None:
    for data in (
        b"",
        b"\x18\xff\xff\xff\xff\x0f",
        b"\x19\xfc\xff\xff\xff\x7f",
        b"\x16" + b"\xff" * 11,
        b"\x1b\0",
        b"\x10\x10",
    ):
        with pytest.raises(ThriftError):
            read_struct(data, 0)
    read_struct(b"\x1c" * (DEPTH_MAX - 1) + b"\0" * DEPTH_MAX, 0)
    with pytest.raises(ThriftError, match="nested deeper"):
        read_struct(b"\x1c" * 100_000, 0)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 3))
def test_numbers_are_those_that_were_written(number: int, more: int) -> None:
    """Also with more bytes than they need, as far as ten."""
    data = zigzag(number)
    more = min(more, 10 - len(data))
    if more > 0:
        data = data[:-1] + bytes([data[-1] | 0x80]) + b"\x80" * (more - 1) + b"\0"
    assert signed(data) == number
    assert read_varint(b"!" + data + b"!", 1) == ((number << 1) ^ (number >> 63), 1 + len(data))
    with pytest.raises(ThriftError):
        read_varint(b"!" + data[:-1], 1)


def test_pyarrow_gets_a_footer_of_our_own() -> None:
    data, end = file_of(TABLE)
    footer = decode_footer(data[end:], shape_of(TABLE.schema), end)
    made = encode_footer(footer.shape.part(["s"]), [(3, [footer.chunk(0, 1)])])
    found = pq.read_metadata(pa.BufferReader(made))
    assert found.schema.to_arrow_schema().names == ["s"]
    assert found.row_group(0).column(0).statistics is None
    found = pq.ParquetFile(pa.BufferReader(data[:end] + made)).read()
    assert found.equals(TABLE.select(["s"]))


# --- pages --------------------------------------------------------------------------------------------------


def pages_of(table: pa.Table, change: Callable[[bytes], bytes] = bytes, **options: Any) -> Pages:
    """Return what is found of the first column's pages, of a file without compression that was changed."""
    data, end = file_of(table, **options)
    footer = decode_footer(data[end:], shape_of(table.schema), end)
    found = footer.chunk(0, 0)
    stored = change(data[found.start : found.start + found.length])
    return look(memoryview(stored), found._replace(length=len(stored)), footer.shape.leaves[0])


def test_pages_are_told_as_they_are() -> None:
    texts = pa.table({"s": ["x" * 100] * 50})
    encoded = pages_of(texts)
    assert (encoded.plain_bytes, encoded.encoded) == (0, 50)
    assert encoded.dictionary is not None
    assert encoded.dictionary[2:] == (104, 1)
    plain = pages_of(texts, use_dictionary=False)
    assert plain.plain_bytes >= 5_200
    assert (plain.encoded, plain.dictionary) == (0, None)


def test_pages_that_do_not_add_up_are_refused() -> None:
    table = pa.table({"n": list(range(100))})
    with pytest.raises(FooterError, match=r"page header cannot be parsed|bytes that its column chunk"):
        pages_of(table, lambda stored: stored[:-1])
    with pytest.raises(FooterError, match="as many values as its footer says"):
        pages_of(table, lambda stored: stored * 2, use_dictionary=False)
    with pytest.raises(FooterError, match="out of place"):
        pages_of(table, lambda stored: stored * 2)
    with pytest.raises(FooterError, match="of a kind that segment files do not have"):
        pages_of(table, lambda stored: b"\x15\x02" + stored[2:])
    with pytest.raises(FooterError, match="needs a dictionary"):
        pages_of(
            table,
            lambda stored: stored.replace(b"\x15\x00\x15\x06\x15\x06", b"\x15\x10\x15\x06\x15\x06"),
            use_dictionary=False,
        )


@pytest.mark.parametrize("group", [1, 2, 3], ids=["size", "stored", "values"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_page_with_a_number_below_zero_is_refused(group: int, dictionary: bool) -> None:
    def below_zero(stored: bytes) -> bytes:
        found = (_DICTIONARY_PAGE if dictionary else _data_pattern(8)).match(stored)
        assert found is not None
        return stored[: found.start(group)] + b"\x01" + stored[found.end(group) :]

    with pytest.raises(FooterError, match="claims bytes that its column chunk does not have"):
        pages_of(pa.table({"n": list(range(100))}), below_zero, use_dictionary=dictionary)


def test_a_page_that_is_too_large_is_refused() -> None:
    table = pa.table({"s": ["x" * (PAGE_BYTES_MAX + 1)]})
    with pytest.raises(FooterError, match="too large when decompressed"):
        pages_of(table, use_dictionary=False)
    assert pages_of(pa.table({"s": ["x" * 1_000_000]}), use_dictionary=False).plain_bytes > 1_000_000


@pytest.mark.parametrize(
    "values", [["x" * 300, "y" * 7], ["a", "bb", "ccc"], ["one", "two"], [b"\0" * 9, b"\0" * 4, b""]]
)
def test_the_longest_value_of_a_dictionary_bounds_what_is_decoded(values: list[Any]) -> None:
    numbers = pa.array([index % len(values) for index in range(200_000)], pa.int32())
    table = pa.table({"s": pa.DictionaryArray.from_arrays(numbers, pa.array(values))})
    data, end = file_of(table, store_schema=False)
    plain = pa.schema([("s", table.schema.field("s").type.value_type)])
    footer = decode_footer(data[end:], shape_of(plain), end)
    found = footer.chunk(0, 0)
    view = memoryview(data)[found.start : found.start + found.length]
    pages = look(view, found, footer.shape.leaves[0])
    size, width = decoded_bytes(view, found, footer.shape.leaves[0], pages, Effort(0), as_numbers=False)
    longest = max(map(len, values))
    assert longest <= width <= sum(map(len, values))
    assert size >= 200_000 * longest


def test_lists_that_decode_to_far_more_than_is_stored_are_refused() -> None:
    zeros = pa.array(np.zeros(20_000_000, np.int64))
    type_ = pa.list_(pa.field("element", pa.int64()))
    table = pa.table(
        {"l": pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), zeros, type=type_)}
    )
    data, end = file_of(table)
    footer = decode_footer(data[end:], shape_of(table.schema), end)
    found = footer.chunk(0, 0)
    view = memoryview(data)[found.start : found.start + found.length]
    pages = look(view, found, footer.shape.leaves[0])
    size, _ = decoded_bytes(view, found, footer.shape.leaves[0], pages, Effort(0), as_numbers=False)
    with pytest.raises(FooterError, match="too large when decoded"):
        check_lists([Lists(view, found, footer.shape.leaves[0], pages, size)])


@pytest.mark.parametrize("seed", range(30))
def test_what_lists_of_numbers_of_a_dictionary_decode_to_is_counted_exactly(seed: int) -> None:
    """But for the padding of the last packed numbers of a page, which stand for the first value."""
    rng = random.Random(seed)
    values = ["", *("x" * rng.randint(0, 40) for _ in range(rng.choice([1, 2, 7, 300, 5_000])))]

    def element() -> str | None:
        return None if rng.random() < 0.1 else values[min(int(rng.expovariate(0.2)), len(values) - 1)]

    rows: list[Any] = []
    while len(rows) < 20_000:
        row = None if rng.random() < 0.05 else [element() for _ in range(rng.randint(0, 4))]
        rows += [row] * (rng.randint(1, 200) if rng.random() < 0.05 else 1)
    table = pa.table({"s": pa.array(rows, pa.list_(pa.field("element", pa.string())))})
    data, end = file_of(table, store_schema=False, data_page_size=rng.choice([1_000, 1 << 20]))
    footer = decode_footer(data[end:], shape_of(table.schema), end)
    chunk = footer.chunk(0, 0)
    view = memoryview(data)[chunk.start : chunk.start + chunk.length]
    pages = look(view, chunk, footer.shape.leaves[0])
    assert pages.numbered
    exact = sum(len(value) for row in rows if row for value in row if value)
    if not pages.plain_bytes:
        assert (
            0
            <= _numbered_bytes(view, chunk, footer.shape.leaves[0], pages, Effort(0)) - exact
            <= 7 * 40 * len(pages.numbered)
        )


def test_texts_are_counted_as_far_as_the_effort_goes() -> None:
    """A small file can have thousands of chunks that are quick to store and slow to count."""
    texts = ["x" * 10_000, *map(str, range(9))]
    numbers = pa.array([0, *([1] * 19_999)], pa.int32())
    table = pa.table({"s": pa.DictionaryArray.from_arrays(numbers, pa.array(texts))})
    data, end = file_of(table, store_schema=False)
    footer = decode_footer(data[end:], shape_of(pa.schema([("s", pa.string())])), end)
    chunk, leaf = footer.chunk(0, 0), footer.shape.leaves[0]
    view = memoryview(data)[chunk.start : chunk.start + chunk.length]
    pages = look(view, chunk, leaf)
    numbered = sum(size for _, _, size, _ in pages.numbered)

    def size(left: Effort) -> int:
        return decoded_bytes(view, chunk, leaf, pages, left, as_numbers=False)[0]

    exact = size(Effort(0))
    assert pages.dictionary is not None
    longest = pages.dictionary[2]

    def spent(bytes_: int, runs: int = 100, values: int = 10) -> Effort:
        left = Effort(0, longest + bytes_)  # to look for the longest takes the dictionary
        left.runs_left, left.values_left = runs, values
        return left

    assert exact < PAGE_BYTES_MAX < size(spent(numbered - 1))
    left = spent(numbered)
    assert size(left) == exact
    assert (left.bytes_left, left.values_left) == (0, 0)
    assert left.runs_left < 100
    assert size(left) > PAGE_BYTES_MAX  # the next chunk of the same look
    assert size(spent(numbered, runs=0)) > PAGE_BYTES_MAX
    assert size(spent(numbered, values=9)) > PAGE_BYTES_MAX
    assert Effort(5_000_000).runs_left == Effort(5_000_000).values_left == 5_000_000
