"""Rows by key, more than fit in memory: they come back in parts, and all rows of a key are in one part.

Up to a size they stay in memory, and are one part. Beyond it they go into a temporary file, divided into
parts by a hash of the key and compressed. The file has no name, so nothing is left of it when the process
ends.
"""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from txnformat.store.posix import storage_error

__all__ = ["MEMORY_BYTES", "PARTS", "Spool"]

MEMORY_BYTES = 16 * 2**20
"""Bytes of rows, not compressed, that are held in memory."""
PARTS = 256
LEVEL = 1
"""Level of zlib: keys shrink to a third or less, at about 100 MB/s."""

Row = list[Any]


class Spool:
    """Rows whose first value is their key, a text; the others are integers and texts.

    First all are added, then the parts are read.

    Memory: MEMORY_BYTES while rows are added, and those of one part while they are read. All methods but
    ``close`` raise StorageError when the temporary directory cannot hold the rows.
    """

    def __init__(self, memory_bytes: int | None = None) -> None:
        self._memory_bytes = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._held = [bytearray()]
        """Encoded rows: of all parts together until the first goes to the file, then of each."""
        self._size = 0
        self._file: IO[bytes] | None = None
        self._chunks: list[list[tuple[int, int]]] = []
        """Places in the file, of each part."""
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Row)

    @property
    def is_spilled(self) -> bool:
        """Whether rows are in a file."""
        return self._file is not None

    def add(self, key: str, *values: int | str) -> None:
        """Add a row."""
        row = self._encoder.encode((key, *values))
        held = self._held[0 if self._file is None else _part(key)]
        held += len(row).to_bytes(4, "big") + row
        self._size += 4 + len(row)
        if self._size > self._memory_bytes:
            self._spill()

    def parts(self) -> Iterator[list[Row]]:
        """Yield the rows of each part, in the order in which they were added."""
        for number, held in enumerate(self._held):
            found = [row for data in self._stored(number) for row in self._rows(data)]
            found += self._rows(held)
            if found:
                yield found

    def close(self) -> None:
        """Give back the file and the memory."""
        self._held = [bytearray()]
        if self._file is not None:
            self._file.close()
        self._chunks = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spill(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="txnlog-")  # noqa: SIM115 - close() closes it
                self._chunks = [[] for _ in range(PARTS)]
                self._divide()
            for number, held in enumerate(self._held):
                if held:
                    data = zlib.compress(held, LEVEL)
                    self._chunks[number].append((self._file.tell(), len(data)))
                    self._file.write(data)
                    held.clear()
        except OSError as error:
            raise storage_error(error, "write a temporary file", tempfile.gettempdir()) from error
        self._size = 0

    def _divide(self) -> None:
        """Divide what is held by parts."""
        (together,) = self._held
        self._held = [bytearray() for _ in range(PARTS)]
        for row in self._rows(together):
            data = self._encoder.encode(row)
            self._held[_part(row[0])] += len(data).to_bytes(4, "big") + data

    def _stored(self, number: int) -> Iterator[bytes]:
        """Yield the chunks of a part that are in the file."""
        if self._file is None:
            return
        try:
            for start, length in self._chunks[number]:
                self._file.seek(start)
                yield zlib.decompress(self._file.read(length))
        except OSError as error:
            raise storage_error(error, "read a temporary file", tempfile.gettempdir()) from error

    def _rows(self, data: bytes | bytearray) -> Iterator[Row]:
        start = 0
        while start < len(data):
            end = start + 4 + int.from_bytes(data[start : start + 4], "big")
            yield self._decoder.decode(data[start + 4 : end])
            start = end


def _part(key: str) -> int:
    return hashlib.blake2b(key.encode(), digest_size=1).digest()[0]
