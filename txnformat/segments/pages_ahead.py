"""The memory that fetched pages of some columns and row groups will take, computed before a decoder gets
them.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from txnformat.segments.footer import Chunk, FooterError
from txnformat.segments.footer_shape import Leaf
from txnformat.segments.pages import (
    PAGE_BYTES_MAX,
    RATIO_MAX,
    Effort,
    Lists,
    Pages,
    check_lists,
    decoded_bytes,
    look,
    repeats,
)

__all__ = ["Looked", "look_at_pages"]


class Looked(NamedTuple):
    """The memory that pages of some columns will take."""

    decoded: int
    """Bytes, at most."""
    width: int
    """Bytes of a row, about."""
    numbered: Sequence[str]
    """Columns that are decoded as numbers of a dictionary, whose values are not repeated before it is known
    how often."""


def look_at_pages(
    ranges: Mapping[int, bytes],
    chunks: Iterable[tuple[int, Sequence[Chunk]]],
    leaves: Sequence[Leaf],
    *,
    at_once_max: int | None = None,
) -> Looked | None:
    """Look at the pages of columns, all row groups together.

    None: a decoder holds more than ``at_once_max`` bytes (inclusive) of the pages of a row group at a time;
    nothing was decompressed.

    ``ranges``: start in the object (inclusive) to content; each chunk lies in one of them. ``chunks``: row
    groups, and of each the chunks of the leaves. ``leaves``: of the columns. Raises FooterError: as
    :func:`~txnformat.segments.pages.look` and :func:`~txnformat.segments.pages.check_lists`.
    """
    starts = sorted(ranges)
    found: list[tuple[int, Leaf, Chunk, memoryview, Pages]] = []
    plain: set[bytes] = set()
    for group, of_group in chunks:
        at_once = 0
        for chunk, leaf in zip(of_group, leaves, strict=True):
            start = starts[bisect_right(starts, chunk.start) - 1]
            data = memoryview(ranges[start])[chunk.start - start : chunk.start - start + chunk.length]
            pages = look(data, chunk, leaf)
            found.append((group, leaf, chunk, data, pages))
            at_once += pages.at_once(leaf)
            if not leaf.flat or not repeats(pages):
                plain.add(leaf.path[0])
        if at_once_max is not None and at_once > at_once_max:
            return None
        stored = sum(chunk.length for chunk in of_group)
        if at_once > PAGE_BYTES_MAX and at_once > RATIO_MAX * stored:
            raise FooterError(
                "the pages of a row group are too large when decompressed side by side",
                f"at most {PAGE_BYTES_MAX} bytes, or {RATIO_MAX} times what is stored",
                f"{at_once} bytes of {stored}",
            )
    decoded = 0
    left = Effort(sum(chunk.length for _, _, chunk, _, _ in found))
    widths: dict[tuple[bytes, ...], int] = {}
    lists: dict[int, list[Lists]] = {}
    for group, leaf, chunk, data, pages in found:
        size, width = decoded_bytes(data, chunk, leaf, pages, left, as_numbers=leaf.path[0] not in plain)
        decoded += size
        if leaf.repeated:
            lists.setdefault(group, []).append(Lists(data, chunk, leaf, pages, size))
        widths[leaf.path] = max(width, widths.get(leaf.path, 0))
    for columns_of_lists in lists.values():
        check_lists(columns_of_lists)
    numbered = [leaf.path[0].decode() for leaf in leaves if leaf.path[0] not in plain]
    return Looked(decoded, sum(widths.values()), numbered)
