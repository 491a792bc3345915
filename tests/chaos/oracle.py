"""What has to be true of a topic that queries wrote, however often they were killed. Pure: values in,
violations out.

The rows say where they come from (:mod:`tests.chaos.origin`), so nothing is taken on trust from the sink.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "Found",
    "Place",
    "Row",
    "Seen",
    "check_attempts",
    "check_batches",
    "check_exactly_once",
    "check_order",
]
__all__ += ["check_seen", "check_versions", "judge"]

SHOWN_MAX = 5


class Place(NamedTuple):
    """Where a row is in the topic."""

    partition: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the topic."""

    place: Place
    entry: int
    """Of the log, which appended it."""
    n: int
    """The row of the input."""
    query: str
    batch: int
    task: int
    index: int
    attempt: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Row:
        """Return the row of a record that was read with its metadata columns."""
        names = ("n", "query", "batch", "task", "index", "attempt")
        return cls(
            place=Place(record["_partition"], record["_offset"]),
            entry=record["_entry"],
            **{name: record[name] for name in names},
        )


Seen = Mapping[int, Sequence[tuple[int, int, str]]]
"""What a reader that followed the topic got of each partition, in its order: (offset, n, attempt)."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What there is, against what has to be."""

    rows: int
    duplicates: int
    """Rows above one for each of the input."""
    losses: int
    """Rows of the input that are nowhere."""
    torn: int
    """Micro-batches that are there in part, or made of several attempts of a task, or in several entries."""
    violations: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        return not self.violations


def judge(rows: Sequence[Row], wanted: Iterable[int], versions: Sequence[int], seen: Sequence[Seen]) -> Found:
    """Apply every rule.

    Parameters
    ----------
    rows : sequence of Row
        A read of everything that is committed, in any order.
    wanted : iterable of int
        The rows of the input.
    versions : sequence of int
        Of the query, in the order of the log's entries.
    seen : sequence of Seen
        What each reader that followed the topic got.
    """
    duplicates, losses, violations = check_exactly_once(rows, wanted)
    torn = [*check_attempts(rows), *check_batches(rows)]
    violations += torn
    violations += check_order(rows)
    violations += check_versions(versions, rows)
    for reader in seen:
        violations += check_seen(rows, reader)
    return Found(
        rows=len(rows),
        duplicates=duplicates,
        losses=losses,
        torn=len(torn),
        violations=tuple(violations),
    )


def check_exactly_once(rows: Iterable[Row], wanted: Iterable[int]) -> tuple[int, int, list[str]]:
    """Return how many rows are there too often, how many are missing, and say which."""
    there, must = Counter(row.n for row in rows), Counter(wanted)
    extra, missing = there - must, must - there
    violations = [
        f"{counts.total()} rows {what}: {sorted(counts)[:SHOWN_MAX]}"
        for what, counts in (("too many", extra), ("missing", missing))
        if counts
    ]
    return extra.total(), missing.total(), violations


def check_attempts(rows: Iterable[Row]) -> list[str]:
    """Every task of a micro-batch was written by one attempt, whole: its rows are 0, 1, 2, …"""
    attempts: dict[tuple[str, int, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        attempts[row.query, row.batch, row.task][row.attempt].append(row.index)
    violations = []
    for (_, batch, task), of_task in attempts.items():
        if len(of_task) > 1:
            violations.append(f"batch {batch}, task {task}: rows of {len(of_task)} attempts")
        for attempt, indices in of_task.items():
            if sorted(indices) != list(range(len(indices))):
                violations.append(f"batch {batch}, task {task}: attempt {attempt} is there in part")
    return violations


def check_batches(rows: Iterable[Row]) -> list[str]:
    """A micro-batch is in one entry, and an entry has no more than one micro-batch."""
    entries: dict[tuple[str, int], set[int]] = defaultdict(set)
    batches: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for row in rows:
        entries[row.query, row.batch].add(row.entry)
        batches[row.entry].add((row.query, row.batch))
    return [
        *(
            f"batch {batch} is in entries {sorted(in_)}"
            for (_, batch), in_ in entries.items()
            if len(in_) > 1
        ),
        *(
            f"entry {entry} has batches {sorted(batch for _, batch in of)}"
            for entry, of in batches.items()
            if len(of) > 1
        ),
    ]


def check_order(rows: Iterable[Row]) -> list[str]:
    """In a partition: offsets 0, 1, 2, …; batches and tasks ascend, and the rows of each task."""
    partitions: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        partitions[row.place.partition].append(row)
    violations = []
    for number, content in sorted(partitions.items()):
        content.sort(key=lambda row: row.place.offset)
        if [row.place.offset for row in content] != list(range(len(content))):
            violations.append(f"partition {number}: offsets are not 0 to {len(content) - 1}")
        by_query: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for row in content:
            by_query[row.query].append((row.batch, row.task, row.index))
        for order in by_query.values():
            back = next((pair for pair in itertools.pairwise(order) if pair[0] >= pair[1]), None)
            if back is not None:
                violations.append(f"partition {number}: (batch, task, index) {back[1]} comes after {back[0]}")
    return violations


def check_versions(versions: Sequence[int], rows: Iterable[Row] = ()) -> list[str]:
    """The log has the versions 0, 1, 2, … each once, and one for each micro-batch that has rows."""
    violations = []
    if list(versions) != list(range(len(versions))):
        violations.append(f"versions are {list(versions)[:50]}, expected 0 to {len(versions) - 1}")
    without = {row.batch for row in rows} - set(versions)
    if without:
        violations.append(f"batches {sorted(without)[:SHOWN_MAX]} have rows and no version")
    return violations


def check_seen(rows: Iterable[Row], seen: Seen) -> list[str]:
    """A reader that followed the topic got of each partition a beginning of what is there in the end, in that
    order."""
    final: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.place):
        final[row.place.partition].append((row.place.offset, row.n, row.attempt))
    violations = []
    for partition, got in sorted(seen.items()):
        there = final[partition]
        if list(got) != there[: len(got)]:
            at = next(
                (i for i, (one, other) in enumerate(zip(got, there, strict=False)) if tuple(one) != other),
                min(len(got), len(there)),
            )
            violations.append(
                f"partition {partition}: a reader saw {tuple(got[at])} as row {at}, the topic has "
                f"{there[at] if at < len(there) else 'no such row'}"
            )
    return violations
