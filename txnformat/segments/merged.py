"""One Parquet file in memory made of fetched row groups of several segment files: they are decoded by one
call of pyarrow's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from txnformat.segments.footer import Chunk
from txnformat.segments.footer_encoding import encode_footer
from txnformat.segments.footer_shape import Shape

__all__ = ["Part", "merged", "parquet_file"]

MAGIC = b"PAR1"


class Part(NamedTuple):
    """Row groups of one segment file."""

    ranges: Mapping[int, bytes]
    """Start in that file (inclusive) to content; each chunk lies in one of them."""
    groups: Sequence[tuple[int, Sequence[Chunk]]]
    """Number of rows, and the chunks of the columns that are read."""

    @property
    def rows(self) -> int:
        """Rows of all of them."""
        return sum(rows for rows, _ in self.groups)


def merged(parts: Sequence[Part], shape: Shape) -> bytes:
    """Return a Parquet file that has the row groups of parts, one after the other.

    ``shape``: of the columns that are read.
    """
    contents = [MAGIC]
    groups: list[tuple[int, Sequence[Chunk]]] = []
    at = len(MAGIC)
    for part in parts:
        groups += _moved(part, at)
        for _, content in sorted(part.ranges.items()):
            contents.append(content)
            at += len(content)
    return b"".join([*contents, encode_footer(shape, groups)])


def _moved(part: Part, at: int) -> Iterator[tuple[int, Sequence[Chunk]]]:
    """Yield the row groups of a part for a file in which its ranges follow each other from ``at`` on."""
    starts = sorted(part.ranges)
    shifts = []
    for start in starts:
        shifts.append(at - start)
        at += len(part.ranges[start])
    for rows, chunks in part.groups:
        moved = [
            chunk._replace(metadata=chunk.moved(shifts[bisect_right(starts, chunk.start) - 1]))
            for chunk in chunks
        ]
        yield rows, moved


def parquet_file(file: Any, metadata: Any, numbered: Sequence[str], *, checks_pages: bool) -> Any:
    """Return pyarrow's reader of a file.

    ``metadata``: its footer; None: the file has it. ``numbered``: columns that are decoded as numbers of a
    dictionary.
    """
    return pq.ParquetFile(
        file,
        metadata=metadata,
        read_dictionary=list(numbered),
        pre_buffer=False,
        page_checksum_verification=checks_pages,
    )
