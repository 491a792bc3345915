"""Rows that a spill takes out of the state, and reads of them: they are the same from its object and from the
state.

Pure.

A *spill* holds extents, markers and abort index entries of offsets above the last stable offset, exactly as
the state had them. It says no outcome: readers join it with the state again (:func:`unspilled`), and a seal
takes it when the last stable offset has passed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from txnformat.core.operations import SpilledPartition
from txnformat.core.records.state import ABORTED, EXTENT, MARKER, PartitionState, SpilledRange
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError
from txnformat.keys import check_topics_file
from txnformat.persistent import Columns, Rows, Vector, replace, update
from txnformat.types import FileRecord, ObjectRecord, TopicPartition

__all__ = ["Spilled", "SpilledRows", "Taken", "named_files", "spilled_from", "taken_by", "unspilled"]


T = TypeVar("T")


class SpilledRows(NamedTuple):
    """The rows that an object holds of one partition."""

    extents: Rows
    """Extents, of dtype EXTENT."""
    markers: Rows
    """Markers, of dtype MARKER."""
    aborted: Rows
    """Abort index entries whose marker is in the range, of dtype ABORTED."""

    def within(self, start: int, end: int) -> SpilledRows:
        """Return the rows of the offsets [start, end)."""
        places = ("base_offset", "offset", "last_offset")
        return SpilledRows(
            *(
                rows[(rows[name] >= start) & (rows[name] < end)]
                for rows, name in zip(self, places, strict=True)
            )
        )


class Spilled(NamedTuple):
    """A decoded object: rows as they were in the state, and what they name."""

    partitions: Mapping[TopicPartition, SpilledRows]
    files: Mapping[int, FileRecord]
    """Data files, by their numbers in LogState.files."""
    tables: Mapping[int, ObjectRecord]
    """Batch tables, by their numbers in LogState.tables."""


_NO_ROWS = SpilledRows(np.empty(0, EXTENT), np.empty(0, MARKER), np.empty(0, ABORTED))


class Taken(NamedTuple):
    """The figures of a partition's part of a spill: totals of all that it takes, and how many rows leave the
    state.
    """

    kept: tuple[SpilledRange, ...]
    """Spills that stay, before it."""
    totals: tuple[int, int, int, int, int, int]
    """Extents, batches, markers, aborted, records, size: with those of the spills that are taken in."""
    extents: int
    markers: int
    aborted: int


def taken_by(partition: PartitionState, tables: Vector[ObjectRecord], part: SpilledPartition) -> Taken | None:
    """Return what ``part`` takes; None: it does not follow the spills that are there, goes below the last
    stable offset, or takes nothing.

    ``tables``: LogState.tables. The totals are for the caller to compare.
    """
    start, end = part.start_offset, part.end_offset
    gone = tuple(one for one in partition.spills if one.start_offset >= start)
    if start != (gone[0].start_offset if gone else partition.spilled_end) or part.replaced != tuple(
        tables[one.table].key for one in gone
    ):
        return None
    if not partition.last_stable_offset <= start or not partition.spilled_end < end <= partition.log_end:
        return None
    extents = partition.extents.until("base_offset", end)
    markers = len(partition.markers.until("offset", end))
    aborted = len(partition.aborted.until("last_offset", end))
    totals = (
        len(extents) + sum(one.extents for one in gone),
        int(extents["batch_count"].sum()) + sum(one.batches for one in gone),
        markers + sum(one.markers for one in gone),
        aborted + sum(one.aborted for one in gone),
        int(extents["records"].sum()) + sum(one.records for one in gone),
        int(extents["size"].sum()) + sum(one.size for one in gone),
    )
    return Taken(
        partition.spills[: len(partition.spills) - len(gone)], totals, len(extents), markers, aborted
    )


def named_files(extents: Rows) -> set[int]:
    """Return the numbers of the files that extents name, themselves or through batch tables."""
    in_table = extents["table"] >= 0
    found: set[int] = set(extents["file"][~in_table].tolist())
    for first, count in set(extents[["first_file", "file_count"]][in_table].tolist()):
        found.update(range(first, first + count))
    return found


def spilled_from(state: LogState, ends: Mapping[TopicPartition, tuple[int, int]]) -> Spilled:
    """Return what an object must hold of partitions, by the offsets [start, end) of each.

    ``state``: with all of these rows in it (:func:`unspilled`).
    """
    partitions: dict[TopicPartition, SpilledRows] = {}
    files: set[int] = set()
    tables: set[int] = set()
    for key in sorted(ends):
        one = state.partition(key)
        rows = SpilledRows(one.extents.array(), one.markers.array(), one.aborted.array()).within(*ends[key])
        partitions[key] = rows
        files |= named_files(rows.extents)
        tables.update(rows.extents["table"].tolist())
    return Spilled(
        partitions,
        {number: state.files[number] for number in sorted(files)},
        {number: state.tables[number] for number in sorted(tables - {-1})},
    )


def unspilled(
    state: LogState, starts: Mapping[TopicPartition, int], spilled: Mapping[int, Spilled]
) -> LogState:
    """Return a state in which the rows of some partitions are as if they had not been spilled, for reading.

    ``starts``: by partition, an offset: spills that end there or below stay. ``spilled``: the objects of the
    others, by their numbers in LogState.tables. Raises CorruptDataError: an object holds other rows than the
    log says, or files of another topic.
    """
    partitions: dict[TopicPartition, PartitionState] = {}
    files: dict[int, FileRecord] = {}
    tables: dict[int, ObjectRecord] = {}
    for key, start in starts.items():
        partition = state.partition(key)
        taken = [one for one in partition.spills if one.end_offset > start]
        if not taken:
            continue
        parts = []
        for one in taken:
            rows = _rows(state, key, one, spilled[one.table])
            parts.append(rows)
            found = spilled[one.table]
            files |= {number: found.files[number] for number in named_files(rows.extents)}
            tables |= {number: found.tables[number] for number in set(rows.extents["table"].tolist()) - {-1}}
        partitions[key] = replace(
            partition,
            spills=partition.spills[: len(partition.spills) - len(taken)],
            extents=_before(EXTENT, [rows.extents for rows in parts], partition.extents),
            markers=_before(MARKER, [rows.markers for rows in parts], partition.markers),
            aborted=_before(ABORTED, [rows.aborted for rows in parts], partition.aborted),
        )
    if not partitions:
        return state
    return replace(
        state,
        partitions=update(state.partitions, partitions),
        files=_with(state.files, files),
        tables=_with(state.tables, tables),
    )


def _rows(state: LogState, key: TopicPartition, spill: SpilledRange, found: Spilled) -> SpilledRows:
    """Return the rows of a spill of the state, compared with what the state says of it."""
    name = state.tables[spill.table].key
    rows = found.partitions.get(key, _NO_ROWS).within(spill.start_offset, spill.end_offset)
    got = (
        len(rows.extents),
        int(rows.extents["batch_count"].sum()),
        len(rows.markers),
        len(rows.aborted),
        int(rows.extents["records"].sum()),
        int(rows.extents["size"].sum()),
    )
    expected = (spill.extents, spill.batches, spill.markers, spill.aborted, spill.records, spill.size)
    if got != expected:
        raise CorruptDataError(
            "a spill holds other rows of a partition than the entry that names it says",
            kind="corrupt-sidecar",
            hint="run no writer on this log before its cause is known",
            object=name,
            partition=key.partition,
            expected=expected,
            got=got,
        )
    directory = state.topics[key.topic_id].directory
    for number in named_files(rows.extents):
        check_topics_file(found.files[number].key, directory, where=name)
    return rows


def _before(dtype: np.dtype[Any], parts: list[Rows], rest: Columns) -> Columns:
    return Columns(dtype).append(np.concatenate([*parts, rest.array()]))


def _with(known: Vector[T], more: Mapping[int, T]) -> Vector[T]:
    if all(number in known for number in more):
        return known
    both = dict(zip(known.numbers(), known, strict=True)) | dict(more)
    return Vector.numbered(sorted(both), [both[number] for number in sorted(both)], known.end)
