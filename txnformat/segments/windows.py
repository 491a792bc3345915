"""Windows: the row groups of a file that are fetched, checked and decoded in one go, and what becomes of one
on the way.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from txnformat.segments.footer import Chunk
from txnformat.segments.footer_shape import Leaf
from txnformat.segments.pages_ahead import Looked

__all__ = ["Asked", "Checked", "Later", "Parts", "Window"]


class Window(NamedTuple):
    """Row groups that are fetched in one go."""

    groups: list[int]
    chunks: list[Chunk]
    """The asked ones of each row group, in the order of its leaves."""
    decoded: int
    """Bytes, about, if the footer says the truth."""


class Asked(NamedTuple):
    """Facts about columns that are read."""

    columns: Sequence[str]
    leaves: list[Leaf]
    schema: pa.Schema
    chunks: dict[int, list[Chunk]]
    """Column chunks by row group, for the row groups that were asked for."""


class Parts(NamedTuple):
    """A window that is not decoded in one piece."""

    ranges: dict[int, bytes]
    groups: list[int]


class Later(NamedTuple):
    """A window with large pages, or that may decode to more than its footer says: its turn has to come, no
    other one is decoded beside it.
    """

    ranges: dict[int, bytes]
    groups: list[int]


class Checked(NamedTuple):
    """A window that may be decoded in one piece: its bytes were compared with their checksums, its pages were
    looked at.
    """

    ranges: dict[int, bytes]
    groups: list[int]
    looked: Looked
    is_large: bool
    """Whether its columns are decoded side by side where nothing else is done meanwhile."""
