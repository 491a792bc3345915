"""Writing committed records of partitions together: one Parquet file, and the runs of a ``.runs`` that say
what is where.

Memory: a row group, the plan of one range of offsets, and the small files that have records of several
sources, up to ``KEPT_BYTES_MAX`` of :mod:`~txnformat.reading.open_files`: each of these is fetched once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat import keys
from txnformat.core.records.scan import PartitionPlan, Stored
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.sealing.sidecar import RUN_ROW, BatchOutcome
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.filters import bloom_columns
from txnformat.persistent import Rows
from txnformat.reading.open_files import OpenFiles
from txnformat.reading.plan import plan_range
from txnformat.reading.planned_columns import PlannedColumns
from txnformat.reading.rows import files_of_runs, read_rows
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.stored_rows import STORED_FIELDS
from txnformat.segments.writer import Indexing, SegmentFileWriter, is_uneven
from txnformat.types import BatchRecord, FileRecord, OffsetRange, TopicPartition

__all__ = ["CompactedFiles", "Keep", "Source", "Written", "files_of_about", "write_together"]

Keep = Callable[[pa.RecordBatch], Rows]
"""Gives a mask of the records of a batch that stay."""
ROW_GROUP_BYTES = 16 * 2**20
"""Bytes in memory from which on records become a row group."""
ROW_GROUP_ROWS = 2**20
PIECE_ROWS = 32_768
"""Records that get their metadata columns together,"""
PIECES_MIN = 4
"""and by their bytes a row group has at least so many such pieces."""
RANGES_MAX = 1_000
"""Most sources of one file: each is a range of the entry that names it."""


class Source(NamedTuple):
    """Parts of a partition that follow each other, to be written together."""

    key: TopicPartition
    parts: Sequence[SegmentPart]

    @property
    def range(self) -> OffsetRange:
        """Return all of their offsets."""
        return OffsetRange(self.parts[0].range.start, self.parts[-1].range.end)

    @property
    def size(self) -> int:
        """Return compressed bytes of the committed records."""
        return sum(int(part.row["size"] - part.row["aborted_size"]) for part in self.parts)

    @property
    def records(self) -> int:
        """Return the number of committed records."""
        return sum(int(part.row["records"] - part.row["aborted_records"]) for part in self.parts)


class Written(NamedTuple):
    """Sources that were written together."""

    runs: Sequence[Rows]
    """The runs of each source, RUN_ROW."""
    files: Mapping[int, FileRecord]
    """File records, by the numbers that the runs have."""


def files_of_about(target_bytes: int, sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Yield sources that are written into one file, of about the target size."""
    found: list[Source] = []
    size = 0
    for source in sources:
        found.append(source)
        size += source.size
        if size >= target_bytes or len(found) == RANGES_MAX:
            yield found
            found, size = [], 0
    if found:
        yield found


def write_together(
    sidecars: SidecarCache,
    state: LogState,
    topic: TopicState,
    sources: Sequence[Source],
    new_id: Callable[[], str],
    keep: Keep | None = None,
) -> Written:
    """Write the committed records of sources into files that are born at the state's entry.

    ``new_id``: gives fresh uuids. ``keep``: gives a mask of the records that are written; None: all.
    """
    rows_max = min(ROW_GROUP_ROWS, max((source.records for source in sources), default=0))
    with OpenFiles(sidecars.store) as opened:
        opened.share(_openings(sidecars, sources))
        files = CompactedFiles(sidecars, state, topic, new_id, keep, rows_max, opened)
        try:
            runs = [files.add(source) for source in sources]
            return Written(runs, files.close())
        except BaseException:
            files.abort()
            raise


def _openings(sidecars: SidecarCache, sources: Sequence[Source]) -> Counter[str]:
    """Return of how many sources files have records, by key."""
    found: Counter[str] = Counter()
    for source in sources:
        keys_of: set[str] = set()
        for part in source.parts:
            index = sidecars.index(part.record.index)
            rows = index.rows_of(source.key.partition, part.range)
            rows = rows if index.is_compacted else rows[rows["outcome"] != BatchOutcome.ABORTED]
            keys_of.update(index.files[file].key for file in set(rows["file"].tolist()))
        found.update(keys_of)
    return found


