"""Reading planned rows: segment files in, record batches out, with metadata columns on request.

Only row groups of the plan and columns that were asked for are fetched. Runs of planned extents that lie side
by side in one file are read in one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from txnformat.arguments import is_text, other_case
from txnformat.core.records.scan import Stored
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, repr_of
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.open_files import OpenFiles
from txnformat.reading.planned_columns import UTC, PlannedColumns
from txnformat.reading.pruning import may_match_plan
from txnformat.reading.row_groups import narrowed, row_groups_of, without_rest
from txnformat.reading.stored_rows import StoredRun, Wanted, stored_schema
from txnformat.segments.ahead import ahead
from txnformat.segments.joint_reads import load_together
from txnformat.segments.reader import WINDOW_BYTES, SegmentFileReader, SegmentRead
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord

__all__ = [
    "METADATA_FIELDS",
    "ROWS_PER_BATCH",
    "RUNS_AHEAD",
    "Left",
    "files_of_runs",
    "has_data",
    "output_schema",
    "read_rows",
    "record_batch",
]

ROWS_PER_BATCH = 65_536
"""Most rows of one record batch: 10k to 64k serve Spark and Python best."""

SMALL_RUN_BYTES = 256 * 1024
"""Decoded bytes below which runs are decoded when their turn comes: handing them to another thread takes
longer."""

GROUP_BYTES = 2 * 1024 * 1024
"""Decoded bytes up to which small runs are decoded together,"""

GROUP_RUNS = 64
"""and most of them."""

CHECK_BYTES = 128 * 1024
"""Stored bytes up to which a run is small: the thread that opens it also fetches and checks its beginning. A
larger one keeps a thread busy by itself."""

RUNS_AHEAD = 4
"""Most files on their way while the caller works on the one before them."""

METADATA_FIELDS: dict[str, pa.Field] = {
    "_topic": pa.field("_topic", pa.string()),
    "_partition": pa.field("_partition", pa.int32()),
    "_offset": pa.field("_offset", pa.int64()),
    "_timestamp": pa.field("_timestamp", UTC),
    "_producer_id": pa.field("_producer_id", pa.int64()),
    "_producer_epoch": pa.field("_producer_epoch", pa.int64()),
    "_entry": pa.field("_entry", pa.int64()),
    "_commit_entry": pa.field("_commit_entry", pa.int64()),
}
"""Columns that every topic has besides its own, on request."""


def output_schema(schema: TopicSchema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the Arrow schema of a read.

    ``columns``: names in the wanted order, the topic's own and metadata columns; None for all of the topic's
    own. Raises InvalidInputError: kind ``unknown-column``: unknown names, and repeated ones, all of them
    listed; or one text instead of a list. Kind ``repeated-column``: only repeated ones.
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


class Left:
    """The rest of a read that stops because an object is gone."""

    def __init__(self) -> None:
        self.rows: Rows | None = None
        """Planned rows, in the order of the read; the first one begins behind the last record that was
        yielded. None: that is not known."""


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
    files: OpenFiles | None = None,
    left: Left | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of planned rows of one partition, in offset order.

    ``rows``: ascending by base offset. ``schema``: what the records shall look like: their files may have any
    version of it up to this one. ``file_of``: gives the file record of a plan's file number. ``columns``: as
    in :func:`output_schema`. ``where``: only records for which it is true. Columns that only it needs are
    fetched, but not returned; row groups that it excludes by their statistics are not fetched.
    ``files_ahead``: files on their way while the caller works on the one before; 0 reads file after file in
    the caller's thread, though small ones still come ahead. ``files``: what the caller has open, which
    expects :func:`files_of_runs` of the rows; by default this read's own. ``left``: gets what was not yielded
    when a file is gone. Raises CorruptDataError, NotFoundError, StorageError: a file is not what the log
    says, is gone, or cannot be read.

    Requests: 1 GET for a file of up to 256 KiB; for a larger one 1 for its footer, and 1 for each run of
    adjacent column chunks of a window.
    """
    wanted = output_schema(schema, columns)
    if files is None:
        with OpenFiles(store, has_data=has_data(rows, schema, columns, where)) as own:
            own.expect(files_of_runs(rows, where, topic, schema, partition), file_of)
            yield from read_rows(
                store,
                topic,
                schema,
                partition,
                rows,
                file_of,
                columns,
                where=where,
                batch_rows_max=batch_rows_max,
                files_ahead=files_ahead,
                files=own,
                left=left,
            )
        return
    fetched, meta = _needed(schema, wanted, where)
    runs = list(_runs(_pruned(rows, where, topic, schema, partition)))
    alone = len(runs) == 1 or not files_ahead
    opener = _Opener(files, topic, schema, partition, file_of, fetched, meta, where, batch_rows_max, alone)
    begun: Iterator[_Run | StoredRun | None] = map(opener.open, runs)
    if not alone and store.reads_in_flight == 1:
        begun = opener.side_by_side(runs, files_ahead)
    elif not alone:
        begun = ahead(
            opener.begin,
            runs,
            threads=files_ahead,
            weight=lambda run: min(int(run["size"].sum()), WINDOW_BYTES),
            weight_max=2 * WINDOW_BYTES,
            count_max=files_ahead,
            by_caller=lambda run: files.is_at_hand(file_of(int(run["file"][0]))),
        )
    done, reader = 0, None
    try:
        for reader in begun:
            for count, arrays in reader.batches() if reader is not None else ():
                if where is None:
                    yield record_batch(count, arrays, wanted)
                elif (kept := _filtered(where, count, arrays, wanted)).num_rows:
                    yield kept
            done, reader = done + 1, None
    except NotFoundError:
        if left is not None:
            first = runs[done] if reader is None else reader.left()
            left.rows = None if first is None else np.concatenate([first, *runs[done + 1 :]])
        raise
    finally:
        if isinstance(begun, Generator):
            begun.close()  # its threads open files, which the caller closes next


