"""Cutting a value that is too large for one record, from memory or from a file that is read in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from txnformat.core.records.chunks import CHUNK_HEADER, Chunk
from txnformat.errors import InvalidInputError, InvalidTransactionStateError
from writers.settings import ProducerSettings

__all__ = ["BinaryFile", "LargeValue", "Value", "large_value"]


class BinaryFile(Protocol):
    """A file that is open for reading bytes, or anything that gives bytes as one does."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most ``size`` bytes; none at the end."""


Value = bytes | bytearray | memoryview | str | BinaryFile | None
"""Types of ``value=``; text is sent as UTF-8."""


class LargeValue(NamedTuple):
    """A record whose value takes at least two chunks."""

    record: Mapping[str, Any]
    """Without its value."""
    pieces: Iterator[bytes]
    """All but the last are of ``chunk_bytes``. Reading them may raise whatever a file raises."""

    def chunks(self, value_id: str) -> Iterator[Mapping[str, Any]]:
        """Yield the records, in order; the first has the headers of ``record``, too."""
        size = 0
        for index, (piece, is_last) in enumerate(_marking_last(self.pieces)):
            size += len(piece)
            chunk = Chunk(value_id, index, index + 1, size) if is_last else Chunk(value_id, index)
            own = (self.record["headers"] or []) if index == 0 else []
            header = {"key": CHUNK_HEADER, "value": chunk.encode()}
            yield {**self.record, "value": piece, "headers": [*own, header]}


def large_value(record: dict[str, Any], settings: ProducerSettings) -> LargeValue | None:
    """Return the record's value as a large one; None when it is small.

    A small value that is a file is read into the record. Of a large one not more is read here than tells that
    it is. Raises InvalidInputError of kind ``invalid-value``: the file is not a binary one;
    InvalidTransactionStateError of kind ``chunks-need-transaction``: a large value outside a transaction
    could be torn.
    """
    value, limit = record["value"], settings.chunk_bytes
    if callable(getattr(value, "read", None)):
        first = _read(value, limit)
        following = _read(value, limit) if len(first) == limit else b""
        if not following:
            record["value"] = first
            return None
        pieces = _of_file(value, limit, first, following)
    elif isinstance(value, bytes | bytearray | memoryview) and memoryview(value).nbytes > limit:
        pieces = _of_memory(memoryview(value).cast("B"), limit)
    else:
        return None
    if not settings.is_transactional:
        raise InvalidTransactionStateError(
            "a value larger than a chunk takes several records, and only a transaction keeps them together",
            kind="chunks-need-transaction",
            hint="give the producer a transactional_id, or raise chunk_bytes",
            chunk_bytes=limit,
        )
    return LargeValue({**record, "value": None}, pieces)


def _marking_last(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each piece, and whether it is the last."""
    current = next(pieces)
    for following in pieces:
        yield current, False
        current = following
    yield current, True


def _of_memory(view: memoryview, limit: int) -> Iterator[bytes]:
    for start in range(0, len(view), limit):
        yield bytes(view[start : start + limit])


def _of_file(file: Any, limit: int, first: bytes, following: bytes) -> Iterator[bytes]:
    yield first
    while following:
        yield following
        following = _read(file, limit) if len(following) == limit else b""


def _read(file: Any, size: int) -> bytes:
    """Return the next ``size`` bytes of a file, fewer only at its end: one read may give less than
    there is.
    """
    parts: list[bytes] = []
    missing = size
    while missing:
        part = file.read(missing)
        if not isinstance(part, bytes | bytearray | memoryview) or len(part) > missing:
            raise InvalidInputError(
                f"reading the value's file gave {type(part).__name__}, not up to {missing} bytes",
                kind="invalid-value",
                hint="open the file in binary mode, and not as non-blocking",
            )
        if not part:
            break
        parts.append(bytes(part))
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
