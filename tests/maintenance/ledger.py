"""A ledger that the tests keep without asking the log: each record that was written, at the offset that they
count themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from enum import StrEnum
from typing import NamedTuple, Self

__all__ = ["Cell", "End", "Ledger", "Place", "Row", "Seen"]

Row = tuple[str, int]
"""The columns ``k`` and ``n``."""
Place = tuple[str, int]
"""Topic and partition."""
Seen = dict[tuple[int, int], Row]
"""Records of a topic, by partition and offset."""


class End(StrEnum):
    """How the transaction of a record ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    PREPARED = "prepared"
    OPEN = "open"
    """Its process is no more, and its time is over."""


ENDED = (End.COMMITTED, End.ABORTED)


class Cell(NamedTuple):
    """One offset of a partition."""

    row: Row | None
    """None: the marker at the end of a transaction."""
    end: End
    transaction: int


class Ledger:
    """Records by topic and partition; a cell's place in its list is its offset."""

    def __init__(self) -> None:
        self.cells: dict[Place, list[Cell]] = defaultdict(list)
        self.starts: dict[Place, int] = {}
        """Log starts that have moved."""
        self.removed: set[tuple[Place, int]] = set()
        """Records that were taken out one by one."""
        self.gone: set[str] = set()
        """Topics that were deleted."""
        self._transactions = 0

    def copied(self) -> Self:
        """Return another one, for another end of the story."""
        return deepcopy(self)

    def wrote(self, parts: Iterable[tuple[Place, Iterable[Row]]], end: End) -> int:
        """Note a transaction, and its marker in each partition when it has ended; return its number."""
        self._transactions += 1
        for place, rows in parts:
            self.cells[place] += [Cell(row, end, self._transactions) for row in rows]
            if end in ENDED:
                self.cells[place].append(Cell(None, end, self._transactions))
        return self._transactions

    def wrote_plain(self, place: Place, rows: Iterable[Row]) -> None:
        """Note records outside of transactions: they have no marker."""
        self._transactions += 1
        self.cells[place] += [Cell(row, End.COMMITTED, self._transactions) for row in rows]

    def ended(self, transaction: int, end: End) -> None:
        """Note the end of a prepared transaction."""
        for cells in self.cells.values():
            places = [number for number, cell in enumerate(cells) if cell.transaction == transaction]
            for number in places:
                cells[number] = cells[number]._replace(end=end)
            if places:
                cells.append(Cell(None, end, transaction))

    def log_end(self, place: Place) -> int:
        """Return the offset that comes next."""
        return len(self.cells[place])

    def stable_end(self, place: Place) -> int:
        """Return the last stable offset (exclusive): where the first transaction begins that has not
        ended.
        """
        cells = self.cells[place]
        return next((number for number, cell in enumerate(cells) if cell.end not in ENDED), len(cells))

    def topics(self) -> set[str]:
        """Return the topics that are there."""
        return {topic for topic, _ in self.cells} - self.gone

    def partitions(self, topic: str) -> list[Place]:
        """Return the partitions of a topic."""
        return sorted(place for place in self.cells if place[0] == topic)

    def visible(self, topic: str, isolation: str) -> Seen:
        """Return what a reader must see."""
        found: Seen = {}
        for place in self.partitions(topic):
            cells = self.cells[place]
            end = self.stable_end(place) if isolation == "read_committed" else len(cells)
            for offset in range(self.starts.get(place, 0), end):
                row, how, _ = cells[offset]
                is_shown = how is End.COMMITTED or isolation == "read_uncommitted"
                if row is not None and is_shown and (place, offset) not in self.removed:
                    found[place[1], offset] = row
        return found

    def committed_below(self, place: Place, end: int) -> list[tuple[int, Row]]:
        """Return the committed records of a partition below an offset."""
        seen = self.visible(place[0], "snapshot")
        return sorted((at, row) for (number, at), row in seen.items() if number == place[1] and at < end)

    # Tasks.

    def abort_open(self) -> None:
        """End what is open."""
        for transaction in {
            cell.transaction for cells in self.cells.values() for cell in cells if cell.end is End.OPEN
        }:
            self.ended(transaction, End.ABORTED)

    def trim(self, place: Place, start: int) -> None:
        """Move a log start."""
        self.starts[place] = max(start, self.starts.get(place, 0))

    def keep_latest(self, place: Place, end: int) -> None:
        """Take out the records below an offset whose keys come again below it."""
        latest = {row[0]: at for at, row in self.committed_below(place, end)}
        self.removed |= {(place, at) for at, row in self.committed_below(place, end) if latest[row[0]] != at}

    def take_out(self, topic: str, matches: Callable[[Row], bool]) -> None:
        """Take out the records that match, whatever became of their transactions."""
        for place in self.partitions(topic):
            for offset, cell in enumerate(self.cells[place]):
                if cell.row is not None and matches(cell.row):
                    self.removed.add((place, offset))
