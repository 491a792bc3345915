"""Cutting a read into splits: few and of equal size, each a run of the log in order. Pure.

A Python task costs 5 to 25 ms however little it reads, so a split may hold rows of several partitions, and one
batch is never cut in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from pyspark.sql.datasource import InputPartition

from txnformat.core.records.scan import PLANNED, PartitionPlan
from txnformat.core.topics.schema import TopicSchema
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.plan import SealedRange
from txnformat.types import FileRecord, OffsetRange

__all__ = [
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


@dataclass(frozen=True, slots=True)
class TopicRead:
    """A topic, for a task that reads it."""

    name: str
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
    """Of the state that the read is pinned to: what later entries decided is not known yet."""
    topics: Sequence[TopicRead]
    """Those that it reads."""
    sealed: Sequence[SealedPart]
    """Parts of sealed segments; the task reads their sidecars itself."""
    parts: Sequence[SplitPart]
    """Ascending by topic and partition; of each partition after its sealed parts."""
    files: dict[int, FileRecord]
    """The records of the files that the parts name."""
    value: None = None
    """Spark's."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The plan of a whole read for one topic."""

    read: TopicRead
    partitions: Sequence[PartitionPlan]
    files: Mapping[int, FileRecord]
    """By the numbers that the plans' rows have in ``file``: they are the log's, no two topics share one."""
    sealed: Sequence[SealedRange] = ()

    @property
    def size(self) -> int:
        """Compressed bytes, about."""
        rows = sum(int(plan.rows["size"].sum()) for plan in self.partitions)
        return rows + sum(part.size for part in self.sealed)


def split_count(size: int, bytes_max: int, partitions_min: int | None, cores: int) -> int:
    """Return how many splits to aim for.

    ``size``: compressed bytes of the whole read. ``bytes_max``: of one split (inclusive). ``partitions_min``: what
    the user asks for; None: enough for ``cores``, unless splits get smaller than SPLIT_BYTES_MIN. ``cores``: of the
    machine that plans. A cluster has more, and large reads then have more splits by ``bytes_max``.
    """
    by_size = -(-size // bytes_max)
    if partitions_min is None:
        partitions_min = min(cores, size // SPLIT_BYTES_MIN)
    return max(1, by_size, partitions_min)


def cut(log_id: str, entry: int, plans: Sequence[TopicPlan], count: int) -> list[Split]:
    """Return about ``count`` splits of about equal bytes, those of sealed segments first; none is empty.

    Where the batches of a sealed segment lie only its sidecar knows, so it is cut by offsets, as if they were of equal
    size: each batch is read by the task in whose offsets it begins. ``log_id``, ``entry``: as of :class:`Split`.
    """
    topics = [plan.read for plan in plans]
    parts = [(topic, one) for topic, plan in enumerate(plans) for one in plan.partitions if len(one.rows)]
    sealed = [SealedPart(topic, one) for topic, plan in enumerate(plans) for one in plan.sealed]
    rows = np.concatenate([one.rows for _, one in parts]) if parts else np.empty(0, PLANNED)
    sizes = np.maximum(rows["size"], 1)
    total = int(sizes.sum()) + sum(max(part.range.size, 1) for part in sealed)
    splits = [_split(log_id, entry, topics, group, (), {}) for group in _cut_sealed(sealed, total / count)]
    if len(rows):
        # At least one more, and no more than the bytes that are left deserve.
        count = max(1, count - len(splits), round(count * int(sizes.sum()) / total))
        owners = np.repeat(np.arange(len(parts)), [len(one.rows) for _, one in parts])
        middles = np.cumsum(sizes) - sizes / 2
        numbers = np.minimum((middles * count / sizes.sum()).astype(np.int64), count - 1)
        files = {number: record for plan in plans for number, record in plan.files.items()}
        for number in np.unique(numbers):
            mine, whose = rows[numbers == number], owners[numbers == number]
            own = [
                SplitPart(parts[owner][0], parts[owner][1].partition, mine[whose == owner].tobytes())
                for owner in np.unique(whose)
            ]
            named = {int(file): files[int(file)] for file in np.unique(mine["file"])}
            splits.append(_split(log_id, entry, topics, (), own, named))
    return splits


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


def _cut_sealed(sealed: Sequence[SealedPart], size: float) -> list[list[SealedPart]]:
    """Cut segments larger than ``size`` bytes, and put together what is smaller."""
    groups: list[list[SealedPart]] = []
    filled = 0.0
    for topic, part in sealed:
        pieces = max(1, min(round(part.size / size), part.range.end - part.range.start))
        bounds = np.linspace(part.range.start, part.range.end, pieces + 1).astype(np.int64).tolist()
        for start, end in pairwise(bounds):
            owned = replace(part, owned=OffsetRange(start, end), size=part.size // pieces)
            if groups and filled + owned.size <= size:
                groups[-1].append(SealedPart(topic, owned))
                filled += owned.size
            else:
                groups.append([SealedPart(topic, owned)])
                filled = owned.size
    return groups
