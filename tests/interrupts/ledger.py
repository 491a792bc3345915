"""What a user was told of what was sent, and whether the log agrees. Knows the public interface only.

A *batch* is the records of one ``send``; a *group* is what one transaction, or one producer without
transactions, was given. Told are: acknowledged (a commit, a flush or a close returned), aborted (an abort
returned, or a close that had to abort), or neither. The rules:

* acknowledged: each record is there exactly once; of a send that raised all or none.
* aborted, or never asked to be committed: no record is there.
* asked, and not told: all of the group, or nothing; nothing twice.
* positions and acknowledgements of a group are there if and only if its records are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["Batch", "Fate", "Group", "Ledger", "Seen"]


class Fate(StrEnum):
    """What the user knows of a group."""

    OPEN = "open"
    """No call was asked to commit it."""
    UNKNOWN = "unknown"
    """A commit was asked for, and did not answer."""
    ACKNOWLEDGED = "acknowledged"
    ABORTED = "aborted"


@dataclass(eq=False, slots=True)
class Batch:
    """The records of one send."""

    topic: str
    values: tuple[int, ...]
    is_certain: bool = False
    """Whether the send returned."""
    is_acknowledged: bool = False
    """Whether a flush or a close that came after it returned; without transactions."""


@dataclass(eq=False, slots=True)
class Group:
    """What one transaction was given; or one producer without transactions."""

    is_transaction: bool
    fate: Fate = Fate.OPEN
    batches: list[Batch] = field(default_factory=list)
    consumer_groups: list[str] = field(default_factory=list)
    """Those whose positions it commits, each of them in this one only."""
    acknowledged_offsets: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was called meanwhile, and what came of it; for people."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader of committed data finds in the log."""

    values: Mapping[str, Counter[int]]
    """Topic to how often each value is there."""
    consumer_groups: frozenset[str]
    """Those with a committed position."""
    unacknowledged: frozenset[int]
    """Offsets that the subscription hands out."""
    undecided: tuple[str, ...]
    """Transactional ids whose transaction is open or prepared."""
    problems: tuple[str, ...] = ()
    """What ``verify`` found."""


@dataclass(slots=True)
class Ledger:
    """All groups of a trial."""

    groups: list[Group] = field(default_factory=list)
    last_value: int = 0
    prepared: dict[str, Group] = field(default_factory=dict)
    """By transactional id: what the newest instance was last asked to prepare; a later one may find it so."""

    def begin(self, *, is_transaction: bool) -> Group:
        """Begin a group."""
        self.groups.append(Group(is_transaction))
        return self.groups[-1]

    def new_values(self, count: int) -> tuple[int, ...]:
        """Return values that were never used."""
        first = self.last_value + 1
        self.last_value += count
        return tuple(range(first, self.last_value + 1))

    def check(self, seen: Seen) -> Iterator[str]:
        """Yield what the log holds and should not, or does not hold and should."""
        known = {value for group in self.groups for batch in group.batches for value in batch.values}
        for topic, counts in seen.values.items():
            for value, count in counts.items():
                if count > 1:
                    yield f"{topic}: {value} is there {count} times"
                if value not in known:
                    yield f"{topic}: {value} was never sent"
        for group in self.groups:
            for problem in (
                _check_transaction(group, seen) if group.is_transaction else _check_held(group, seen)
            ):
                yield f"{problem}; {'; '.join(group.notes)}" if group.notes else problem
        yield from seen.problems


def _present(batch: Batch, seen: Seen) -> int:
    return sum(seen.values[batch.topic][value] > 0 for value in batch.values)


def _check_held(group: Group, seen: Seen) -> Iterator[str]:
    for batch in group.batches:
        present = _present(batch, seen)
        if batch.is_acknowledged and batch.is_certain and present < len(batch.values):
            yield f"lost: flushed, and {len(batch.values) - present} of {len(batch.values)} are not there"
        elif 0 < present < len(batch.values):
            yield f"torn: {present} of {len(batch.values)} of one send are there"


def _check_transaction(group: Group, seen: Seen) -> Iterator[str]:
    there = [(batch, _present(batch, seen)) for batch in group.batches]
    for batch, present in there:
        if 0 < present < len(batch.values):
            yield f"torn: {present} of {len(batch.values)} of one send are there ({group.fate})"
    certain = [present for batch, present in there if batch.is_certain]
    marks = [name in seen.consumer_groups for name in group.consumer_groups]
    marks += [offset not in seen.unacknowledged for offset in group.acknowledged_offsets]
    signs = [present > 0 for present in certain] + marks
    any_there = any(signs) or any(present for _, present in there)
    match group.fate:
        case Fate.ACKNOWLEDGED:
            if not all(signs):
                yield f"lost: acknowledged, and {signs.count(False)} of {len(signs)} parts are not there"
        case Fate.ABORTED | Fate.OPEN:
            if any_there:
                yield f"visible: {group.fate}, and {signs.count(True)} of {len(signs)} parts are there"
        case Fate.UNKNOWN:
            if any_there and not all(signs):
                yield f"torn: unknown, and {signs.count(True)} of {len(signs)} parts are there"
