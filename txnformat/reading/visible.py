"""Offsets of a partition that hold a record which a reader sees, and their number: exactly, from metadata
alone.

Below the last stable offset what a committed reader sees never changes, so it is found out once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.records.scan import Stored, committed, extents_in, planned_runs
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.sidecar import BatchOutcome
from txnformat.core.state import LogState, TopicState
from txnformat.core.subscriptions.backlog import covering
from txnformat.errors import InternalError, NotFoundError
from txnformat.persistent import Rows
from txnformat.reading.plan import plan_range
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.stored_rows import read_stored
from txnformat.types import FileRecord, IsolationLevel, OffsetRange, TopicPartition

__all__ = ["Visible", "count_records", "gone", "visible_offsets"]

Int64s = NDArray[np.int64]


class Visible:
    """Visible records of one partition, from a subscription's mark on.

    Markers, aborted records, and those that key compaction or an erasure removed lie between them. An
    acknowledgement of a record covers what lies between it and the visible record before it, too: so
    acknowledgements that follow each other are one range.
    """

    def __init__(self, key: TopicPartition) -> None:
        self._key = key
        self._from = 0
        self._to = 0
        self._offsets = NO_RANGES
        self._gone_end = 0
        self._revision = 0

    def follow(self, sidecars: SidecarCache, state: LogState, start: int) -> Ranges:
        """Return the visible offsets from ``start`` (inclusive) to the last stable offset.

        Requests: 1 GET for each sealed segment and batch table that was not looked at before.
        """
        partition = state.partition(self._key)
        end = max(start, partition.last_stable_offset)
        gone_end = _gone_end(partition)
        has_gaps = gone_end > 0 and partition.revision != self._revision
        self._gone_end, self._revision = gone_end, partition.revision
        if start < self._from or start > self._to or has_gaps:  # records are gone that were there
            self._from, self._to, self._offsets = start, start, NO_RANGES
        if end > self._to:
            more = visible_offsets(sidecars, state, self._key, OffsetRange(self._to, end))
            self._offsets, self._to = self._offsets | more, end
        if start > self._from:  # what is acknowledged need not be kept
            self._from, self._offsets = start, self._offsets.above(start)
        return self._offsets

    def spans(self, offsets: Int64s, acknowledged: Ranges, names: dict[str, Any]) -> Ranges:
        """Return what acknowledging these records covers; :meth:`follow` comes first.

        ``offsets``: at or above the start that was followed from, ascending, none twice. ``acknowledged``:
        what is acknowledged already. ``names``: for the error. Raises NotFoundError: kind ``unknown-record``:
        there is no visible record at one of them.
        """
        # A record may have been received before key compaction or an erasure removed it.
        gone = offsets[offsets < self._gone_end]
        visible = self._offsets | Ranges.between(gone, gone + 1) if len(gone) else self._offsets
        missing = offsets[~visible.holds(offsets)]
        if len(missing):
            raise NotFoundError(
                "this offset holds a marker or an aborted record",
                kind="unknown-record",
                hint="acknowledge records that were received",
                offset=int(missing[0]),
                **names,
            )
        return covering(offsets, visible, acknowledged, since=self._from)


def gone(sidecars: SidecarCache, state: LogState, key: TopicPartition, offsets: Int64s) -> Rows:
    """Tell of offsets, ascending and from the log start on, whether key compaction or an erasure has removed
    the record that may have been there.

    Requests: none below which nothing was removed; else 1 GET for each sealed segment among them that is not
    kept.
    """
    found: Rows = offsets < _gone_end(state.partition(key))
    if found.any():
        within = OffsetRange(int(offsets[0]), int(offsets[found][-1]) + 1)
        found &= ~visible_offsets(sidecars, state, key, within).holds(offsets)
    return found


def _gone_end(partition: PartitionState) -> int:
    """Return where the offsets end from which key compaction or an erasure may have removed records."""
    return partition.listed_end if partition.erased_entry >= 0 else partition.cleaned_end


def visible_offsets(
    sidecars: SidecarCache, state: LogState, key: TopicPartition, within: OffsetRange
) -> Ranges:
    """Return the offsets of a range that hold committed records; the range ends at the last stable offset or
    before.

    Requests: 1 GET for each sealed segment and batch table that is not kept.
    """
    plan = plan_range(sidecars, state, key, within)
    rows = plan.partitions[0].rows
    plain = rows[rows["stored"] == Stored.NO]
    seen = Ranges.between(plain["base_offset"], plain["end_offset"])
    for found in _stored_offsets(sidecars, plan.topic, rows[rows["stored"] != Stored.NO], plan.files):
        breaks = np.flatnonzero(np.diff(found) != 1)
        seen |= Ranges.between(found[np.append(0, breaks + 1)], found[np.append(breaks, -1)] + 1)
    return seen


def count_records(
    sidecars: SidecarCache,
    state: LogState,
    key: TopicPartition,
    within: OffsetRange,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> int:
    """Return the number of records in a range of offsets that a reader sees: no markers, and committed only.

    ``within``: of one partition; at ``read_committed`` it ends at the last stable offset or before.
    ``isolation``: ``read_uncommitted`` counts the records of open and aborted transactions, too.

    Requests: none; 1 GET, kept afterwards, for each end of the range that lies inside a sealed segment, and
    that of the segment list when the range begins among its segments; in a compacted segment also those of
    the offsets in the run that the range cuts.
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
            index = sidecars.index(part.record.index)
            if index.is_compacted:
                runs = index.runs_of(key.partition, part.range)
                total += _count_runs(sidecars, state.topics[key.topic_id], runs, index.files, within)
                continue
            batches = index.partition(key.partition)
            if is_committed:
                batches = batches[batches["outcome"] != BatchOutcome.ABORTED]
            total += _inside(batches, within)
    partition = sidecars.whole(state, key, within).partition(key)
    extents = extents_in(partition, within)
    if is_committed:
        extents = extents[committed(partition, extents)]
    return total + _inside(extents, within)


def _count_runs(
    sidecars: SidecarCache,
    topic: TopicState,
    runs: Rows,
    files: Mapping[int, FileRecord],
    within: OffsetRange,
) -> int:
    """Return how many records of runs lie in a range."""
    rows = planned_runs(runs, within)
    rows = rows[rows["base_offset"] < rows["end_offset"]]
    cut = rows[rows["stored"] != Stored.WHOLE]
    whole = int(rows["take"].sum() - cut["take"].sum())
    return whole + sum(map(len, _stored_offsets(sidecars, topic, cut, files)))


def _stored_offsets(
    sidecars: SidecarCache, topic: TopicState, rows: Rows, files: Mapping[int, FileRecord]
) -> Iterator[Int64s]:
    """Yield the offsets of the records that planned runs take, ascending; none of them is empty."""
    for batch in read_stored(sidecars.store, topic.schema, rows, files.__getitem__, ["_offset"]):
        yield batch.column(0).to_numpy()


def _inside(runs: Rows, within: OffsetRange) -> int:
    """Return how many offsets of runs of records lie in a range: a batch's records follow each other."""
    begins = np.maximum(runs["base_offset"], within.start)
    ends = np.minimum(runs["base_offset"] + runs["records"], within.end)
    return int(np.maximum(ends - begins, 0).sum())
