"""The latest offset of each key, in bounded memory: keys are known by hashes of 128 bits. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from txnformat.persistent import Rows

__all__ = ["SLOT_BYTES", "OffsetMap"]

SLOT_BYTES = 24
"""Size of a key's slot in the map; while keys are taken in, the map needs about five times as much."""
FULL_SHARE = 8
"""The map is full when less than this fraction of its slots is free after a merge, so that merges are seldom.
"""


class OffsetMap:
    """Takes in hashes of keys with ascending offsets, and tells the last offset of each.

    Parameters
    ----------
    slots_max : int
        Most keys that it holds; at least 1.
    """

    def __init__(self, slots_max: int) -> None:
        self._slots_max = max(1, slots_max)
        self._table = _Sorted(np.zeros((0, 2), np.uint64), np.zeros(0, np.int64))
        self._pending: list[tuple[Rows, Rows]] = []
        self._pending_rows = 0

    def put(self, hashes: Rows, offsets: Rows) -> int:
        """Take in keys; return how many of them, from the first on: fewer than all when the map is full.

        ``hashes``: shape (n, 2), uint64; ``offsets``: shape (n,), int64, ascending and above those before.
        """
        taken = 0
        while taken < len(offsets):
            free = self._slots_max - len(self._table.offsets) - self._pending_rows
            if self._pending_rows and free < min(len(offsets) - taken, self._least_free):
                self._merge()
                free = self._slots_max - len(self._table.offsets)
                if free < self._least_free:
                    break
            if free < 1:
                break
            end = min(len(offsets), taken + free)
            self._pending.append((hashes[taken:end], offsets[taken:end]))
            self._pending_rows += end - taken
            taken = end
        return taken

    @property
    def _least_free(self) -> int:
        return max(1, self._slots_max // FULL_SHARE)

    def latest(self, hashes: Rows) -> Rows:
        """Return the last offset of each key; -1: it was not taken in. Returns: shape (n,), int64."""
        if self._pending:
            self._merge()
        return self._table.find(hashes)

    def _merge(self) -> None:
        hashes = np.concatenate([self._table.hashes, *(one for one, _ in self._pending)])
        offsets = np.concatenate([self._table.offsets, *(one for _, one in self._pending)])
        self._pending, self._pending_rows = [], 0
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: later offsets stay behind earlier ones
        hashes, offsets = hashes[order], offsets[order]
        is_last = np.ones(len(offsets), bool)
        is_last[:-1] = (hashes[1:] != hashes[:-1]).any(axis=1)
        self._table = _Sorted(hashes[is_last], offsets[is_last])


class _Sorted:
    """Hashes in ascending order, each once."""

    def __init__(self, hashes: Rows, offsets: Rows) -> None:
        self.hashes = hashes
        self.offsets = offsets
        self._first: Any = np.ascontiguousarray(hashes[:, 0])

    def find(self, hashes: Rows) -> Rows:
        found = np.full(len(hashes), -1, np.int64)
        places = np.searchsorted(self._first, hashes[:, 0])
        left = np.arange(len(hashes))
        while len(left):  # once, but for keys whose hashes have the same first half
            left = left[places[left] < len(self._first)]
            left = left[self._first[places[left]] == hashes[left, 0]]
            hit = self.hashes[places[left], 1] == hashes[left, 1]
            found[left[hit]] = self.offsets[places[left[hit]]]
            left = left[~hit]
            places[left] += 1
        return found
