"""Parquet files of other writers as segment files: their column chunks as they are, and behind them a footer with checksums.

A file is taken only if a writer of segment files could have made it (docs/internals/spec.md, 6.1). Before it is sent, it is read by the reader of segment files, and the
statistics by which readers skip rows are compared with its values: a footer is only a claim.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from zlib_ng import zlib_ng

from txnformat.columns.conform import conform
from txnformat.core.entry import sha256_hex
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import CorruptDataError, InvalidInputError, repr_of
from txnformat.reading.pruning import statistics_bounds
from txnformat.segments.footer import CHUNK_CRC32_KEY, MAGIC, TAIL_BYTES, Footer, FooterError, decode_footer
from txnformat.segments.footer_shape import shape_of
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import ROW_GROUP_BYTES_MAX
from txnformat.store.memory import MemoryStore
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord

__all__ = ["TAKEN_ROW_GROUP_BYTES_MAX", "WholeFile", "as_segment_file", "open_file"]

TAKEN_ROW_GROUP_BYTES_MAX = 4 * ROW_GROUP_BYTES_MAX
"""Largest row group of a file that is taken, in Arrow bytes in memory (inclusive): other writers make larger ones than ours, and readers decode these in parts."""

FOOTER_BYTES_MAX = 16 * 1024 * 1024

PIECE_BYTES = 8 * 1024 * 1024

ROWS_AT_ONCE = 65_536

NAME = "file"


class FileBytes:
    """The bytes of an open file, by their places."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._copy: IO[bytes] | None = None
        self.size = file.seek(0, io.SEEK_END)

    def __call__(self, start: int, length: int) -> bytes:
        """Return bytes from a place on. Raises OSError: they cannot be read, or the file is shorter than it was."""
        self._file.seek(start)
        data = self._file.read(length)
        while len(data) < length:
            more = self._file.read(length - len(data))
            if not more:
                raise OSError(f"the file ends at byte {start + len(data)}, and had {self.size} bytes")
            data += more
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
    """Bytes of it that are kept: all before its own footer."""
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
        """Yield the bytes of the segment file; the last piece comes only if all are what they were. Raises OSError: they are not, or cannot be read."""
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
    """Give the bytes of a file. Raises InvalidInputError of kind ``invalid-file`` about one that cannot be opened, and in place of each OSError of the block."""
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
        Its footer is read; then, if that fits, the whole file several times, and once more by :meth:`WholeFile.pieces`.
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
    end = size - length
    theirs = source(end, length)
    found = decode_footer(theirs, shape_of(schema), end)
    if not found.is_ordered or not found.groups or any(group.rows < 1 for group in found.groups):
        return None
    source.bring_near()
    checksums = "".join(f"{crc32:08x}" for crc32 in _checksums(source, found)).encode()
    footer = _footer(theirs, schema, checksums)
    digest = hashlib.sha256()
    for piece in itertools.chain(source.pieces(0, end), [footer]):
        digest.update(piece)
    whole = digest.hexdigest()
    record = FileRecord(NAME, end + len(footer), whole, len(footer), sha256_hex(footer), found.rows)
    # A footer is a claim of its writer; the reader finds out whether it is true.
    reader = SegmentFileReader(_Source(source, end, footer), record, schema, threads=1)
    batches: list[BatchRecord] = []
    for group in range(len(found.groups)):
        batch = _batch(reader, group, topic)
        if batch is None:
            return None
        batches.append(batch)
    return WholeFile(source, end, footer, whole, topic.schema_id, tuple(batches))


def _checksums(source: FileBytes, footer: Footer) -> Iterator[int]:
    """Yield the CRC-32 of each column chunk, row group by row group."""
    for group in range(len(footer.groups)):
        for leaf in range(len(footer.shape.leaves)):
            chunk = footer.chunk(group, leaf)
            value = 0
            for piece in source.pieces(chunk.start, chunk.start + chunk.length):
                value = zlib_ng.crc32(piece, value)
            yield value


def _footer(theirs: bytes, schema: pa.Schema, checksums: bytes) -> bytes:
    """Return a footer with the row groups of another one, and with the checksums of their chunks."""
    empty, whole = io.BytesIO(), io.BytesIO()
    with pq.ParquetWriter(empty, schema, store_schema=True) as writer:
        writer.add_key_value_metadata({CHUNK_CRC32_KEY: checksums})
    metadata = pq.read_metadata(empty)
    metadata.append_row_groups(pq.read_metadata(io.BytesIO(MAGIC + theirs)))
    metadata.write_metadata_file(whole)
    return whole.getvalue()[len(MAGIC) :]


class _Source(MemoryStore):
    """One object: the data of a file with another footer behind it."""

    def __init__(self, source: FileBytes, end: int, footer: bytes) -> None:
        super().__init__()
        self._source, self._end, self._footer = source, end, footer

    def get_range(self, key: str, start: int, length: int) -> bytes:
        stop = start + length
        data = self._source(start, min(stop, self._end) - start) if start < self._end else b""
        return data + self._footer[max(0, start - self._end) : max(0, stop - self._end)]


def _batch(reader: SegmentFileReader, group: int, topic: TopicSchema) -> BatchRecord | None:
    """Return the record of a row group that was read whole; None where the file says of it what is not so, or it is too large."""
    schema = topic.arrow_schema
    batches = []
    size = 0
    for batch in reader.read([group], schema.names, ROWS_AT_ONCE):
        size += batch.nbytes
        if size > TAKEN_ROW_GROUP_BYTES_MAX:
            return None
        batches.append(batch)
    table = conform(pa.Table.from_batches(batches, schema), schema)
    if not all(_is_true(reader, group, name, table.column(name)) for name in schema.names):
        return None
    smallest = largest = NO_TIMESTAMP_MS
    if topic.timestamp_column is not None:
        found = pc.min_max(table.column(topic.timestamp_column))
        if found["min"].is_valid:
            smallest, largest = found["min"].value // 1000, found["max"].value // 1000
    stored = sum(chunk.length for chunk in reader.chunks(group, schema.names))
    return BatchRecord(0, 0, group, 1, table.num_rows, stored, smallest, largest)


def _is_true(reader: SegmentFileReader, group: int, name: str, column: pa.ChunkedArray) -> bool:
    """Return whether the statistics of a column chunk hold for its values, as far as readers go by them."""
    found = reader.statistics([group], name)
    if found is None:
        return True
    bounds = statistics_bounds(found[1], [len(column)], found[0], column.type)
    if bounds is None:
        return True
    if (column.null_count and not bounds.nulls[0]) or (
        column.null_count < len(column) and not bounds.values[0]
    ):
        return False
    if not bounds.known[0]:
        return True
    extremes = pc.min_max(column)
    smallest, largest = (_comparable(extremes[which]) for which in ("min", "max"))
    return smallest is None or not (smallest < bounds.lower[0] or largest > bounds.upper[0])


def _comparable(value: pa.Scalar) -> Any:
    """Return a value in the units of the bounds; None of no value."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.TimestampScalar | pa.Time64Scalar | pa.DurationScalar | pa.Date32Scalar):
        return value.value
    plain = value.as_py()
    if isinstance(plain, str):
        return plain.encode()
    if isinstance(plain, Decimal):
        sign, digits, _ = plain.as_tuple()
        return int("".join(map(str, digits))) * (-1 if sign else 1)
    return plain
