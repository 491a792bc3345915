"""Which records of one partition a reader at ``read_committed`` sees.

Two rules. The *last stable offset* bounds the range: below it every transaction is decided, so nothing is
ever buffered. Below it, the *filter* drops the batches of aborted transactions: a min-heap of them by first
offset feeds the set of those active at the current position. One batch holds records of one transaction, so
filtering is per batch, and the row groups of a dropped batch are never fetched. A dropped batch still
advances the position.

Unlike in Kafka's ``CompletedFetch`` no markers pass by: an aborted transaction leaves the set at its own last
offset, which the abort index has.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop
from typing import Any

import numpy as np
import numpy.typing as npt

from txnformat.errors import InternalError
from txnformat.types import NO_PRODUCER

__all__ = ["ABORTED_RANGE", "committed_mask", "last_stable_offset"]

Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ABORTED_RANGE: np.dtype[Any] = np.dtype(
    [
        ("producer_id", "<i8"),
        ("first_offset", "<i8"),  # of the transaction's first record, inclusive
        ("last_offset", "<i8"),  # of its ABORT marker, inclusive
    ]
)
"""The fields of an aborted transaction that the filter needs; rows may have further fields."""


def last_stable_offset(log_start: int, log_end: int, open_first_offsets: Iterable[int]) -> int:
    """Return the offset at which read_committed ends (exclusive), from the first offset of each undecided
    transaction, in any order.

    ``log_start`` is inclusive, ``log_end`` exclusive. A transaction that began below the log start
    (retention) counts as beginning there.
    """
    first_unstable = min(open_first_offsets, default=None)
    return log_end if first_unstable is None else max(log_start, first_unstable)


def committed_mask(
    base_offsets: Offsets,
    last_offsets: Offsets,
    producer_ids: Offsets,
    transactional: Mask,
    aborted: npt.NDArray[Any],
) -> Mask:
    """Tell for each batch below the last stable offset whether its records are committed.

    A transaction enters the active set when its first offset is at most the batch's last offset, and leaves
    at its own last offset. A batch is aborted iff an active transaction has its producer id and
    ``first_offset <= base_offset < last_offset``. Batches without a producer (NO_PRODUCER) or outside of
    transactions pass.

    The batches are of one partition, oldest first, not overlapping; ``base_offsets`` and ``last_offsets`` are
    inclusive. ``aborted`` has at least the fields of ABORTED_RANGE, in any order: every aborted transaction
    that overlaps the batches, those that began before them included; more of them, or the same twice, does no
    harm. Transactions of one producer do not overlap. Raises InternalError about batches out of order or
    overlapping: the set could not follow them, and aborted records would leak.

    O(n batches + m log m aborted); with nothing aborted in range, neither heap nor loop. Only batches between
    the first and the last offset that any of the aborted transactions covers are looked at one by one.
    """
    if np.any(base_offsets[1:] <= last_offsets[:-1]):
        raise InternalError("batches of a partition overlap or are out of order")
    committed = np.ones(len(base_offsets), np.bool_)
    if len(aborted) == 0 or len(committed) == 0:
        return committed
    aborted = aborted[
        (aborted["first_offset"] <= last_offsets[-1]) & (aborted["last_offset"] > base_offsets[0])
    ]
    if len(aborted) == 0:
        return committed
    begin = int(np.searchsorted(base_offsets, aborted["first_offset"].min(), "left"))
    end = int(np.searchsorted(base_offsets, aborted["last_offset"].max(), "left"))
    in_doubt = transactional[begin:end] & (producer_ids[begin:end] != NO_PRODUCER)
    candidates = begin + np.flatnonzero(in_doubt)
    committed[_aborted_batches(candidates, base_offsets, last_offsets, producer_ids, aborted)] = False
    return committed


def _aborted_batches(
    candidates: npt.NDArray[np.intp],
    base_offsets: Offsets,
    last_offsets: Offsets,
    producer_ids: Offsets,
    aborted: npt.NDArray[Any],
) -> list[int]:
    """Return the indexes, out of ``candidates`` (ascending), of the batches of aborted transactions.

    The loop runs on Python integers: reading numpy scalars one by one costs several times as much.
    """
    heap: list[tuple[int, int, int]] = aborted[["first_offset", "last_offset", "producer_id"]].tolist()
    heapify(heap)
    next_first = heap[0][0]
    never = int(np.iinfo(np.int64).max)
    # A producer has one transaction at a time, so the set is a map: producer id -> (first, last) of the
    # active one.
    # An ended one is replaced by the producer's next, or found to have ended when the producer is next seen.
    active: dict[int, tuple[int, int]] = {}
    found: list[int] = []
    batches = zip(
        candidates.tolist(),
        base_offsets[candidates].tolist(),
        last_offsets[candidates].tolist(),
        producer_ids[candidates].tolist(),
        strict=True,
    )
    for index, base_offset, batch_last_offset, producer_id in batches:
        while next_first <= batch_last_offset:
            first_offset, last_offset, aborted_producer_id = heappop(heap)
            active[aborted_producer_id] = (first_offset, last_offset)
            next_first = heap[0][0] if heap else never
        if producer_id in active:
            first_offset, last_offset = active[producer_id]
            if first_offset <= base_offset < last_offset:
                found.append(index)
            elif last_offset <= base_offset:
                del active[producer_id]
    return found
