"""Parquet files of other writers as segment files: their column chunks as they are, and behind them a footer
of ours.

A file is taken only if a writer of segment files could have made it (docs/internals/spec.md, 6.1). Nothing of
its footer is passed on but where its chunks lie, how they are encoded and how many values they have, and that
is tried: the reader of segment files reads it whole first. Checksums and statistics are computed of what is
there.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt
from zlib_ng import zlib_ng

from txnformat.columns.conform import conform
from txnformat.core.entry import sha256_hex
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import CorruptDataError, InvalidInputError, repr_of
from txnformat.segments.column_values import columns_without_bounds
from txnformat.segments.footer import MAGIC, TAIL_BYTES, Chunk, FooterError, decode_footer
from txnformat.segments.footer_encoding import encode_segment_footer, encode_statistics
from txnformat.segments.footer_shape import Leaf, Physical, shape_of
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import ROW_GROUP_BYTES_MAX
from txnformat.store.memory import MemoryStore
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord

__all__ = ["TAKEN_ROW_GROUP_BYTES_MAX", "WholeFile", "as_segment_file", "open_file"]

TAKEN_ROW_GROUP_BYTES_MAX = 4 * ROW_GROUP_BYTES_MAX
"""Largest row group of a file that is taken, in Arrow bytes in memory (inclusive): other writers make larger
ones than ours, and readers decode these in parts."""

FOOTER_BYTES_MAX = 16 * 1024 * 1024

PIECE_BYTES = 8 * 1024 * 1024

ROWS_AT_ONCE = 65_536

BOUND_BYTES_MAX = 4096
"""Longest text that statistics tell (inclusive), as in files that pyarrow writes."""

NAME = "file"


class FileBytes:
    """The bytes of an open file, by their places."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._copy: IO[bytes] | None = None
        try:
            self.size = int(file.seek(0, io.SEEK_END))
        except (ValueError, TypeError) as error:
            raise OSError(f"its end cannot be found: {error!s:.200}") from None

    def __call__(self, start: int, length: int) -> bytes:
        """Return bytes from a place on.

        Raises OSError: they cannot be read, or the file is shorter than it was.
        """
        try:
            self._file.seek(start)
            data = self._file.read(length)
            while len(data) < length:
                more = self._file.read(length - len(data))
                if not more:
                    raise OSError(f"the file ends at byte {start + len(data)}, and had {self.size} bytes")
                data += more
            if not isinstance(data, bytes):
                raise TypeError("it gives no bytes")
        except (ValueError, TypeError) as error:  # it is closed, or no file of bytes
            raise OSError(f"no bytes can be read: {error!s:.200}") from None
        return data

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from a place (inclusive) to another (exclusive)."""
        for at in range(start, end, PIECE_BYTES):
            yield self(at, min(PIECE_BYTES, end - at))

    def bring_near(self) -> None:
        """Copy a file that is not of this machine to a temporary one, which is read from now on."""
        if isinstance(self._file, io.BytesIO) or _has_number(self._file):
            return
        self._copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        for piece in self.pieces(0, self.size):
            self._copy.write(piece)
        self._file = self._copy

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self._copy is not None:
            self._copy.close()


def _has_number(file: IO[bytes]) -> bool:
    try:
        file.fileno()
    except (AttributeError, OSError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A Parquet file that can be taken as a segment file."""

    source: FileBytes
    end: int
    """Bytes of it that are kept: up to the end of its last column chunk."""
    footer: bytes
    """The footer that takes the place of its own."""
    sha256: str
    """Hash of the segment file."""
    schema_id: int
    batches: tuple[BatchRecord, ...]
    """One for each row group, in partition 0 of file 0."""

    @property
    def size(self) -> int:
        """Bytes of the segment file."""
        return self.end + len(self.footer)

    @property
    def rows(self) -> int:
        """Records in it."""
        return sum(batch.records for batch in self.batches)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the segment file; the last piece comes only if all are what they were.

        Raises OSError: they are not, or cannot be read.
        """
        digest = hashlib.sha256()
        for piece in self.source.pieces(0, self.end):
            digest.update(piece)
            yield piece
        digest.update(self.footer)
        if digest.hexdigest() != self.sha256:
            raise OSError("the file has changed while it was sent")
        yield self.footer

    def record(self, key: str) -> FileRecord:
        """Return the record of the segment file under a key."""
        footer = self.footer
        return FileRecord(
            key, self.size, self.sha256, len(footer), sha256_hex(footer), self.rows, self.schema_id
        )


def _opened(path: str | os.PathLike[str]) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except ValueError as error:  # a NUL, or half of a surrogate pair
        raise OSError(str(error)) from None


@contextmanager
def open_file(file: str | os.PathLike[str] | IO[bytes]) -> Iterator[FileBytes]:
    """Give the bytes of a file.

    Raises InvalidInputError of kind ``invalid-file`` about one that cannot be opened, and in place of each
    OSError of the block.
    """
    with ExitStack() as stack:
        try:
            if isinstance(file, str | os.PathLike):
                file = stack.enter_context(_opened(file))
            elif not all(callable(getattr(file, name, None)) for name in ("seek", "read")):
                raise InvalidInputError(
                    f"file is {repr_of(file, 80)}, not a path or a file opened for reading bytes",
                    kind="invalid-argument",
                )
            yield stack.enter_context(closing(FileBytes(file)))
        except OSError as error:
            raise InvalidInputError(
                f"the file cannot be read: {error!s:.300}",
                kind="invalid-file",
                hint="nothing of it was sent; check path and rights",
            ) from None


def as_segment_file(source: FileBytes, schema: TopicSchema) -> WholeFile | None:
    """Return a Parquet file as a segment file of a topic; None if it cannot be one, for whatever reason.

    Parameters
    ----------
    source
        Its footer is read; then, if that fits, the whole file several times, and once more by
        :meth:`WholeFile.pieces`.
    schema
        The topic's. The file has exactly its columns, in their order, each optional.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    try:
        return _as_segment_file(source, schema)
    except (FooterError, CorruptDataError, InvalidInputError, pa.ArrowException):
        return None


