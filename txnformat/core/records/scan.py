"""Planning reads: offsets and isolation in, rows of extents out. Pure; no data is read to plan.

A plan holds one row per extent to read, clipped to the range: which file, which row groups, how many rows to
skip and take, and what the metadata columns say about them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from txnformat.core.records.state import EXTENT, PartitionState
from txnformat.core.records.visibility import committed_mask
from txnformat.core.sealing.sidecar import BatchOutcome
from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, OffsetOutOfRangeError
from txnformat.persistent import Rows
from txnformat.types import IsolationLevel, OffsetRange

__all__ = [
    "PLANNED",
    "PartitionPlan",
    "Stored",
    "check_not_cleaned",
    "check_not_erased",
    "check_not_trimmed",
    "check_range",
    "commit_entries",
    "committed",
    "expanded",
    "extents_in",
    "extents_to_read",
    "plan_partition",
    "plan_runs",
    "plan_sealed",
    "planned",
    "planned_runs",
    "readable_end",
]

PLANNED: np.dtype[Any] = np.dtype(
    [
        ("base_offset", "<i8"),  # of the first row taken
        ("skip", "<i8"),  # rows of the run before the first taken
        ("take", "<i8"),  # rows taken
        ("file", "<i8"),  # index into LogState.files
        ("row_group", "<i4"),
        ("row_group_count", "<i4"),
        ("size", "<i8"),  # compressed bytes of the whole run
        ("producer_id", "<i8"),
        ("epoch", "<i8"),
        ("entry", "<i8"),  # of the append
        ("commit_entry", "<i8"),  # of the end, or of an append by itself; -1 while undecided or aborted
        ("timestamp_ms", "<i8"),  # log time of the append
        ("end_offset", "<i8"),  # behind the last row taken
        # Of a run of a compacted file: the rows themselves say their offsets, producers and entries, and
        # which of them are taken.
        ("stored", "<i4"),  # Stored
        ("since", "<i8"),  # commit entries of the rows taken, exclusive
        ("until", "<i8"),  # inclusive
        ("known_entry", "<i8"),  # commit entries above it are told as null
    ]
)
INT64_MAX = 2**63 - 1


class Stored(IntEnum):
    """How a planned row gets its metadata columns."""

    NO = 0
    """It is of an appended batch: from this row."""
    WHOLE = 1
    """From columns of its file; every row is taken."""
    PART = 2
    """Likewise; the rows with offsets of this row and commit entries in its window are taken, of ``take`` at
    most."""
    BY_COMMIT = 3
    """Likewise, and they are sorted by commit entry."""


HALF = 2**31
"""Below it, a producer id and an epoch fit into one number of 64 bits."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The plan of a read of one partition."""

    partition: int
    range: OffsetRange
    """The range that was asked for, resolved: the reader's position afterwards is ``range.end``."""
    rows: Rows
    """shape (n,), dtype PLANNED, ascending by base_offset."""


def readable_end(partition: PartitionState, isolation: IsolationLevel) -> int:
    """Return where a reader must stop (exclusive): the LSO for read_committed, the log end for the others."""
    if isolation is IsolationLevel.READ_COMMITTED:
        return partition.last_stable_offset
    return partition.log_end


def check_not_trimmed(partition: PartitionState, entry: int, topic: str, number: int) -> None:
    """Raise NotFoundError of kind ``version-trimmed``: a record that was committed after an entry was
    removed.
    """
    if entry < partition.trimmed_entry:
        what = "records of this version, or later ones, were removed"
        raise _removed(what, entry, partition.trimmed_entry, topic, number, partition.log_start)


def check_not_cleaned(partition: PartitionState, entry: int, topic: str, number: int) -> None:
    """Raise NotFoundError of kind ``version-trimmed``: the latest record of a key at an entry may have been
    removed, for a later one of its key.
    """
    if entry < partition.cleaned_entry:
        what = (
            "records of this version were removed, for their keys have later ones (cleanup.policy of "
            "the topic)"
        )
        raise _removed(what, entry, partition.cleaned_entry, topic, number)


def check_not_erased(partition: PartitionState, entry: int, topic: str, number: int) -> None:
    """Raise NotFoundError of kind ``version-trimmed``: an erasure has removed a record that was committed
    after an entry, so it may have removed others of that version.
    """
    if entry < partition.erased_entry:
        what = "records of this version were erased"
        raise _removed(what, entry, partition.erased_entry, topic, number)


