"""Immutable sequences that grow cheaply: what makes a pure fold affordable.

A state shares all unchanged parts with the state before it. Appending to a plain tuple or array would copy it
whole; these keep chunks whose sizes grow geometrically (a binary counter), so an append copies O(log n) rows
on average and never touches what an older state can see.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Columns", "Vector"]

T = TypeVar("T")
Rows = npt.NDArray[Any]


def _joined(parts: Sequence[Rows], dtype: np.dtype[Any]) -> Rows:
    """Return the parts as one array that cannot be changed; of structured rows bytes are copied several times faster than items."""
    contiguous: list[Any] = [
        part if part.flags.c_contiguous and part.dtype is dtype else np.ascontiguousarray(part, dtype)
        for part in parts
    ]
    return np.frombuffer(b"".join(contiguous), dtype)


class Columns:
    """An immutable table of fixed-width columns (numpy structured rows), appended to by making a new one."""

    __slots__ = ("_chunks", "_hidden", "_length", "dtype")

    def __init__(self, dtype: np.dtype[Any], chunks: tuple[Rows, ...] = ()) -> None:
        self.dtype = dtype
        self._chunks = chunks
        self._hidden = 0
        """Rows before those of the first chunk that its memory still has."""
        self._length = sum(len(chunk) for chunk in chunks)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._length

    def append(self, rows: Rows) -> Columns:
        """Return a table with ``rows`` (shape (n,), the table's dtype) added at the end."""
        if len(rows) == 0:
            return self
        chunks = self._chunks
        kept = len(chunks)
        size = len(rows)
        while kept and len(chunks[kept - 1]) <= 2 * size:
            kept -= 1
            size += len(chunks[kept])
        merged = rows if kept == len(chunks) else _joined((*chunks[kept:], rows), self.dtype)
        merged.flags.writeable = False
        grown = Columns.__new__(Columns)
        grown.dtype = self.dtype
        grown._chunks = (*chunks[:kept], merged)
        grown._length = self._length + len(rows)
        grown._hidden = self._hidden if kept else 0
        return grown

    def array(self) -> Rows:
        """Return all rows as one read-only array, oldest first; O(rows) when there are several chunks."""
        if len(self._chunks) == 1:
            return self._chunks[0]
        return _joined(self._chunks, self.dtype)

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
        return _joined(found[::-1], self.dtype)

    def until(self, column: str, end: int) -> Rows:
        """Return the first rows, those with less than ``end`` in a column, which ascends; costs only the chunks they lie in."""
        found: list[Rows] = []
        for chunk in self._chunks:
            count = int(np.searchsorted(chunk[column], end))
            found.append(chunk[:count])
            if count < len(chunk):
                break
        return found[0] if len(found) == 1 else _joined(found, self.dtype)

    def count_below(self, column: str, end: int) -> int:
        """Return how many rows have less than ``end`` in a column, in whatever order they are."""
        return sum(int(np.count_nonzero(chunk[column] < end)) for chunk in self._chunks)

    def drop(self, count: int) -> Columns:
        """Return a table without the first ``count`` rows; O(rows that go) on average. It keeps at most twice the memory of its rows."""
        hidden, chunks = self._hidden, self._chunks
        while chunks and len(chunks[0]) <= count:
            count -= len(chunks[0])
            hidden, chunks = 0, chunks[1:]
        if count:
            first = chunks[0][count:]
            hidden += count
            if hidden > len(first):
                first, hidden = first.copy(), 0
                first.flags.writeable = False
            chunks = (first, *chunks[1:])
        left = Columns(self.dtype, chunks)
        left._hidden = hidden
        return left

    def last(self) -> Any:
        """Return the last row, or None when there is none."""
        return self._chunks[-1][-1] if self._chunks else None


class Vector(Generic[T]):
    """An immutable sequence of numbered values, appended to by making a new one.

    Numbers are given in order, from 0, and never change. Values that nothing needs any more are dropped; their
    numbers are not given again.
    """

    __slots__ = ("_chunks", "_length", "end")

    def __init__(self, values: Sequence[T] = ()) -> None:
        self._chunks: tuple[tuple[tuple[int, ...], tuple[T, ...]], ...] = ()
        self._length = len(values)
        self.end = len(values)
        """The number that the next value gets."""
        if values:
            self._chunks = ((tuple(range(len(values))), tuple(values)),)

    @classmethod
    def numbered(cls, numbers: Sequence[int], values: Sequence[T], end: int) -> Vector[T]:
        """Return a sequence of ``values`` with strictly increasing ``numbers``, all below ``end``."""
        return cls._of(((tuple(numbers), tuple(values)),) if values else (), end)

    @classmethod
    def _of(cls, chunks: tuple[tuple[tuple[int, ...], tuple[T, ...]], ...], end: int) -> Vector[T]:
        made = cls()
        made._chunks = chunks
        made._length = sum(len(numbers) for numbers, _ in chunks)
        made.end = end
        return made

    def __len__(self) -> int:
        """Return the number of values that are there."""
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate from the oldest value to the newest."""
        for _, values in self._chunks:
            yield from values

    def numbers(self) -> Iterator[int]:
        """Iterate over the numbers of the values, ascending."""
        for numbers, _ in self._chunks:
            yield from numbers

    def __contains__(self, number: object) -> bool:
        """Return whether there is a value with this number."""
        return isinstance(number, int) and self._find(number) is not None

    def __getitem__(self, number: int) -> T:
        """Return the value with this number; IndexError when it was never there or is dropped."""
        found = self._find(number)
        if found is None:
            raise IndexError(number)
        chunk, index = found
        return self._chunks[chunk][1][index]

    def _find(self, number: int) -> tuple[int, int] | None:
        for chunk in range(len(self._chunks) - 1, -1, -1):  # the newest are asked for most
            numbers = self._chunks[chunk][0]
            if number >= numbers[0]:
                index = bisect_left(numbers, number)
                return (chunk, index) if index < len(numbers) and numbers[index] == number else None
        return None

    def extend(self, values: Sequence[T]) -> Vector[T]:
        """Return a sequence with ``values`` added at the end."""
        if not values:
            return self
        chunks = list(self._chunks)
        end = self.end + len(values)
        numbers, tail = tuple(range(self.end, end)), tuple(values)
        while chunks and len(chunks[-1][0]) <= 2 * len(tail):
            earlier = chunks.pop()
            numbers, tail = earlier[0] + numbers, earlier[1] + tail
        return self._of((*chunks, (numbers, tail)), end)

    def keep(self, numbers: Collection[int]) -> Vector[T]:
        """Return a sequence without the values whose number is not among ``numbers``; O(values)."""
        kept = [
            (number, value) for number, value in zip(self.numbers(), self, strict=True) if number in numbers
        ]
        return self.numbered([number for number, _ in kept], [value for _, value in kept], self.end)
