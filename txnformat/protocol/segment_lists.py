"""Writing segment lists: newer lists are merged with the segments of the state, leaf by leaf. Without IO."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.ownership import directories
from txnformat.core.sealing.lists import ROWS_MAX, taken_in
from txnformat.core.sealing.segment_list import (
    ListedSegments,
    ListLeaf,
    SegmentPart,
    decode_leaf,
    decode_root,
    decode_segment_list,
    encode_root,
    encode_segment_list,
    row_bytes,
)
from txnformat.core.state import LogState
from txnformat.protocol.effects import DrawId, Steps
from txnformat.protocol.follow import get_object
from txnformat.protocol.snapshots import create_object
from txnformat.types import ObjectRecord, SegmentListRecord, TopicPartition

__all__ = ["Exchange", "NewList", "rewrite_list", "write_list"]

LEAF_BYTES = 2**20
"""Decoded rows from which on a leaf ends: a reader keeps the leaves of several lists."""


class NewList(NamedTuple):
    """A list that was written; an entry has to name it."""

    record: SegmentListRecord
    replaced: tuple[str, ...]
    """Keys of the lists that it takes in, oldest first."""


def write_list(state: LogState, rows_max: int = ROWS_MAX) -> Steps[NewList]:
    """Write a list of the segments in the state, and of what the newest lists describe
    (:func:`~txnformat.core.sealing.lists.taken_in`), but for what lies below a log start, and for topics that
    were deleted.

    Requests: a GET for each object of the lists that it takes in, a PUT and a GET for each of its own.
    Memory: one leaf of each list. Raises CorruptDataError, StorageError.
    """
    newest: ListedSegments = {}
    for key in sorted(state.partitions):
        rows = state.partitions[key].segments.array()
        if len(rows):
            newest[key] = tuple(SegmentPart(state.segments[int(row["segment"])], row) for row in rows)
    count = taken_in(state.segment_lists, sum(map(len, newest.values())), rows_max)
    replaced = state.segment_lists[len(state.segment_lists) - count :]
    sources = [_Source(state, one) for one in replaced] + [_Source(state, None, newest)]
    for source in sources:
        yield from source.open()
    target = _Target(state)
    while waiting := [source for source in sources if source.parts]:
        key = min(source.parts[0][0] for source in waiting)
        for source in waiting:  # in the order of their segments
            while source.parts and source.parts[0][0] == key:
                _, parts = source.parts.popleft()
                if key.topic_id in state.topics:
                    log_start = state.partition(key).log_start
                    yield from target.add(key, [part for part in parts if part.range.end > log_start])
                yield from source.fill()
    first = replaced[0].first if replaced else state.listed_segments
    record = yield from target.finish(first)
    return NewList(record, tuple(one.key for one in replaced))


class Exchange(NamedTuple):
    """Parts of a partition that follow each other in a list, and what comes in their place."""

    start: int
    """First offset of the first of them."""
    end: int
    """End of the last (exclusive)."""
    part: SegmentPart


def rewrite_list(
    state: LogState, named: SegmentListRecord, exchanges: Mapping[TopicPartition, Sequence[Exchange]]
) -> Steps[SegmentListRecord]:
    """Write a list anew with some of its parts exchanged; what it describes stays, and so do leaves without
    such parts.

    ``exchanges``: by partition, ascending. Requests: a GET for the list, of a divided one a GET for each leaf
    with such parts, and a PUT and a GET for each object that is written. Raises CorruptDataError,
    StorageError.
    """
    target = _Target(state)
    known = directories(state)
    if not named.leaves:
        listed = decode_segment_list((yield from get_object(named.key)), named, known)
        yield from target.exchange(listed, exchanges)
        return (yield from target.finish(named.first))
    for leaf in decode_root((yield from get_object(named.key)), named):
        if any(leaf.first <= key <= leaf.last for key in exchanges):
            listed = decode_leaf((yield from get_object(leaf.record.key)), leaf, known)
            yield from target.exchange(listed, exchanges)
            yield from target.end_leaf()
        else:
            target.share(leaf)
    return (yield from target.finish(named.first))


class _Source:
    """The rows of a list, in order, a leaf at a time."""

    def __init__(
        self, state: LogState, named: SegmentListRecord | None, parts: ListedSegments | None = None
    ) -> None:
        self.parts = deque((parts or {}).items())
        """Listed segments of partitions in order; empty when there are no more. A partition may be there
        again in the next leaf."""
        self._directories = directories(state)
        self._named = named
        self._leaves: deque[ListLeaf] = deque()

    def open(self) -> Steps[None]:
        named = self._named
        if named is not None and named.leaves:
            self._leaves.extend(decode_root((yield from get_object(named.key)), named))
        elif named is not None:
            data = yield from get_object(named.key)
            self.parts.extend(decode_segment_list(data, named, self._directories).items())
        yield from self.fill()

    def fill(self) -> Steps[None]:
        while not self.parts and self._leaves:
            leaf = self._leaves.popleft()
            data = yield from get_object(leaf.record.key)
            self.parts.extend(decode_leaf(data, leaf, self._directories).items())


class _Target:
    """A list that is being written."""

    def __init__(self, state: LogState) -> None:
        self._entry = max(0, state.entry)
        self._leaves: list[ListLeaf] = []
        self._rows = 0
        self._parts: dict[TopicPartition, list[SegmentPart]] = {}
        self._bytes = 0
        self._known: set[str] = set()

    def add(self, key: TopicPartition, parts: Sequence[SegmentPart]) -> Steps[None]:
        for part in parts:
            if self._bytes >= LEAF_BYTES:
                yield from self.end_leaf()
            self._parts.setdefault(key, []).append(part)
            self._bytes += row_bytes(part, self._known)

    def exchange(
        self,
        listed: ListedSegments,
        exchanges: Mapping[TopicPartition, Sequence[Exchange]],
    ) -> Steps[None]:
        """Add listed parts, each exchange in the place of its first part."""
        for key, parts in listed.items():
            wanted = exchanges.get(key, ())
            for part in parts:
                place = bisect_right(wanted, part.range.start, key=attrgetter("start")) - 1
                if place < 0 or part.range.start >= wanted[place].end:
                    yield from self.add(key, [part])
                elif part.range.start == wanted[place].start:
                    yield from self.add(key, [wanted[place].part])

    def share(self, leaf: ListLeaf) -> None:
        """Take over a leaf of another list."""
        self._leaves.append(leaf)
        self._rows += leaf.rows

    def finish(self, first: int) -> Steps[SegmentListRecord]:
        if self._parts or not self._leaves:
            yield from self.end_leaf()
        if len(self._leaves) == 1:
            leaf = self._leaves[0].record
            return SegmentListRecord(leaf.key, leaf.size, leaf.sha256, first, self._rows)
        root = yield from self._create(encode_root(self._leaves))
        return SegmentListRecord(root.key, root.size, root.sha256, first, self._rows, len(self._leaves))

    def end_leaf(self) -> Steps[None]:
        """Write the leaf of what was added; an empty one only where the whole list is."""
        if not self._parts and self._leaves:
            return
        data = encode_segment_list({key: tuple(parts) for key, parts in self._parts.items()})
        record = yield from self._create(data)
        rows = sum(map(len, self._parts.values()))
        known = self._parts or [TopicPartition("", 0)]  # all that it would describe lies below a log start
        self._leaves.append(ListLeaf(min(known), max(known), rows, record))
        self._rows += rows
        self._parts, self._bytes, self._known = {}, 0, set()

    def _create(self, data: bytes) -> Steps[ObjectRecord]:
        uuid = yield DrawId()
        key = keys.table_key(self._entry, uuid)
        yield from create_object(key, data)
        return ObjectRecord(key, len(data), sha256_hex(data))