def _as_segment_file(source: FileBytes, topic: TopicSchema) -> WholeFile | None:
    size, schema = source.size, topic.arrow_schema
    if size < len(MAGIC) + TAIL_BYTES or source(0, len(MAGIC)) != MAGIC:
        return None
    length = int.from_bytes(source(size - TAIL_BYTES, 4), "little") + TAIL_BYTES
    if length > min(size - len(MAGIC), FOOTER_BYTES_MAX):
        return None
    theirs = source(size - length, length)
    found = decode_footer(theirs, shape_of(schema), size - length)
    if not found.groups or any(group.rows < 1 for group in found.groups) or not _has_types(theirs, schema):
        return None
    source.bring_near()
    leaves = range(len(found.shape.leaves))
    chunks = [[found.chunk(group, leaf) for leaf in leaves] for group in range(len(found.groups))]
    checksums = "".join(f"{_crc32(source, chunk):08x}" for group in chunks for chunk in group).encode()
    end = max(chunk.start + chunk.length for group in chunks for chunk in group)
    rows = [group.rows for group in found.groups]

    def footer_of(statistics: Sequence[Sequence[bytes]]) -> bytes:
        described = [list(zip(*each, strict=True)) for each in zip(chunks, statistics, strict=True)]
        return encode_segment_footer(found.shape, list(zip(rows, described, strict=True)), checksums)

    footer = footer_of([[b""] * len(leaves)] * len(chunks))
    record = FileRecord(NAME, end + len(footer), "", len(footer), sha256_hex(footer), found.rows)
    reader = SegmentFileReader(_Source(source, end, footer), record, schema, threads=1)
    batches: list[BatchRecord] = []
    statistics: list[list[bytes]] = []
    for group in range(len(chunks)):
        table = _row_group(reader, group, schema)
        if table is None:
            return None
        batches.append(_batch(table, group, sum(chunk.length for chunk in chunks[group]), topic))
        statistics.append([_statistics(table, leaf) for leaf in found.shape.leaves])
    footer = footer_of(statistics)
    digest = hashlib.sha256()
    for piece in itertools.chain(source.pieces(0, end), [footer]):
        digest.update(piece)
    return WholeFile(source, end, footer, digest.hexdigest(), topic.schema_id, tuple(batches))


