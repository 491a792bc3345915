"""Runs of compacted segments in the order of commits: which entries committed their records, and in which
order runs are read.

A run has records of many entries. Where one entry after another is needed, its columns ``_offset`` and
``_commit_entry`` are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from txnformat.core.records.scan import Stored, planned_runs
from txnformat.core.state import TopicState
from txnformat.persistent import Rows
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.stored_rows import read_stored
from txnformat.types import FileRecord, OffsetRange

__all__ = ["RUN_COMMIT", "in_commit_order", "planned_by_commit", "run_commits"]

RUN_COMMIT: np.dtype[Any] = np.dtype(
    [("entry", "<i8"), ("records", "<i8"), ("start_offset", "<i8"), ("end_offset", "<i8")]
)
"""The records that an entry committed in a run: their number, the first offset, and the one behind the last.
"""
EVERYTHING = OffsetRange(0, 2**62)


def run_commits(
    sidecars: SidecarCache, topic: TopicState, files: Mapping[int, FileRecord], run: Rows
) -> Rows:
    """Return what each entry committed in a run (one row, RUN_ROW), ascending by entry: rows of RUN_COMMIT.

    Requests: none of a run of one entry; else 1 GET for the footer, and those of two columns; none when it is
    kept.
    """
    (row,) = run
    if row["min_commit_entry"] == row["max_commit_entry"]:
        values = (row["min_commit_entry"], row["records"], row["start_offset"], row["end_offset"])
        return np.array([tuple(map(int, values))], RUN_COMMIT)
    file = files[int(row["file"])]
    return sidecars.kept(
        ("commits", (file, int(row["row_group"]), int(row["row_group_count"]))),
        partial(_read, sidecars, topic, files, run),
        lambda rows: int(rows.nbytes),
    )


def _read(sidecars: SidecarCache, topic: TopicState, files: Mapping[int, FileRecord], run: Rows) -> Rows:
    rows = planned_runs(run, EVERYTHING)
    names = ["_commit_entry", "_offset"]
    batches = list(read_stored(sidecars.store, topic.schema, rows, files.__getitem__, names))
    entries, offsets = (
        np.concatenate([batch.column(number).to_numpy() for batch in batches]) for number in range(2)
    )
    order = np.argsort(entries, kind="stable")
    entries, offsets = entries[order], offsets[order]
    first = np.flatnonzero(np.append(True, np.diff(entries) != 0))
    last = np.append(first[1:], len(entries))
    found = np.zeros(len(first), RUN_COMMIT)
    found["entry"], found["records"] = entries[first], last - first
    found["start_offset"], found["end_offset"] = offsets[first], offsets[last - 1] + 1
    return found


def planned_by_commit(runs: Rows, readable: OffsetRange, since: int, until: int) -> Rows:
    """Return runs (RUN_ROW) with records of the entries of (``since``, ``until``], as rows of dtype
    ``scan.PLANNED`` that are read in that order.
    """
    rows = planned_runs(runs, readable)
    rows["stored"] = Stored.BY_COMMIT
    rows["since"] = np.maximum(since, runs["min_commit_entry"] - 1)
    rows["until"] = np.minimum(until, runs["max_commit_entry"])
    rows["commit_entry"] = rows["since"] + 1
    return rows


def in_commit_order(
    sidecars: SidecarCache, topic: TopicState, files: Mapping[int, FileRecord], rows: Rows
) -> Rows:
    """Return planned rows of a partition by commit entry, then offset.

    Rows of a run stand for all of their entries; where another row has records between these, there is a row
    for each entry.
    """
    rows = rows[np.lexsort((rows["base_offset"], rows["commit_entry"]))]
    stored = rows["stored"] == Stored.BY_COMMIT
    if not stored.any():
        return rows
    parts: list[Rows] = []
    for first, last in _clusters(rows):
        group = rows[first:last]
        if last - first == 1 or not (group["stored"] == Stored.BY_COMMIT).any():
            parts.append(group)
            continue
        pieces = [_pieces(sidecars, topic, files, group[place : place + 1]) for place in range(len(group))]
        apart = np.concatenate(pieces)
        if len(apart):  # else their entries lie around the window, and none in it
            parts.append(_joined(apart[np.lexsort((apart["base_offset"], apart["commit_entry"]))]))
    return np.concatenate([rows[:0], *parts])


def _clusters(rows: Rows) -> list[tuple[int, int]]:
    """Return ranges of rows whose commit entries overlap; rows of one entry that follow each other do not."""
    highest = np.where(rows["stored"] == Stored.BY_COMMIT, rows["until"], rows["commit_entry"]).tolist()
    bounds = zip(
        rows["commit_entry"].tolist(),
        highest,
        rows["base_offset"].tolist(),
        rows["end_offset"].tolist(),
        strict=True,
    )
    begins: list[int] = []
    top, behind = -1, 0
    for place, (low, high, start, end) in enumerate(bounds):
        if low > top or (low == top and start >= behind):
            begins.append(place)
        behind = end if high > top else max(behind, end) if high == top else behind
        top = max(top, high)
    return list(zip(begins, [*begins[1:], len(rows)], strict=True))


def _pieces(sidecars: SidecarCache, topic: TopicState, files: Mapping[int, FileRecord], row: Rows) -> Rows:
    """Return a planned row for each commit entry of a row."""
    if row["stored"][0] != Stored.BY_COMMIT:
        return row
    since, until = int(row["since"][0]), int(row["until"][0])
    if until - since == 1:
        return row
    as_run = np.zeros(1, [("file", "<i8"), ("row_group", "<i4"), ("row_group_count", "<i4"), *_BOUNDS])
    for name in ("file", "row_group", "row_group_count", "size"):
        as_run[name] = row[name]
    as_run["records"] = row["take"]
    as_run["start_offset"], as_run["end_offset"] = 0, EVERYTHING.end
    as_run["min_commit_entry"], as_run["max_commit_entry"] = 0, 1
    found = run_commits(sidecars, topic, files, as_run)
    found = found[(found["entry"] > since) & (found["entry"] <= until)]
    begin, end = int(row["base_offset"][0]), int(row["end_offset"][0])
    found = found[(found["end_offset"] > begin) & (found["start_offset"] < end)]
    pieces = np.repeat(row, len(found))
    pieces["base_offset"] = np.maximum(found["start_offset"], begin)
    pieces["end_offset"] = np.minimum(found["end_offset"], end)
    pieces["since"], pieces["until"] = found["entry"] - 1, found["entry"]
    pieces["commit_entry"] = found["entry"]
    pieces["size"] = row["size"] * found["records"] // row["take"]
    return pieces


_BOUNDS = [
    (name, "<i8")
    for name in ("records", "size", "start_offset", "end_offset", "min_commit_entry", "max_commit_entry")
]


def _joined(rows: Rows) -> Rows:
    """Join rows of one run that follow each other."""
    same = rows["stored"][1:] == Stored.BY_COMMIT
    for name in ("stored", "file", "row_group"):
        same &= rows[name][1:] == rows[name][:-1]
    first = np.flatnonzero(np.append(True, ~same))
    found = rows[first].copy()
    last = np.append(first[1:], len(rows)) - 1
    found["until"] = rows["until"][last]
    found["base_offset"] = np.minimum.reduceat(rows["base_offset"], first)
    found["end_offset"] = np.maximum.reduceat(rows["end_offset"], first)
    found["size"] = np.add.reduceat(rows["size"], first)
    return found
