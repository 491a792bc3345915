"""Input in pieces, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from txnformat.errors import InvalidInputError

__all__ = ["HINT", "PROBLEMS_MAX", "Piece", "Source", "invalid"]

PROBLEMS_MAX = 20
"""Most problems that one error names; the rest is counted."""
HINT = "no record was written"


class Piece(NamedTuple):
    """Some records."""

    table: Any
    """pyarrow.Table or RecordBatch."""
    done: int
    """How much of the source is read, in the units of ``Source.total``."""


class Source(NamedTuple):
    """Input that is open."""

    pieces: Iterator[Piece]
    total: int | None
    """Bytes, or rows of a Parquet file; None when it is not known."""
    close: Callable[[], None] = lambda: None
    """Ends what reads the file."""


def invalid(problems: list[str]) -> InvalidInputError:
    """Return an error of kind ``invalid-record`` about these problems."""
    more = len(problems) - PROBLEMS_MAX
    shown = problems[:PROBLEMS_MAX] + ([f"and {more} more"] if more > 0 else [])
    return InvalidInputError(shown, kind="invalid-record", hint=HINT)