def _has_types(footer: bytes, schema: pa.Schema) -> bool:
    """Return whether a file's values are of the topic's types: Parquet stores durations of any unit, and
    numbers, alike.
    """
    try:
        found = pq.read_schema(io.BytesIO(MAGIC + footer))
    except OSError:  # of an Arrow schema in it that is damaged
        return False
    return all(map(_is_alike, found.types, schema.types))


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of two types of Arrow are the same, of columns that Parquet stores alike: texts
    are, whatever holds them in memory.
    """
    if pt.is_dictionary(found):
        found = found.value_type
    if pt.is_string(wanted):
        return bool(pt.is_string(found) or pt.is_large_string(found) or pt.is_string_view(found))
    if pt.is_binary(wanted):
        return bool(pt.is_binary(found) or pt.is_large_binary(found) or pt.is_binary_view(found))
    if pt.is_list(wanted):
        return bool(pt.is_list(found) or pt.is_large_list(found)) and _is_alike(
            found.value_type, wanted.value_type
        )
    if pt.is_map(wanted):
        return (
            bool(pt.is_map(found))
            and _is_alike(found.key_type, wanted.key_type)
            and _is_alike(found.item_type, wanted.item_type)
        )
    if pt.is_struct(wanted):
        return bool(pt.is_struct(found)) and all(
            _is_alike(one.type, other.type) for one, other in zip(found, wanted, strict=True)
        )
    if pt.is_timestamp(wanted):
        return bool(
            pt.is_timestamp(found)
        )  # the unit, and whether it is an instant, are in Parquet's own schema
    return bool(found == wanted)


def _crc32(source: FileBytes, chunk: Chunk) -> int:
    value = 0
    for piece in source.pieces(chunk.start, chunk.start + chunk.length):
        value = zlib_ng.crc32(piece, value)
    return value


class _Source(MemoryStore):
    """One object: the data of a file with another footer behind it."""

    def __init__(self, source: FileBytes, end: int, footer: bytes) -> None:
        super().__init__()
        self._source, self._end, self._footer = source, end, footer

    def get_range(self, key: str, start: int, length: int) -> bytes:
        stop = start + length
        data = self._source(start, min(stop, self._end) - start) if start < self._end else b""
        return data + self._footer[max(0, start - self._end) : max(0, stop - self._end)]


def _row_group(reader: SegmentFileReader, group: int, schema: pa.Schema) -> pa.Table | None:
    """Return a row group, read and checked as a reader does and as a send is; None: it is too large."""
    batches = []
    size = 0
    for batch in reader.read([group], schema.names, ROWS_AT_ONCE):
        size += batch.nbytes
        if size > TAKEN_ROW_GROUP_BYTES_MAX:
            return None
        batches.append(batch)
    return conform(pa.Table.from_batches(batches, schema), schema)


def _batch(table: pa.Table, group: int, size: int, topic: TopicSchema) -> BatchRecord:
    smallest = largest = NO_TIMESTAMP_MS
    if topic.timestamp_column is not None:
        found = pc.min_max(table.column(topic.timestamp_column))
        if found["min"].is_valid:
            smallest, largest = found["min"].value // 1000, found["max"].value // 1000
    return BatchRecord(0, 0, group, 1, table.num_rows, size, smallest, largest)


def _statistics(table: pa.Table, leaf: Leaf) -> bytes:
    """Return the statistics of a column chunk, of the values that it has; nothing for a part of a nested
    column.
    """
    if len(leaf.path) > 1:
        return b""
    name = leaf.path[0].decode()
    column = table.column(name)
    kind = column.type
    if pt.is_date32(kind):
        column = column.cast(pa.int32())
    elif pt.is_temporal(kind):
        column = column.cast(pa.int64())
    if columns_without_bounds(table.select([name])):
        return encode_statistics(column.null_count, None)
    extremes = pc.min_max(column)
    bounds = [extremes[which].as_py() for which in ("min", "max")]
    return encode_statistics(column.null_count, _plain_bounds(bounds, leaf))


_FORMS = {
    Physical.INT32: "<i",
    Physical.INT64: "<q",
    Physical.FLOAT: "<f",
    Physical.DOUBLE: "<d",
    Physical.BOOLEAN: "<?",
}


def _plain_bounds(bounds: list[Any], leaf: Leaf) -> tuple[bytes, bytes] | None:
    """Return the smallest and the largest value in Parquet's plain encoding; None where there are none, or
    none worth telling.
    """
    smallest, largest = bounds
    if smallest is None:
        return None
    if isinstance(smallest, float):
        smallest = smallest or -0.0  # zeros of both signs are equal
    if isinstance(smallest, Decimal):
        whole = [
            int("".join(map(str, one.as_tuple().digits))) * (-1 if one < 0 else 1)
            for one in (smallest, largest)
        ]
        smallest, largest = (one.to_bytes(leaf.width, "big", signed=True) for one in whole)
    elif isinstance(smallest, str):
        smallest, largest = smallest.encode(), largest.encode()
    form = _FORMS.get(leaf.physical)
    if form is not None:
        smallest, largest = struct.pack(form, smallest), struct.pack(form, largest)
    return (smallest, largest) if max(len(smallest), len(largest)) <= BOUND_BYTES_MAX else None
