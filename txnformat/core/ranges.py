"""Sets of offsets as sorted ranges: how a million acknowledgements stay a few numbers.

Pure, and vectorised.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_RANGES", "Ranges"]

Int64s = NDArray[np.int64]

POINTS_MAX = 512
"""Most points of a chunk."""
POINTS_MIN = 128
"""A chunk with fewer is joined to the one before it, once it is changed."""
FEW = 4
"""So many ranges are taken one by one."""
RATIO = 32
"""So are those of a set that has so many times fewer ranges than the other."""


class Ranges:
    """A set of offsets: ranges [start, end), ascending, of which no two overlap or touch. A value.

    With n and m ranges the operations on two sets are O((n + m) log(n + m)). If one of them has few ranges,
    only the chunks of the other that these meet are copied.
    """

    __slots__ = ("_chunks", "_count", "_flat", "_heads")

    def __init__(self, bounds: Int64s) -> None:
        bounds.setflags(write=False)
        self._flat: Int64s | None = bounds
        """Shape (n, 2), int64: start (inclusive) and end (exclusive) of each. None until they are asked for.
        """
        self._chunks: list[array[int]] | None = None
        """The same as a list of points that is cut into chunks, none of them empty. None until they are asked
        for. Never changed."""
        self._heads: list[int] = []
        """The first point of each chunk. Never changed."""
        self._count = len(bounds)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """Return the union of ranges [start, end) in any order; empty ones add nothing."""
        given = [*pairs]
        if not given:
            return NO_RANGES
        if len(given) == 1:
            ((start, end),) = given
            return cls._of_chunks([array("q", given[0])], [start], 1) if start < end else NO_RANGES
        return cls._joined(np.array(given, np.int64).reshape(-1, 2))

    @classmethod
    def between(cls, starts: Int64s, ends: Int64s) -> Ranges:
        """Return the union of ranges [start, end) whose bounds are in two arrays."""
        return cls._joined(np.stack([np.asarray(starts, np.int64), np.asarray(ends, np.int64)], axis=1))

    @classmethod
    def _joined(cls, bounds: Int64s) -> Ranges:
        bounds = bounds[bounds[:, 0] < bounds[:, 1]]
        if len(bounds) < 2:
            return cls(bounds)
        bounds = bounds[np.argsort(bounds[:, 0], kind="stable")]
        reached = np.maximum.accumulate(bounds[:, 1])
        first = np.flatnonzero(np.concatenate(([True], bounds[1:, 0] > reached[:-1])))
        last = np.append(first[1:], len(bounds)) - 1
        return cls(np.stack([bounds[first, 0], reached[last]], axis=1))

    @classmethod
    def _of_chunks(cls, chunks: list[array[int]], heads: list[int], count: int) -> Ranges:
        made = cls.__new__(cls)
        made._flat, made._chunks, made._heads, made._count = None, chunks, heads, count
        return made

    @property
    def _bounds(self) -> Int64s:
        if self._flat is None:
            self._flat = np.frombuffer(b"".join(self._chunks or ()), np.int64).reshape(-1, 2)
        return self._flat

    def _cut(self) -> list[array[int]]:
        """Return the chunks."""
        if self._chunks is None:
            points = array("q", self._bounds.tobytes())
            starts = range(0, len(points), POINTS_MAX // 2)
            self._heads = [points[start] for start in starts]
            self._chunks = [points[start : start + POINTS_MAX // 2] for start in starts]
        return self._chunks

    def _spliced(self, first: int, last: int, points: array[int]) -> Ranges:
        """Return the set with ``points`` in place of the chunks from ``first`` to ``last`` (inclusive)."""
        chunks, heads = self._cut().copy(), self._heads
        if first == last and POINTS_MIN <= len(points) <= POINTS_MAX and heads[first] == points[0]:
            count = self._count + (len(points) - len(chunks[first])) // 2
            chunks[first] = points
            return self._of_chunks(chunks, heads, count)
        count = self._count + (len(points) - sum(map(len, chunks[first : last + 1]))) // 2
        if len(points) < POINTS_MIN and first:
            first -= 1
            points = chunks[first] + points
        made = [points] if points else []
        if len(points) > POINTS_MAX:
            half = len(points) // 4 * 2
            made = [points[:half], points[half:]]
        chunks[first : last + 1] = made
        heads = heads.copy()
        heads[first : last + 1] = [one[0] for one in made]
        return self._of_chunks(chunks, heads, count)

    def _chunk_at(self, offset: int) -> int:
        """Return the number of the last chunk that begins at an offset or below it; of the first one, if none
        does.
        """
        return (bisect_right(self._heads, offset) or 1) - 1

    @property
    def first_start(self) -> int:
        """First offset of a set that is not empty."""
        return self._heads[0] if self._heads else int(self._bounds[0, 0])

    @property
    def first_end(self) -> int:
        """End of the first range (exclusive) of a set that is not empty."""
        return self._cut()[0][1]

    @property
    def starts(self) -> Int64s:
        """First offset of each range, ascending."""
        return self._bounds[:, 0]

    @property
    def ends(self) -> Int64s:
        """End of each range (exclusive), ascending."""
        return self._bounds[:, 1]

    def __len__(self) -> int:
        """Return the number of ranges."""
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and np.array_equal(self._bounds, other._bounds)

    def __hash__(self) -> int:
        return hash(self._bounds.tobytes())

    def __repr__(self) -> str:
        return f"Ranges.of({self.pairs()!r:.200})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Ranges.of, (self.pairs(),)

    def pairs(self) -> list[tuple[int, int]]:
        """Return the ranges as (start, end)."""
        return [(start, end) for start, end in self._bounds.tolist()]

    def offsets(self) -> int:
        """Return how many offsets the set has."""
        return int((self.ends - self.starts).sum())

    def __or__(self, other: Ranges) -> Ranges:
        """Return the offsets of either."""
        if not self._count or not other._count:
            return self if self._count else other
        if other._count == 1:
            start, end = other._cut()[0]
            return self._with(start, end)
        few, many = (self, other) if len(self) < len(other) else (other, self)
        if few._is_few_beside(many):
            for start, end in few._few():
                many = many._with(start, end)
            return many
        return self._joined(np.concatenate([self._bounds, other._bounds]))

    def _is_few_beside(self, other: Ranges) -> bool:
        return self._count <= FEW or RATIO * self._count <= other._count

    def _few(self) -> Iterable[tuple[int, int]]:
        """Return the ranges of a set that has few."""
        if self._count == 1:
            ((start, end),) = self._cut()
            return ((start, end),)
        return self.pairs()

    def _with(self, start: int, end: int) -> Ranges:
        """Return the offsets of this set, which is not empty, and of one range, which is not either."""
        chunks, heads = self._cut(), self._heads
        first = last = (bisect_right(heads, start) or 1) - 1
        if first + 1 < len(heads) and heads[first + 1] <= end:
            last = self._chunk_at(end)
        before, after = chunks[first], chunks[last]
        # From the first range that ends at the start or above it to the last one that begins at the end or
        # below it.
        kept = bisect_left(before, start) & ~1
        rest = (bisect_right(after, end) + 1) & ~1
        if first < last or kept < rest:
            start = min(start, before[kept]) if kept < len(before) else start
            end = max(end, after[rest - 1])
        points = before[:kept]
        points.append(start)
        points.append(end)
        if rest < len(after):
            points += after[rest:]
        return self._spliced(first, last, points)

    def __sub__(self, other: Ranges) -> Ranges:
        """Return the offsets of this set that are not in the other."""
        if not len(self) or not len(other):
            return self
        if other._is_few_beside(self):
            left = self
            for start, end in other._few():
                left = left._without(start, end)
            return left
        points = np.unique(np.concatenate([self._bounds.ravel(), other._bounds.ravel()]))
        kept = self.holds(points[:-1]) & ~other.holds(points[:-1])
        return self._joined(np.stack([points[:-1][kept], points[1:][kept]], axis=1))

    def _without(self, start: int, end: int) -> Ranges:
        """Return the offsets of this set that are not in one range, which is not empty."""
        chunks = self._cut()
        if not chunks:
            return self
        first, last = self._chunk_at(start), self._chunk_at(end)
        below, above = bisect_left(chunks[first], start), bisect_right(chunks[last], end)
        # An odd number of bounds below the start puts it into a range, or at its end; likewise the end.
        cut = array("q", ((start,) if below % 2 else ()) + ((end,) if above % 2 else ()))
        return self._spliced(first, last, chunks[first][:below] + cut + chunks[last][above:])

    def holds(self, offsets: Int64s) -> NDArray[np.bool_]:
        """Return of each offset whether it is in the set."""
        # Bounds ascend strictly: an odd number of them at or below an offset puts it into a range.
        found: NDArray[np.bool_] = np.searchsorted(self._bounds.ravel(), offsets, side="right") % 2 == 1
        return found

    def first_common(self, other: Ranges) -> int | None:
        """Return the first offset that is in both sets, None if there is none."""
        if not self._count or not other._count:
            return None
        if other._is_few_beside(self):
            for start, end in other._few():
                found = self._first_in(start, end)
                if found is not None:
                    return found
            return None
        index = np.searchsorted(self.ends, other.starts, side="right")
        begins = np.append(self.starts, np.iinfo(np.int64).max)[index]
        met = np.flatnonzero(begins < other.ends)
        return int(max(begins[met[0]], other.starts[met[0]])) if len(met) else None

    def _first_in(self, start: int, end: int) -> int | None:
        """Return the first offset of this set, which is not empty, in one range."""
        chunks = self._cut()
        number = self._chunk_at(start)
        points = chunks[number]
        below = bisect_right(points, start)
        if below % 2:  # an odd number of bounds at or below the start puts it into a range
            found = start
        elif below < len(points):
            found = points[below]
        else:
            found = self._heads[number + 1] if number + 1 < len(chunks) else end
        return found if found < end else None

    def below(self, end: int) -> Ranges:
        """Return the offsets below ``end`` (exclusive)."""
        if not len(self) or self.first_start >= end:
            return NO_RANGES
        last = len(self._cut()) - 1
        return self._spliced(self._chunk_at(end), last, self._points_below(end))

    def above(self, start: int) -> Ranges:
        """Return the offsets from ``start`` (inclusive) on."""
        if not len(self) or self.first_start >= start:
            return self
        chunks = self._cut()
        number = self._chunk_at(start)
        index = bisect_right(chunks[number], start)
        points = array("q", (start,) if index % 2 else ()) + chunks[number][index:]
        return self._spliced(0, number, points)

    def _points_below(self, end: int) -> array[int]:
        """Return the points of the chunk of ``end`` that are below it."""
        points = self._cut()[self._chunk_at(end)]
        index = bisect_left(points, end)
        return points[:index] + array("q", (end,) if index % 2 else ())

    def offsets_below(self, end: int) -> int:
        """Return how many offsets of the set lie below ``end`` (exclusive); looks at no range beyond."""
        if not len(self) or self.first_start >= end:
            return 0
        whole = chain(self._cut()[: self._chunk_at(end)], (self._points_below(end),))
        return sum(sum(points[1::2]) - sum(points[::2]) for points in whole)

    def common_offsets(self, other: Ranges) -> int:
        """Return how many offsets are in both sets."""
        if not len(self):
            return 0
        return int((self._rank(other.ends) - self._rank(other.starts)).sum())

    def _rank(self, offsets: Int64s) -> Int64s:
        """Return how many offsets of the set lie below each of some offsets (exclusive)."""
        before = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        index = np.searchsorted(self.starts, offsets, side="right")
        beyond = np.maximum(self.ends[np.maximum(index - 1, 0)] - offsets, 0)
        ranks: Int64s = before[index] - np.where(index > 0, beyond, 0)
        return ranks


NO_RANGES = Ranges(np.empty((0, 2), np.int64))
"""The empty set."""
