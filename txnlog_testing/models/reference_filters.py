"""Independent formulations of the read_committed filter, to hold the production one against.

* :func:`replay`: the history itself, told forwards: the marker that ends a transaction decides its batches.
* :func:`brute_force`: the abort index, entry by entry and batch by batch.
* :func:`range_filter`: the abort index as sorted intervals, vectorised, without heap or active set.
* :class:`CompletedFetch`: Kafka's consumer, which sees markers pass by and knows only (producer id, first
  offset) of the aborted transactions, in either published :class:`Wording`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from heapq import heapify, heappop
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from txnformat.core.records.visibility import ABORTED_RANGE, last_stable_offset
from txnformat.core.transactions.abort_index import AbortedTransaction
from txnformat.types import NO_PRODUCER, Outcome

__all__ = [
    "Batch",
    "BatchColumns",
    "CompletedFetch",
    "FetchedAbort",
    "Wording",
    "abort_index_of",
    "aborted_ranges",
    "batch_columns",
    "brute_force",
    "range_filter",
    "replay",
]


class Batch(NamedTuple):
    """One batch of a partition as Kafka has it: records of one producer, or one marker."""

    base_offset: int
    """Offset of its first record (inclusive)."""
    last_offset: int
    """Offset of its last record (inclusive)."""
    producer_id: int = NO_PRODUCER
    """Id of the producer that wrote it; NO_PRODUCER when it has none."""
    transactional: bool = False
    """Whether it belongs to a transaction."""
    marker: Outcome | None = None
    """Set when the batch is the marker that ends its producer's transaction; it takes one offset."""


class BatchColumns(NamedTuple):
    """Batches as the production filter takes them: columns, without markers."""

    base_offsets: npt.NDArray[np.int64]
    last_offsets: npt.NDArray[np.int64]
    producer_ids: npt.NDArray[np.int64]
    transactional: npt.NDArray[np.bool_]


class FetchedAbort(NamedTuple):
    """An aborted transaction as Kafka's fetch response has it: without its end, which the marker shows."""

    producer_id: int
    first_offset: int


class Wording(StrEnum):
    """How a transaction moves from the heap of the fetched ones into the set of the active ones."""

    PRODUCER_AT_HEAD = "producer-at-head"
    """When the head's producer id equals the batch's, and the head's first offset has passed."""
    UP_TO_LAST_OFFSET = "up-to-last-offset"
    """All that began up to the batch's last offset, of any writer: Kafka's consumer, and this project."""


def batch_columns(batches: Iterable[Batch]) -> BatchColumns:
    """Return the data batches as columns; markers are left out."""
    data = [batch for batch in batches if batch.marker is None]
    return BatchColumns(
        np.array([batch.base_offset for batch in data], np.int64),
        np.array([batch.last_offset for batch in data], np.int64),
        np.array([batch.producer_id for batch in data], np.int64),
        np.array([batch.transactional for batch in data], np.bool_),
    )


def abort_index_of(history: Iterable[Batch]) -> list[AbortedTransaction]:
    """Return the abort index that Kafka writes for a partition's whole history.

    The last stable offset of an entry is the first offset of the oldest transaction still open among the
    other producers, else the offset after the marker (``ProducerStateManager.lastStableOffset``). A marker
    that finds no open transaction of its producer leaves no entry.
    """
    first_offsets: dict[int, int] = {}
    index: list[AbortedTransaction] = []
    for batch in history:
        if batch.marker is None:
            if batch.transactional:
                first_offsets.setdefault(batch.producer_id, batch.base_offset)
            continue
        first_offset = first_offsets.pop(batch.producer_id, None)
        if first_offset is not None and batch.marker is Outcome.ABORT:
            marker = batch.last_offset
            stable = last_stable_offset(0, marker + 1, first_offsets.values())
            index.append(AbortedTransaction(batch.producer_id, first_offset, marker, stable))
    return index


