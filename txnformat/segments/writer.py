"""Segment files written as a stream: Parquet in which every batch is a run of whole row groups.

Bytes go to the store as pyarrow makes them; what stays in memory is one column chunk and the list of where
the chunks lie. Each chunk's CRC-32 goes into the footer (key ``txnlog.chunk_crc32``), because Parquet's own
page checksums do not cover the page headers: a flipped bit there could turn into other values. The page
checksums are written too, for other readers. Specification: section "Segment files".
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from txnformat.columns.arrow_sizes import OfSchema, bytes_at_most
from txnformat.errors import InternalError, InvalidInputError
from txnformat.forking import renew_after_fork
from txnformat.segments.column_values import columns_that_repeat, columns_without_bounds
from txnformat.segments.footer import CHUNK_CRC32_KEY, TAIL_BYTES
from txnformat.segments.footer_encoding import without_bounds
from txnformat.segments.footer_shape import LISTS_BYTES_MAX, LISTS_RATIO_MAX, Leaf, leaf_count, shape_of
from txnformat.segments.sinks import StreamSink, WholeSink
from txnformat.store.base import ObjectWriter
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord

__all__ = [
    "CHUNK_CRC32_KEY",
    "ROW_GROUP_BYTES_MAX",
    "SMALL_BYTES",
    "SegmentFileWriter",
    "chunk_range",
    "is_uneven",
]

ROW_GROUP_BYTES_MAX = 64 * 1024 * 1024
"""Largest row group, in Arrow bytes in memory: bounds what a writer and a reader hold at a time."""

LISTS_ROW_GROUP_BYTES_MAX = 16 * 1024 * 1024
"""The same, of a schema with lists or maps: Parquet needs more for their small values than Arrow, and a
reader cannot tell before it decodes them how many lie in a row."""

LISTS_DECODED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that a decoder needs for the lists of the largest row group, counted as a reader counts them; with
space for what the writer does not know: which values go to a dictionary. Less than LISTS_BYTES_MAX, above
which a reader refuses them."""

UNEVEN_MIN = 1.125
"""Row groups of flat columns up to this times the largest (inclusive) are as the others: rows that are alike
are never quite of one size, and readers take what is a fourth larger."""

COMPRESSION_LEVEL = 1
"""Level of zstd: higher ones cost several times the time for a few percent."""

SMALL_BYTES = 1024 * 1024
"""Up to this, in Arrow bytes in memory (inclusive), a file may be encoded in memory before any of it goes to
the store."""

PAGES_BYTES = 32 * 1024 * 1024
"""A reader may hold a page of each column at a time, and bounds what they take
(:mod:`txnformat.segments.pages`): so wide tables have small pages, but none of less than PAGE_BYTES_MIN."""
PAGE_BYTES, PAGE_BYTES_MIN = 1024 * 1024, 4096

BLOOM_FALSE_POSITIVES = 0.01
"""How often a filter says of a value that it may be there and it is not."""
CAN_FILTER = "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters
"""Whether this version of pyarrow writes Bloom filters."""


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Return start (inclusive) and length of a column chunk (``pyarrow.parquet.ColumnChunkMetaData``)."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page:
        start = min(start, chunk.dictionary_page_offset)
    return start, chunk.total_compressed_size


def is_uneven(table: pa.Table, schema: pa.Schema) -> bool:
    """Return whether a row group of a table would be above the largest although it has its share of the rows:
    of large values.

    Readers refuse what is large and compresses very well, for they cannot tell it from an object that is made
    to fill their memory (docs/internals/spec.md, 6.1). A file with such a row group is written without
    compression.
    """
    bounds = _bounds(schema, None)
    if _excess(table, bounds) <= 1:
        return False
    most = 1 if bounds.repeated else UNEVEN_MIN
    return any(_excess(table.slice(start, rows), bounds) > most for start, rows in _row_groups(table, bounds))


class _Bounds(NamedTuple):
    """The largest row group."""

    schema: pa.Schema
    arrow: int
    """Bytes in memory."""
    columns: int
    """Parquet columns of the schema."""
    repeated: tuple[Leaf | None, ...]
    """The Parquet columns of a schema with lists, None for those that do not repeat; empty without lists."""


def _bounds(schema: pa.Schema, bytes_max: int | None) -> _Bounds:
    found = _bounds_of(schema)
    return found if bytes_max is None else found._replace(arrow=bytes_max)


