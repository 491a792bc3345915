"""Sets of offsets as sorted ranges: how a million acknowledgements stay a few numbers. Pure, and vectorised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_RANGES", "Ranges"]

Int64s = NDArray[np.int64]


class Ranges:
    """A set of offsets: ranges [start, end), ascending, of which no two overlap or touch. A value.

    With n and m ranges the operations on two sets are O((n + m) log(n + m)).
    """

    __slots__ = ("_bounds",)

    def __init__(self, bounds: Int64s) -> None:
        self._bounds = bounds
        """Shape (n, 2), int64: start (inclusive) and end (exclusive) of each."""
        bounds.setflags(write=False)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Ranges:
        """Return the union of ranges [start, end) in any order; empty ones add nothing."""
        bounds = np.array([*pairs], np.int64).reshape(-1, 2)
        if len(bounds) == 1 and bounds[0, 0] < bounds[0, 1]:
            return cls(bounds)
        return cls._joined(bounds)

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
        return len(self._bounds)

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
        if not len(self) or not len(other):
            return self if len(self) else other
        if len(other) == 1:
            return self._with(int(other.starts[0]), int(other.ends[0]))
        if len(self) == 1:
            return other._with(int(self.starts[0]), int(self.ends[0]))
        return self._joined(np.concatenate([self._bounds, other._bounds]))

    def _with(self, start: int, end: int) -> Ranges:
        """Return the offsets of this set and of one range, which is not empty; what is not near it is only copied."""
        points = self._bounds.reshape(-1)
        first = int(points.searchsorted(start, side="left")) // 2
        last = (int(points.searchsorted(end, side="right")) + 1) // 2
        if first < last:
            start, end = min(start, int(points[2 * first])), max(end, int(points[2 * last - 1]))
        met = np.array([[start, end]], np.int64)
        return Ranges(np.concatenate([self._bounds[:first], met, self._bounds[last:]]))

    def __sub__(self, other: Ranges) -> Ranges:
        """Return the offsets of this set that are not in the other."""
        if not len(self) or not len(other):
            return self
        points = np.unique(np.concatenate([self._bounds.ravel(), other._bounds.ravel()]))
        kept = self.holds(points[:-1]) & ~other.holds(points[:-1])
        return self._joined(np.stack([points[:-1][kept], points[1:][kept]], axis=1))

    def holds(self, offsets: Int64s) -> NDArray[np.bool_]:
        """Return of each offset whether it is in the set."""
        # Bounds ascend strictly: an odd number of them at or below an offset puts it into a range.
        found: NDArray[np.bool_] = np.searchsorted(self._bounds.ravel(), offsets, side="right") % 2 == 1
        return found

    def first_common(self, other: Ranges) -> int | None:
        """Return the first offset that is in both sets, None if there is none."""
        if not len(self) or not len(other):
            return None
        if len(other) == 1:
            start, end = other._bounds[0].tolist()
            points = self._bounds.reshape(-1)
            below = int(points.searchsorted(start, side="right"))
            # An odd number of bounds at or below the start puts it into a range.
            found = start if below % 2 else int(points[below]) if below < len(points) else end
            return found if found < end else None
        index = np.searchsorted(self.ends, other.starts, side="right")
        begins = np.append(self.starts, np.iinfo(np.int64).max)[index]
        met = np.flatnonzero(begins < other.ends)
        return int(max(begins[met[0]], other.starts[met[0]])) if len(met) else None

    def below(self, end: int) -> Ranges:
        """Return the offsets below ``end`` (exclusive)."""
        return self._joined(np.minimum(self._bounds, end))

    def above(self, start: int) -> Ranges:
        """Return the offsets from ``start`` (inclusive) on."""
        if not len(self) or self._bounds[0, 0] >= start:
            return self
        return self._joined(np.maximum(self._bounds, start))

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
