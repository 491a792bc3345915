"""A read-only file of which only some byte ranges are there, as pyarrow reads files.

A read outside the ranges is a defect of the caller's plan and raises; so more than planned is never fetched.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Mapping

import pyarrow as pa

from txnformat.errors import InternalError

__all__ = ["RangedFile", "SeekableFile", "joined"]


class SeekableFile:
    """The common part of read-only files that ``pyarrow.PythonFile`` reads: a position in ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0
        self.closed = False

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to ``offset`` from the start, the position or the end; return the new position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return True."""
        return True

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Note that nothing more is read."""
        self.closed = True


class RangedFile(SeekableFile):
    """Byte ranges of an object behind the methods that ``pyarrow.PythonFile`` calls; reads copy nothing.

    ``name``: names the object in errors. ``size``: bytes of the whole object. ``ranges``: start (inclusive)
    to content; ranges do not overlap.
    """

    def __init__(self, name: str, size: int, ranges: Mapping[int, bytes | memoryview]) -> None:
        self._name = name
        super().__init__(size)
        self._starts = sorted(ranges)
        self._buffers = [pa.py_buffer(ranges[start]) for start in self._starts]

    def read_buffer(self, nbytes: int) -> pa.Buffer:
        """Return the next ``nbytes`` bytes without a copy (fewer at the end of the file)."""
        start = self._position
        nbytes = max(0, min(nbytes, self._size - start))
        if nbytes == 0:
            return pa.py_buffer(b"")
        index = bisect_right(self._starts, start) - 1
        if index < 0 or start + nbytes > self._starts[index] + self._buffers[index].size:
            raise InternalError(
                "a read goes beyond the byte ranges that were planned",
                kind="unplanned-read",
                object=self._name,
                start=start,
                length=nbytes,
            )
        self._position = start + nbytes
        return self._buffers[index].slice(start - self._starts[index], nbytes)

    def read(self, nbytes: int = -1) -> bytes:
        """Return the next ``nbytes`` bytes; all the rest when negative."""
        data: bytes = self.read_buffer(self._size if nbytes < 0 else nbytes).to_pybytes()
        return data

    def close(self) -> None:
        """Let the ranges go."""
        super().close()
        self._buffers = []
        self._starts = []


def joined(ranges: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a file from its first byte to the end of its last range, as one piece; what lies between the
    ranges is zeros.
    """
    parts: list[bytes] = []
    end = 0
    for start, data in sorted(ranges):
        parts += [bytes(start - end), data]
        end = start + len(data)
    return b"".join(parts)
