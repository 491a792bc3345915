"""The judge of removals in a simulated history: log starts, deleted topics, and the floor of the vacuum.

Kept by the rules of the specification alone, from the operations of the entries as they land.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from txnformat.core.lifecycle.operations import Trim, TrimmedPartition, VacuumMark
from txnformat.core.operations import Operation
from txnformat.core.state import LogState
from txnformat.types import TopicPartition
from txnlog_testing.simulator.world import HistoryViolation

__all__ = ["RemovalLedger"]

_BORN = re.compile(r"(?<!_txnlog/snapshots)/(\d{20})-[0-9a-f-]{36}(?:\.[a-z]+)?\Z")
"""A snapshot's key names its entry, and may be below the floor."""
_KNOWN_BEFORE = frozenset({"replaced", "replaced_lists"})
"""Fields that name objects which the log has named before."""


class RemovalLedger:
    """The records that were removed in one history.

    ``hits``: counts what happened.
    """

    def __init__(self, hits: Counter[str]) -> None:
        self._hits = hits
        self._floor = 0
        self._starts: dict[TopicPartition, int] = {}
        self._entries: dict[TopicPartition, int] = {}
        """The largest commit entry named by the trims of each partition."""

    def start(self, key: TopicPartition) -> int:
        """Return the log start of a partition."""
        return self._starts.get(key, 0)

    def check_named(self, op: Operation) -> None:
        """Check that an operation names no object for the first time that was born below the floor."""
        for key in _names(msgspec.to_builtins(op)) if self._floor else ():
            found = _BORN.search(key)
            if found and int(found[1]) < self._floor:
                raise HistoryViolation(f"{key} is named below the floor {self._floor}")

    def mark(self, op: VacuumMark, entry: int) -> None:
        """Judge a mark in an entry."""
        if not self._floor < op.floor < entry:
            raise HistoryViolation(f"{op} in entry {entry} follows the floor {self._floor}")
        self._floor = op.floor
        self._hits["floor moved"] += 1

    def trim(
        self,
        op: Trim,
        part: TrimmedPartition,
        committed: list[tuple[int, int, int]],
        stable: int,
        *,
        is_exact: bool = True,
    ) -> None:
        """Judge what a trim does to a partition.

        ``committed``: first offset, end (exclusive) and commit entry of what is committed there; ``stable``:
        its last stable offset. ``is_exact``: each segment tells the entry of each batch.
        """
        key = TopicPartition(op.topic_id, part.partition)
        start = self.start(key)
        if not start < part.log_start <= stable:
            raise HistoryViolation(f"{part} follows the log start {start}; the LSO is {stable}")
        below = [(end, entry) for first, end, entry in committed if first < part.log_start]
        gone = max((entry for end, entry in below if end > start), default=-1)
        # A segment that the old log start cuts counts once more.
        latest = max((entry for _, entry in below), default=-1)
        if not gone <= part.commit_entry or (is_exact and part.commit_entry > latest):
            raise HistoryViolation(f"{part} removes what entries up to {gone} committed, at most {latest}")
        self._starts[key] = part.log_start
        self._entries[key] = max(self._entries.get(key, -1), part.commit_entry)
        self._hits["trimmed"] += 1
        self._hits["trimmed inside a segment"] += any(
            first < part.log_start < end for first, end, _ in committed
        )

    def forget(self, topic_id: str) -> None:
        """Note that a topic is gone."""
        for known in (self._starts, self._entries):
            for key in [key for key in known if key.topic_id == topic_id]:
                del known[key]

    def check(self, state: LogState) -> None:
        """Compare log starts and floor with those of a state."""
        if state.vacuum_floor != self._floor:
            raise HistoryViolation(f"the floor is {state.vacuum_floor}, not {self._floor}")
        for key, partition in state.partitions.items():
            told = (partition.log_start, partition.trimmed_entry)
            right = (self.start(key), self._entries.get(key, -1))
            if told != right:
                raise HistoryViolation(f"{key} has log start and newest removed commit {told}, not {right}")


def _names(value: Any) -> Iterator[str]:
    """Yield the keys of objects that an operation names, wherever they are in it."""
    match value:
        case dict():
            for name, inner in value.items():
                if name not in _KNOWN_BEFORE:
                    yield from _names(inner)
        case list() | tuple():
            for inner in value:
                yield from _names(inner)
        case str():
            yield value
        case _:
            pass
