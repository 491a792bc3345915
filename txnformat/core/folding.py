"""Shared parts of the fold: where an operation stands, and how a broken one is reported."""

from __future__ import annotations

from typing import NoReturn

from txnformat.errors import CorruptDataError
from txnformat.types import TopicPartition

__all__ = ["At", "PendingIndex", "corrupt"]


class At:
    """Where in the chain an operation stands, and what the operations of one entry look up once: one for the
    fold of an entry.
    """

    __slots__ = (
        "directories",
        "dropped_files",
        "dropped_tables",
        "entry",
        "holding",
        "listed",
        "positions",
        "sealed",
        "sequences",
        "timestamp_ms",
    )

    def __init__(self, entry: int, timestamp_ms: int) -> None:
        self.entry = entry
        self.timestamp_ms = timestamp_ms
        self.directories: set[str] | None = None
        """Directories of topics; None until an operation asks for them."""
        self.positions: dict[str, PendingIndex] = {}
        """The pending positions of each transaction, for the groups that an operation has asked about."""
        self.holding: dict[object, dict[str, set[int]]] = {}
        """The partitions in which each transactional id holds something, for the subscriptions in which a
        transaction has ended."""
        self.sequences: dict[tuple[int, int], set[TopicPartition]] | None = None
        """Partitions that remember sequences of a producer; None until an operation asks for them."""
        self.dropped_files: set[int] = set()
        """Numbers in LogState.files that leave the state with the entry's end: to be dropped together."""
        self.dropped_tables: set[int] = set()
        self.sealed: tuple[int, int] | None = None
        """Ends of LogState.files and tables at the last seal: what is unused below leaves the state with the
        entry's end."""
        self.listed = False
        """Whether a seal has brought a segment list: what it describes leaves the state with the entry's end.
        """


class PendingIndex:
    """The transactional ids of one group that have a key pending, and those of them that hold it."""

    __slots__ = ("holding", "ids")

    def __init__(self) -> None:
        self.ids: dict[object, set[str]] = {}
        self.holding: dict[object, set[str]] = {}

    def add(self, transactional_id: str, key: object, *, holds: bool) -> None:
        """Note that something is pending."""
        self.ids.setdefault(key, set()).add(transactional_id)
        if holds:
            self.holding.setdefault(key, set()).add(transactional_id)

    def release(self, transactional_id: str, key: object) -> None:
        """Note that what is pending holds its key no longer."""
        self.holding.get(key, set()).discard(transactional_id)

    def remove(self, transactional_id: str, key: object) -> None:
        """Note that something is no longer pending."""
        self.release(transactional_id, key)
        self.ids.get(key, set()).discard(transactional_id)


def corrupt(at: At, what: str, **values: object) -> NoReturn:
    """Raise about an entry that does not fit the state before it."""
    raise CorruptDataError(
        what,
        kind="invalid-entry",
        hint="run no writer on this log before its cause is known",
        entry=at.entry,
        **values,
    )
