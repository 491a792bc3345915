"""Reading runs of compacted files: their rows have offsets, producers and entries in columns, and say
themselves which of them are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.columns.file_columns import FileColumns
from txnformat.core.records.scan import INT64_MAX, Stored
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import CorruptDataError
from txnformat.persistent import Rows
from txnformat.reading.row_groups import row_groups_of
from txnformat.segments.reader import SegmentFileReader, SegmentRead
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord

__all__ = ["STORED_FIELDS", "StoredRun", "Wanted", "read_stored", "stored_schema"]

_UTC = pa.timestamp("us", tz="UTC")
STORED_FIELDS: dict[str, pa.Field] = {
    name: pa.field(name, type_)
    for name, type_ in (
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", _UTC),
        ("_entry", pa.int64()),
        ("_commit_entry", pa.int64()),
        ("_producer_id", pa.int64()),
        ("_producer_epoch", pa.int64()),
    )
}
"""Columns of a compacted file behind the topic's own."""
ROWS_PER_READ = 65_536


def stored_schema(schema: TopicSchema, file: FileRecord) -> FileColumns:
    """Return the columns of a compacted file. It has lost those that its version does not have any more."""
    return schema.of_file(file).beside(STORED_FIELDS.values(), schema.dropped_in(file.schema_id))


class Wanted(NamedTuple):
    """The columns of a read."""

    schema: TopicSchema
    own: Sequence[str]
    """The topic's."""
    meta: Sequence[str]


class StoredRun:
    """Planned runs of one file with ascending row groups.

    ``alone``: the values of columns that are the same in all rows.
    """

    def __init__(
        self,
        reader: SegmentFileReader,
        rows: Rows,
        file: FileRecord,
        columns: Wanted,
        alone: Mapping[str, pa.Scalar],
    ) -> None:
        self._reader = reader
        self._rows = rows
        self._file = file
        self._columns = columns
        self._alone = alone
        self.read: SegmentRead
        """The read of the file, from :meth:`start` on."""
        self._done = 0  # rows of the file
        self._is_clipped = bool((rows["stored"] != Stored.WHOLE).any())
        first = rows[0]
        self._window = (int(first["since"]), int(first["until"]), int(first["known_entry"]))
        self._by_commit = bool(first["stored"] == Stored.BY_COMMIT)

    def start(self, batch_rows_max: int) -> None:
        """Set ``read``, whose beginning is loaded before :meth:`batches`. Requests: the footer's."""
        names = self._reader.columns.held(self._columns.own)
        names += [name for name in self._columns.meta if name not in self._alone]
        if self._is_clipped:
            names += ["_offset", "_commit_entry"]
        groups = row_groups_of(self._rows, self._reader).tolist()
        self.read = self._reader.start(groups, list(dict.fromkeys(names)), batch_rows_max)

    def batches(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number of rows, and the arrays by column name, of each batch; once, after :meth:`start`."""
        kept = self._kept()
        if self._by_commit:
            tables = list(kept)
            if not tables:
                return
            whole = pa.Table.from_batches(tables)
            order = np.lexsort((whole.column("_offset").to_numpy(), whole.column("_commit_entry").to_numpy()))
            kept = iter(whole.take(pa.array(order)).combine_chunks().to_batches(ROWS_PER_READ))
        for batch in kept:
            yield batch.num_rows, self._arrays(batch)

    def _kept(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are taken, in the order of the file."""
        for batch in self.read.batches():
            self._done += batch.num_rows
            if self._is_clipped:
                mask = self._mask(batch)
                taken = int(np.count_nonzero(mask))
                if taken < batch.num_rows:
                    batch = batch.filter(pa.array(mask))
            if batch.num_rows:
                yield batch
        expected = int(self._rows["take"].sum())
        if self._done != expected:
            raise CorruptDataError(
                "the number of records in a compacted file differs from the log",
                object=self._file.key,
                expected=expected,
                got=self._done,
            )

    def left(self) -> Rows | None:
        """Return the planned rows behind the last batch that was yielded; None where the footer does not say
        where that ended.

        No request.
        """
        if self._by_commit or not self._done:
            return self._rows
        groups = row_groups_of(self._rows, self._reader).tolist()
        ends = np.cumsum([self._reader.row_group_rows(group) for group in groups])
        place = int(np.searchsorted(ends, self._done, side="right"))  # row groups are fetched whole
        found = self._reader.statistics(groups[place - 1 : place + 1], "_offset")
        before, after = found[1] if found is not None else (None, None)
        if before is None or after is None or not isinstance(before.upper, int):
            return None
        if not isinstance(after.lower, int) or after.lower <= before.upper or ends[place - 1] != self._done:
            return None
        rows = self._rows[self._rows["end_offset"] > after.lower].copy()
        if rows["base_offset"][0] < after.lower:
            rows["base_offset"][0], rows["stored"][0] = after.lower, Stored.PART
        return rows

    def _mask(self, batch: pa.RecordBatch) -> Any:
        offsets, entries = (self._numbers(batch, name) for name in ("_offset", "_commit_entry"))
        places = np.searchsorted(self._rows["base_offset"], offsets, side="right") - 1
        mask = (places >= 0) & (offsets < self._rows["end_offset"][places])
        since, until, _ = self._window
        if since >= 0 or until < INT64_MAX:
            mask &= (entries > since) & (entries <= until)
        return mask

    def _numbers(self, batch: pa.RecordBatch, name: str) -> Any:
        column = batch.column(name)
        if column.null_count:
            raise CorruptDataError(
                "a compacted file has records without offsets or commit entries",
                object=self._file.key,
                column=name,
            )
        return column.to_numpy()

    def _arrays(self, batch: pa.RecordBatch) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self._columns.own:
            type_ = self._columns.schema.arrow_schema.field(name).type
            if not self._reader.columns.has(name):
                found[name] = pa.nulls(batch.num_rows, type_)
            else:
                column = batch.column(name)
                found[name] = column if column.type.equals(type_) else column.cast(type_)
        for name in self._columns.meta:
            if name in self._alone:
                found[name] = pa.repeat(self._alone[name], batch.num_rows)
            else:
                found[name] = batch.column(name)
        known = self._window[2]
        if "_commit_entry" in found and known < INT64_MAX:
            entries = found["_commit_entry"]
            found["_commit_entry"] = pc.if_else(
                pc.greater(entries, pa.scalar(known, pa.int64())), pa.scalar(None, pa.int64()), entries
            )
        return found


def read_stored(
    store: ObjectStore,
    schema: TopicSchema,
    rows: Rows,
    file_of: Callable[[int], FileRecord],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield metadata columns, of STORED_FIELDS, of the rows that planned runs take, run by run.

    Requests: of each file its footer, and of each run the chunks of these columns.
    """
    readers: dict[str, SegmentFileReader] = {}
    for place in range(len(rows)):
        file = file_of(int(rows["file"][place]))
        if file.key not in readers:
            readers = {file.key: SegmentFileReader(store, file, stored_schema(schema, file), alone=False)}
        run = StoredRun(
            readers[file.key], rows[place : place + 1], file, Wanted(schema, (), tuple(names)), {}
        )
        run.start(ROWS_PER_READ)
        run.read.load()
        for _, arrays in run.batches():
            yield pa.RecordBatch.from_arrays(
                [arrays[name] for name in names], schema=pa.schema([STORED_FIELDS[name] for name in names])
            )
