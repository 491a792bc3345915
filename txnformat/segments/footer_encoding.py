"""Footers that are made here, of values that were checked: for pyarrow to decode row groups by, and for files
of other writers.

Bounds that would mislead are taken out of pyarrow's own footers. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from txnformat.errors import InternalError
from txnformat.segments.footer import CHECKSUMS, MAGIC, TAIL_BYTES, Chunk
from txnformat.segments.footer_shape import Shape
from txnformat.segments.thrift_compact import (
    BINARY,
    I64,
    STOP,
    STRUCT,
    TRUE,
    field_header,
    list_header,
    read_field,
    read_list_header,
    read_value,
    varint,
    zigzag,
)

__all__ = ["encode_footer", "encode_segment_footer", "encode_statistics", "without_bounds"]


def encode_footer(shape: Shape, groups: Sequence[tuple[int, Sequence[Chunk]]]) -> bytes:
    """Return a footer for pyarrow.

    ``shape``: of the columns that are read (:meth:`Shape.part`). ``groups``: number of rows, and the chunks
    of the shape's leaves in their order.
    """
    return _footer(
        shape,
        [(rows, [(chunk.metadata, chunk.uncompressed) for chunk in chunks]) for rows, chunks in groups],
        shape.tail,
    )


def encode_segment_footer(
    shape: Shape, groups: Sequence[tuple[int, Sequence[tuple[Chunk, bytes]]]], checksums: bytes
) -> bytes:
    """Return the footer of a segment file: nothing in it is as another writer said it.

    ``groups``: number of rows, and the chunks of the shape's leaves in their order, each with its statistics
    (:func:`encode_statistics`; empty: it has none). ``checksums``: of the chunks, as they stand in a footer.
    """
    if shape.behind_checksums is None:
        raise InternalError("pyarrow writes the end of a footer otherwise", got=shape.tail[:9])
    described = [
        (
            rows,
            [(_with_statistics(chunk, statistics), chunk.uncompressed) for chunk, statistics in chunks],
        )
        for rows, chunks in groups
    ]
    return _footer(shape, described, CHECKSUMS + varint(len(checksums)) + checksums + shape.behind_checksums)


def encode_statistics(nulls: int, bounds: tuple[bytes, bytes] | None) -> bytes:
    """Return the statistics of a column chunk.

    ``bounds``: its smallest and its largest value, in Parquet's plain encoding; None: they are not told.
    """
    parts = [field_header(I64, 3, 0), zigzag(nulls)]
    if bounds is not None:
        smallest, largest = bounds
        parts += [field_header(BINARY, 5, 3), varint(len(largest)), largest]
        parts += [field_header(BINARY, 6, 5), varint(len(smallest)), smallest]
        parts += [field_header(TRUE, 7, 6), field_header(TRUE, 8, 7)]  # they are values, not only bounds
    return b"".join([*parts, STOP])


def _with_statistics(chunk: Chunk, statistics: bytes) -> bytes:
    metadata = chunk.moved(0)
    if not statistics:
        return metadata
    return metadata + field_header(STRUCT, 12, 11 if chunk.has_dictionary else 9) + statistics


def _footer(shape: Shape, groups: Sequence[tuple[int, Sequence[tuple[bytes, int]]]], tail: bytes) -> bytes:
    """Return a footer.

    ``groups``: number of rows, and of each chunk its metadata and its bytes without compression.
    """
    parts = [
        shape.head,
        b"\x16",
        zigzag(sum(rows for rows, _ in groups)),
        b"\x19",
        list_header(STRUCT, len(groups)),
    ]
    for rows, chunks in groups:
        parts += [b"\x19", list_header(STRUCT, len(chunks))]
        size = 0
        for metadata, uncompressed in chunks:
            parts += [b"\x26\x08\x1c", metadata, b"\0\0"]
            size += uncompressed
        parts += [b"\x16", zigzag(size), b"\x16", zigzag(rows), STOP]
    parts.append(tail)
    data = b"".join(parts)
    return data + len(data).to_bytes(4, "little") + MAGIC


def without_bounds(footer: bytes, places: Mapping[int, Collection[int]]) -> bytes:
    """Return a footer of pyarrow in which some column chunks have no smallest and no largest value; how many
    nulls they have is still told.

    A column index, which has the same of each page, is not named any more either.

    ``footer``: metadata, its length, magic. ``places``: row groups, from 0, and of each the chunks, from 0.
    """

    def of_group(number: int, group: _Fields) -> bytes:
        left_out = places.get(number, ())

        def of_chunk(place: int, chunk: _Fields) -> bytes:
            return _chunk_without_bounds(chunk) if place in left_out else chunk.data

        return group.encode({1: _each(group.of(1), of_chunk)}) if left_out else group.data

    whole = _fields(footer[:-TAIL_BYTES], 0)
    data = whole.encode({4: _each(whole.of(4), of_group)})
    return data + len(data).to_bytes(4, "little") + MAGIC


def _chunk_without_bounds(chunk: _Fields) -> bytes:
    """Fields of parquet.thrift: 3 metadata, therein 12 statistics, of these 1, 2, 5, 6 bounds and 7, 8
    whether they are values; 6, 7 a column index.
    """
    metadata = _fields(chunk.of(3), 0)
    statistics = metadata.of(12)
    if not statistics:
        return chunk.data
    bounds = dict.fromkeys((1, 2, 5, 6, 7, 8))
    told = metadata.encode({12: _fields(statistics, 0).encode(bounds)})
    return chunk.encode({3: told, 6: None, 7: None})


class _Fields(NamedTuple):
    """A struct in the bytes that it has."""

    data: bytes
    """From its first field to its end (inclusive)."""
    fields: list[tuple[int, int, int, int]]
    """Number, type, start (inclusive) and end (exclusive) of each value."""

    def of(self, number: int) -> bytes:
        """Return the bytes of a field's value; none: there is no such field."""
        return next((self.data[start:end] for found, _, start, end in self.fields if found == number), b"")

    def encode(self, others: Mapping[int, bytes | None]) -> bytes:
        """Return the struct with other values; None: the field is left out."""
        parts = []
        before = 0
        for number, kind, start, end in self.fields:
            value = others.get(number, self.data[start:end])
            if value is not None:
                parts += [field_header(kind, number, before), value]
                before = number
        return b"".join([*parts, STOP])


def _fields(data: bytes, start: int) -> _Fields:
    """Return the struct that begins at ``start``."""
    found: list[tuple[int, int, int, int]] = []
    at, number = start, 0
    while True:
        number, kind, at = read_field(data, at, number)
        if not kind:
            return _Fields(
                data[start:at], [(one, of, begin - start, end - start) for one, of, begin, end in found]
            )
        begin = at
        _, at = read_value(data, at, kind)
        found.append((number, kind, begin, at))


def _each(structs: bytes, change: Callable[[int, _Fields], bytes]) -> bytes:
    """Return a list of structs, each changed."""
    kind, count, at = read_list_header(structs, 0)
    parts = [list_header(kind, count)]
    for number in range(count):
        one = _fields(structs, at)
        at += len(one.data)
        parts.append(change(number, one))
    return b"".join(parts)
