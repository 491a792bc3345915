"""Reading planned rows: segment files in, record batches out, with metadata columns on request.

Only row groups of the plan and columns that were asked for are fetched. Runs of planned extents that lie side
by side in one file are read in one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from txnformat.arguments import is_text, other_case
from txnformat.core.records.scan import Stored
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import CorruptDataError, InvalidInputError, repr_of
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.pruning import PLAN_FIELDS, may_match_plan
from txnformat.reading.row_groups import narrowed, row_groups_of
from txnformat.reading.stored_rows import StoredRun, Wanted, stored_schema
from txnformat.segments.ahead import ahead
from txnformat.segments.reader import WINDOW_BYTES, SegmentFileReader
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord

__all__ = ["METADATA_FIELDS", "output_schema", "read_rows"]

ROWS_PER_BATCH = 65_536
"""Most rows of one record batch: 10k to 64k serve Spark and Python best."""

OPENED_MAX = 8
"""Compacted files whose footers are kept during a read."""

RUNS_AHEAD = 4
"""Most files on their way while the caller works on the one before them."""

_UTC = pa.timestamp("us", tz="UTC")
METADATA_FIELDS: dict[str, pa.Field] = {
    "_topic": pa.field("_topic", pa.string()),
    "_partition": pa.field("_partition", pa.int32()),
    "_offset": pa.field("_offset", pa.int64()),
    "_timestamp": pa.field("_timestamp", _UTC),
    "_producer_id": pa.field("_producer_id", pa.int64()),
    "_producer_epoch": pa.field("_producer_epoch", pa.int64()),
    "_entry": pa.field("_entry", pa.int64()),
    "_commit_entry": pa.field("_commit_entry", pa.int64()),
}
"""Columns that every topic has besides its own, on request."""


def output_schema(schema: TopicSchema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the Arrow schema of a read.

    ``columns``: names in the wanted order, the topic's own and metadata columns; None for all of the topic's own. Raises
    InvalidInputError: kind ``unknown-column``: unknown names, and repeated ones, all of them listed; or one text instead of a
    list. Kind ``repeated-column``: only repeated ones.
    """
    own = {field.name: field for field in schema.arrow_schema}
    if columns is None:
        return pa.schema(list(own.values()))
    known = {**own, **METADATA_FIELDS}
    if is_text(columns) or not isinstance(columns, Iterable):  # a text is a sequence of letters
        raise InvalidInputError(
            f"columns is {'the text ' * is_text(columns)}{repr_of(columns)}, not a list of names",
            kind="unknown-column",
            hint=f"pass [{columns!r:.300}]" if is_text(columns) else 'name them as in ["id"]',
        )
    unknown = [
        f"there is no column {repr_of(name)}{other_case(name, known)}"
        for name in columns
        if not is_text(name) or name not in known
    ]
    times = Counter(name for name in columns if is_text(name))
    repeated = [f"column {repr_of(name)} is asked for twice" for name in sorted(times) if times[name] > 1]
    hint = f"the columns are {', '.join(known)}"
    if unknown:
        raise InvalidInputError(unknown + repeated, kind="unknown-column", hint=hint)
    if repeated:
        raise InvalidInputError(repeated, kind="repeated-column", hint="name each column once")
    return pa.schema([known[name] for name in columns])


