"""Segment files of a few hundred bytes that would take gigabytes: chunks that overlap, levels of lists."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from txnformat.datafile import SegmentFileReader
from txnformat.errors import CorruptDataError
from txnformat.footer import Chunk, encode_footer
from txnformat.footer_shape import shape_of
from txnformat.store.counting import CountingStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import Operation
from txnformat.thrift_compact import (
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
from txnformat.types import FileRecord

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
    return int(reader._store.counts.count(Operation.GET_RANGE))


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