def replay(history: Sequence[Batch]) -> dict[int, bool]:
    """Return base offset -> committed for every decided data batch of a whole history.

    Batches of open transactions are not among the keys.
    """
    committed: dict[int, bool] = {}
    undecided: dict[int, list[int]] = {}
    for batch in history:
        if batch.marker is not None:
            for base_offset in undecided.pop(batch.producer_id, []):
                committed[base_offset] = batch.marker is Outcome.COMMIT
        elif batch.transactional:
            undecided.setdefault(batch.producer_id, []).append(batch.base_offset)
        else:
            committed[batch.base_offset] = True
    return committed


def brute_force(batches: Iterable[Batch], aborted: Sequence[AbortedTransaction]) -> list[int]:
    """Return the base offsets of the committed data batches; O(batches × aborted)."""
    return [
        batch.base_offset
        for batch in batches
        if batch.marker is None
        and not (
            batch.transactional
            and any(
                entry.producer_id == batch.producer_id
                and entry.first_offset <= batch.base_offset < entry.last_offset
                for entry in aborted
            )
        )
    ]


def aborted_ranges(entries: Iterable[AbortedTransaction]) -> npt.NDArray[Any]:
    """Return abort index entries as rows of :data:`ABORTED_RANGE`, in the given order."""
    rows = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]
    return np.array(rows, ABORTED_RANGE)


def range_filter(columns: BatchColumns, aborted: Iterable[AbortedTransaction]) -> npt.NDArray[np.bool_]:
    """Return the mask of ``committed_mask``, found producer by producer from sorted intervals.

    Intervals of one producer do not overlap, so the only one that can hold a batch is the last that began at
    or before it.
    """
    rows: npt.NDArray[Any] = aborted_ranges(aborted)
    committed = np.ones(len(columns.base_offsets), np.bool_)
    for producer_id in np.unique(rows["producer_id"]):
        intervals = np.sort(rows[rows["producer_id"] == producer_id], order="first_offset")
        own = np.flatnonzero(columns.transactional & (columns.producer_ids == producer_id))
        base_offsets = columns.base_offsets[own]
        nearest = np.searchsorted(intervals["first_offset"], base_offsets, "right") - 1
        committed[own] = (nearest < 0) | (base_offsets >= intervals["last_offset"][nearest])
    return committed


class CompletedFetch:
    """How Kafka's consumer treats one fetched range of a partition, markers and all.

    Parameters
    ----------
    fetch_offset : int
        Where the range begins (inclusive).
    aborted : iterable of FetchedAbort
        From the fetch response, in any order.
    wording : Wording
        How the heap is advanced.
    seeded : bool
        Whether transactions that began before ``fetch_offset`` count as active from the start. It changes
        nothing for UP_TO_LAST_OFFSET. For PRODUCER_AT_HEAD it is needed: the first records of such a
        transaction are not in the range, and when no other of its batches comes first either, it stays at the
        head of the heap and hides the aborted transactions behind it.
    """

    def __init__(
        self, fetch_offset: int, aborted: Iterable[FetchedAbort], wording: Wording, *, seeded: bool = True
    ) -> None:
        self.position = fetch_offset
        self.active: set[int] = set()
        self._wording = wording
        self._heap: list[tuple[int, int]] = []
        for entry in aborted:
            if seeded and entry.first_offset < fetch_offset:
                self.active.add(entry.producer_id)
            else:
                self._heap.append((entry.first_offset, entry.producer_id))
        heapify(self._heap)

    def committed(self, batches: Iterable[Batch]) -> list[int]:
        """Return the base offsets of the batches handed to the application; ``position`` passes all of
        them.
        """
        found: list[int] = []
        for batch in batches:
            if self._is_visible(batch):
                found.append(batch.base_offset)
            self.position = batch.last_offset + 1
        return found

    def _is_visible(self, batch: Batch) -> bool:
        if batch.producer_id == NO_PRODUCER:
            return True
        while self._heap and self._head_is_due(batch):
            self.active.add(heappop(self._heap)[1])
        if batch.marker is not None:
            if batch.marker is Outcome.ABORT:
                self.active.discard(batch.producer_id)
            return False
        return not (batch.transactional and batch.producer_id in self.active)

    def _head_is_due(self, batch: Batch) -> bool:
        first_offset, producer_id = self._heap[0]
        if first_offset > batch.last_offset:
            return False
        return self._wording is Wording.UP_TO_LAST_OFFSET or producer_id == batch.producer_id