def _needed(schema: TopicSchema, wanted: pa.Schema, where: Predicate | None) -> tuple[list[str], list[str]]:
    """Return the topic's own columns, and the metadata columns, that a read needs."""
    needed = dict.fromkeys([*wanted.names, *(where.columns if where else ())])
    fetched = [name for name in needed if name not in METADATA_FIELDS]
    meta = [name for name in needed if name in METADATA_FIELDS]
    if "_timestamp" in meta and schema.timestamp_column and schema.timestamp_column not in fetched:
        fetched.append(schema.timestamp_column)
    return fetched, meta


def has_data(rows: Rows, schema: TopicSchema, columns: Sequence[str] | None, where: Predicate | None) -> bool:
    """Return whether a read needs more of its files than their footers; arguments as of :func:`read_rows`."""
    return bool(rows["stored"].any() or _needed(schema, output_schema(schema, columns), where)[0])


def _pruned(rows: Rows, where: Predicate | None, topic: str, schema: TopicSchema, partition: int) -> Rows:
    """Return planned rows without those that the plan alone excludes."""
    if where is None:
        return rows
    time = schema.timestamp_column
    return rows[may_match_plan(where, rows, topic=topic, partition=partition, timestamp_column=time)]


def files_of_runs(
    rows: Rows, where: Predicate | None, topic: str, schema: TopicSchema, partition: int
) -> Rows:
    """Return the numbers of the files that :func:`read_rows` opens, in its order, each as often as it opens
    it.
    """
    rows = _pruned(rows, where, topic, schema, partition)
    found: Rows = rows["file"][:1] if len(rows) else rows["file"]
    return np.append(found, rows["file"][1:][_breaks(rows)]) if len(rows) else found


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens the files of runs. Used by several threads."""

    files: OpenFiles
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
    alone: bool

    def begin(self, run: Rows) -> _Run | StoredRun | None:
        """Load the beginning of a run; None: it has nothing that is wanted."""
        opened = self.open(run)
        if opened is not None:
            opened.read.load()
        return opened

    def side_by_side(self, runs: Iterable[Rows], threads: int) -> Iterator[_Run | StoredRun | None]:
        """Yield what :meth:`begin` returns of each run.

        This thread opens the files; up to ``threads`` others decode: small runs several at a time.
        """
        groups = ahead(
            _load,
            self._groups(runs),
            threads=threads,
            weight=lambda group: (
                min(group.stored_bytes, WINDOW_BYTES) if len(group.runs) == 1 else WINDOW_BYTES
            ),
            weight_max=2 * WINDOW_BYTES,  # two groups of several runs
            count_max=threads,
            by_caller=lambda group: group.decoded_bytes < SMALL_RUN_BYTES,
        )
        try:
            for group in groups:
                yield from group
        finally:
            if isinstance(groups, Generator):
                groups.close()

    def _groups(self, runs: Iterable[Rows]) -> Iterator[_Group]:
        """Yield runs that are loaded together."""
        group = _Group()
        for run in runs:
            try:
                opened = self.open(run)
                is_small = opened is None or (
                    opened.read.decoded_bytes <= GROUP_BYTES and opened.read.stored_bytes <= CHECK_BYTES
                )
                if opened is not None and is_small:
                    opened.read.check()
            except Exception as error:  # noqa: BLE001  # raised where the run is read: what comes before it is whole
                if group.runs:
                    yield group
                yield _Group(error)
                return
            if not is_small and group.runs:
                yield group
                group = _Group()
            group.add(opened)
            if not is_small or group.is_full:
                yield group
                group = _Group()
        if group.runs:
            yield group

    def open(self, run: Rows) -> _Run | StoredRun | None:
        """Open the file of a run, whose batches load it; None: it has nothing that is wanted."""
        file = self.file_of(int(run["file"][0]))
        is_stored = bool(run["stored"][0])
        columns = stored_schema(self.schema, file) if is_stored else self.schema.of_file(file)
        segment = self.files.open(file, columns, alone=self.alone)
        if self.where is not None:
            run = narrowed(run, segment, self.where, self.topic, self.partition)
            if not len(run):
                return None
        elif not is_stored:
            run = without_rest(run, segment)
        if is_stored:
            same = {
                "_topic": pa.scalar(self.topic, pa.string()),
                "_partition": pa.scalar(self.partition, pa.int32()),
            }
            stored = StoredRun(segment, run, file, Wanted(self.schema, self.fetched, self.meta), same)
            stored.start(self.batch_rows_max)
            return stored
        reader = _Run(segment, self.topic, self.schema, self.partition, run, file, self.meta)
        reader.start(self.fetched, self.batch_rows_max)
        return reader


class _Group:
    """Runs that are loaded together, or the error of one that could not be opened."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs: list[_Run | StoredRun | None] = []
        self.stored_bytes = 0
        self.decoded_bytes = 0
        self.error = error

    def add(self, run: _Run | StoredRun | None) -> None:
        """Add a run that was opened."""
        self.runs.append(run)
        if run is not None:
            self.stored_bytes += run.read.stored_bytes
            self.decoded_bytes += run.read.decoded_bytes

    @property
    def is_full(self) -> bool:
        """Whether no other run is added."""
        return self.decoded_bytes >= GROUP_BYTES or len(self.runs) == GROUP_RUNS