class CompactedFiles:
    """Writes the committed records of sources, partition by partition.

    ``new_id``: gives fresh uuids. ``rows_max``: of a row group, about. ``opened``: the files of the sources.
    """

    def __init__(
        self,
        sidecars: SidecarCache,
        state: LogState,
        topic: TopicState,
        new_id: Callable[[], str],
        keep: Keep | None,
        rows_max: int,
        opened: OpenFiles,
    ) -> None:
        self._opened = opened
        self._keep = keep
        self._indexing = Indexing(bloom_columns(topic.settings), max(1, rows_max))
        self._sidecars = sidecars
        self._state = state
        self._topic = topic
        self._new_id = new_id
        schema = topic.schema
        self._schema = pa.schema([*schema.arrow_schema, *STORED_FIELDS.values()])
        self._writer: SegmentFileWriter | None = None
        self._compresses = True
        self.files: dict[int, FileRecord] = {}
        """The files that are closed, by number."""

    def add(self, source: Source) -> Rows:
        """Write the committed records of a source, and return its runs: rows of RUN_ROW."""
        begin = max(source.range.start, self._state.partition(source.key).log_start)
        wanted = OffsetRange(begin, source.range.end)
        times = _LogTimes(self._sidecars, source)
        found = [
            self._write(source.key.partition, table, times) for table in self._tables(source.key, wanted)
        ]
        return np.concatenate([np.zeros(0, RUN_ROW), *found])

    def close(self) -> dict[int, FileRecord]:
        """Make the files visible, and return them by the numbers that the runs have."""
        self._close_file()
        return self.files

    def abort(self) -> None:
        """Drop the file that is being written."""
        if self._writer is not None:
            self._writer.abort()

    def _tables(self, key: TopicPartition, wanted: OffsetRange) -> Iterator[pa.Table]:
        """Yield the records of a partition, a row group at a time."""
        plan = plan_range(self._sidecars, self._state, key, wanted)
        part: PartitionPlan = plan.partitions[0]
        pending: list[pa.Table] = []
        rows = size = 0
        for table in self._read(key.partition, part.rows, plan.files.__getitem__):
            pending.append(table)
            rows += table.num_rows
            size += table.nbytes
            if size >= ROW_GROUP_BYTES or rows >= ROW_GROUP_ROWS:
                yield pa.concat_tables(pending)
                pending, rows, size = [], 0, 0
        if pending:
            yield pa.concat_tables(pending)

    def _read(self, partition: int, rows: Rows, file_of: Callable[[int], FileRecord]) -> Iterator[pa.Table]:
        """Yield the records of planned rows, a piece of a row group at a time."""
        changes = np.flatnonzero(np.diff(rows["stored"] != Stored.NO)) + 1
        for span in np.split(rows, changes):
            if not len(span):
                continue
            has_columns = self._keep is not None or span["stored"][0] != Stored.NO
            schema = self._schema if has_columns else self._topic.schema.arrow_schema
            expected = files_of_runs(span, None, self._topic.name, self._topic.schema, partition)
            self._opened.expect(expected, file_of)
            batches = read_rows(
                self._sidecars.store,
                self._topic.name,
                self._topic.schema,
                partition,
                span,
                file_of,
                schema.names,
                files=self._opened,
            )
            if has_columns:
                yield from self._kept(batches)
            else:
                yield from self._with_columns(partition, span, batches)

    def _kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        for batch in batches:
            if self._keep is not None:
                batch = batch.filter(pa.array(self._keep(batch)))
            if batch.num_rows:
                yield pa.Table.from_batches([batch])

    def _with_columns(
        self, partition: int, rows: Rows, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.Table]:
        """Yield batches of appends with metadata columns, made for many at a time: a small one takes as long
        as a large one.
        """
        timestamp_column = self._topic.schema.timestamp_column
        planned = PlannedColumns(self._topic.name, partition, timestamp_column, rows, list(STORED_FIELDS))
        done = 0
        for together in _gathered(batches):
            table = pa.Table.from_batches(together)
            columns = planned.of(
                done, done + table.num_rows, {name: table.column(name) for name in table.column_names}
            )
            done += table.num_rows
            yield pa.Table.from_arrays(
                [*table.columns, *(columns[name] for name in STORED_FIELDS)], schema=self._schema
            )

    def _write(self, partition: int, table: pa.Table, times: _LogTimes) -> Rows:
        compresses = not is_uneven(table, self._schema)
        if compresses != self._compresses:
            self._close_file()
            self._compresses = compresses
        if self._writer is None:
            key = keys.data_key(self._topic.directory, max(0, self._state.entry), self._new_id())
            self._writer = SegmentFileWriter(
                self._sidecars.store.open_write(key),
                key,
                self._schema,
                is_compressed=compresses,
                indexing=self._indexing,
            )
        batch = self._writer.write_batch(partition, table)
        return _run(len(self.files), batch, table, times)

    def _close_file(self) -> None:
        if self._writer is not None:
            record = self._writer.close()
            self.files[len(self.files)] = msgspec.structs.replace(
                record, schema_id=self._topic.schema.schema_id
            )
            self._writer = None


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches in runs of PIECE_ROWS or a little more, or of a part of a row group."""
    together: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        together.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= PIECE_ROWS or PIECES_MIN * size >= ROW_GROUP_BYTES:
            yield together
            together, rows, size = [], 0, 0
    if together:
        yield together


def _run(file: int, batch: BatchRecord, table: pa.Table, times: _LogTimes) -> Rows:
    run: Rows = np.zeros(1, RUN_ROW)
    run["partition"], run["file"] = batch.partition, file
    for name in ("row_group", "row_group_count", "records", "size"):
        run[name] = getattr(batch, name)
    start, end = (_bound(table, "_offset", name) for name in ("min", "max"))
    run["start_offset"], run["end_offset"] = start, end + 1
    for name in ("entry", "commit_entry"):
        for bound in ("min", "max"):
            run[f"{bound}_{name}"] = _bound(table, f"_{name}", bound)
    run["min_log_ms"], run["max_log_ms"] = times.within(start, end + 1)
    for bound in ("min", "max"):
        moment = _bound(table, "_timestamp", bound)
        run[f"{bound}_timestamp_ms"] = run[f"{bound}_log_ms"] if moment is None else moment // 1_000
    return run


def _bound(table: pa.Table, column: str, name: str) -> Any:
    found = table.column(column)
    values = found.cast(pa.int64()) if pa.types.is_timestamp(found.type) else found
    return pc.min_max(values)[name].as_py()


class _LogTimes:
    """Log times of the appends of some parts, by offset."""

    def __init__(self, sidecars: SidecarCache, source: Source) -> None:
        rows = []
        for part in source.parts:
            index = sidecars.index(part.record.index)
            if index.is_compacted:
                runs = index.runs_of(source.key.partition, part.range)
                names = ("start_offset", "end_offset", "min_log_ms", "max_log_ms")
                rows.append(np.stack([runs[name] for name in names]))
            else:
                batches = index.partition(source.key.partition)
                starts, times = batches["base_offset"], batches["timestamp_ms"]
                rows.append(np.stack([starts, starts + batches["records"], times, times]))
        self._starts, self._ends, self._first, self._last = np.concatenate(rows, axis=1)

    def within(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last log time of appends with offsets in a range."""
        begin = int(np.searchsorted(self._ends, start, side="right"))
        behind = int(np.searchsorted(self._starts, end, side="left"))
        return int(self._first[begin:behind].min()), int(self._last[begin:behind].max())
