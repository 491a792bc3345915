"""Writing committed records of partitions together: one Parquet file, and the runs of a ``.runs`` that say what is where.

Memory: a row group, and the plan of one range of offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat import keys
from txnformat.core.records.scan import PartitionPlan
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.sealing.sidecar import RUN_ROW
from txnformat.core.state import LogState, TopicState
from txnformat.persistent import Rows
from txnformat.reading.plan import plan_range
from txnformat.reading.rows import read_rows
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.stored_rows import STORED_FIELDS
from txnformat.segments.writer import SegmentFileWriter, is_uneven
from txnformat.types import BatchRecord, FileRecord, OffsetRange, TopicPartition

__all__ = ["CompactedFiles", "Keep", "Source", "Written", "write_together"]

Keep = Callable[[pa.RecordBatch], Rows]
"""Gives a mask of the records of a batch that stay."""
ROW_GROUP_BYTES = 16 * 2**20
"""Bytes in memory from which on records become a row group."""
ROW_GROUP_ROWS = 2**20
SAMPLE_ROWS = 16_384
"""Rows of a file's first row group that say which columns get dictionaries."""


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


class Written(NamedTuple):
    """Sources that were written together."""

    runs: Sequence[Rows]
    """Of each source, RUN_ROW."""
    files: Mapping[int, FileRecord]
    """By the numbers that the runs have."""


def write_together(
    sidecars: SidecarCache,
    state: LogState,
    topic: TopicState,
    sources: Sequence[Source],
    new_id: Callable[[], str],
    keep: Keep | None = None,
) -> Written:
    """Write the committed records of sources into files that are born at the state's entry. ``new_id``: gives fresh uuids. ``keep``: gives a mask of the records that are written; None: all."""
    files = CompactedFiles(sidecars, state, topic, new_id, keep)
    try:
        runs = [files.add(source) for source in sources]
        return Written(runs, files.close())
    except BaseException:
        files.abort()
        raise


class CompactedFiles:
    """Writes the committed records of sources, partition by partition. ``new_id``: gives fresh uuids."""

    def __init__(
        self,
        sidecars: SidecarCache,
        state: LogState,
        topic: TopicState,
        new_id: Callable[[], str],
        keep: Keep | None = None,
    ) -> None:
        self._keep = keep
        self._sidecars = sidecars
        self._state = state
        self._topic = topic
        self._new_id = new_id
        schema = topic.schema
        self._schema = pa.schema([*schema.arrow_schema, *STORED_FIELDS.values()])
        self._writer: SegmentFileWriter | None = None
        self._compresses = True
        self.files: dict[int, FileRecord] = {}
        """Those that are closed, by number."""

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
        columns = self._schema.names
        pending: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in read_rows(
            self._sidecars.store,
            self._topic.name,
            self._topic.schema,
            key.partition,
            part.rows,
            plan.files.__getitem__,
            columns,
        ):
            if self._keep is not None:
                batch = batch.filter(pa.array(self._keep(batch)))
                if not batch.num_rows:
                    continue
            pending.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES or rows >= ROW_GROUP_ROWS:
                yield pa.Table.from_batches(pending, self._schema)
                pending, rows, size = [], 0, 0
        if pending:
            yield pa.Table.from_batches(pending, self._schema)

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
                plain=_plain_columns(table),
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


def _plain_columns(table: pa.Table) -> list[str]:
    """Return the columns whose values do not repeat: a dictionary would have them all, beside a number for each."""
    sample = table.slice(0, SAMPLE_ROWS)
    return [
        name
        for name in table.column_names
        if not sample.schema.field(name).type.num_fields
        and 2 * pc.count_distinct(sample.column(name), mode="all").as_py() > sample.num_rows
    ]


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
