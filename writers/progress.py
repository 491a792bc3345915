"""What a transaction takes along of those who read: positions of groups, until the next entry has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from txnformat.errors import AckConflictError, OffsetOutOfRangeError, TxnLogError
from txnformat.group_operations import OffsetCommit, PositionCommit
from txnformat.intents import GroupOffsets
from writers.group_offsets import OffsetSource

__all__ = ["Progress"]

C = TypeVar("C", OffsetCommit, PositionCommit)

_REFUSED = frozenset(
    {"offsets-changed", "offsets-held", "offsets-pending", "offsets-hold-broken", "member-fenced"}
)
"""Kinds of errors that mean: what was read is not this transaction's to bring any more."""


class Progress:
    """Positions that wait for the next entry of a transaction, and whoever wants to know that they are in force."""

    def __init__(self) -> None:
        self._offsets: dict[str, GroupOffsets] = {}
        self._sources: list[tuple[OffsetSource, GroupOffsets]] = []

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return bool(self._offsets)

    def add(self, offsets: GroupOffsets, source: OffsetSource | None = None) -> None:
        """Take positions of a group; of one that is given twice the later counts, and every comparison."""
        self._offsets[offsets.group] = _merged(self._offsets.get(offsets.group), offsets)
        if source is not None:
            self._sources.append((source, offsets))

    def offsets(self) -> tuple[GroupOffsets, ...]:
        """Return what the next entry commits: at most one of each group."""
        return tuple(self._offsets.values())

    def landed(self) -> None:
        """Forget what an entry has."""
        self._offsets.clear()

    def committed(self) -> None:
        """Tell whoever reads that the transaction is committed."""
        for source, offsets in self._sources:
            source.offsets_committed(offsets)
        self.discard()

    def discard(self) -> None:
        """Forget everything: the transaction is aborted."""
        self._offsets.clear()
        self._sources.clear()

    def is_refused_by(self, error: TxnLogError) -> bool:
        """Return whether an error says that the transaction can only be aborted, because of what was read."""
        if error.kind in _REFUSED or isinstance(error, AckConflictError):
            return True
        return bool(self) and isinstance(error, OffsetOutOfRangeError)


def _merged(before: GroupOffsets | None, more: GroupOffsets) -> GroupOffsets:
    if before is None:
        return more
    return GroupOffsets(
        more.group,
        _later(before.offsets, more.offsets),
        _later(before.positions, more.positions),
        before.generation if more.generation is None else more.generation,
        before.read_uncommitted or more.read_uncommitted,
    )


def _later(before: Iterable[C], more: Iterable[C]) -> tuple[C, ...]:
    found = {one.key: one for one in before}
    for one in more:
        earlier = found.get(one.key)
        compares = one.expected is not None or earlier is None
        found[one.key] = one if compares or earlier is None else replace(one, expected=earlier.expected)
    return tuple(found[key] for key in sorted(found))