def _new_bounds(schema: pa.Schema) -> _Bounds:
    count = sum(map(leaf_count, schema.types))
    if not any(map(_repeats, schema.types)):
        return _Bounds(schema, ROW_GROUP_BYTES_MAX, count, ())
    leaves = tuple(leaf if leaf.repeated else None for leaf in shape_of(schema).leaves)
    return _Bounds(schema, LISTS_ROW_GROUP_BYTES_MAX, count, leaves)


_bounds_of = OfSchema(_new_bounds)


def _repeats(type_: pa.DataType) -> bool:
    if pt.is_struct(type_):
        return any(_repeats(field.type) for field in type_)
    return bool(pt.is_nested(type_))


def _excess(table: pa.Table, bounds: _Bounds) -> float:
    """Return how many times as large as the largest row group a table is; where that is below one, perhaps a
    little more.
    """
    size = bytes_at_most(table, bounds.schema)
    if size > bounds.arrow:
        size = table.nbytes
    found: float = size / bounds.arrow
    if not bounds.repeated:
        return found
    return max(found, _lists_bytes(table, bounds.repeated) / LISTS_DECODED_BYTES_MAX)


def _row_groups(table: pa.Table, bounds: _Bounds) -> list[tuple[int, int]]:
    """Return first row (inclusive) and number of rows of the row groups of a table.

    They have the same rows, but those of lists that are too large are halved until they are not, or have one
    row.
    """
    excess = _excess(table, bounds)
    rows: int = table.num_rows
    if excess <= 1:
        return [(0, rows)]
    rows = max(1, int(rows / excess))
    found = []
    left = [(start, min(rows, table.num_rows - start)) for start in range(0, table.num_rows, rows)][::-1]
    while left:
        start, rows = left.pop()
        if rows > 1 and bounds.repeated and _excess(table.slice(start, rows), bounds) > 1:
            left += [(start + rows // 2, rows - rows // 2), (start, rows // 2)]
        else:
            found.append((start, rows))
    return found


def _lists_bytes(table: pa.Table, repeated: Sequence[Leaf | None]) -> int:
    """Return what a decoder needs at most for the lists of a table, as a reader counts it
    (:func:`txnformat.segments.pages.decoded_bytes`).

    The lengths of the arrays tell how many values Parquet has of each column: those of its lists, and one for
    each that is empty. A text's length has 4 bytes in a page, and levels up to 2; these are counted, too.
    """
    if not repeated:
        return 0
    counted = 0
    for column in table.columns:
        leaves = 0
        for chunk in column.chunks:
            counts = list(_value_counts(chunk, len(chunk)))
            leaves = len(counts)
            for leaf, (values, nbytes) in zip(repeated, counts, strict=False):
                if leaf is not None:
                    counted += values * leaf.repeated_bytes + (0 if leaf.width else 8 * values + nbytes)
        repeated = repeated[leaves or leaf_count(column.type) :]
    return counted


def _value_counts(array: pa.Array, values: int) -> Iterator[tuple[int, int]]:
    """Yield for each Parquet column of an array the values that it has at most, and the bytes of its array.

    ``values``: as many places the array has in Parquet at most: its own length and one for each empty list
    around it.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pt.is_struct(array.type):
        for number in range(array.type.num_fields):
            yield from _value_counts(array.field(number), values)
    elif pt.is_nested(array.type):
        if len(array):
            start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
            inner = array.values.slice(start, end - start)
        else:
            inner = array.values.slice(0, 0)
        yield from _value_counts(inner, values + len(inner))
    else:
        yield values, array.nbytes


class Indexing(NamedTuple):
    """Structures that a file has beside its rows, for engines that skip pages and row groups by them: a page
    index, and Bloom filters.
    """

    bloom_columns: tuple[str, ...] = ()
    """Columns with a Bloom filter for each row group. Without effect where pyarrow cannot write one
    (:data:`CAN_FILTER`)."""
    distinct_max: int = 1
    """About the most different values of a row group; at least 1. A filter has 1.2 bytes for each."""


class SegmentFileWriter:
    """Writes one segment file. Nothing is visible before :meth:`close` returns; one thread at a time.

    ``out``: the upload; the writer closes or aborts it. Any error of a write aborts it. ``key``: the object's
    relative key, for the record. ``schema``: canonical; every batch has exactly it. ``timestamp_column``:
    gives the batches' smallest and largest timestamps. ``file``: index of this file among those of the same
    append; goes into the batch records. ``row_group_bytes_max``: a larger batch becomes several row groups.
    By default ROW_GROUP_BYTES_MAX, with lists LISTS_ROW_GROUP_BYTES_MAX. ``is_small``: all batches together
    are at most SMALL_BYTES in memory: nothing goes to the upload before :meth:`close`. ``is_compressed``:
    False for batches that are uneven (:func:`is_uneven`). ``indexing``: the file gets a page index, and
    perhaps Bloom filters; None: it does not.
    """

    def __init__(
        self,
        out: ObjectWriter,
        key: str,
        schema: pa.Schema,
        *,
        timestamp_column: str | None = None,
        file: int = 0,
        is_small: bool = False,
        row_group_bytes_max: int | None = None,
        is_compressed: bool = True,
        compression_level: int = COMPRESSION_LEVEL,
        indexing: Indexing | None = None,
    ) -> None:
        self._out = out
        self._key = key
        self._schema = schema
        self._timestamp_column = timestamp_column
        self._file = file
        self._bounds = _bounds(schema, row_group_bytes_max)
        self._is_compressed = is_compressed
        self._compression_level = compression_level
        self._indexing = indexing
        self._parquet: Any = None
        self._sink: StreamSink | WholeSink = WholeSink(out) if is_small else StreamSink(out)
        self._row_groups = 0
        self._rows = 0
        self._without_bounds: dict[int, frozenset[int]] = {}
        """Row groups, and their column chunks without smallest and largest values."""
        self._metadata: list[Any] = []
        self._ended = False
        renew_after_fork(self)

    def renew(self) -> None:
        """End in a forked child without touching the upload, which is the parent's."""
        # pyarrow's writer writes a footer when it is collected: it goes nowhere.
        self._sink.hold()
        self._ended = True
        if self._parquet is not None:
            self._parquet.is_open = False

    @property
    def size(self) -> int:
        """Bytes written so far, without the footer: what decides when to begin the next file."""
        return self._sink.size

    @property
    def rows(self) -> int:
        """Records written so far."""
        return self._rows

    def write_batch(self, partition: int, table: pa.Table) -> BatchRecord:
        """Write one batch of one partition as a run of row groups of its own.

        ``table``: at least one row, with the file's schema. Raises StorageError: the upload failed; it is
        aborted and the writer has ended; InvalidInputError: Parquet cannot hold these values (a null key of a
        map); likewise ended.
        """
        self._check_open()
        if table.num_rows == 0 or not table.schema.equals(self._schema):
            self.abort()
            raise InternalError(
                "a batch is empty or has another schema", object=self._key, rows=table.num_rows
            )
        rows = table.num_rows
        groups = _row_groups(table, self._bounds)
        smallest, largest = self._timestamps(table)
        try:
            parquet = self._opened(table)
            before = self._sink.size
            if all(count == groups[0][1] for _, count in groups[:-1]) and groups[-1][1] <= groups[0][1]:
                parquet.write_table(table, row_group_size=groups[0][1])
            else:
                for start, count in groups:
                    parquet.write_table(table.slice(start, count), row_group_size=count)
            self._sink.pass_on()  # a batch that the store does not take fails here, not at the next one
        except pa.ArrowException as error:
            self.abort()
            raise InvalidInputError(
                f"a batch cannot be written as Parquet: {error}", kind="unwritable-batch", object=self._key
            ) from error
        except BaseException:
            self.abort()
            raise
        first, count = self._row_groups, len(groups)
        misleading = columns_without_bounds(table)
        if misleading:
            self._without_bounds.update(dict.fromkeys(range(first, first + count), misleading))
        self._row_groups += count
        self._rows += rows
        return BatchRecord(
            partition, self._file, first, count, rows, self._sink.size - before, smallest, largest
        )

    def close(self) -> FileRecord:
        """Write the footer and make the object visible and durable.

        Raises StorageError: the upload failed; nothing is visible, or, as the store says, it is unknown.
        """
        self._check_open()
        try:
            indexes, footer = self._footer()
            self._sink.write(indexes + footer)
            self._sink.pass_on()
            record = FileRecord(
                self._key,
                self._sink.size,
                self._sink.sha256(),
                len(footer),
                hashlib.sha256(footer).hexdigest(),
                self._rows,
            )
            self._sink.end()
            self._ended = True
            self._out.close()
        except BaseException:
            self._ended = False
            self.abort()
            raise
        return record

    def abort(self) -> None:
        """Drop the upload; idempotent; never raises; without effect after ``close``."""
        if self._ended:
            return
        self._ended = True
        if self._parquet is not None:
            self._parquet.is_open = False  # else it closes itself when it is collected, and fails loudly
            self._parquet = None
        self._sink.end()
        self._out.abort()

    def _check_open(self) -> None:
        if self._ended:
            raise InternalError("the segment file was closed, aborted, or failed before", object=self._key)

    def _opened(self, first_batch: pa.Table) -> Any:
        """Return pyarrow's writer, made at the first call: the first batch says which columns get
        dictionaries.
        """
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._sink.target(),
                self._schema,
                compression="zstd" if self._is_compressed else "none",
                compression_level=self._compression_level if self._is_compressed else None,
                use_dictionary=columns_that_repeat(first_batch) if self._is_compressed else False,
                data_page_size=max(PAGE_BYTES_MIN, min(PAGE_BYTES, PAGES_BYTES // max(1, len(self._schema)))),
                store_schema=True,
                write_page_checksum=True,
                write_page_index=self._indexing is not None,
                metadata_collector=self._metadata,
                **self._bloom_filters(),
            )
        return self._parquet

    def _bloom_filters(self) -> dict[str, Any]:
        if self._indexing is None or not self._indexing.bloom_columns or not CAN_FILTER:
            return {}
        options = {"ndv": self._indexing.distinct_max, "fpp": BLOOM_FALSE_POSITIVES}
        return {"bloom_filter_options": dict.fromkeys(self._indexing.bloom_columns, options)}

    def _timestamps(self, table: pa.Table) -> tuple[int, int]:
        """Return the smallest and largest timestamp, ms since the epoch, both rounded down."""
        if self._timestamp_column is None:
            return NO_TIMESTAMP_MS, NO_TIMESTAMP_MS
        found = pc.min_max(table.column(self._timestamp_column))
        smallest, largest = found["min"].value, found["max"].value
        if smallest is None:
            return NO_TIMESTAMP_MS, NO_TIMESTAMP_MS
        return smallest // 1000, largest // 1000

    def _footer(self) -> tuple[bytes, bytes]:
        """Finish the Parquet file, and return its indexes and filters, and its footer, with the checksums of
        the chunks filled in.
        """
        # The chunks' places are known only when pyarrow has made the footer, so a text of the same length
        # holds
        # the place of their checksums. Values of columns stand before it in a footer, hence the last
        # occurrence.
        digits = 8 * self._row_groups * self._bounds.columns
        blank = b"?" * digits
        parquet = self._opened(self._schema.empty_table())
        parquet.add_key_value_metadata({CHUNK_CRC32_KEY: blank})
        self._sink.hold()
        parquet.close()
        held = self._sink.release()
        length = int.from_bytes(held[-TAIL_BYTES:-4], "little") + TAIL_BYTES
        indexes, footer = held[: max(0, len(held) - length)], held[-length:]
        checksums = "".join(f"{value:08x}" for value in self._chunk_checksums()).encode()
        place = footer.rfind(blank)
        if (
            len(footer) != length
            or place < 0
            or len(checksums) != digits
            or (indexes and self._indexing is None)
        ):
            raise InternalError(
                "pyarrow wrote a footer that is not as expected",
                object=self._key,
                bytes=len(footer),
                expected=length,
                place=place,
            )
        whole = footer[:place] + checksums + footer[place + digits :]
        return indexes, without_bounds(whole, self._without_bounds) if self._without_bounds else whole

    def _check_lists(self, row_group: Any) -> None:
        """Raise InvalidInputError about a row group that no reader takes: of one row that has nearly nothing
        but nulls.
        """
        beyond = 0
        for column, leaf in enumerate(self._bounds.repeated):
            if leaf is not None:
                chunk = row_group.column(column)
                needed = chunk.num_values * leaf.repeated_bytes
                if not leaf.width and not self._is_compressed:
                    needed += chunk.total_uncompressed_size
                beyond += max(0, needed - LISTS_RATIO_MAX * chunk.total_compressed_size)
        if beyond > LISTS_BYTES_MAX:
            raise InvalidInputError(
                "the lists of a row have too many nulls or empty values for what they are stored in",
                kind="unwritable-batch",
                hint="use several rows",
                object=self._key,
                expected=f"at most {LISTS_BYTES_MAX} bytes when decoded, beyond {LISTS_RATIO_MAX} times "
                "what is stored",
                got=beyond,
            )

    def _chunk_checksums(self) -> list[int]:
        metadata = self._metadata[0]
        checksums: list[int] = []
        end = 4  # the magic
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            self._check_lists(row_group)
            for column in range(metadata.num_columns):
                start, length = chunk_range(row_group.column(column))
                crc32 = self._sink.crc32(start, length)
                if start != end or crc32 is None:
                    raise InternalError(
                        "column chunks do not lie one after another", object=self._key, start=start
                    )
                end = start + length
                checksums.append(crc32)
        if (
            end != self._sink.size
            or metadata.num_row_groups != self._row_groups
            or metadata.num_rows != self._rows
        ):
            raise InternalError("pyarrow counts other row groups than were written", object=self._key)
        return checksums