def _load(group: _Group) -> list[_Run | StoredRun | None]:
    if group.error is not None:
        raise group.error
    load_together([run.read for run in group.runs if run is not None], GROUP_BYTES)
    return group.runs


def _filtered(where: Predicate, count: int, arrays: dict[str, Any], wanted: pa.Schema) -> pa.RecordBatch:
    mask = where.mask(arrays, count)
    kept = mask.true_count
    if kept in (0, count) or not len(wanted):  # a batch without columns is but a number of rows
        return record_batch(kept, arrays, wanted).slice(0, kept)
    return record_batch(count, arrays, wanted).filter(mask)


def record_batch(count: int, arrays: dict[str, Any], wanted: pa.Schema) -> pa.RecordBatch:
    """Return a batch of ``count`` records, of the arrays that a schema names."""
    if not len(wanted):  # no array tells how many rows there are
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), count, [None]))
    return pa.RecordBatch.from_arrays([arrays[name] for name in wanted.names], schema=wanted)


def _runs(rows: Rows) -> Iterator[Rows]:
    """Split planned rows where :func:`_breaks` says."""
    if len(rows):
        yield from np.split(rows, np.flatnonzero(_breaks(rows)) + 1)


def _breaks(rows: Rows) -> Rows:
    """Tell of each planned row but the first whether the file or the order of row groups changes there, or
    what is taken of them.
    """
    ends = rows["row_group"].astype(np.int64) + rows["row_group_count"]
    breaks: Rows = (rows["file"][1:] != rows["file"][:-1]) | (rows["row_group"][1:] < ends[:-1])
    if rows["stored"].any():
        stored = rows["stored"]
        breaks |= (stored[1:] == Stored.BY_COMMIT) | (stored[:-1] == Stored.BY_COMMIT)
        breaks |= (stored[1:] == Stored.NO) != (stored[:-1] == Stored.NO)
        for name in ("since", "until", "known_entry"):
            breaks |= rows[name][1:] != rows[name][:-1]
    return breaks


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
        self._schema = schema
        self._rows = rows
        self._file = file
        self._planned = PlannedColumns(topic, partition, schema.timestamp_column, rows, meta)
        self._ends = self._planned.ends
        self._columns: list[str] = []
        self._done = 0
        self.read: SegmentRead
        """The read of the file, from :meth:`start` on."""

    def start(self, columns: list[str], batch_rows_max: int) -> None:
        """Set ``read``, whose beginning is loaded before :meth:`batches`. Requests: the footer's."""
        groups = row_groups_of(self._rows, self._reader).tolist()
        self._columns = columns
        self.read = self._reader.start(groups, self._reader.columns.held(columns), batch_rows_max)

    def batches(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number of rows, and the arrays by column name, of each batch; once, after :meth:`start`."""
        for table in self._own_batches():
            count, done = table.num_rows, self._done
            arrays = {name: self._column(table, name) for name in self._columns}
            arrays |= self._planned.of(done, done + count, arrays)
            self._done += count
            yield count, arrays
        if self._done != self._ends[-1]:
            raise CorruptDataError(
                "the number of records in a segment file differs from the log",
                object=self._file.key,
                expected=int(self._ends[-1]),
                got=self._done,
            )

    def left(self) -> Rows:
        """Return the planned rows behind the last batch that was yielded; of the first one only the offsets
        are what is left.
        """
        first = int(np.searchsorted(self._ends, self._done, side="right"))
        rows = self._rows[first:].copy()
        rows["base_offset"][0] += self._done - int(self._ends[first] - rows["take"][0])
        return rows

    def _column(self, table: pa.RecordBatch, name: str) -> Any:
        """Return a column as the topic has it now: older files lack some, or hold a narrower type."""
        type_ = self._schema.arrow_schema.field(name).type
        if not self._reader.columns.has(name):
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
        for batch in self.read.batches():
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