def _removed(
    what: str, version: int, oldest: int, topic: str, number: int, earliest: int | None = None
) -> NotFoundError:
    values = {} if earliest is None else {"earliest": earliest}
    return NotFoundError(
        what,
        kind="version-trimmed",
        hint=f"read from version {oldest} on, or by offset"
        + ("" if earliest is None else f": earliest is {earliest}"),
        topic=topic,
        partition=number,
        version=version,
        oldest=oldest,
        **values,
    )


def check_range(
    partition: PartitionState,
    isolation: IsolationLevel,
    start: int | None,
    end: int | None,
    *,
    topic: str,
    number: int,
) -> OffsetRange:
    """Return the range [start, end) to read, or raise about offsets that are not there; None: the earliest,
    the latest that the isolation level allows.
    """
    latest = readable_end(partition, isolation)
    first = partition.log_start if start is None else start
    last = latest if end is None else end
    values: dict[str, Any] = {
        "topic": topic,
        "partition": number,
        "earliest": partition.log_start,
        "latest": latest,
    }
    if start is not None and end is not None and end < start:
        raise InvalidInputError(
            "the end offset is before the start offset",
            kind="end-before-start",
            start=start,
            end=end,
            **values,
        )
    for name, offset in (("start", first), ("end", last)):
        if not partition.log_start <= offset <= latest:
            raise OffsetOutOfRangeError(
                f"the {name} offset is outside the readable range",
                hint="use an offset from earliest to latest",
                got=offset,
                isolation=isolation.value,
                **values,
            )
    return OffsetRange(first, max(first, last))


def extents_in(partition: PartitionState, wanted: OffsetRange) -> Rows:
    """Return the unsealed extents that overlap ``wanted``, as rows of dtype EXTENT, ascending."""
    extents = partition.extents.array()
    if wanted.start >= wanted.end or len(extents) == 0:
        return np.empty(0, EXTENT)
    first = max(0, int(np.searchsorted(extents["base_offset"], wanted.start, side="right")) - 1)
    last = int(np.searchsorted(extents["base_offset"], wanted.end, side="left"))
    found = extents[first:last]
    if len(found) and found["base_offset"][0] + found["records"][0] <= wanted.start:
        found = found[1:]
    return found


def extents_to_read(
    partition: PartitionState,
    wanted: OffsetRange,
    isolation: IsolationLevel,
    keep: Callable[[Rows], Rows] | None,
    as_of: int,
) -> Rows:
    """Return those of :func:`extents_in` whose batches are looked at; parameters as in
    :func:`plan_partition`.
    """
    extents = extents_in(partition, wanted)
    if keep is not None:
        extents = extents[keep(extents)]
    if isolation is IsolationLevel.SNAPSHOT:
        extents = extents[in_cut(commit_entries(partition, extents), as_of)]
    return extents


def plan_partition(
    number: int,
    partition: PartitionState,
    wanted: OffsetRange,
    isolation: IsolationLevel,
    tables: Mapping[int, Rows],
    keep: Callable[[Rows], Rows] | None = None,
    as_of: int = -1,
) -> PartitionPlan:
    """Return what to read of the unsealed part of one partition, within ``wanted`` (from
    :func:`check_range`).

    ``tables``: the batch tables that the extents in range refer to, by index into LogState.tables: rows of
    TABLE_ROW of every section. ``keep`` gives a mask of the extents that are worth reading; tables of others
    are not needed. ``as_of``: the entry of a snapshot; tables of extents that it does not show are not
    needed, either.
    """
    extents = extents_to_read(partition, wanted, isolation, keep, as_of)
    extents = expanded(extents, number, tables)
    # A batch table's batches are finer than its extent: clip again.
    ends = extents["base_offset"] + extents["records"]
    extents = extents[(ends > wanted.start) & (extents["base_offset"] < wanted.end)]
    if keep is not None:
        extents = extents[keep(extents)]
    if isolation is IsolationLevel.READ_COMMITTED:
        extents = extents[committed(partition, extents)]
    return PartitionPlan(number, wanted, planned(extents, wanted, commit_entries(partition, extents)))