def read_rows(
    store: ObjectStore,
    topic: str,
    schema: TopicSchema,
    partition: int,
    rows: Rows,
    file_of: Callable[[int], FileRecord],
    columns: Sequence[str] | None,
    *,
    where: Predicate | None = None,
    batch_rows_max: int = ROWS_PER_BATCH,
    files_ahead: int = RUNS_AHEAD,
    open_file: Callable[[FileRecord, pa.Schema], SegmentFileReader] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of planned rows of one partition, in offset order.

    ``rows``: ascending by base offset. ``schema``: what the records shall look like: their files may have any version of it up to
    this one. ``file_of``: gives the file record of a plan's file number. ``columns``: as in :func:`output_schema`. ``where``:
    only records for which it is true. Columns that only it needs are fetched, but not returned; row groups that it excludes by
    their statistics are not fetched. ``files_ahead``: files on their way while the caller works on the one before; 0 reads file
    after file in the caller's thread. ``open_file``: gives the reader of a segment file with some columns, which may be used again: its footer is
    then fetched once. Called by any thread. Raises CorruptDataError, NotFoundError, StorageError: a file is not what the log
    says, is gone, or cannot be read.
    """
    wanted = output_schema(schema, columns)
    needed = [*wanted.names, *(where.columns if where else ())]
    fetched = [name for name in dict.fromkeys(needed) if name not in METADATA_FIELDS]
    meta = [name for name in dict.fromkeys(needed) if name in METADATA_FIELDS]
    if "_timestamp" in meta and schema.timestamp_column and schema.timestamp_column not in fetched:
        fetched.append(schema.timestamp_column)
    if where is not None:
        keep = may_match_plan(
            where, rows, topic=topic, partition=partition, timestamp_column=schema.timestamp_column
        )
        rows = rows[keep]
    runs = list(_runs(rows))
    alone = len(runs) == 1 or not files_ahead
    opener = _Opener(
        store, topic, schema, partition, file_of, fetched, meta, where, batch_rows_max, open_file, alone
    )
    begun: Iterator[_Run | StoredRun | None] = map(opener.begin, runs)
    if files_ahead:
        begun = ahead(
            opener.begin,
            runs,
            threads=files_ahead,
            weight=lambda run: min(int(run["size"].sum()), WINDOW_BYTES),
            weight_max=2 * WINDOW_BYTES,
            count_max=files_ahead,
        )
    for reader in begun:
        for count, arrays in reader.batches() if reader is not None else ():
            if where is None:
                yield _record_batch(count, arrays, wanted)
            elif (kept := _filtered(where, count, arrays, wanted)).num_rows:
                yield kept


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens the files of runs. Used by several threads."""

    store: ObjectStore
    topic: str
    schema: TopicSchema
    partition: int
    file_of: Callable[[int], FileRecord]
    fetched: list[str]
    """The topic's own columns,"""
    meta: list[str]
    """and metadata columns, that are read."""
    where: Predicate | None
    batch_rows_max: int
    open_file: Callable[[FileRecord, pa.Schema], SegmentFileReader] | None
    alone: bool
    opened: dict[str, SegmentFileReader] = field(default_factory=dict)
    """Compacted files: each of their runs may be read by itself."""

    def begin(self, run: Rows) -> _Run | StoredRun | None:
        """Fetch the beginning of a run; None: it has nothing that is wanted."""
        file = self.file_of(int(run["file"][0]))
        is_stored = bool(run["stored"][0])
        segment = self._open(file, is_stored=is_stored)
        if self.where is not None:
            run = narrowed(run, segment, self.where, self.topic, self.partition)
            if not len(run):
                return None
        if is_stored:
            same = {
                "_topic": pa.scalar(self.topic, pa.string()),
                "_partition": pa.scalar(self.partition, pa.int32()),
            }
            stored = StoredRun(segment, run, file, Wanted(self.schema, self.fetched, self.meta), same)
            stored.begin(self.batch_rows_max)
            return stored
        reader = _Run(segment, self.topic, self.schema, self.partition, run, file, self.meta)
        reader.begin(self.fetched, self.batch_rows_max)
        return reader

    def _open(self, file: FileRecord, *, is_stored: bool) -> SegmentFileReader:
        columns = stored_schema(self.schema, file) if is_stored else self.schema.of_file(file)
        if self.open_file is not None:
            return self.open_file(file, columns)
        known = self.opened.get(file.key) if is_stored else None
        if known is not None:
            return known
        segment = SegmentFileReader(self.store, file, columns, alone=self.alone)
        if is_stored:
            if len(self.opened) >= OPENED_MAX:
                self.opened.clear()
            self.opened[file.key] = segment
        return segment


def _filtered(where: Predicate, count: int, arrays: dict[str, Any], wanted: pa.Schema) -> pa.RecordBatch:
    mask = where.mask(arrays, count)
    kept = mask.true_count
    if kept in (0, count) or not len(wanted):  # a batch without columns is but a number of rows
        return _record_batch(kept, arrays, wanted).slice(0, kept)
    return _record_batch(count, arrays, wanted).filter(mask)


def _record_batch(count: int, arrays: dict[str, Any], wanted: pa.Schema) -> pa.RecordBatch:
    if not len(wanted):  # no array tells how many rows there are
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), count, [None]))
    return pa.RecordBatch.from_arrays([arrays[name] for name in wanted.names], schema=wanted)


def _runs(rows: Rows) -> Iterator[Rows]:
    """Split planned rows where the file or the order of row groups changes, or what is taken of them."""
    if not len(rows):
        return
    ends = rows["row_group"].astype(np.int64) + rows["row_group_count"]
    breaks = (rows["file"][1:] != rows["file"][:-1]) | (rows["row_group"][1:] < ends[:-1])
    if rows["stored"].any():
        stored = rows["stored"]
        breaks |= (stored[1:] == Stored.BY_COMMIT) | (stored[:-1] == Stored.BY_COMMIT)
        breaks |= (stored[1:] == Stored.NO) != (stored[:-1] == Stored.NO)
        for name in ("since", "until", "known_entry"):
            breaks |= rows[name][1:] != rows[name][:-1]
    yield from np.split(rows, np.flatnonzero(breaks) + 1)


