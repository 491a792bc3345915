"""What the parts of the fold share: where an operation stands, and how a broken one is reported."""

from __future__ import annotations

from typing import NoReturn

from txnformat.errors import CorruptDataError

__all__ = ["At", "corrupt"]


class At:
    """Where in the chain an operation stands. One for the fold of an entry, which owns the drafts of its states.

    Of the states between operations that were folded with one ``At`` only the last may be used
    (:mod:`txnformat.drafts`).
    """

    __slots__ = ("entry", "producer_ids", "timestamp_ms")

    def __init__(self, entry: int, timestamp_ms: int) -> None:
        self.entry = entry
        self.timestamp_ms = timestamp_ms
        self.producer_ids: set[int] | None = None
        """Ids that belong to transactional ids; None until an operation asks for them."""


def corrupt(at: At, what: str, **values: object) -> NoReturn:
    """Raise about an entry that does not fit the state before it."""
    raise CorruptDataError(
        what,
        kind="invalid-entry",
        hint="run no writer on this log before its cause is known",
        entry=at.entry,
        **values,
    )
