"""The number of records that a reader still has before it: counted exactly, from metadata alone."""

from __future__ import annotations

import numpy as np

from txnformat.core.records.scan import committed, extents_in
from txnformat.core.sealing.sidecar import BatchOutcome
from txnformat.core.state import LogState
from txnformat.errors import InternalError
from txnformat.persistent import Rows
from txnformat.reading.sealed import SidecarCache
from txnformat.types import IsolationLevel, OffsetRange, TopicPartition

__all__ = ["count_records"]


def count_records(
    sidecars: SidecarCache,
    state: LogState,
    key: TopicPartition,
    within: OffsetRange,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> int:
    """Return the number of records in a range of offsets that a reader sees: no markers, and committed only.

    ``within``: of one partition; at ``read_committed`` it ends at the last stable offset or before. ``isolation``:
    ``read_uncommitted`` counts the records of open and aborted transactions, too.

    Requests: none; 1 GET, kept afterwards, for each end of the range that lies inside a sealed segment, and that of the segment
    list when the range begins among its segments.
    """
    partition = state.partition(key)
    is_committed = isolation is IsolationLevel.READ_COMMITTED
    if is_committed and within.end > max(partition.last_stable_offset, within.start):
        raise InternalError(
            "records that may still be aborted were to be counted",
            end=within.end,
            last_stable_offset=partition.last_stable_offset,
        )
    total = 0
    for part in sidecars.segments(state, key, within):
        row = part.row
        hidden = int(row["aborted_records"]) if is_committed else 0
        if within.start <= part.range.start and part.range.end <= within.end:
            total += int(row["records"]) - hidden
        elif int(row["records"]) > hidden:
            batches = sidecars.index(part.record.index).partition(key.partition)
            if is_committed:
                batches = batches[batches["outcome"] != BatchOutcome.ABORTED]
            total += _inside(batches, within)
    extents = extents_in(partition, within)
    if is_committed:
        extents = extents[committed(partition, extents)]
    return total + _inside(extents, within)


def _inside(runs: Rows, within: OffsetRange) -> int:
    """Return how many offsets of runs of records lie in a range: a batch's records follow each other."""
    begins = np.maximum(runs["base_offset"], within.start)
    ends = np.minimum(runs["base_offset"] + runs["records"], within.end)
    return int(np.maximum(ends - begins, 0).sum())
