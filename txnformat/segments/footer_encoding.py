"""Footers that are made here, of values that were checked, for pyarrow to decode row groups by. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from txnformat.segments.footer import MAGIC, Chunk
from txnformat.segments.footer_shape import Shape
from txnformat.segments.thrift_compact import STOP, STRUCT, list_header, zigzag

__all__ = ["encode_footer"]


def encode_footer(shape: Shape, groups: Sequence[tuple[int, Sequence[Chunk]]]) -> bytes:
    """Return a footer for pyarrow.

    ``shape``: of the columns that are read (:meth:`Shape.part`). ``groups``: number of rows, and the chunks of the shape's leaves
    in their order.
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
        for chunk in chunks:
            parts += [b"\x26\x08\x1c", chunk.metadata, b"\0\0"]
            size += chunk.uncompressed
        parts += [b"\x16", zigzag(size), b"\x16", zigzag(rows), STOP]
    parts.append(shape.tail)
    data = b"".join(parts)
    return data + len(data).to_bytes(4, "little") + MAGIC