def plan_sealed(
    rows: Rows,
    wanted: OffsetRange,
    isolation: IsolationLevel,
    as_of: int = -1,
) -> Rows:
    """Return what to read of a partition's part of a sealed segment, whose rows are INDEX_ROW: rows of
    PLANNED.

    ``as_of``: the entry of a snapshot.
    """
    begins = np.maximum(rows["base_offset"], wanted.start)
    chosen = begins < np.minimum(rows["base_offset"] + rows["records"], wanted.end)
    if isolation is IsolationLevel.READ_COMMITTED:
        chosen &= rows["outcome"] != BatchOutcome.ABORTED
    elif isolation is IsolationLevel.SNAPSHOT:
        chosen &= in_cut(rows["commit_entry"], as_of)
    found = rows[chosen]
    return planned(found, wanted, found["commit_entry"])


def plan_runs(
    runs: Rows,
    wanted: OffsetRange,
    isolation: IsolationLevel,
    as_of: int = -1,
) -> Rows:
    """Return what to read of a partition's part of a compacted segment, whose rows are RUN_ROW; otherwise as
    :func:`plan_sealed`.

    All of its records are committed, so that the isolation levels differ in a snapshot alone.
    """
    begins = np.maximum(runs["start_offset"], wanted.start)
    chosen = begins < np.minimum(runs["end_offset"], wanted.end)
    if isolation is IsolationLevel.SNAPSHOT:
        chosen &= in_cut(runs["min_commit_entry"], as_of)
    until = as_of if isolation is IsolationLevel.SNAPSHOT else INT64_MAX
    return planned_runs(runs[chosen], wanted, until=until)


def planned_runs(runs: Rows, wanted: OffsetRange, *, until: int = INT64_MAX) -> Rows:
    """Return runs (RUN_ROW) clipped to a range and to a largest commit entry, as rows of dtype PLANNED."""
    rows = np.zeros(len(runs), PLANNED)
    rows["base_offset"] = np.maximum(runs["start_offset"], wanted.start)
    rows["end_offset"] = np.minimum(runs["end_offset"], wanted.end)
    rows["take"] = runs["records"]
    for name in ("file", "row_group", "row_group_count", "size"):
        rows[name] = runs[name]
    for name in ("producer_id", "epoch", "entry", "commit_entry"):
        rows[name] = -1
    rows["since"], rows["until"], rows["known_entry"] = -1, until, INT64_MAX
    is_whole = (
        (rows["base_offset"] == runs["start_offset"])
        & (rows["end_offset"] == runs["end_offset"])
        & (runs["max_commit_entry"] <= until)
    )
    rows["stored"] = np.where(is_whole, Stored.WHOLE, Stored.PART)
    return rows


def in_cut(entries: Rows, as_of: int) -> Rows:
    """Tell for each commit entry (-1: undecided or aborted) whether the snapshot at entry ``as_of`` shows its
    records.

    THE rule of snapshot reads: nothing else decides, neither offsets nor other transactions
    (docs/internals/spec.md, section 6).
    """
    shown: Rows = (entries >= 0) & (entries <= as_of)
    return shown


def committed(partition: PartitionState, extents: Rows) -> Rows:
    """Tell for each of a partition's extents below the last stable offset whether its records are
    committed.
    """
    return committed_mask(
        extents["base_offset"],
        extents["base_offset"] + extents["records"] - 1,
        extents["producer_id"],
        extents["transactional"].astype(bool),
        partition.aborted.array(),
    )


def planned(extents: Rows, wanted: OffsetRange, committed_by: Rows) -> Rows:
    """Return batches (rows of dtype EXTENT or INDEX_ROW) clipped to a range, as rows of dtype PLANNED, in the
    same order.

    ``committed_by`` is the commit entry of each.
    """
    rows = np.zeros(len(extents), PLANNED)
    skip = np.maximum(0, wanted.start - extents["base_offset"])
    rows["skip"] = skip
    rows["base_offset"] = extents["base_offset"] + skip
    rows["take"] = np.minimum(extents["base_offset"] + extents["records"], wanted.end) - rows["base_offset"]
    rows["end_offset"] = rows["base_offset"] + rows["take"]
    rows["since"], rows["until"], rows["known_entry"] = -1, INT64_MAX, INT64_MAX
    for name in (
        "file",
        "row_group",
        "row_group_count",
        "size",
        "producer_id",
        "epoch",
        "entry",
        "timestamp_ms",
    ):
        rows[name] = extents[name]
    rows["commit_entry"] = committed_by
    return rows


