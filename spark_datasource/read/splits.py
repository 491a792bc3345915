"""Cutting a read into splits: few and of equal cost, each a run of the log in order. Pure.

A Python task costs 5 to 25 ms however little it reads, so a split may hold rows of several partitions. A
batch that is not sealed is never cut in two.

The cost of a split is its compressed bytes, and *open bytes* for each file that it opens: many small files
become many tasks. Where these are most of the cost, splits are cut across all partitions at the same entries,
not partition by partition: a small file has batches of many partitions, and each split would fetch it. Within
a partition the splits are in order either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import numpy as np
from pyspark.sql.datasource import InputPartition

from txnformat.core.records.scan import PLANNED, PartitionPlan, Stored
from txnformat.core.topics.schema import TopicSchema
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.plan import SealedRange
from txnformat.types import FileRecord, OffsetRange

__all__ = [
    "OPEN_BYTES",
    "OPEN_BYTES_AT_HAND",
    "SPLIT_BYTES_MIN",
    "SealedPart",
    "Split",
    "SplitPart",
    "TopicPlan",
    "TopicRead",
    "cut",
    "split_count",
]

SPLIT_BYTES_MIN = 4 * 2**20
"""Below this a split for every core costs more than it saves (Spark's spark.sql.files.openCostInBytes)."""

OPEN_BYTES = 2**20
"""The cost of opening a file where a request has a latency: of 30 ms, in which 2 MiB come at 70 MB/s; but
several files are on their way at a time."""

OPEN_BYTES_AT_HAND = 128 * 1024
"""The same on a local disk, where only Python's work is left: 1 to 2 ms."""

FURTHER_OPENS = 4
"""So many further batches of a sealed segment count as a file: they lie in files of their own, or in those of
other partitions; only its sidecar knows."""


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A topic, for a task that reads it."""

    name: str
    topic_id: str
    schema: TopicSchema
    """As pinned."""
    columns: tuple[str, ...]
    """The topic's own and metadata columns, as the topic calls them, in the order that Spark expects."""
    where: Predicate | None = None


@dataclass(frozen=True, slots=True)
class SplitPart:
    """Rows of one partition."""

    topic: int
    """Index into ``Split.topics``."""
    partition: int
    rows: bytes
    """Structured array, dtype ``txnformat.core.records.scan.PLANNED``, in the order of the read."""

    def planned(self) -> Rows:
        """Return the rows."""
        return np.frombuffer(self.rows, PLANNED)


class SealedPart(NamedTuple):
    """A part of a sealed segment."""

    topic: int
    """Index into ``Split.topics``."""
    range: SealedRange


@dataclass(eq=False, repr=False)
class Split(InputPartition):
    """The work of one task: with the reader all that it needs, so that it asks the log for nothing."""

    log_id: str
    entry: int
    """Entry of the state that the read is pinned to: decisions of later entries are not known yet."""
    topics: Sequence[TopicRead]
    """The topics that it reads."""
    sealed: Sequence[SealedPart]
    """Parts of sealed segments; the task reads their sidecars itself."""
    parts: Sequence[SplitPart]
    """Ascending by topic and partition; of each partition after its sealed parts."""
    files: dict[int, FileRecord]
    """The records of the files that the parts name."""
    value: None = None
    """Spark's."""
    trace: str | None = field(default=None, init=False)
    """The span that it was planned in, where that is traced; else the pickle does not have it."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The plan of a whole read for one topic."""

    read: TopicRead
    partitions: Sequence[PartitionPlan]
    files: Mapping[int, FileRecord]
    """File records, by the numbers that the plans' rows have in ``file``: they are the log's, no two topics
    share one."""
    sealed: Sequence[SealedRange] = ()

    def cost(self, open_bytes: int = 0) -> int:
        """Return compressed bytes, about, and ``open_bytes`` for each file that is opened, and for each entry
        that is read by itself.
        """
        size = sum(int(plan.rows["size"].sum()) for plan in self.partitions)
        size += sum(part.size for part in self.sealed)
        if open_bytes:
            files = [plan.rows["file"] for plan in self.partitions if len(plan.rows)]
            opens = len(np.unique(np.concatenate(files))) if files else 0
            opens += sum(int((plan.rows["stored"] == Stored.BY_COMMIT).sum()) for plan in self.partitions)
            by_index: dict[str, list[SealedRange]] = {}
            for part in self.sealed:
                by_index.setdefault(part.index.key, []).append(part)
            opens += sum(map(_opens, by_index.values()))
            size += opens * open_bytes
        return size


def _opens(parts: Sequence[SealedRange]) -> int:
    """Return about how many files the parts of one sealed segment lie in."""
    most = max(part.batches for part in parts)
    return most + (sum(part.batches for part in parts) - most) // FURTHER_OPENS


def split_count(size: int, bytes_max: int, partitions_min: int | None, cores: int) -> int:
    """Return how many splits to aim for.

    ``size``: the cost of the whole read, in bytes. ``bytes_max``: of one split (inclusive).
    ``partitions_min``: what the user asks for; None: enough for ``cores``, unless splits get smaller than
    SPLIT_BYTES_MIN. ``cores``: of the machine that plans. A cluster has more, and large reads then have more
    splits by ``bytes_max``.
    """
    by_size = -(-size // bytes_max)
    if partitions_min is None:
        partitions_min = min(cores, size // SPLIT_BYTES_MIN)
    return max(1, by_size, partitions_min)


def cut(log_id: str, entry: int, plans: Sequence[TopicPlan], count: int, open_bytes: int = 0) -> list[Split]:
    """Return about ``count`` splits of about equal cost, those of sealed segments first; none is empty.

    Where the batches of a sealed segment lie only its sidecar knows, so it is cut by offsets, as if they were
    of equal size. Two tasks may then read one row group, each its part of it: a range of offsets can be
    planned again when the files have been compacted meanwhile, a list of batches could not. ``log_id``,
    ``entry``: as of :class:`Split`. ``open_bytes``: the cost of opening a file.
    """
    topics = [plan.read for plan in plans]
    parts = [(topic, one) for topic, plan in enumerate(plans) for one in plan.partitions if len(one.rows)]
    sealed = [SealedPart(topic, one) for topic, plan in enumerate(plans) for one in plan.sealed]
    total = max(1, sum(plan.cost(open_bytes) for plan in plans))
    splits = [
        _split(log_id, entry, topics, group, (), {})
        for group in _cut_sealed(sealed, total / count, open_bytes)
    ]
    if parts:
        rows = np.concatenate([one.rows for _, one in parts])
        owners = np.repeat(np.arange(len(parts)), [len(one.rows) for _, one in parts])
        order, units, costs = _cut_order(parts, rows, owners, open_bytes)
        # At least one more, and no more than the cost that is left deserves.
        count = max(1, count - len(splits), round(count * float(costs.sum()) / total))
        if units[-1] + 1 < count:
            units = np.arange(len(rows))  # files are cut, too
        whole = np.bincount(units, costs)
        middles = np.cumsum(whole) - whole / 2
        numbers = np.minimum((middles * count / whole.sum()).astype(np.int64), count - 1)[units]
        files = {number: record for plan in plans for number, record in plan.files.items()}
        for places in np.split(order, np.flatnonzero(np.diff(numbers)) + 1):
            places = np.sort(places)
            mine, whose = rows[places], owners[places]
            begins = np.append(0, np.flatnonzero(np.diff(whose)) + 1)
            own = [
                SplitPart(parts[whose[begin]][0], parts[whose[begin]][1].partition, of_part.tobytes())
                for begin, of_part in zip(begins.tolist(), np.split(mine, begins[1:]), strict=True)
            ]
            named = {int(file): files[int(file)] for file in np.unique(mine["file"])}
            splits.append(_split(log_id, entry, topics, (), own, named))
    return splits


def _cut_order(
    parts: Sequence[tuple[int, PartitionPlan]], rows: Rows, owners: Rows, open_bytes: int
) -> tuple[Rows, Rows, Rows]:
    """Return the places of rows in the order in which they are cut; and in that order the number of the unit
    of each, and its cost.

    Partition by partition, each row a unit; where it costs more to open files than to read them, by entries
    across all partitions of a topic, and rows of one file that follow each other are a unit. The cost of
    opening a file is shared by such rows.
    """
    order: Rows = np.arange(len(rows))
    units: Rows = order
    sizes = np.maximum(rows["size"], 1)
    is_small = len(np.unique(rows["file"])) * open_bytes > sizes.sum()
    if is_small:
        topics = np.array([topic for topic, _ in parts])[owners]
        order = np.lexsort((np.concatenate([_entries(one.rows) for _, one in parts]), topics))
    files = rows["file"][order]
    opens = np.append(True, files[1:] != files[:-1]) | (rows["stored"][order] == Stored.BY_COMMIT)
    runs = np.cumsum(opens) - 1
    return order, runs if is_small else units, sizes[order] + open_bytes / np.bincount(runs)[runs]


def _entries(rows: Rows) -> Rows:
    """Return for each row of a partition an entry that does not go back: that of its append, or in commit
    order of its commit.
    """
    entries = np.where(rows["entry"] < 0, rows["commit_entry"], rows["entry"])
    if (np.diff(entries) < 0).any():
        entries = rows["commit_entry"]
    highest: Rows = np.maximum.accumulate(entries)
    return highest


def _split(
    log_id: str,
    entry: int,
    topics: Sequence[TopicRead],
    sealed: Sequence[SealedPart],
    parts: Sequence[SplitPart],
    files: dict[int, FileRecord],
) -> Split:
    """Return a split with no more than the topics that it reads: each travels with its own."""
    used = {one.topic for one in sealed} | {one.topic for one in parts}
    numbers = {number: place for place, number in enumerate(sorted(used))}
    return Split(
        log_id,
        entry,
        [topics[number] for number in numbers],
        [one._replace(topic=numbers[one.topic]) for one in sealed],
        [replace(one, topic=numbers[one.topic]) for one in parts],
        files,
    )


class _Piece(NamedTuple):
    """Parts of sealed segments that one split reads."""

    parts: list[SealedPart]
    cost: float


def _cut_sealed(sealed: Sequence[SealedPart], size: float, open_bytes: int) -> list[list[SealedPart]]:
    """Cut what costs more than ``size``, and put together what costs less."""
    groups: list[list[SealedPart]] = []
    filled = 0.0
    for piece in _pieces(sealed, size, open_bytes):
        if groups and filled + piece.cost <= size:
            groups[-1] += piece.parts
            filled += piece.cost
        else:
            groups.append(list(piece.parts))
            filled = piece.cost
    return groups


def _pieces(sealed: Sequence[SealedPart], size: float, open_bytes: int) -> Iterator[_Piece]:
    """Yield pieces of about ``size``: partition by partition; segment by segment where one of them has many
    small files.
    """
    by_index: dict[Any, list[SealedPart]] = {}
    for one in sealed:
        by_index.setdefault((one.topic, one.range.index.key), []).append(one)
    small = {key for key, parts in by_index.items() if _opens_cost(parts, open_bytes) > _bytes(parts)}
    order = _in_order(sealed) if small else None
    if order is None:
        for one in sealed:
            yield from _along([one], size, open_bytes)
        return
    for key in order:
        if key in small:
            yield from _along(by_index[key], size, open_bytes)
        else:
            for one in by_index[key]:
                yield from _along([one], size, open_bytes)


def _in_order(sealed: Sequence[SealedPart]) -> list[Any] | None:
    """Return the segments so that in every partition they follow each other; None: there is no such order."""
    sorter: TopologicalSorter[Any] = TopologicalSorter()
    before: dict[tuple[int, int], Any] = {}
    for topic, part in sealed:
        key, partition = (topic, part.index.key), (topic, part.partition)
        sorter.add(key, *([before[partition]] if before.get(partition, key) != key else []))
        before[partition] = key
    try:
        return list(sorter.static_order())
    except CycleError:
        return None


def _bytes(parts: Sequence[SealedPart]) -> int:
    return sum(max(1, one.range.size) for one in parts)


def _opens_cost(parts: Sequence[SealedPart], open_bytes: int) -> int:
    return open_bytes * _opens([one.range for one in parts]) if open_bytes else 0


def _along(parts: Sequence[SealedPart], cost_max: float, open_bytes: int) -> Iterator[_Piece]:
    """Cut parts of one segment into pieces, each of which has the same share of the offsets of every part."""
    cost = _bytes(parts) + _opens_cost(parts, open_bytes)
    longest = max(one.range.range.end - one.range.range.start for one in parts)
    pieces = max(1, min(round(cost / cost_max), longest))
    bounds = [np.linspace(*one.range.range, pieces + 1).astype(np.int64).tolist() for one in parts]
    for number in range(pieces):
        found = []
        for one, places in zip(parts, bounds, strict=True):
            within = OffsetRange(places[number], places[number + 1])
            if within.start < within.end:
                size, batches = one.range.size // pieces, one.range.batches // pieces
                share = replace(one.range, range=within, size=size, batches=batches)
                found.append(SealedPart(one.topic, share))
        yield _Piece(found, cost / pieces)
