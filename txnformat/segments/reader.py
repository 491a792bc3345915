"""Segment files read by row group and column: only the asked bytes are fetched, and all are checked first.

The footer is compared with its hash before it is parsed, every column chunk with its CRC-32 before it is
decoded (files of other writers that have none: with Parquet's page checksums while decoding).

A hash says that the bytes are those that the log names, not that they are harmless. So pyarrow gets no footer
but one that was made here (:mod:`txnformat.segments.footer_encoding`), no page that was not looked at
(:mod:`txnformat.segments.pages`), and no more than WHOLE_BYTES_MAX at a time: row groups that decode to more
are read by rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from txnformat.columns.file_columns import FileColumns
from txnformat.errors import CorruptDataError, InvalidInputError, repr_of
from txnformat.segments.ahead import ahead
from txnformat.segments.footer import Chunk, ChunkStatistics, FooterError
from txnformat.segments.footer_encoding import encode_footer
from txnformat.segments.merged import parquet_file
from txnformat.segments.pages import whole_values, with_values
from txnformat.segments.pages_ahead import Looked, look_at_pages
from txnformat.segments.ranged_file import RangedFile, joined
from txnformat.segments.segment_object import Fetch, SegmentObject, together
from txnformat.segments.windows import Asked, Checked, Later, Parts, Window
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord

__all__ = ["WINDOW_BYTES", "SegmentFileReader", "SegmentRead"]

WINDOW_BYTES = 8 * 1024 * 1024
"""Compressed bytes that are fetched and decoded in one go; at least one row group."""

WINDOW_DECODED_BYTES = 32 * 1024 * 1024
"""The same for what they decode to: what compresses well would fill the memory."""

FREE_REQUESTS_SHARE = 4
"""Where a read is a system call windows are so many times smaller: more of them are decoded side by side, and
the first is there sooner."""

WHOLE_BYTES_MAX = 80 * 1024 * 1024
"""Most bytes that are decoded in one piece: a writer's largest row group, and a fourth."""

