"""Planned rows narrowed to the row groups in which a predicate may be true."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from txnformat.columns.arrow_types import RESERVED_COLUMNS
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.pruning import Bounds, may_match, plan_bounds, statistics_bounds
from txnformat.segments.reader import SegmentFileReader

__all__ = ["by_row_group", "narrowed", "row_groups_of", "without_rest"]


def narrowed(rows: Rows, segment: SegmentFileReader, where: Predicate, topic: str, partition: int) -> Rows:
    """Return planned rows of one file, split into row groups, without those that cannot hold a record to
    keep.

    ``rows``: extents of one file, ascending. Returns structured array, dtype ``scan.PLANNED``: one row for
    each row group that remains, ascending.

    Requests: the footer's. Statistics are trusted as far as its hash goes: the writer of the data made both.
    """
    split = rows if len(rows) and rows["stored"][0] else by_row_group(rows, segment)
    if (split["row_group_count"] > 1).any():
        return split  # of a run of a compacted file; its rows are where its offsets say
    segment.check_row_groups(split["row_group"].tolist())
    groups = split["row_group"].tolist()
    counts = [segment.row_group_rows(group) for group in groups]
    # The topic's timestamp column has its own statistics; only a time that the log gives is the plan's to
    # know.
    from_plan = plan_bounds(split, topic=topic, partition=partition, timestamp_column=None)
    types = dict(where.types)

    def bounds_of(column: str) -> Bounds | None:
        if column in RESERVED_COLUMNS:
            return from_plan(column)
        if not segment.columns.has(column):  # the topic has it since the file was written
            return Bounds.of_nulls(len(split), types[column])
        found = segment.statistics(groups, column)
        if found is None:
            return None
        file_type, statistics = found
        return statistics_bounds(statistics, counts, file_type, types[column])

    return split[may_match(where.root, bounds_of, len(split))]


def by_row_group(rows: Rows, segment: SegmentFileReader) -> Rows:
    """Return one row for each row group of ``rows`` that has records to take.

    Raises CorruptDataError: an extent has more records, as the log says, than its row groups have.
    """
    numbers = row_groups_of(rows, segment)
    counts = rows["row_group_count"].astype(np.int64)
    split = np.repeat(rows, counts)
    ends = np.cumsum(counts)
    split["row_group"] = numbers
    split["row_group_count"] = 1
    sizes = np.array([segment.row_group_rows(group) for group in split["row_group"].tolist()], np.int64)
    held = np.add.reduceat(sizes, ends - counts)
    claimed = rows["skip"].astype(np.int64) + rows["take"]
    for number in np.flatnonzero(claimed > held)[:1]:
        segment.check_records(int(claimed[number]), int(held[number]))
    # Where a group begins and ends among the records of its extent's run.
    before = np.cumsum(sizes) - sizes
    before -= np.repeat(before[ends - counts], counts)
    first = np.maximum(before, split["skip"])
    last = np.minimum(before + sizes, split["skip"] + split["take"])
    split["base_offset"] += first - split["skip"]
    split["skip"] = first - before
    split["take"] = last - first
    split["end_offset"] = split["base_offset"] + split["take"]
    return split[split["take"] > 0]


def without_rest(rows: Rows, segment: SegmentFileReader) -> Rows:
    """Return planned rows of appended batches without the row groups, at both ends, of which no record is
    taken: only ends are ever cut.

    Requests: the footer's, where a batch at an end has several row groups.
    """
    parts = [rows] if len(rows) == 1 else [rows[:1], rows[1:-1], rows[-1:]]
    for place in {0, len(parts) - 1}:
        if parts[place]["row_group_count"][0] > 1:
            split = by_row_group(parts[place], segment)
            if len(split) < parts[place]["row_group_count"][0]:
                parts[place] = split
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def row_groups_of(rows: Rows, segment: SegmentFileReader) -> npt.NDArray[np.int64]:
    """Return the numbers of the row groups of ``rows``, in their order.

    Raises CorruptDataError before it counts them up, if the file does not have them: what the log says may be
    2^31 - 1.
    """
    first = rows["row_group"].astype(np.int64)
    counts = rows["row_group_count"].astype(np.int64)
    if len(rows):
        segment.check_row_groups((int(first.min()), int((first + counts).max()) - 1))
    before = np.cumsum(counts) - counts
    found: npt.NDArray[np.int64] = np.repeat(first - before, counts) + np.arange(counts.sum())
    return found
