"""Reading sidecars and batch tables: fetched when a read touches them, verified, and kept for the next
read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from txnformat.core.ownership import directories
from txnformat.core.records.batch_table import decode_batch_table
from txnformat.core.sealing.segment_list import (
    ListedSegments,
    SegmentPart,
    decode_leaf,
    decode_root,
    decode_segment_list,
    leaves_of,
    segments_in,
)
from txnformat.core.sealing.sidecar import SegmentIndex, decode_index
from txnformat.core.sealing.spills import Spilled, unspilled
from txnformat.core.snapshot.spilled import decode_spill
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError
from txnformat.forking import renew_after_fork
from txnformat.persistent import Rows
from txnformat.store.base import ObjectStore
from txnformat.types import ObjectRecord, OffsetRange, SegmentListRecord, TopicPartition

__all__ = ["SidecarCache"]

T = TypeVar("T")
Kept = tuple[str, Hashable]
"""The kind that an object is read as, and all that the log says of it: the same key with other values is
another object."""

KEPT_BYTES = 64 * 2**20
"""Decoded sidecars that are kept."""
FILE_BYTES = 600
"""About what a file's record takes."""
PART_BYTES = 300
"""About what a row of a segment list takes."""
LEAF_BYTES = 800
"""About what a row of its root takes."""


def _list_bytes(found: ListedSegments) -> int:
    return PART_BYTES * sum(map(len, found.values()))


def _spilled_bytes(found: Spilled) -> int:
    rows = sum(one.nbytes for part in found.partitions.values() for one in part)
    return rows + FILE_BYTES * (len(found.files) + len(found.tables))