PART_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a piece of what decodes to more; at least a row."""

SIDE_BY_SIDE_BYTES = 2 * 1024 * 1024
"""Decoded bytes of a window from which on its columns are decoded side by side: below, starting threads takes
longer."""

JOINED_BYTES_MAX = 1024 * 1024
"""Where ranges must end for pyarrow to get them as one piece of memory: opening a small file in Python takes
as long as decoding it."""

WINDOWS_AHEAD = 2
"""Windows on their way while the caller works on the one before them."""


_Loaded = Any  # pyarrow.Table, which has no types, Parts or Later


class SegmentFileReader:
    """Reads one segment file; the footer is fetched at the first need and kept.

    A small file is fetched whole instead.

    ``file``: as a commit entry names it. ``columns``: what the file must hold, and the names under which it
    is asked for and given out: a schema stands for the names in the file. ``threads``: windows fetched and
    decoded at a time; 1 keeps to the caller's thread and reads nothing ahead. ``alone``: decode the columns
    of the first window side by side. False where other files are decoded meanwhile: then that would only hand
    work to and fro. ``has_data``: False where only the footer is asked for. ``fetch_tail``: as of
    :class:`~txnformat.segments.segment_object.SegmentObject`.
    """

    def __init__(
        self,
        store: ObjectStore,
        file: FileRecord,
        columns: FileColumns | pa.Schema,
        *,
        threads: int = WINDOWS_AHEAD,
        alone: bool = True,
        has_data: bool = True,
        fetch_tail: Fetch | None = None,
    ) -> None:
        self.columns = columns if isinstance(columns, FileColumns) else FileColumns.own(columns)
        """The columns by the reader's names. Methods that take names take these, but for those of a read that
        has begun: :class:`SegmentRead`."""
        self._schema = self.columns.stored
        self.object = SegmentObject(store, file, self._schema, has_data=has_data, fetch_tail=fetch_tail)
        self._file = file
        self._threads = threads
        self._alone = alone
        self._share = FREE_REQUESTS_SHARE if store.reads_in_flight == 1 else 1
        self._asked: Asked | None = None

    def read(
        self, row_groups: Sequence[int], columns: Sequence[str], batch_rows_max: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the asked columns of the asked row groups, in the order they are asked for.

        Without columns the batches have their number of rows, and no data is read.

        ``row_groups``: zero-based. ``columns``: top-level names, distinct. ``batch_rows_max``: most rows of
        one batch (inclusive). Raises CorruptDataError: the object is not what the record says; NotFoundError:
        kind ``segment-file-missing``: the object is gone; StorageError: it could not be read.

        Requests: 1 ranged GET for a small file (up to 256 KiB); else 1 for the footer, and 1 for each run of
        adjacent column chunks of a window.
        """
        yield from self.begin(row_groups, columns, batch_rows_max)

    def begin(
        self, row_groups: Sequence[int], columns: Sequence[str], batch_rows_max: int
    ) -> Iterator[pa.RecordBatch]:
        """Do what :meth:`read` does, but fetch and decode the first window now, and return the iterator over
        all.
        """
        read = self.start(row_groups, columns, batch_rows_max)
        read.load()
        return read.batches()

    def start(self, row_groups: Sequence[int], columns: Sequence[str], batch_rows_max: int) -> SegmentRead:
        """Return a read of which nothing but the footer was fetched; parameters and errors are those of
        :meth:`read`.
        """
        self.object.footer()
        unknown = [name for name in columns if not self.columns.has(name)]
        if unknown:
            raise InvalidInputError(
                [f"there is no column {repr_of(name)}" for name in unknown], kind="unknown-column"
            )
        self.check_row_groups(row_groups)
        # Facts about them are kept by this object.
        stored = tuple(self.columns.names[name] for name in columns)
        return SegmentRead(self, row_groups, stored, tuple(columns), batch_rows_max)

    def _batches(
        self,
        windows: Iterator[_Loaded | Window],
        columns: Sequence[str],
        names: Sequence[str],
        batch_rows_max: int,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of windows in order, with the reader's names; the next windows are on their way
        meanwhile.
        """
        schema = self._known(columns).schema
        given = schema
        if columns != names:
            given = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
        loaded = ahead(
            lambda window: self._load(window, columns) if isinstance(window, Window) else window,
            windows,
            threads=self._threads,
            weight=self._weight,
            weight_max=self._threads,
            count_max=self._threads + 1,
        )
        # A window's data is let go of before the next one is decoded.
        one = batch = part = batches = None
        for one in loaded:
            if isinstance(one, Later):
                one = self._in_turn(one, columns)
            batches = (
                self._by_rows(one, columns, batch_rows_max)
                if isinstance(one, Parts)
                else one.to_batches(max_chunksize=batch_rows_max)
            )
            for batch in batches:
                for part in (batch,) if batch.schema.equals(schema) else self._values(batch):
                    yield pa.RecordBatch.from_arrays(part.columns, schema=given)
            one = batch = part = batches = None

    def _values(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch with values in place of numbers of dictionaries."""
        parts = with_values(batch, PART_BYTES_MAX)
        while True:
            with _Decoding(self):
                part = next(parts, None)
            if part is None:
                return
            yield part

    def _weight(self, window: _Loaded | Window) -> int:
        """Return how many of the windows on their way one counts for: a large one keeps the others
        waiting.
        """
        if not isinstance(window, Window):
            return 0
        return self._threads if window.decoded > WINDOW_DECODED_BYTES else 1

    def statistics(
        self, row_groups: Sequence[int], column: str
    ) -> tuple[pa.DataType, list[ChunkStatistics | None]] | None:
        """Return a column's type in the file, and its statistics by row group.

        None for a column that is nested.
        """
        footer = self.object.footer()
        type_ = self.columns.type_of(column)
        if type_.num_fields:
            return None
        leaf = footer.shape.columns[self.columns.names[column]][0]
        self.check_row_groups(row_groups)
        try:
            return type_, [footer.statistics(group, leaf) for group in row_groups]
        except FooterError as error:
            raise self.object.refused(error) from error

    def check_row_groups(self, row_groups: Sequence[int]) -> None:
        """Raise CorruptDataError about row groups that the file does not have."""
        known = len(self.object.footer().groups)
        for group in row_groups:
            if not 0 <= group < known:
                raise self.object.corrupt(
                    "a row group that the log names is not there", f"below {known}", group
                )

    def check_records(self, claimed: int, held: int) -> None:
        """Raise CorruptDataError if row groups hold fewer records than the log claims."""
        if held < claimed:
            raise self.object.corrupt(
                "the number of records in a segment file differs from the log", claimed, held
            )

    def row_group_rows(self, row_group: int) -> int:
        """Return the number of records of a row group."""
        return self.object.footer().groups[row_group].rows

    def row_group_counts(self) -> list[int]:
        """Return the number of records of every row group, in order."""
        return [group.rows for group in self.object.footer().groups]

    def chunk_bytes(self) -> int:
        """Return the bytes of all column chunks together."""
        names = self._schema.names
        groups = range(len(self.object.footer().groups))
        return sum(chunk.length for group in groups for chunk in self.chunks(group, names))

    def _counts(self, row_groups: Sequence[int], batch_rows_max: int) -> Iterator[pa.RecordBatch]:
        for group in row_groups:
            left = self.row_group_rows(group)
            while left:
                count = min(left, batch_rows_max)
                nothing = pa.StructArray.from_buffers(pa.struct([]), count, [None])
                yield pa.RecordBatch.from_struct_array(nothing)
                left -= count

    def chunks(self, group: int, columns: Sequence[str]) -> list[Chunk]:
        """Return the chunks of columns in a row group."""
        known = self._known(columns).chunks
        found = known.get(group)
        if found is None:
            footer = self.object.footer()
            leaves = footer.shape.columns
            try:
                found = [footer.chunk(group, leaf) for name in columns for leaf in leaves[name]]
            except FooterError as error:
                raise self.object.refused(error) from error
            known[group] = found
        return found

    def _known(self, columns: Sequence[str]) -> Asked:
        """Return what is known of columns: the last ones are kept, for they are asked for several times."""
        known = self._asked  # other threads may ask for other columns
        if known is None or known.columns is not columns:
            shape = self.object.footer().shape
            leaves = [shape.leaves[leaf] for name in columns for leaf in shape.columns[name]]
            schema = pa.schema([self._schema.field(name) for name in columns])
            known = self._asked = Asked(columns, leaves, schema, {})
        return known

    def _windows(self, row_groups: Sequence[int], columns: Sequence[str]) -> Iterator[Window]:
        """Split row groups into runs of about WINDOW_BYTES of asked chunks, or a share of them."""
        bytes_max, decoded_max = WINDOW_BYTES // self._share, WINDOW_DECODED_BYTES // self._share
        described = self._known(columns).leaves
        groups: list[int] = []
        chunks: list[Chunk] = []
        size = decoded = 0
        for group in row_groups:
            found = self.chunks(group, columns)
            more = more_decoded = 0
            for chunk, leaf in zip(found, described, strict=True):
                values = chunk.num_values
                more += chunk.length
                more_decoded += values * leaf.width or max(chunk.uncompressed, chunk.text_bytes)
                more_decoded += values * leaf.level_bytes
            if groups and (size + more > bytes_max or decoded + more_decoded > decoded_max):
                yield Window(groups, chunks, decoded)
                groups, chunks, size, decoded = [], [], 0, 0
            groups.append(group)
            chunks += found
            size += more
            decoded += more_decoded
        if groups:
            yield Window(groups, chunks, decoded)

    def _load(self, window: Window, columns: Sequence[str], *, alone: bool = False) -> _Loaded:
        """Fetch and check one window, and decode it unless that is too much for one piece."""
        checked = self._checked(window, columns)
        return self._decoded(checked, columns, alone=alone) if isinstance(checked, Checked) else checked

    def _checked(self, window: Window, columns: Sequence[str]) -> Checked | Parts | Later:
        """Fetch and check one window."""
        ranges = self._fetch(window.groups, columns)
        looked = self._look(ranges, window.groups, columns, at_once_max=PART_BYTES_MAX)
        if looked is None or looked.decoded > WINDOW_DECODED_BYTES >= window.decoded:
            return Later(ranges, window.groups)
        if looked.decoded > WHOLE_BYTES_MAX:
            return Parts(ranges, window.groups)
        return Checked(ranges, window.groups, looked, window.decoded >= SIDE_BY_SIDE_BYTES)

    def _decoded(self, checked: Checked, columns: Sequence[str], *, alone: bool) -> pa.Table:
        ranges, groups, looked, is_large = checked
        parts = min(len(columns), pa.cpu_count()) if alone and is_large else 1
        if parts == 1:
            return self._decode(ranges, groups, columns, looked)
        tables = together(
            lambda names: self._decode(ranges, groups, names, looked),
            [columns[part::parts] for part in range(parts)],
            threads=parts,
        )
        arrays = {name: table.column(name) for table in tables for name in table.column_names}
        return pa.Table.from_arrays([arrays[name] for name in columns], names=list(columns))

    def _in_turn(self, window: Later, columns: Sequence[str]) -> _Loaded:
        pa.default_memory_pool().release_unused()  # of the window before it
        looked = self._looked(window.ranges, window.groups, columns)
        if looked.decoded > WHOLE_BYTES_MAX:
            return Parts(*window)
        return self._decode(*window, columns, looked)

    def _fetch(self, groups: Sequence[int], columns: Sequence[str]) -> dict[int, bytes]:
        shape = self.object.footer().shape
        leaves = [leaf for name in columns for leaf in shape.columns[name]]
        return self.object.fetch_chunks(leaves, {group: self.chunks(group, columns) for group in groups})

    def _look(
        self,
        ranges: dict[int, bytes],
        groups: Sequence[int],
        columns: Sequence[str],
        at_once_max: int | None = None,
    ) -> Looked | None:
        """Look at the pages of columns, before a decoder gets them:
        :func:`~txnformat.segments.pages_ahead.look_at_pages`.
        """
        chunks = [(group, self.chunks(group, columns)) for group in groups]
        try:
            return look_at_pages(ranges, chunks, self._known(columns).leaves, at_once_max=at_once_max)
        except FooterError as error:
            raise self.object.refused(error) from error

    def _looked(self, ranges: dict[int, bytes], groups: Sequence[int], columns: Sequence[str]) -> Looked:
        looked = self._look(ranges, groups, columns)
        assert looked is not None  # without a maximum
        return looked

    def _opened(
        self, ranges: dict[int, bytes], groups: Sequence[int], columns: Sequence[str], looked: Looked
    ) -> Any:
        """Return pyarrow's reader of a file that has these row groups and columns only."""
        rows = [self.row_group_rows(group) for group in groups]
        chunks = [self.chunks(group, columns) for group in groups]
        footer = encode_footer(self.object.footer().shape.part(columns), list(zip(rows, chunks, strict=True)))
        end = max(start + len(data) for start, data in ranges.items())
        if end <= JOINED_BYTES_MAX:
            file, metadata = pa.BufferReader(joined([*ranges.items(), (end, footer)])), None
        else:
            file = pa.PythonFile(RangedFile(self._file.key, self._file.size, ranges), mode="r")
            metadata = pq.read_metadata(pa.BufferReader(footer))
        numbered = [name for name in columns if name in looked.numbered]
        return parquet_file(file, metadata, numbered, checks_pages=not self.object.has_checksums)

    def _decode(
        self, ranges: dict[int, bytes], groups: Sequence[int], columns: Sequence[str], looked: Looked
    ) -> pa.Table:
        """Decode columns of fetched row groups, in this thread.

        Arrow's own threads let go of a file a moment after the caller has its table. That ends the process
        when the file is Python's and the interpreter shuts down just then, so they never get to see one.
        """
        with _Decoding(self):
            parquet = self._opened(ranges, groups, columns, looked)
            table = parquet.reader.read_row_groups(list(range(len(groups))), use_threads=False)
        self.check_decoded(table, sum(self.row_group_rows(group) for group in groups), columns, looked)
        if not looked.numbered:
            return table
        with _Decoding(self):
            return whole_values(table, WHOLE_BYTES_MAX)

    def _by_rows(self, parts: Parts, columns: Sequence[str], batch_rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a window that is too much for one piece, of each row group in turn."""
        for group in parts.groups:
            looked = self._looked(parts.ranges, [group], columns)
            if looked.decoded <= WHOLE_BYTES_MAX:
                table = self._decode(parts.ranges, [group], columns, looked)
                yield from table.to_batches(max_chunksize=batch_rows_max)
            else:
                yield from self._group_by_rows(parts.ranges, group, columns, looked, batch_rows_max)

    def _group_by_rows(
        self,
        ranges: dict[int, bytes],
        group: int,
        columns: Sequence[str],
        looked: Looked,
        batch_rows_max: int,
    ) -> Iterator[pa.RecordBatch]:
        rows = max(1, min(batch_rows_max, PART_BYTES_MAX // max(1, looked.width)))
        with _Decoding(self):
            batches = self._opened(ranges, [group], columns, looked).iter_batches(rows, use_threads=False)
        done = 0
        while True:
            with _Decoding(self):
                batch = next(batches, None)
            if batch is None:
                break
            done += batch.num_rows
            self.check_decoded(batch, batch.num_rows, columns, looked)
            yield batch
        if done != self.row_group_rows(group):
            raise self.object.corrupt(
                "row groups of a segment file differ from its footer", self.row_group_rows(group), done
            )

    def not_decoded(self, error: BaseException) -> CorruptDataError:
        """Return what to raise about what a decoder raised."""
        return self.object.corrupt("row groups of a segment file cannot be decoded", "Parquet", error)

    def check_decoded(
        self, found: pa.Table | pa.RecordBatch, rows: int, columns: Sequence[str], looked: Looked
    ) -> None:
        """Raise CorruptDataError about decoded rows that have another number, or other columns, than the
        footer says.
        """
        schema = found.schema
        if found.num_rows == rows and not looked.numbered and schema.equals(self._known(columns).schema):
            return
        wanted = [self._schema.field(name).type for name in columns]
        types = [
            type_.value_type if name in looked.numbered else type_
            for name, type_ in zip(schema.names, schema.types, strict=True)
        ]
        if found.num_rows != rows or schema.names != list(columns) or types != wanted:
            raise self.object.corrupt(
                "row groups of a segment file differ from its footer", rows, found.num_rows
            )


class SegmentRead:
    """A read of one file that has begun: what comes first is loaded alone, or together with that of other
    files.

    Call :meth:`load` or :func:`load_together`, then :meth:`batches`, once.
    """

    __slots__ = (
        "_batch_rows_max",
        "_names",
        "_row_groups",
        "_window",
        "_windows",
        "columns",
        "first",
        "reader",
    )

    def __init__(
        self,
        reader: SegmentFileReader,
        row_groups: Sequence[int],
        columns: Sequence[str],
        names: Sequence[str],
        batch_rows_max: int,
    ) -> None:
        self.reader = reader
        self._row_groups = row_groups
        self.columns = columns
        """The columns, under their names in the file."""
        self._names = names
        self._batch_rows_max = batch_rows_max
        self._windows = reader._windows(row_groups, columns) if columns else iter(())
        self._window = next(self._windows, None)
        self.first: _Loaded | Checked = None

    @property
    def decoded_bytes(self) -> int:
        """Bytes that what comes first decodes to, about: as the footer says before it was checked, as its
        pages say after that.
        """
        if isinstance(self.first, Checked):
            return self.first.looked.decoded
        return 0 if self._window is None else self._window.decoded

    @property
    def stored_bytes(self) -> int:
        """Bytes that are fetched for what comes first."""
        return 0 if self._window is None else sum(chunk.length for chunk in self._window.chunks)

    def check(self) -> None:
        """Fetch what comes first, and check it."""
        if self._window is not None and self.first is None:
            self.first = self.reader._checked(self._window, self.columns)

    def load(self) -> None:
        """Fetch, check and decode what comes first, as far as that was not done."""
        if self._window is None:
            return
        alone = self.reader._alone
        if self.first is None:
            self.first = self.reader._load(self._window, self.columns, alone=alone)
        elif isinstance(self.first, Checked):
            self.first = self.reader._decoded(self.first, self.columns, alone=alone)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the batches, in order; the next windows are on their way meanwhile."""
        if not self.columns:
            return self.reader._counts(self._row_groups, self._batch_rows_max)
        windows = self._windows
        following = list(islice(windows, 1))
        if self.first is not None or not following:  # else all windows are alike
            self.load()
        first = () if self._window is None else (self._window if self.first is None else self.first,)
        self.first = None
        rest = chain(first, following, windows)
        return self.reader._batches(rest, self.columns, self._names, self._batch_rows_max)

    def alike(self) -> tuple[object, ...] | None:
        """Return what reads have in common that are decoded together; None: this one is not."""
        if not isinstance(self.first, Checked):
            return None
        shape = self.reader.object.footer().shape.part(self.columns)
        return (id(shape), self.columns, *self.first.looked.numbered)


class _Decoding:
    """Turns what a decoder raises into an error of this library.

    No generator: it is entered several times for every file.
    """

    __slots__ = ("_reader",)

    def __init__(self, reader: SegmentFileReader) -> None:
        self._reader = reader

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (pa.ArrowException, OSError, ValueError)) and not isinstance(error, MemoryError):
            raise self._reader.not_decoded(error) from error
