"""Objects that entries name: files, batch tables, and which row groups of which file hold which batches.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import DeleteTopic, Replace
from txnformat.core.operations import Append, Seal, Spill, Stage
from txnformat.core.sealing.sidecar import SegmentIndex
from txnformat.core.state import LogState
from txnformat.persistent import Rows
from txnformat.types import BatchRecord, FileRecord, ObjectRecord, SegmentListRecord, SegmentRecord
from txnformat.verify.copied_rows import Copied
from txnformat.verify.report import ProblemKind, Record

__all__ = ["STORED_RUN", "FileUse", "References", "SegmentUse", "TableUse"]

STORED_RUN = (
    "partition",
    "records",
    "start_offset",
    "end_offset",
    "min_entry",
    "max_entry",
    "min_commit_entry",
    "max_commit_entry",
)


class _Batch(NamedTuple):
    row_group: int
    row_group_count: int
    records: int


@dataclass(slots=True)
class FileUse:
    """A segment file, and what the log says is in it."""

    record: FileRecord
    topic_id: str | None
    """Id of the topic. If None, only a snapshot names the object, and its topic is unknown."""
    batches: set[_Batch] = field(default_factory=set)
    runs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Fields STORED_RUN of each run of a compacted file, by first row group."""
    copies: list[Copied] = field(default_factory=list)
    """Batches that a seal has taken from entries."""


@dataclass(slots=True)
class TableUse:
    """A batch table, and the appends and stages whose batches are in it."""

    record: ObjectRecord
    appends: list[tuple[int, Append | Stage]] = field(default_factory=list)
    """Entry and operation."""


@dataclass(slots=True)
class SegmentUse:
    """A sealed segment."""

    record: SegmentRecord
    entry: int
    """Entry of the seal, or of the snapshot that names the segment when the seal is not there any more."""