class _Run:
    """Planned extents of one file with ascending row groups."""

    def __init__(
        self,
        reader: SegmentFileReader,
        topic: str,
        schema: TopicSchema,
        partition: int,
        rows: Rows,
        file: FileRecord,
        meta: list[str],
    ) -> None:
        self._reader = reader
        self._stored = frozenset(schema.of_file(file).names)
        self._topic = topic
        self._schema = schema
        self._partition = partition
        self._rows = rows
        self._meta = meta
        self._file = file
        self._ends = np.cumsum(rows["take"])  # rows of the run up to the end of each extent
        self._columns: list[str] = []
        self._begun: Iterator[pa.RecordBatch] = iter(())

    def begin(self, columns: list[str], batch_rows_max: int) -> None:
        """Fetch the beginning of what :meth:`batches` yields."""
        groups = row_groups_of(self._rows, self._reader).tolist()
        self._columns = columns
        stored = [name for name in columns if name in self._stored]
        self._begun = self._reader.begin(groups, stored, batch_rows_max)

    def batches(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number of rows, and the arrays by column name, of each batch; once, after :meth:`begin`."""
        done = 0
        for table in self._own_batches():
            count = table.num_rows
            arrays = {name: self._column(table, name) for name in self._columns}
            if self._meta:
                arrays |= self._metadata(done, done + count, arrays)
            done += count
            yield count, arrays
        if done != self._ends[-1]:
            raise CorruptDataError(
                "the number of records in a segment file differs from the log",
                object=self._file.key,
                expected=int(self._ends[-1]),
                got=done,
            )

    def _column(self, table: pa.RecordBatch, name: str) -> Any:
        """Return a column as the topic has it now: older files lack some, or hold a narrower type."""
        type_ = self._schema.arrow_schema.field(name).type
        if name not in self._stored:
            return pa.nulls(table.num_rows, type_)
        column = table.column(name)
        return column if column.type.equals(type_) else column.cast(type_)

    def _own_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of the asked columns with exactly the planned rows.

        Only the first extent of a range can have rows to skip and only the last can be cut short, so the
        whole run is read in one go and clipped at both ends.
        """
        skip = int(self._rows["skip"][0])
        left = int(self._ends[-1])
        for batch in self._begun:
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            part = batch.slice(skip, left) if skip or batch.num_rows > left else batch
            skip = 0
            left -= part.num_rows
            if part.num_rows:
                yield part
            if left == 0:
                return

    def _metadata(self, start: int, end: int, arrays: dict[str, Any]) -> dict[str, Any]:
        """Return the metadata columns of the run's rows [start, end)."""
        first, last = 0, 1
        if len(self._ends) > 1:
            first = int(np.searchsorted(self._ends, start, side="right"))
            last = int(np.searchsorted(self._ends, end, side="left")) + 1
        rows = self._rows[first:last]
        if len(rows) == 1:
            before = int(self._ends[first] - rows["take"][0])
            return {
                name: self._of_extent(name, rows, start - before, end - before, arrays) for name in self._meta
            }
        ends = np.minimum(self._ends[first:last], end)
        begins = np.concatenate(([start], ends[:-1]))
        counts = ends - begins
        found: dict[str, Any] = {}
        for name in self._meta:
            if name == "_topic":
                found[name] = pa.repeat(pa.scalar(self._topic, pa.string()), end - start)
            elif name == "_partition":
                found[name] = pa.repeat(pa.scalar(self._partition, pa.int32()), end - start)
            elif name == "_offset":
                extent_start = self._ends[first:last] - rows["take"]
                base = rows["base_offset"] - extent_start
                found[name] = pa.array(np.repeat(base, counts) + np.arange(start, end))
            elif name == "_timestamp":
                found[name] = self._timestamps(rows, counts, arrays)
            else:
                values = np.repeat(rows[PLAN_FIELDS[name]], counts)
                found[name] = pa.array(values, mask=values < 0)
        return found

    def _of_extent(self, name: str, rows: Rows, start: int, end: int, arrays: dict[str, Any]) -> Any:
        """Return a metadata column of the rows [start, end) of one extent, which have all but their offsets in common: so does a small file."""
        if name == "_offset":
            base = int(rows["base_offset"][0])
            return pa.array(np.arange(base + start, base + end))
        if name == "_timestamp" and self._schema.timestamp_column is not None:
            return self._timestamps(rows, rows["take"], arrays)
        if name == "_topic":
            value = pa.scalar(self._topic, pa.string())
        elif name == "_partition":
            value = pa.scalar(self._partition, pa.int32())
        elif name == "_timestamp":
            value = pa.scalar((rows["timestamp_ms"] * 1_000).item(), _UTC)
        else:
            number = rows[PLAN_FIELDS[name]].item()
            value = pa.scalar(None if number < 0 else number, pa.int64())
        return pa.repeat(value, end - start)

    def _timestamps(self, rows: Rows, counts: Rows, arrays: dict[str, Any]) -> Any:
        column = self._schema.timestamp_column
        if column is not None:
            return arrays[column].cast(_UTC)
        return pa.array(np.repeat(rows["timestamp_ms"], counts) * 1_000).cast(_UTC)
