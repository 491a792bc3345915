"""Sinks for pyarrow's writer of segment files: bytes are counted and hashed on their way to the store, and
the footer is kept back.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
from zlib_ng import zlib_ng

from txnformat.segments.running_digest import RunningDigest
from txnformat.store.base import ObjectWriter

__all__ = ["PIECE_BYTES", "StreamSink", "WholeSink"]

PIECE_BYTES = 256 * 1024
"""pyarrow writes a header and a body for every page: below this they go to the store together."""


class StreamSink:
    """A sink for pyarrow: passes bytes on in pieces, counts and hashes them, and keeps the footer back."""

    def __init__(self, out: ObjectWriter) -> None:
        self._out = out
        self._held: list[bytes] | None = None
        self._parts: list[bytes] = []  # taken in, but not passed on
        self._parts_bytes = 0
        self._digest = RunningDigest()  # column chunks begin and end at ends of writes
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Take in what pyarrow writes; return its bytes."""
        part = data if type(data) is bytes else bytes(memoryview(data))  # pyarrow may write over the latter
        size = len(part)
        if self._held is not None:
            self._held.append(part)
            return size
        self.size += size
        self._digest.update(part)
        if size < PIECE_BYTES:
            self._parts.append(part)
            self._parts_bytes += size
            if self._parts_bytes >= PIECE_BYTES:
                self.pass_on()
        else:
            self.pass_on()
            self._out.write(part)
        return size

    def pass_on(self) -> None:
        """Give the store all that was taken in."""
        if self._parts:
            parts, self._parts, self._parts_bytes = self._parts, [], 0
            self._out.write(b"".join(parts))

    def hold(self) -> None:
        """Keep from now on what is written."""
        self._held = []

    def release(self) -> bytes:
        """Return what was kept, and pass on again."""
        held, self._held = b"".join(self._held or []), None
        return held

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.size + sum(map(len, self._held or []))

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Note that pyarrow is done."""
        self.closed = True

    def target(self) -> Any:
        """Return what pyarrow writes to."""
        return pa.PythonFile(self, mode="w")

    def sha256(self) -> str:
        """Return the SHA-256 of all that was written."""
        return self._digest.hexdigest()

    def crc32(self, start: int, length: int) -> int | None:
        """Return the CRC-32 of a part; None unless it begins and ends where writes did."""
        return self._digest.crc32(start, length)

    def end(self) -> None:
        """Let go of all that it holds. Idempotent; never raises."""
        self._digest.close()


class WholeSink:
    """The same for a small file: pyarrow writes to memory, without a step in Python for each piece; the store
    gets all at the end.
    """

    def __init__(self, out: ObjectWriter) -> None:
        self._out = out
        self._buffer = pa.BufferOutputStream()
        self._data: bytes | None = None  # once pyarrow has written all
        self._end = 0  # of what comes before the footer

    def target(self) -> Any:
        """Return what pyarrow writes to."""
        return self._buffer

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._buffer.tell()) if self._data is None else len(self._data)

    def pass_on(self) -> None:
        """Give the store all of the file, once it is whole."""
        if self._data is not None:
            self._out.write(self._data)

    def hold(self) -> None:
        """Note that what comes from now on is the footer. Without effect once all is written."""
        if not self._buffer.closed:
            self._end = self._buffer.tell()

    def release(self) -> bytes:
        """Return the footer."""
        data: bytes = self._buffer.getvalue().to_pybytes()
        self._data = data[: self._end]
        return data[self._end :]

    def write(self, footer: bytes) -> None:
        """Append the footer as it is to be."""
        self._data = (self._data or b"") + footer

    def sha256(self) -> str:
        """Return the SHA-256 of all that was written."""
        return hashlib.sha256(self._data or b"").hexdigest()

    def crc32(self, start: int, length: int) -> int | None:
        """Return the CRC-32 of a part before the footer; None unless it is there."""
        if self._data is None or not 0 <= start <= start + length <= self._end:
            return None
        return zlib_ng.crc32(memoryview(self._data)[start : start + length])

    def end(self) -> None:
        """Do nothing: what it holds goes with it."""
