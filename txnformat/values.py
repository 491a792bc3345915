"""Records of a topic with the schema "kafka", with large values put together again from their chunks.

It adds to :meth:`txnformat.log.TxnLog.read`, which shows chunks as the records they are:

* A record stands where its last chunk does. So ranges of offsets that follow each other give each record
  exactly once, whole, wherever they cut a value: chunks before the range are looked up, a value that ends
  behind it is of the next.
* A value is held in memory while it is small; of a large one only the place is, and its pieces are read when
  they are asked for.

Rules: docs/internals/spec.md, section 6.8.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NoReturn

from txnformat.arguments import whole
from txnformat.columns.pylist import column_values
from txnformat.core.records.chunks import CHUNK_HEADER, Chunk, chunk_of
from txnformat.core.state import TopicState
from txnformat.core.topics.schema import KAFKA_SCHEMA
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.log import TxnLog, check_log
from txnformat.reading.plan import OffsetSpec
from txnformat.types import IsolationLevel, TopicPartition

__all__ = ["HELD_BYTES_MAX", "WholeRecord", "read_values"]

HELD_BYTES_MAX = 64 * 2**20
"""Chunks that are held of values whose end has not come; what is more is read again when it is asked for."""

LOOK_BACK_FACTOR = 4
"""How much further each look for the beginning of a value goes back than the one before."""

_COLUMNS = ("key", "value", "headers", "timestamp", "_partition", "_offset")


@dataclass(frozen=True, slots=True, eq=False)
class WholeRecord:
    """A record with its whole value, which may be larger than memory."""

    topic: str
    partition: int
    offset: int
    """Offset of its last chunk; for an ordinary record its own."""
    first_offset: int
    """Offset of its first chunk."""
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    """(name, value) pairs, those of the format left out; None as for the record."""
    timestamp: datetime.datetime | None
    size: int | None
    """Bytes of the value; None of a null."""
    _open: Callable[[], Iterator[bytes]] = field(repr=False)

    def pieces(self) -> Iterator[bytes]:
        """Yield the value piece by piece; none of a null. Requests: none, or those of a read of its chunks.

        Raises CorruptDataError of kind ``damaged-value`` when chunks are missing.
        """
        return self._open()

    def read(self) -> bytes | None:
        """Return the whole value. Requests as for :meth:`pieces`."""
        return None if self.size is None else b"".join(self.pieces())

    def open(self) -> BinaryIO:
        """Return the value as a file that is read as it comes. Requests as for :meth:`pieces`."""
        return io.BufferedReader(_PieceFile(self.pieces()))


def read_values(
    log: TxnLog,
    topic: str,
    *,
    isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
    start: OffsetSpec = None,
    end: OffsetSpec = None,
    partitions: Sequence[int] | None = None,
    held_bytes_max: int = HELD_BYTES_MAX,
) -> Iterator[WholeRecord]:
    """Yield the records of a topic with the schema "kafka", large values whole.

    Parameters
    ----------
    isolation, start, end, partitions
        As for :meth:`txnformat.log.TxnLog.read`. A record is in the range when its last chunk is.
    held_bytes_max : int
        Bytes of chunks held in memory, besides the record batch that is being read.

    Yields
    ------
    WholeRecord
        Partition by partition, each in the order of ``offset``.

    Raises
    ------
    InvalidInputError
        Kind ``schema-mismatch``: the topic has another schema. Kind ``not-a-log``.
    CorruptDataError
        Kind ``damaged-value``: a chunk is missing, comes twice, or has no proper header.
    NotFoundError
        Kind ``topic-gone``: the topic was deleted, and pieces of a value have to be read again.
    """
    check_log(log, "read_values")
    whole("held_bytes_max", held_bytes_max)
    found = log.refresh().topic(topic)
    schema = found.schema
    if not schema.version(0).equals(KAFKA_SCHEMA.arrow_schema):  # columns may have been added
        raise InvalidInputError(
            'values are joined in topics with the schema "kafka"',
            kind="schema-mismatch",
            hint="use log.read",
            columns=schema.arrow_schema.names,
        )
    batches = log.read(
        topic, isolation=isolation, start=start, end=end, partitions=partitions, columns=_COLUMNS
    )
    log.state.topic_of(found.topic_id, "the values")  # the name may be another topic's by now
    return _Joiner(log, found, isolation, held_bytes_max).records(batches)


@dataclass(slots=True)
class _Growing:
    """A value whose last chunk has not come."""

    value_id: str
    partition: int
    first_index: int
    """Index of the first chunk that was seen: above 0 when the value began before the range."""
    first_offset: int
    key: bytes | None
    headers: Any
    timestamp: datetime.datetime | None
    next_index: int
    size: int = 0
    held: list[bytes] | None = field(default_factory=list)
    """The pieces; None when they are too many, or not all were seen."""


class _Joiner:
    """Puts the chunks of one read together."""

    def __init__(self, log: TxnLog, topic: TopicState, isolation: str, held_bytes_max: int) -> None:
        self._log = log
        self._topic = topic.name
        self._topic_id = topic.topic_id
        self._isolation = isolation
        self._held_bytes_max = held_bytes_max
        self._growing: dict[str, _Growing] = {}
        self._held_bytes = 0

    def records(self, batches: Any) -> Iterator[WholeRecord]:
        partition = -1
        for batch in batches:
            columns = [batch.column(name) for name in _COLUMNS]
            keys, headers, timestamps, places, offsets = (
                column_values(batch, _COLUMNS[number]) for number in (0, 2, 3, 4, 5)
            )
            for row in range(batch.num_rows):
                if places[row] != partition:  # what has not ended there does not end in this range
                    partition = places[row]
                    self._growing.clear()
                    self._held_bytes = 0
                value = columns[1][row].as_py()
                chunk = self._chunk(headers[row], partition, offsets[row])
                if chunk is None:
                    yield self._plain(
                        partition, offsets[row], keys[row], headers[row], timestamps[row], value
                    )
                    continue
                growing = self._growing.get(chunk.value_id)
                if growing is None:
                    growing = self._growing[chunk.value_id] = _Growing(
                        chunk.value_id, partition, chunk.index, offsets[row], keys[row], headers[row],
                        timestamps[row], chunk.index, held=[] if chunk.index == 0 else None,
                    )  # fmt: skip
                self._add(growing, chunk, value or b"", offsets[row])
                if chunk.is_last:
                    yield self._ended(growing, chunk, offsets[row])

    def _chunk(self, headers: Any, partition: int, offset: int) -> Chunk | None:
        if not headers:
            return None
        place = f"{self._topic}-{partition}@{offset}"
        try:
            return chunk_of(headers, name=f"header {CHUNK_HEADER} of {place}")
        except CorruptDataError as error:
            self._damaged(partition, offset, error.what, str(error.values.get("expected")))

    def _add(self, growing: _Growing, chunk: Chunk, piece: bytes, offset: int) -> None:
        if chunk.index != growing.next_index:
            self._damaged(
                growing.partition, offset, "a chunk is missing or comes twice", f"index {growing.next_index}",
                index=chunk.index,
            )  # fmt: skip
        growing.next_index += 1
        growing.size += len(piece)
        if growing.held is None:
            return
        growing.held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > self._held_bytes_max:
            self._held_bytes -= growing.size
            growing.held = None

    def _ended(self, growing: _Growing, last: Chunk, offset: int) -> WholeRecord:
        del self._growing[growing.value_id]
        size = last.size or 0
        held, place = growing.held, growing.first_offset
        key, headers, timestamp = growing.key, growing.headers, growing.timestamp
        if held is not None:
            self._held_bytes -= growing.size
        if growing.first_index:
            place, key, headers, timestamp = self._beginning(growing)
        elif growing.size != size:
            self._damaged(growing.partition, offset, "chunks have another size", f"{size} bytes")

        def pieces() -> Iterator[bytes]:
            if held is not None:
                return iter(held)
            return self._pieces(growing.value_id, growing.partition, place, offset, size)

        return WholeRecord(
            self._topic, growing.partition, offset, place, key, _pairs(headers), timestamp, size, pieces
        )

    def _plain(
        self, partition: int, offset: int, key: Any, headers: Any, timestamp: Any, value: bytes | None
    ) -> WholeRecord:
        pieces = () if value is None else (value,)
        size = None if value is None else len(value)
        return WholeRecord(
            self._topic,
            partition,
            offset,
            offset,
            key,
            _pairs(headers),
            timestamp,
            size,
            lambda: iter(pieces),
        )

    def _beginning(self, growing: _Growing) -> tuple[int, Any, Any, Any]:
        """Return offset, key, headers and timestamp of the first chunk of a value that began before the
        range.

        Mostly its chunks follow each other, so the first look finds it; records of others may lie between.
        """
        partition, seen = growing.partition, growing.first_offset
        lowest = self._log.state.partition(TopicPartition(self._topic_id, partition)).log_start
        span = growing.first_index
        while True:
            low = max(lowest, seen - span)
            columns = ("_offset", "key", "headers", "timestamp")
            for batch in self._read(partition, low, seen, columns):
                for row in zip(*(column_values(batch, name) for name in columns), strict=True):
                    chunk = self._chunk(row[2], partition, row[0])
                    if chunk is not None and (chunk.value_id, chunk.index) == (growing.value_id, 0):
                        return row
            if low == lowest:
                self._damaged(partition, seen, "the beginning of a value is missing", "index 0")
            span *= LOOK_BACK_FACTOR

    def _pieces(self, value_id: str, partition: int, first: int, last: int, size: int) -> Iterator[bytes]:
        """Read the chunks of a value again, one by one."""
        index = found = 0
        for batch in self._read(partition, first, last + 1, ("_offset", "headers", "value")):
            offsets, headers = (column_values(batch, name) for name in ("_offset", "headers"))
            for row, offset in enumerate(offsets):
                chunk = self._chunk(headers[row], partition, offset)
                if chunk is None or chunk.value_id != value_id:
                    continue
                if chunk.index != index:
                    self._damaged(partition, offset, "a chunk is missing or comes twice", f"index {index}")
                piece = batch.column("value")[row].as_py() or b""
                index += 1
                found += len(piece)
                yield piece
        if found != size:
            self._damaged(partition, last, "chunks have another size", f"{size} bytes")

    def _read(self, partition: int, start: int, end: int, columns: Sequence[str]) -> Any:
        try:
            return self._log.read(
                self._topic,
                isolation=self._isolation,
                start={partition: start},
                end={partition: end},
                partitions=[partition],
                columns=columns,
            )
        finally:  # the name may be another topic's by now, which has other offsets
            self._log.state.topic_of(self._topic_id, "the values")

    def _damaged(self, partition: int, offset: int, what: str, expected: str, **values: Any) -> NoReturn:
        raise CorruptDataError(
            f"a value in chunks cannot be put together: {what}",
            kind="damaged-value",
            hint="log.read shows its records as they are",
            topic=self._topic,
            partition=partition,
            offset=offset,
            expected=expected,
            **values,
        )


def _pairs(headers: Any) -> tuple[tuple[str, bytes | None], ...] | None:
    """Return a record's headers without that of chunks; None of a record that has none else."""
    if headers is None:
        return None
    kept = tuple((header["key"], header["value"]) for header in headers if header["key"] != CHUNK_HEADER)
    return kept if kept or not headers else None


class _PieceFile(io.RawIOBase):
    """Pieces as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
