"""Cutting a read into splits: few and of equal size, each a run of the log in order. Pure.

A Python task costs 5 to 25 ms however little it reads, so a split may hold rows of several partitions, and one
batch is never cut in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from pyspark.sql.datasource import InputPartition

from txnformat.persistent import Rows
from txnformat.read_plan import SealedRange
from txnformat.scan import PLANNED, PartitionPlan
from txnformat.types import FileRecord, OffsetRange

__all__ = ["SPLIT_BYTES_MIN", "Split", "SplitPart", "cut", "split_count"]

SPLIT_BYTES_MIN = 4 * 2**20
"""Below this a split for every core costs more than it saves (Spark's spark.sql.files.openCostInBytes)."""


@dataclass(frozen=True, slots=True)
class SplitPart:
    """Rows of one partition."""

    partition: int
    rows: bytes
    """Structured array, dtype ``txnformat.scan.PLANNED``, ascending by offset."""

    def planned(self) -> Rows:
        """Return the rows."""
        return np.frombuffer(self.rows, PLANNED)


class Split(InputPartition):
    """What one task reads: all that it needs besides the reader, so that it asks the log for nothing.

    Parameters
    ----------
    sealed : sequence of SealedRange
        Parts of sealed segments; the task reads their sidecars itself.
    parts : sequence of SplitPart
        Ascending by partition; of each partition after its sealed parts.
    files : dict
        The records of the files that the parts name.
    """

    def __init__(
        self, sealed: Sequence[SealedRange], parts: Sequence[SplitPart], files: dict[int, FileRecord]
    ) -> None:
        super().__init__(None)
        self.sealed = tuple(sealed)
        self.parts = tuple(parts)
        self.files = files


def split_count(size: int, bytes_max: int, partitions_min: int | None, cores: int) -> int:
    """Return how many splits to aim for.

    Parameters
    ----------
    size : int
        Compressed bytes of the whole read.
    bytes_max : int
        Of one split (inclusive).
    partitions_min : int or None
        What the user asks for; None: enough for ``cores``, unless splits get smaller than SPLIT_BYTES_MIN.
    cores : int
        Of the machine that plans. A cluster has more, and large reads then have more splits by ``bytes_max``.
    """
    by_size = -(-size // bytes_max)
    if partitions_min is None:
        partitions_min = min(cores, size // SPLIT_BYTES_MIN)
    return max(1, by_size, partitions_min)


def cut(
    plans: Sequence[PartitionPlan],
    count: int,
    files: Mapping[int, FileRecord],
    sealed: Sequence[SealedRange] = (),
) -> list[Split]:
    """Return about ``count`` splits of about equal bytes, those of sealed segments first; none is empty.

    Where the batches of a sealed segment lie only its sidecar knows, so it is cut by offsets, as if they were of
    equal size: each batch is read by the task in whose offsets it begins.
    """
    rows = np.concatenate([plan.rows for plan in plans]) if plans else np.empty(0, PLANNED)
    sizes = np.maximum(rows["size"], 1)
    total = int(sizes.sum()) + sum(max(part.size, 1) for part in sealed)
    splits = [Split(group, (), {}) for group in _cut_sealed(sealed, total / count)]
    if len(rows):
        # At least one more, and no more than the bytes that are left deserve.
        count = max(1, count - len(splits), round(count * int(sizes.sum()) / total))
        partitions = np.repeat([plan.partition for plan in plans], [len(plan.rows) for plan in plans])
        middles = np.cumsum(sizes) - sizes / 2
        numbers = np.minimum((middles * count / sizes.sum()).astype(np.int64), count - 1)
        splits += [
            _split(rows[numbers == number], partitions[numbers == number], files)
            for number in np.unique(numbers)
        ]
    return splits


def _cut_sealed(sealed: Sequence[SealedRange], size: float) -> list[list[SealedRange]]:
    """Cut segments larger than ``size`` bytes, and put together what is smaller."""
    groups: list[list[SealedRange]] = []
    filled = 0.0
    for part in sealed:
        pieces = max(1, min(round(part.size / size), part.range.end - part.range.start))
        bounds = np.linspace(part.range.start, part.range.end, pieces + 1).astype(np.int64).tolist()
        for start, end in pairwise(bounds):
            owned = replace(part, owned=OffsetRange(start, end), size=part.size // pieces)
            if groups and filled + owned.size <= size:
                groups[-1].append(owned)
                filled += owned.size
            else:
                groups.append([owned])
                filled = owned.size
    return groups


def _split(rows: Rows, partitions: Rows, files: Mapping[int, FileRecord]) -> Split:
    parts = [
        SplitPart(int(partition), rows[partitions == partition].tobytes())
        for partition in np.unique(partitions)
    ]
    return Split((), parts, {int(number): files[int(number)] for number in np.unique(rows["file"])})
