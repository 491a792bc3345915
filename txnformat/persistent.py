"""Immutable sequences that grow cheaply: what makes a pure fold affordable.

A state shares all unchanged parts with the state before it. Appending to a plain tuple or array would copy it
whole; these keep chunks whose sizes grow geometrically (a binary counter), so an append copies O(log n) rows
on average and never touches what an older state can see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Columns", "Vector"]

T = TypeVar("T")
Rows = npt.NDArray[Any]


def _joined(parts: Sequence[Rows], size: int, dtype: np.dtype[Any]) -> Rows:
    """Return the parts as one array; for structured rows several times cheaper than ``np.concatenate``."""
    joined = np.empty(size, dtype)
    end = 0
    for part in parts:
        joined[end : end + len(part)] = part
        end += len(part)
    return joined


class Columns:
    """An immutable table of fixed-width columns (numpy structured rows), appended to by making a new one."""

    __slots__ = ("_chunks", "_length", "dtype")

    def __init__(self, dtype: np.dtype[Any], chunks: tuple[Rows, ...] = ()) -> None:
        self.dtype = dtype
        self._chunks = chunks
        self._length = sum(len(chunk) for chunk in chunks)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._length

    def append(self, rows: Rows) -> Columns:
        """Return a table with ``rows`` (shape (n,), the table's dtype) added at the end."""
        if len(rows) == 0:
            return self
        chunks = list(self._chunks)
        tail = [rows]
        size = len(rows)
        while chunks and len(chunks[-1]) <= 2 * size:
            size += len(chunks[-1])
            tail.append(chunks.pop())
        merged = _joined(tail[::-1], size, self.dtype) if len(tail) > 1 else rows
        merged.flags.writeable = False
        return Columns(self.dtype, (*chunks, merged))

    def array(self) -> Rows:
        """Return all rows as one read-only array, oldest first; O(rows) when there are several chunks."""
        if len(self._chunks) == 1:
            return self._chunks[0]
        return np.concatenate(self._chunks) if self._chunks else np.empty(0, self.dtype)

    def since(self, start: int) -> Rows:
        """Return the rows from index ``start`` (inclusive) on; costs only the chunks they lie in."""
        found: list[Rows] = []
        end = self._length
        for chunk in reversed(self._chunks):
            begin = end - len(chunk)
            found.append(chunk[max(0, start - begin) :])
            if begin <= start:
                break
            end = begin
        return np.concatenate(found[::-1]) if found else np.empty(0, self.dtype)

    def last(self) -> Any:
        """Return the last row, or None when there is none."""
        return self._chunks[-1][-1] if self._chunks else None


class Vector(Generic[T]):
    """An immutable sequence of values, appended to by making a new one; indexes never change."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, chunks: tuple[tuple[T, ...], ...] = ()) -> None:
        self._chunks = chunks
        self._length = sum(len(chunk) for chunk in chunks)

    def __len__(self) -> int:
        """Return the number of values."""
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate from the oldest value to the newest."""
        for chunk in self._chunks:
            yield from chunk

    def __getitem__(self, index: int) -> T:
        """Return the value at ``index`` (from 0)."""
        if not 0 <= index < self._length:
            raise IndexError(index)
        end = self._length
        for chunk in reversed(self._chunks):  # the newest are asked for most
            begin = end - len(chunk)
            if index >= begin:
                return chunk[index - begin]
            end = begin
        raise IndexError(index)

    def extend(self, values: Sequence[T]) -> Vector[T]:
        """Return a sequence with ``values`` added at the end."""
        if not values:
            return self
        chunks = list(self._chunks)
        tail = tuple(values)
        while chunks and len(chunks[-1]) <= 2 * len(tail):
            tail = chunks.pop() + tail
        return Vector((*chunks, tail))
