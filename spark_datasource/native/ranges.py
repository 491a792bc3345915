"""Ranges of offsets of one partition: merged, and laid over planned rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from txnformat.core.records.scan import Stored
from txnformat.persistent import Rows
from txnformat.reading.plan import SealedRange
from txnformat.types import OffsetRange

__all__ = ["clipped", "clipped_sealed", "spans_of"]


def spans_of(rows: Rows, chosen: Rows) -> tuple[OffsetRange, ...]:
    """Return the ranges that hold the chosen ones of planned rows, and none of the others.

    ``rows``: of one partition, ascending and disjoint. ``chosen``: a mask. Between two chosen rows
    that follow each other the plan has no row, so a range goes on there: there are as few ranges as can be.
    """
    if not len(rows):
        return ()
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
    firsts, ends = edges[::2], edges[1::2]
    return tuple(
        OffsetRange(start, end)
        for start, end in zip(
            rows["base_offset"][firsts].tolist(), rows["end_offset"][ends - 1].tolist(), strict=True
        )
    )


def clipped(rows: Rows, ranges: Sequence[OffsetRange]) -> Rows:
    """Return what of planned rows lies in ranges; both ascending, and the ranges disjoint."""
    bounds = np.array(ranges, np.int64).reshape(-1, 2)
    first = np.searchsorted(bounds[:, 1], rows["base_offset"], side="right")
    last = np.searchsorted(bounds[:, 0], rows["end_offset"], side="left")
    counts = np.maximum(last - first, 0)
    found = np.repeat(rows, counts)
    nth = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
    mine = bounds[np.repeat(first, counts) + nth]
    starts = np.maximum(found["base_offset"], mine[:, 0])
    ends = np.minimum(found["end_offset"], mine[:, 1])
    is_cut = (starts > found["base_offset"]) | (ends < found["end_offset"])
    is_stored = found["stored"] != Stored.NO
    found["skip"] += np.where(is_stored, 0, starts - found["base_offset"])
    found["take"] = np.where(is_stored, found["take"], ends - starts)
    found["stored"] = np.where(is_cut & (found["stored"] == Stored.WHOLE), int(Stored.PART), found["stored"])
    found["base_offset"], found["end_offset"] = starts, ends
    return found


def clipped_sealed(part: SealedRange, ranges: Sequence[OffsetRange]) -> Iterator[SealedRange]:
    """Yield what of a part of a sealed segment lies in ranges of its partition; sizes are shared by
    offsets.
    """
    whole = part.range.end - part.range.start
    for wanted in ranges:
        within = OffsetRange(max(wanted.start, part.range.start), min(wanted.end, part.range.end))
        if within.start < within.end:
            share = (within.end - within.start) / whole
            yield replace(
                part, range=within, size=int(part.size * share), batches=round(part.batches * share)
            )