def expanded(extents: Rows, number: int, tables: Mapping[int, Rows]) -> Rows:
    """Return a partition's extents with a row per batch: replace each extent that stands for rows of a batch
    table by those rows.
    """
    if not len(extents) or not (extents["table"] >= 0).any():
        return extents
    parts: list[Rows] = []
    for index in range(len(extents)):
        extent = extents[index : index + 1]
        if extent["table"][0] < 0:
            parts.append(extent)
            continue
        table = tables[int(extent["table"][0])]
        batches = table[(table["section"] == extent["section"][0]) & (table["partition"] == number)]
        found = (int(batches["records"].sum()), len(batches))
        expected = (int(extent["records"][0]), int(extent["batch_count"][0]))
        if found != expected:
            raise CorruptDataError(
                "a batch table holds other batches of a partition than the append that names it says",
                hint="run no writer on this log before its cause is known",
                partition=number,
                entry=int(extent["entry"][0]),
                section=int(extent["section"][0]),
                expected=f"{expected[0]} records in {expected[1]} batches",
                got=f"{found[0]} records in {found[1]} batches",
            )
        files = int(extent["file_count"][0])
        if (batches["file"] >= files).any():  # it would be a file of another append
            raise CorruptDataError(
                "a batch table names a file that its append does not have",
                hint="run no writer on this log before its cause is known",
                partition=number,
                entry=int(extent["entry"][0]),
                section=int(extent["section"][0]),
                expected=f"below {files}",
                got=int(batches["file"].max()),
            )
        rows = np.repeat(extent, len(batches))
        before = np.concatenate(([0], np.cumsum(batches["records"])[:-1]))
        rows["base_offset"] += before
        rows["base_sequence"] += np.where(rows["base_sequence"] >= 0, before, 0)
        rows["file"] = rows["first_file"] + batches["file"]
        for name in ("records", "row_group", "row_group_count", "size"):
            rows[name] = batches[name]
        for name in ("min_timestamp_ms", "max_timestamp_ms"):
            known = batches[name] != np.iinfo(np.int64).min
            rows[name] = np.where(known, batches[name], rows["timestamp_ms"])
        rows["table"], rows["batch_count"] = -1, 1
        parts.append(rows)
    return np.concatenate(parts)


def commit_entries(partition: PartitionState, extents: Rows) -> Rows:
    """Return, per extent, the entry that committed it; -1 where nothing did."""
    entries = np.where(extents["transactional"] == 1, -1, extents["entry"])
    pending = np.flatnonzero(entries == -1)
    if not len(pending):
        return entries
    markers = partition.markers.array()
    markers = markers[markers["commit"] == 1]
    markers = markers[np.searchsorted(markers["offset"], extents["base_offset"][0]) :]
    entries[pending] = _entries_of(markers, extents["producer_id"][pending], extents["epoch"][pending])
    return entries


def _entries_of(markers: Rows, producer_ids: Rows, epochs: Rows) -> Rows:
    """Return the entry of the marker of each transaction (producer id, epoch); -1 where there is none."""
    found = np.full(len(producer_ids), -1, np.int64)
    if not len(markers):
        return found
    names = (markers["producer_id"], markers["epoch"], producer_ids, epochs)
    if min(int(name.min()) for name in names) >= 0 and max(int(name.max()) for name in names) < HALF:
        # Both halves fit into one number: no Python object per batch, of which there may be a million.
        keys = markers["producer_id"] * HALF + markers["epoch"]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        wanted = producer_ids * HALF + epochs
        places = np.searchsorted(keys, wanted, side="right") - 1
        hit = keys[places] == wanted
        found[hit] = markers["entry"][order][places[hit]]
        return found
    rows = markers[["producer_id", "epoch", "entry"]].tolist()
    by_transaction = {(producer_id, epoch): entry for producer_id, epoch, entry in rows}
    transactions = zip(producer_ids.tolist(), epochs.tolist(), strict=True)
    return np.array([by_transaction.get(transaction, -1) for transaction in transactions], np.int64)
