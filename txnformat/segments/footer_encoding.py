"""Footers that are made here, of values that were checked: for pyarrow to decode row groups by, and for files of other writers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from txnformat.errors import InternalError
from txnformat.segments.footer import CHECKSUMS, MAGIC, Chunk
from txnformat.segments.footer_shape import Shape
from txnformat.segments.thrift_compact import (
    BINARY,
    I64,
    STOP,
    STRUCT,
    TRUE,
    field_header,
    list_header,
    varint,
    zigzag,
)

__all__ = ["encode_footer", "encode_segment_footer", "encode_statistics"]


def encode_footer(shape: Shape, groups: Sequence[tuple[int, Sequence[Chunk]]]) -> bytes:
    """Return a footer for pyarrow.

    ``shape``: of the columns that are read (:meth:`Shape.part`). ``groups``: number of rows, and the chunks of the shape's leaves
    in their order.
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

    ``groups``: number of rows, and the chunks of the shape's leaves in their order, each with its statistics (:func:`encode_statistics`; empty: it has none).
    ``checksums``: of the chunks, as they stand in a footer.
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
    """Return the statistics of a column chunk. ``bounds``: its smallest and its largest value, in Parquet's plain encoding; None: they are not told."""
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
    """Return a footer. ``groups``: number of rows, and of each chunk its metadata and its bytes without compression."""
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
