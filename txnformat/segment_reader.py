"""Segment files read by row group and column: only the asked bytes are fetched, and all are checked first.

The footer is compared with its hash before it is parsed, every column chunk with its CRC-32 before it is decoded
(files of other writers that have none: with Parquet's page checksums while decoding).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from txnformat.ahead import ahead
from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, StorageError
from txnformat.ranged_file import RangedFile
from txnformat.segment_writer import CHUNK_CRC32_KEY, chunk_range, leaf_count
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord

__all__ = ["WINDOW_BYTES", "SegmentFileReader"]

WINDOW_BYTES = 8 * 1024 * 1024
"""Compressed bytes that are fetched and decoded in one go; at least one row group."""

WINDOW_DECODED_BYTES = 32 * 1024 * 1024
"""The same for what they decode to: what compresses well would fill the memory."""

WINDOWS_AHEAD = 2
"""Windows on their way while the caller works on the one before them."""


Item = TypeVar("Item")
Result = TypeVar("Result")


class _Chunk(NamedTuple):
    start: int
    """First byte in the object (inclusive)."""
    length: int
    crc32: int | None
    """None in files of other writers."""
    decoded: int
    """Bytes before they were compressed, as the footer says."""


_Window = tuple[list[int], list[_Chunk]]
"""Row groups, and the asked chunks of each."""


class SegmentFileReader:
    """Reads one segment file; the footer is fetched at the first need and kept.

    Parameters
    ----------
    file : FileRecord
        As a commit entry names it.
    schema : pyarrow.Schema
        What the file must hold.
    threads : int, optional
        Windows fetched and decoded at a time; 1 keeps to the caller's thread and reads nothing ahead.
    alone : bool, optional
        Decode the columns of the first window side by side. False where other files are decoded meanwhile: then
        that would only hand work to and fro.
    """

    def __init__(
        self,
        store: ObjectStore,
        file: FileRecord,
        schema: pa.Schema,
        *,
        threads: int = WINDOWS_AHEAD,
        alone: bool = True,
    ) -> None:
        self._store = store
        self._file = file
        self._schema = schema
        self._threads = threads
        self._alone = alone
        self._footer: Any = None  # pyarrow.parquet.FileMetaData
        self._checksums: str | None = None
        self._leaves: dict[str, range] = {}

    def read(
        self, row_groups: Sequence[int], columns: Sequence[str], batch_rows_max: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the asked columns of the asked row groups, in the order they are asked for.

        Without columns the batches have their number of rows, and no data is read.

        Parameters
        ----------
        row_groups : sequence of int
            Zero-based.
        columns : sequence of str
            Top-level names, distinct.
        batch_rows_max : int
            Most rows of one batch (inclusive).

        Raises
        ------
        CorruptDataError
            The object is not what the record says.
        NotFoundError
            Kind ``segment-file-missing``: the object is gone.
        StorageError
            It could not be read.

        Notes
        -----
        Requests: 1 ranged GET for the footer, and 1 for each run of adjacent column chunks of a window.
        """
        yield from self.begin(row_groups, columns, batch_rows_max)

    def begin(
        self, row_groups: Sequence[int], columns: Sequence[str], batch_rows_max: int
    ) -> Iterator[pa.RecordBatch]:
        """Do what :meth:`read` does, but fetch and decode the first window now, and return the iterator over all."""
        self._metadata()
        unknown = [name for name in columns if name not in self._leaves]
        if unknown:
            raise InvalidInputError(
                [f"there is no column {name!r:.300}" for name in unknown], kind="unknown-column"
            )
        self.check_row_groups(row_groups)
        if not columns:
            return self._counts(row_groups, batch_rows_max)
        windows = self._windows(row_groups, columns)
        first = [self._load(window, columns, alone=self._alone) for window in islice(windows, 1)]
        return self._batches(chain(first, windows), columns, batch_rows_max)

    def _batches(
        self, windows: Iterator[pa.Table | _Window], columns: Sequence[str], batch_rows_max: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of windows in order; the next windows are on their way meanwhile."""
        tables = ahead(
            lambda window: window if isinstance(window, pa.Table) else self._load(window, columns),
            windows,
            threads=self._threads,
            weight=lambda window: 0 if isinstance(window, pa.Table) else 1,
            weight_max=self._threads,
            count_max=self._threads + 1,
        )
        for table in tables:
            yield from table.to_batches(max_chunksize=batch_rows_max)

    def statistics(self, row_groups: Sequence[int], column: str) -> tuple[pa.DataType, list[Any]] | None:
        """Return a column's type in the file, and its statistics (``pyarrow.parquet.Statistics`` or None) by row group.

        None for a column that is nested.
        """
        footer = self._metadata()
        type_ = self._schema.field(column).type
        if type_.num_fields:
            return None
        leaves = self._leaves[column]
        self.check_row_groups(row_groups)
        return type_, [footer.row_group(group).column(leaves[0]).statistics for group in row_groups]

    def check_row_groups(self, row_groups: Sequence[int]) -> None:
        """Raise CorruptDataError about row groups that the file does not have."""
        known = self._metadata().num_row_groups
        for group in row_groups:
            if not 0 <= group < known:
                raise self._corrupt("a row group that the log names is not there", f"below {known}", group)

    @property
    def columns(self) -> Sequence[str]:
        """Names of the file's columns. No request."""
        names: Sequence[str] = self._schema.names
        return names

    def row_group_rows(self, row_group: int) -> int:
        """Return the number of records of a row group."""
        rows: int = self._metadata().row_group(row_group).num_rows
        return rows

    def row_group_counts(self) -> list[int]:
        """Return the number of records of every row group, in order."""
        return [self.row_group_rows(group) for group in range(self._metadata().num_row_groups)]

    def _counts(self, row_groups: Sequence[int], batch_rows_max: int) -> Iterator[pa.RecordBatch]:
        for group in row_groups:
            left = self.row_group_rows(group)
            while left:
                count = min(left, batch_rows_max)
                nothing = pa.StructArray.from_buffers(pa.struct([]), count, [None])
                yield pa.RecordBatch.from_struct_array(nothing)
                left -= count

    def _metadata(self) -> Any:
        """Return the footer (pyarrow.parquet.FileMetaData), fetched and checked at the first call."""
        if self._footer is not None:
            return self._footer
        file = self._file
        data = self._fetch(file.size - file.footer_bytes, file.footer_bytes)
        digest = hashlib.sha256(data).hexdigest()
        if digest != file.footer_sha256:
            raise self._corrupt("the footer of a segment file has another hash", file.footer_sha256, digest)
        try:
            footer = pq.read_metadata(pa.BufferReader(data))
            schema = footer.schema.to_arrow_schema()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._corrupt("the footer of a segment file cannot be parsed", "Parquet", error) from error
        if not schema.equals(self._schema):
            raise self._corrupt("a segment file has another schema", self._schema, schema)
        if footer.num_rows != file.rows:
            raise self._corrupt("a segment file has another number of records", file.rows, footer.num_rows)
        self._checksums = self._parse_checksums(footer)
        first = 0
        for field in schema:
            self._leaves[field.name] = range(first, first := first + leaf_count(field.type))
        self._footer = footer
        return footer

    def _parse_checksums(self, footer: Any) -> str | None:
        found = (footer.metadata or {}).get(CHUNK_CRC32_KEY)
        if found is None:
            return None
        digits = 8 * footer.num_row_groups * footer.num_columns
        text: str = found.decode("ascii", "replace")
        if len(text) != digits or set(text) - set("0123456789abcdef"):
            raise self._corrupt(
                "the chunk checksums of a segment file are malformed", f"{digits} hex digits", text
            )
        return text

    def _chunk(self, group: int, leaf: int) -> _Chunk:
        footer = self._footer
        column = footer.row_group(group).column(leaf)
        start, length = chunk_range(column)
        if start < 4 or length < 0 or start + length > self._file.size - self._file.footer_bytes:
            raise self._corrupt(
                "a column chunk lies outside the data of its file", "a range inside", (start, length)
            )
        crc32 = None
        if self._checksums is not None:
            place = 8 * (group * footer.num_columns + leaf)
            crc32 = int(self._checksums[place : place + 8], 16)
        return _Chunk(start, length, crc32, column.total_uncompressed_size)

    def _windows(self, row_groups: Sequence[int], columns: Sequence[str]) -> Iterator[_Window]:
        """Split row groups into runs of about WINDOW_BYTES of asked chunks."""
        leaves = sorted(leaf for name in columns for leaf in self._leaves[name])
        groups: list[int] = []
        chunks: list[_Chunk] = []
        size = decoded = 0
        for group in row_groups:
            found = [self._chunk(group, leaf) for leaf in leaves]
            size += sum(chunk.length for chunk in found)
            decoded += sum(chunk.decoded for chunk in found)
            if groups and (size > WINDOW_BYTES or decoded > WINDOW_DECODED_BYTES):
                yield groups, chunks
                groups, chunks = [], []
                size = sum(chunk.length for chunk in found)
                decoded = sum(chunk.decoded for chunk in found)
            groups.append(group)
            chunks += found
        if groups:
            yield groups, chunks

    def _load(self, window: _Window, columns: Sequence[str], *, alone: bool = False) -> pa.Table:
        """Fetch, check and decode one window."""
        groups, chunks = window
        ranges = self._fetch_chunks(sorted(chunks))
        parts = min(len(columns), pa.cpu_count()) if alone else 1
        tables = _together(
            lambda names: self._decode(ranges, groups, names),
            [columns[part::parts] for part in range(parts)],
            threads=parts,
        )
        arrays = {name: table.column(name) for table in tables for name in table.column_names}
        return pa.Table.from_arrays([arrays[name] for name in columns], schema=self._part_of_schema(columns))

    def _decode(self, ranges: dict[int, bytes], groups: list[int], columns: Sequence[str]) -> pa.Table:
        """Decode columns of fetched row groups, in this thread.

        Arrow's own threads let go of a file a moment after the caller has its table. That ends the process when the
        file is Python's and the interpreter shuts down just then, so they never get to see one.
        """
        leaves = sorted(leaf for name in columns for leaf in self._leaves[name])
        try:
            parquet = pq.ParquetFile(
                pa.PythonFile(RangedFile(self._file.key, self._file.size, ranges), mode="r"),
                metadata=self._footer,
                pre_buffer=False,
                page_checksum_verification=self._checksums is None,
            )
            table = parquet.reader.read_row_groups(groups, column_indices=leaves, use_threads=False)
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._corrupt("row groups of a segment file cannot be decoded", "Parquet", error) from error
        table = table.select(list(columns))
        rows = sum(self.row_group_rows(group) for group in groups)
        if table.num_rows != rows or not table.schema.equals(self._part_of_schema(columns)):
            raise self._corrupt(
                "row groups of a segment file are not what its footer says", rows, table.num_rows
            )
        return table

    def _part_of_schema(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self._schema.field(name) for name in columns])

    def _fetch_chunks(self, chunks: list[_Chunk]) -> dict[int, bytes]:
        """Return start to content of the runs of adjacent chunks; as many at a time as the store likes."""
        runs: list[list[_Chunk]] = []
        for chunk in chunks:
            if runs and runs[-1][-1].start + runs[-1][-1].length == chunk.start:
                runs[-1].append(chunk)
            elif not runs or runs[-1][-1] != chunk:  # a row group may be asked for twice
                runs.append([chunk])
        contents = _together(self._fetch_run, runs, threads=self._store.reads_in_flight)
        return {run[0].start: data for run, data in zip(runs, contents, strict=True)}

    def _fetch_run(self, run: list[_Chunk]) -> bytes:
        """Return the content of adjacent chunks, each compared with its checksum."""
        start = run[0].start
        data = self._fetch(start, run[-1].start + run[-1].length - start)
        view = memoryview(data)
        for chunk in run:
            part = view[chunk.start - start : chunk.start - start + chunk.length]
            if chunk.crc32 is not None and zlib.crc32(part) != chunk.crc32:
                raise self._corrupt(
                    "a column chunk of a segment file has another checksum",
                    f"{chunk.crc32:08x}",
                    f"{zlib.crc32(part):08x}",
                    start=chunk.start,
                    length=chunk.length,
                )
        return data

    def _fetch(self, start: int, length: int) -> bytes:
        try:
            return self._store.get_range(self._file.key, start, length)
        except NotFoundError as error:
            raise NotFoundError(
                "a segment file that the log names is gone",
                kind="segment-file-missing",
                hint="it was deleted outside txnlog: restore it, or run a verification of the log",
                store=self._store.url,
                object=self._file.key,
            ) from error
        except StorageError as error:
            if error.kind != "invalid-range":
                raise
            raise self._corrupt("a segment file is too short", f"{self._file.size} bytes", error) from error

    def _corrupt(self, what: str, expected: object, got: object, **values: Any) -> CorruptDataError:
        return CorruptDataError(
            what,
            hint="the object was damaged after it was written: restore it from a copy",
            store=self._store.url,
            object=self._file.key,
            expected=expected if isinstance(expected, int) else str(expected),
            got=got if isinstance(got, int) else str(got),
            **values,
        )


def _together(function: Callable[[Item], Result], items: Sequence[Item], *, threads: int) -> list[Result]:
    """Return ``function(item)`` of each item, done by up to ``threads`` threads; 1 is the caller's."""
    if threads == 1:
        return [function(item) for item in items]
    threads = min(threads, len(items))
    return list(
        ahead(function, items, threads=threads, weight=lambda _: 1, weight_max=threads, count_max=threads)
    )
