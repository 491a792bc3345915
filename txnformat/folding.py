"""What the parts of the fold share: where an operation stands, and how a broken one is reported."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from txnformat.errors import CorruptDataError

__all__ = ["At", "corrupt"]


class At(NamedTuple):
    """Where in the chain an operation stands."""

    entry: int
    timestamp_ms: int


def corrupt(at: At, what: str, **values: object) -> NoReturn:
    """Raise about an entry that does not fit the state before it."""
    raise CorruptDataError(
        what,
        kind="invalid-entry",
        hint="run no writer on this log before its cause is known",
        entry=at.entry,
        **values,
    )