class SidecarCache:
    """Sidecars, segment lists and batch tables of one log, decoded; the last used are kept.

    Safe for use by many threads.

    ``store``: the log's. ``bytes_max``: of what is kept, about; the last object used is kept whatever its
    size.
    """

    def __init__(self, store: ObjectStore, bytes_max: int = KEPT_BYTES) -> None:
        self.store = store
        self._bytes_max = bytes_max
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Keep nothing."""
        self._bytes = 0
        self._kept: OrderedDict[Kept, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def index(self, named: ObjectRecord) -> SegmentIndex:
        """Return an ``.index``.

        Requests: 1 GET, none when it is kept. Raises CorruptDataError, StorageError.
        """
        return self._get(
            named,
            ("index", named),
            lambda data: decode_index(data, named),
            lambda index: index.nbytes + FILE_BYTES * len(index.files),
        )

    def listed(
        self, named: SegmentListRecord, state: LogState, key: TopicPartition
    ) -> tuple[SegmentPart, ...]:
        """Return what a segment list of a state says of one partition.

        Requests: 1 GET, 2 of a divided list; none when it is kept.
        """
        if not named.leaves:
            whole = self._get(
                named,
                ("list", named),
                lambda data: decode_segment_list(data, named, directories(state)),
                _list_bytes,
            )
            return whole.get(key, ())
        leaves = self._get(
            named,
            ("root", named),
            lambda data: decode_root(data, named),
            lambda leaves: LEAF_BYTES * len(leaves),
        )
        parts: list[SegmentPart] = []
        for leaf in leaves_of(leaves, key):
            decode = partial(decode_leaf, leaf=leaf, directories=directories(state))
            parts += self._get(leaf.record, ("leaf", leaf), decode, _list_bytes).get(key, ())
        return tuple(parts)

    def live_lists(self, state: LogState, key: TopicPartition) -> Iterator[list[SegmentPart]]:
        """Yield what each segment list has of one partition above its log start, ascending.

        Requests: those of :meth:`listed`, when a list is reached.
        """
        start = state.partition(key).log_start
        for named in state.segment_lists:
            yield [part for part in self.listed(named, state, key) if part.range.end > start]

    def live_parts(self, state: LogState, key: TopicPartition) -> Iterator[SegmentPart]:
        """Yield the parts of :meth:`live_lists`."""
        for parts in self.live_lists(state, key):
            yield from parts

    def table(self, named: ObjectRecord) -> Rows:
        """Return the rows of a batch table. Requests: 1 GET, none when it is kept."""
        return self._get(
            named,
            ("table", named),
            lambda data: decode_batch_table(data, named),
            lambda rows: int(rows.nbytes),
        )

    def whole(self, state: LogState, key: TopicPartition, wanted: OffsetRange) -> LogState:
        """Return the state with the rows of a partition in it that were spilled: those of ``wanted``, and
        what became of them further on.

        Requests: none where nothing of ``wanted`` is spilled; else 1 GET for each spill that ends behind its
        start, none when it is kept. Raises CorruptDataError, StorageError.
        """
        spills = [one for one in state.partition(key).spills if one.end_offset > wanted.start]
        if not spills or spills[0].start_offset >= wanted.end:
            return state
        found = {one.table: self.spilled(state.tables[one.table]) for one in spills}
        return unspilled(state, {key: wanted.start}, found)

    def spilled(self, named: ObjectRecord) -> Spilled:
        """Return what a spill holds. Requests: 1 GET, none when it is kept."""
        return self._get(named, ("spill", named), lambda data: decode_spill(data, named), _spilled_bytes)

    def _get(
        self,
        named: ObjectRecord,
        name: Kept,
        parse: Callable[[bytes | None], T],
        size_of: Callable[[T], int],
    ) -> T:
        return self.kept(name, lambda: parse(self.store.get(named.key, named.size)), size_of)

    def kept(self, name: Kept, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """Return what is kept under a name, or make it and keep it."""
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                kept: T = self._kept[name][0]
                return kept
        found = make()
        size = size_of(found)
        with self._lock:
            _, replaced = self._kept.pop(name, (None, 0))  # another thread was as fast
            self._kept[name] = (found, size)
            self._bytes += size - replaced
            while self._bytes > self._bytes_max and len(self._kept) > 1:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._bytes -= dropped
        return found

    def segments(self, state: LogState, key: TopicPartition, wanted: OffsetRange) -> list[SegmentPart]:
        """Return the sealed segments of a partition that overlap ``wanted``, in the order of their offsets.

        Raises CorruptDataError unless they follow each other over all sealed offsets of ``wanted``. Requests:
        none but those of the segment lists (:meth:`listed`), newest first, until one begins at ``wanted`` or
        before.
        """
        partition = state.partition(key)
        found: list[SegmentPart] = []
        if wanted.start < min(wanted.end, partition.listed_end):
            for named in reversed(state.segment_lists):
                parts = self.listed(named, state, key)
                found = segments_in(parts, wanted) + found
                if parts and parts[0].range.start <= wanted.start:
                    break
        if wanted.start < min(wanted.end, partition.sealed_end):
            newer = [
                SegmentPart(state.segments[int(row["segment"])], row) for row in partition.segments.array()
            ]
            found += segments_in(newer, wanted)
        _check_whole(found, key, OffsetRange(wanted.start, min(wanted.end, partition.sealed_end)))
        return found


def _check_whole(found: Sequence[SegmentPart], key: TopicPartition, wanted: OffsetRange) -> None:
    """Raise CorruptDataError unless segments follow each other over all of the wanted offsets."""
    at = wanted.start
    for number, part in enumerate(found):
        start, end = part.range
        if start >= end or (start != at if number else start > at):
            break
        at = end
    else:
        if at >= wanted.end:
            return
    raise CorruptDataError(
        "the sealed segments of a partition do not follow each other",
        kind="corrupt-sidecar",
        hint="run verify, which says which segment list differs from the entries",
        topic_id=key.topic_id,
        partition=key.partition,
        expected=f"all offsets from {wanted.start} to {wanted.end}",
        got=[tuple(part.range) for part in found[:20]],
    )