class References:
    """Everything that the entries of a log name."""

    def __init__(self, record: Record) -> None:
        self.files: dict[str, FileUse] = {}
        self.tables: dict[str, TableUse] = {}
        self.segments: dict[str, SegmentUse] = {}
        """Segments, by the key of the ``.index``."""
        self.segment_lists: dict[str, SegmentListRecord] = {}
        self._named: dict[str, int] = {}
        """Entry of the append or stage that names a file, by the key of the file."""
        self.spills: dict[str, ObjectRecord] = {}
        """Objects of all spills that entries name, and of those that a snapshot names, by key."""
        self.deleted: set[str] = set()
        """Topics that were deleted."""
        self._record = record

    def add(self, entry: CommitEntry) -> None:
        """Take in what one entry names."""
        for op in entry.operations:
            if isinstance(op, Seal):
                self._seal(op, entry.entry)
            elif isinstance(op, Spill):
                self.spills[op.table.key] = op.table
            elif isinstance(op, DeleteTopic):
                self.forget(op.topic_id)
            elif isinstance(op, Replace):
                for one in op.segments:
                    self.segment(SegmentRecord(op.topic_id, one.index), entry.entry)
                self.segment_lists |= {one.segment_list.key: one.segment_list for one in op.lists}
            if not isinstance(op, Append | Stage):
                continue
            for file in op.files:
                self._file(file, op.topic_id, entry.entry)
                self._named_once(keys.own_key(file.key), entry.entry)
            if op.table is not None:
                self._table(op.table, entry.entry).appends.append((entry.entry, op))
            elif isinstance(op, Append):
                self.batches(op, list(op.batches))
                self._check_totals(op, entry.entry, list(op.batches))

    def forget(self, topic_id: str) -> None:
        """Ask nothing more of the objects of a topic that was deleted."""
        self.deleted.add(topic_id)
        self.files = {key: use for key, use in self.files.items() if use.topic_id != topic_id}
        self.segments = {key: use for key, use in self.segments.items() if use.record.topic_id != topic_id}
        for key, use in [*self.tables.items()]:
            left = [one for one in use.appends if one[1].topic_id != topic_id]
            if use.appends and not left:
                del self.tables[key]
            use.appends = left

    def _seal(self, op: Seal, entry: int) -> None:
        for segment in op.segments:
            self.segment(segment.record, entry)
        if op.segment_list is not None:
            self.segment_lists[op.segment_list.key] = op.segment_list

    def segment(self, record: SegmentRecord, entry: int) -> None:
        """Take in a sealed segment."""
        use = self.segments.setdefault(record.index.key, SegmentUse(record, entry))
        if use.record != record:
            self._conflict(record.index.key, entry, use.record, record)

    def sealed_batches(
        self, use: SegmentUse, index: SegmentIndex, copies: Sequence[tuple[int, Copied]] = ()
    ) -> None:
        """Take in what the ``.index`` or ``.runs`` of a segment names.

        ``copies``: with the number of the file that has each.
        """
        for number, one in copies:
            self._file(index.files[number], use.record.topic_id, use.entry).copies.append(one)
        if index.is_compacted:
            names = ("row_group", "row_group_count", *STORED_RUN)
            for row in index.runs:
                file = self._file(index.files[int(row["file"])], use.record.topic_id, use.entry)
                group, count, *run = (int(row[name]) for name in names)
                file.batches.add(_Batch(group, count, run[1]))
                file.runs[group] = tuple(run)
            return
        for number, group, count, records in index.rows[
            ["file", "row_group", "row_group_count", "records"]
        ].tolist():
            file = self._file(index.files[number], use.record.topic_id, use.entry)
            file.batches.add(_Batch(group, count, records))

    def add_state(self, snapshot: LogState, whole: LogState) -> None:
        """Take in what a snapshot names: it stands for entries that are not there any more.

        Call it after all entries.

        ``whole``: the same state with what its spills hold.
        """
        state, files = whole, whole.files
        gone: set[int] = set()
        """Numbers of files of topics that were deleted later."""
        spills = {one.table for partition in snapshot.partitions.values() for one in partition.spills}
        for number, table in zip(state.tables.numbers(), state.tables, strict=True):
            if number in spills:
                self.spills[table.key] = table
            else:
                self._table(table, state.entry)
        for segment in state.segments:
            if segment.topic_id not in self.deleted:
                self.segment(segment, state.entry)
        self.segment_lists |= {one.key: one for one in state.segment_lists}
        for key, partition in state.partitions.items():
            extents = partition.extents.array()
            if key.topic_id in self.deleted:
                runs = extents[["first_file", "file_count"]].tolist()
                gone.update(number for first, count in runs for number in range(first, first + count))
                continue
            for row in extents[extents["file"] >= 0]:
                file = files[int(row["file"])]
                batch = _Batch(int(row["row_group"]), int(row["row_group_count"]), int(row["records"]))
                self._file(file, key.topic_id, state.entry).batches.add(batch)
        for number, file in zip(files.numbers(), files, strict=True):
            if file.key not in self.files and number not in gone:
                self._file(file, None, state.entry)

    def _file(self, file: FileRecord, topic_id: str | None, entry: int) -> FileUse:
        use = self.files.setdefault(file.key, FileUse(file, topic_id))
        if use.record != file:
            self._conflict(file.key, entry, use.record, file)
        return use

    def _named_once(self, key: str, entry: int) -> None:
        if key in self._named:
            what = (
                f"{keys.entry_key(entry)} names the file in an append or stage, and another one has named it"
            )
            hint = "run no writer on this log before its cause is known"
            expected = f"entry {self._named[key]} alone"
            self._record.add(ProblemKind.CONFLICTING_REFERENCE, key, what, expected, f"entry {entry}", hint)
        self._named.setdefault(key, entry)

    def _table(self, table: ObjectRecord, entry: int) -> TableUse:
        use = self.tables.setdefault(table.key, TableUse(table))
        if use.record != table:
            self._conflict(table.key, entry, use.record, table)
        return use

    def _conflict(self, key: str, entry: int, expected: object, got: object) -> None:
        what = f"{keys.entry_key(entry)} names the object otherwise than an earlier entry"
        hint = "run no writer on this log before its cause is known"
        self._record.add(ProblemKind.CONFLICTING_REFERENCE, key, what, expected, got, hint)

    def batches(self, op: Append | Stage, batches: list[BatchRecord]) -> None:
        """Say which batches an append has: those of its entry, or of its batch table."""
        for batch in batches:
            if batch.file < len(op.files):
                found = _Batch(batch.row_group, batch.row_group_count, batch.records)
                self.files[op.files[batch.file].key].batches.add(found)

    def table_rows(self, op: Append | Stage, entry: int, rows: Rows) -> None:
        """Say what the batch table of an append holds: rows of dtype ``batch_table.TABLE_ROW``."""
        mine = rows[rows["section"] == op.section]
        batches = [BatchRecord(*row) for row in mine[list(BatchRecord.__struct_fields__)].tolist()]
        self.batches(op, batches)
        self._check_totals(op, entry, batches)

    def _check_totals(self, op: Append | Stage, entry: int, batches: list[BatchRecord]) -> None:
        """Compare the totals of each partition with its batches."""
        sums: dict[int, tuple[int, int]] = {}
        for batch in batches:
            count, records = sums.get(batch.partition, (0, 0))
            sums[batch.partition] = (count + 1, records + batch.records)
            if batch.file >= len(op.files):
                what = f"a batch of partition {batch.partition} is in a file that its append does not name"
                self._record.add(
                    ProblemKind.BATCHES, keys.entry_key(entry), what, f"below {len(op.files)}", batch.file
                )
        for part in op.partitions:
            expected = (part.batch_count, part.records)
            if sums.get(part.partition, (0, 0)) != expected:
                self._record.add(
                    ProblemKind.BATCHES,
                    op.table.key if op.table is not None else keys.entry_key(entry),
                    f"batches and records of partition {part.partition} are not the append's totals "
                    f"(entry {entry})",
                    expected,
                    sums.get(part.partition, (0, 0)),
                    "run no writer on this log before its cause is known",
                )
