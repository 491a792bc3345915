"""Cutting a read into splits: few and of equal size, each a run of the log in order. Pure.

A Python task costs 5 to 25 ms however little it reads, so a split may hold rows of several partitions, and one
batch is never cut in two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql.datasource import InputPartition

from txnformat.persistent import Rows
from txnformat.scan import PLANNED, PartitionPlan
from txnformat.types import FileRecord

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
    parts : sequence of SplitPart
        Ascending by partition.
    files : dict
        The records of the files that the parts name.
    """

    def __init__(self, parts: Sequence[SplitPart], files: dict[int, FileRecord]) -> None:
        super().__init__(None)
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


def cut(plans: Sequence[PartitionPlan], count: int, files: Mapping[int, FileRecord]) -> list[Split]:
    """Return at most ``count`` splits of about equal bytes; none is empty."""
    rows = np.concatenate([plan.rows for plan in plans]) if plans else np.empty(0, PLANNED)
    if not len(rows):
        return []
    partitions = np.repeat([plan.partition for plan in plans], [len(plan.rows) for plan in plans])
    sizes = np.maximum(rows["size"], 1)
    middles = np.cumsum(sizes) - sizes / 2
    numbers = np.minimum((middles * count / sizes.sum()).astype(np.int64), count - 1)
    return [
        _split(rows[numbers == number], partitions[numbers == number], files) for number in np.unique(numbers)
    ]


def _split(rows: Rows, partitions: Rows, files: Mapping[int, FileRecord]) -> Split:
    parts = [
        SplitPart(int(partition), rows[partitions == partition].tobytes())
        for partition in np.unique(partitions)
    ]
    return Split(parts, {int(number): files[int(number)] for number in np.unique(rows["file"])})
