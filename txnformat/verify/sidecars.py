"""Sidecars of sealed segments compared with what the entries before the seal say. Pure.

The required content of a segment is written down from the state before its seal: the extents of the offsets,
the markers that are in it or end its transactions, the abort index. From that all three sidecars are derived
again, and have to agree row by row, ``.txnindex`` byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from txnformat.core.entry import CommitEntry
from txnformat.core.operations import Seal, SealedSegment, Spill
from txnformat.core.sealing.sidecar import (
    COMPACTED_FILES,
    INDEX_ROW,
    MARKER_ROW,
    BatchOutcome,
    SegmentIndex,
    decode_index,
    decode_markers,
)
from txnformat.core.sealing.spills import Spilled, spilled_from
from txnformat.core.snapshot.spilled import decode_spill
from txnformat.core.state import LogState
from txnformat.core.transactions.abort_index import AbortedTransaction, encode
from txnformat.persistent import Rows, replace
from txnformat.types import NO_TIMESTAMP_MS, FileRecord, ObjectRecord, SegmentRecord, TopicPartition
from txnformat.verify.bytes import check_bytes, decoded
from txnformat.verify.copied_rows import Copied
from txnformat.verify.report import ProblemKind, Record

__all__ = [
    "RESTORE",
    "RESTORE_SPILL",
    "ExpectedSegment",
    "check_index",
    "check_markers",
    "check_spill",
    "check_txnindex",
    "expected_segments",
    "expected_spills",
    "moved_by",
    "sidecars_of",
]

RESTORE = "restore the object from a copy; the records of its offsets cannot be read without it"
RESTORE_SPILL = "restore the object from a copy; records behind an open transaction cannot be read without it"
REPORT = "run no writer on this log before its cause is known, and please report it"


@dataclass(frozen=True, slots=True)
class _Part:
    """Expected contents of a segment in one partition."""

    number: int
    extents: Rows
    markers: Rows
    """Markers at its offsets."""
    aborted: Rows
    """Rows of dtype ``partition.ABORTED``: every aborted transaction that overlaps its offsets."""
    ends: dict[tuple[int, int], tuple[bool, int]]
    """The end of each (producer id, epoch): whether it was committed, and in which entry."""


@dataclass(frozen=True, slots=True)
class ExpectedSegment:
    """Expected contents of a sealed segment, from the state before its seal."""

    parts: tuple[_Part, ...]
    files: dict[int, FileRecord]
    """Segment files by number."""
    tables: dict[int, ObjectRecord]
    """Batch tables by number."""


def sidecars_of(record: SegmentRecord) -> list[tuple[str, ObjectRecord]]:
    """Return the sidecars that a segment has, each with its kind: index, markers or txnindex."""
    named = (("index", record.index), ("markers", record.markers), ("txnindex", record.txnindex))
    return [(kind, one) for kind, one in named if one is not None]


def expected_segments(before: LogState, entry: CommitEntry) -> dict[str, ExpectedSegment]:
    """Return what the segments that ``entry`` seals must hold, by the key of their ``.index``."""
    segments = [segment for op in entry.operations if isinstance(op, Seal) for segment in op.segments]
    return {segment.record.index.key: _expected(before, segment) for segment in segments}


def moved_by(entry: CommitEntry) -> set[TopicPartition]:
    """Return the partitions of which an entry moves rows from the state into objects."""
    moved: set[TopicPartition] = set()
    for op in entry.operations:
        if isinstance(op, Seal):
            for segment in op.segments:
                moved |= {
                    TopicPartition(segment.record.topic_id, part.partition) for part in segment.partitions
                }
        elif isinstance(op, Spill):
            moved |= {part.topic_partition for part in op.partitions}
    return moved


def expected_spills(before: LogState, entry: CommitEntry) -> dict[str, Spilled]:
    """Return what the spills of ``entry`` must hold, by key.

    ``before``: the state before, with all that was spilled.
    """
    return {
        op.table.key: spilled_from(
            before,
            {part.topic_partition: (part.start_offset, part.end_offset) for part in op.partitions},
        )
        for op in entry.operations
        if isinstance(op, Spill)
    }


def check_spill(record: Record, named: ObjectRecord, data: bytes, expected: Spilled | None) -> Spilled | None:
    """Return what a spill holds, compared with what it must hold; None when it cannot be decoded."""
    found = decoded(record, named, data, RESTORE_SPILL, lambda data: decode_spill(data, named))
    if found is None or expected is None:
        return found
    # It may hold more: partitions that its entry has left out.
    for what, wanted, got in (
        (
            "partitions",
            sorted(expected.partitions),
            sorted(found.partitions.keys() & expected.partitions.keys()),
        ),
        (
            "files",
            {number: _moved(file, found.files.get(number)) for number, file in expected.files.items()},
            {number: found.files.get(number) for number in expected.files},
        ),
        (
            "batch tables",
            dict(expected.tables),
            {number: found.tables.get(number) for number in expected.tables},
        ),
    ):
        if wanted != got:
            record.add(
                ProblemKind.SIDECAR_DIFFERS,
                named.key,
                f"its {what} differ from the state's",
                wanted,
                got,
                REPORT,
            )
            return found
    for key, rows in expected.partitions.items():
        for wanted_rows, got_rows in zip(rows, found.partitions[key], strict=True):
            _compare(record, named.key, wanted_rows, got_rows)
    return found


def _moved(file: FileRecord, found: FileRecord | None) -> FileRecord:
    """Return what an object must say of a file, where ``found`` is what it says: an embedded file becomes an
    object, with a key of its own.
    """
    return (
        file
        if file.place is None or found is None or found.place is not None
        else replace(file, key=found.key)
    )


def _expected(before: LogState, segment: SealedSegment) -> ExpectedSegment:
    parts = []
    for sealed in segment.partitions:
        partition = before.partition(TopicPartition(segment.record.topic_id, sealed.partition))
        extents, markers = partition.extents.array(), partition.markers.array()
        aborted = partition.aborted.array()
        parts.append(
            _Part(
                sealed.partition,
                extents[extents["base_offset"] < sealed.end_offset],
                markers[markers["offset"] < sealed.end_offset],
                aborted[aborted["first_offset"] < sealed.end_offset],
                {
                    (int(row["producer_id"]), int(row["epoch"])): (bool(row["commit"]), int(row["entry"]))
                    for row in markers
                },
            )
        )
    tables = {int(number) for part in parts for number in np.unique(part.extents["table"]) if number >= 0}
    return ExpectedSegment(
        tuple(parts),
        {number: before.files[number] for number in _files(parts) if number in before.files},
        {number: before.tables[number] for number in tables},
    )


def _files(parts: list[_Part]) -> set[int]:
    """Return the numbers of the segment files that extents refer to, through batch tables too."""
    found: set[int] = set()
    for part in parts:
        in_table = part.extents["table"] >= 0
        found.update(part.extents["file"][~in_table].tolist())
        for first, count in part.extents[in_table][["first_file", "file_count"]].tolist():
            found.update(range(first, first + count))
    return found


def check_index(
    record: Record,
    named: ObjectRecord,
    data: bytes,
    expected: ExpectedSegment | None,
    tables: Mapping[str, Rows],
    copies: list[tuple[int, Copied]],
) -> SegmentIndex | None:
    """Return what an ``.index`` holds, compared with what it must hold; None when it cannot be decoded.

    ``expected``: None when nothing says it: the entries are deleted. ``tables``: rows of the batch tables
    that could be read, by key. ``copies`` gets the batches that the seal has taken from entries, with the
    number of the file that has each.
    """
    index = decoded(record, named, data, RESTORE, lambda data: decode_index(data, named))
    if (
        index is None
        or index.is_compacted
        or expected is None
        or any(one.key not in tables for one in expected.tables.values())
    ):
        return index
    rows = np.concatenate([_index_rows(part, expected, tables) for part in expected.parts])
    appended = rows.copy()
    _compare(record, named.key, _unembedded(rows, expected, index), index.rows)
    copies += _copies(appended, expected, index)
    _check_apart(record, named.key, index)
    for number, file in index.files.items():
        if _moved(expected.files.get(number, file), file) != file:
            what = f"file {number} differs from the appended one"
            record.add(ProblemKind.SIDECAR_DIFFERS, named.key, what, expected.files[number], file, REPORT)
    return index


def _unembedded(rows: Rows, expected: ExpectedSegment, index: SegmentIndex) -> Rows:
    """Return the rows that an ``.index`` must have, where what it says of the places of embedded batches is
    taken from it: they are in files of the seal.
    """
    embedded = {number for number, file in expected.files.items() if file.place is not None}
    if not embedded or len(rows) != len(index.rows):
        return rows
    moved = np.isin(rows["file"], list(embedded)) & (index.rows["file"] >= COMPACTED_FILES)
    for name in ("file", "row_group", "row_group_count"):
        rows[name] = np.where(moved, index.rows[name], rows[name])
    return rows


def _copies(rows: Rows, expected: ExpectedSegment, index: SegmentIndex) -> Iterator[tuple[int, Copied]]:
    """Yield the batches that a seal has taken from entries. ``rows``: as they were appended."""
    if len(rows) == len(index.rows):
        names = ["file", "row_group", "row_group_count"]
        for source, found in zip(rows[names].tolist(), index.rows[names].tolist(), strict=True):
            file = expected.files.get(source[0])
            if file is not None and file.place is not None and found[0] >= COMPACTED_FILES:
                yield found[0], Copied(found[1], found[2], file, source[1], source[2])


def _check_apart(record: Record, key: str, index: SegmentIndex) -> None:
    """Note files of a seal that have batches of aborted transactions beside others."""
    own = index.rows[index.rows["file"] >= COMPACTED_FILES]
    aborted = own["outcome"] == BatchOutcome.ABORTED
    for number in np.intersect1d(own["file"][aborted], own["file"][~aborted]).tolist():
        what = f"file {index.files[number].key} has batches of aborted transactions beside others"
        record.add(ProblemKind.SIDECAR_DIFFERS, key, what, "two files", "one", REPORT)


def check_markers(record: Record, named: ObjectRecord, data: bytes, expected: ExpectedSegment | None) -> None:
    """Compare a ``.markers`` with what it must hold."""
    rows = decoded(record, named, data, RESTORE, lambda data: decode_markers(data, named))
    if rows is None or expected is None:
        return
    wanted = []
    for part in expected.parts:
        one = np.zeros(len(part.markers), MARKER_ROW)
        one["partition"] = part.number
        for name in ("commit", "offset", "producer_id", "epoch", "entry", "timestamp_ms"):
            one[name] = part.markers[name]
        wanted.append(one)
    _compare(record, named.key, np.concatenate(wanted), rows)


def check_txnindex(
    record: Record, named: ObjectRecord, data: bytes, expected: ExpectedSegment | None
) -> None:
    """Compare a ``.txnindex`` with what it must hold, byte by byte."""
    if not check_bytes(record, named, data, RESTORE) or expected is None:
        return
    fields = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
    wanted = b"".join(
        encode([AbortedTransaction(*row) for row in part.aborted[fields].tolist()]) for part in expected.parts
    )
    if wanted != data:
        what = "the abort index is not that of the aborted transactions that overlap the segment"
        record.add(ProblemKind.SIDECAR_DIFFERS, named.key, what, wanted.hex(), data.hex(), REPORT)


def _index_rows(part: _Part, expected: ExpectedSegment, tables: Mapping[str, Rows]) -> Rows:
    """Return the rows that an ``.index`` must have of one partition."""
    pieces = [
        _table_rows(part.number, row, tables[expected.tables[int(row["table"])].key])
        if row["table"] >= 0
        else _extent_row(part.number, row)
        for row in part.extents
    ]
    rows: Rows = np.concatenate(pieces) if pieces else np.zeros(0, INDEX_ROW)
    for row in rows:
        if not row["transactional"]:
            row["outcome"], row["commit_entry"] = BatchOutcome.PLAIN, row["entry"]
        elif part.ends.get((int(row["producer_id"]), int(row["epoch"])), (False, -1))[0]:
            row["outcome"] = BatchOutcome.COMMITTED
            row["commit_entry"] = part.ends[int(row["producer_id"]), int(row["epoch"])][1]
        else:
            row["outcome"], row["commit_entry"] = BatchOutcome.ABORTED, -1
    return rows


def _extent_row(partition: int, extent: Any) -> Rows:
    row = np.zeros(1, INDEX_ROW)
    for name in INDEX_ROW.names or ():
        if name not in ("partition", "outcome", "commit_entry"):
            row[name] = extent[name]
    row["partition"] = partition
    return row


def _table_rows(partition: int, extent: Any, table: Rows) -> Rows:
    mine = table[(table["section"] == extent["section"]) & (table["partition"] == partition)]
    rows = np.repeat(_extent_row(partition, extent), len(mine))
    before = np.cumsum(mine["records"]) - mine["records"]
    rows["base_offset"] += before
    rows["base_sequence"] += np.where(rows["base_sequence"] >= 0, before, 0)
    rows["file"] = extent["first_file"] + mine["file"]
    for name in ("records", "row_group", "row_group_count", "size"):
        rows[name] = mine[name]
    for name in ("min_timestamp_ms", "max_timestamp_ms"):
        rows[name] = np.where(mine[name] == NO_TIMESTAMP_MS, extent["timestamp_ms"], mine[name])
    return rows


def _compare(record: Record, key: str, expected: Rows, got: Rows) -> None:
    if len(expected) != len(got):
        what = "its number of rows differs from its offsets"
        record.add(ProblemKind.SIDECAR_DIFFERS, key, what, len(expected), len(got), REPORT)
        return
    wrong = np.flatnonzero(expected != got)
    if len(wrong):
        first = int(wrong[0])
        names = [name for name in expected.dtype.names or () if expected[name][first] != got[name][first]]
        what = f"row {first} differs from the appended record in {', '.join(names)} ({len(wrong)} such rows)"
        values = [{name: int(rows[name][first]) for name in names} for rows in (expected, got)]
        record.add(ProblemKind.SIDECAR_DIFFERS, key, what, values[0], values[1], REPORT)
