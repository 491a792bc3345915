"""Live objects: those that a state leads to, by itself, by its segment lists, its spills and the sidecars of its segments.

Everything else that an entry named once may be deleted, when it was born below the vacuum's floor (:mod:`txnformat.admin.vacuum`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from txnformat import keys
from txnformat.core.ownership import directories
from txnformat.core.sealing.segment_list import (
    ListedSegments,
    SegmentPart,
    decode_leaf,
    decode_root,
    decode_segment_list,
)
from txnformat.core.sealing.sidecar import SegmentIndex, decode_index
from txnformat.core.sealing.spills import Spilled, named_files
from txnformat.core.snapshot.spilled import decode_spill
from txnformat.core.state import LogState
from txnformat.errors import InternalError
from txnformat.types import OffsetRange, SegmentRecord, TopicPartition
from txnformat.verify.requests import Requests

__all__ = ["CompactKeys", "Live", "live_objects"]


class Keys(Protocol):
    """A set of keys."""

    def add(self, key: str, /) -> None: ...
    def update(self, keys: Iterable[str], /) -> None: ...
    def __contains__(self, key: object, /) -> bool: ...


class CompactKeys:
    """A set of keys in 16 bytes for each: their hashes. First everything is added, then it is asked.

    That two of 10^8 keys have one hash has a probability below 10^-22; then an object is taken for one that is there.
    """

    def __init__(self) -> None:
        self._hashes = bytearray()
        self._sorted: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]] | None = None

    def add(self, key: str) -> None:
        """Add a key."""
        if self._sorted is not None:
            raise InternalError("a key is added to a set that was asked")
        self._hashes += _hash(key)

    def update(self, keys: Iterable[str]) -> None:
        """Add keys."""
        for key in keys:
            self.add(key)

    def __contains__(self, key: object) -> bool:
        """Return whether a key was added. O(log(keys))."""
        if self._sorted is None:
            pairs = np.frombuffer(self._hashes, np.uint64).reshape(-1, 2)
            order = np.argsort(pairs[:, 0])
            self._sorted = pairs[order, 0], pairs[order, 1]
            self._hashes = bytearray()
        first, second = self._sorted
        high, low = np.frombuffer(_hash(str(key)), np.uint64)
        at = int(np.searchsorted(first, high))
        while at < len(first) and first[at] == high:
            if second[at] == low:
                return True
            at += 1
        return False


def _hash(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


class Live:
    """The keys of what a state leads to, as far as it was shown: lists first, then the ``.index`` of each segment. Pure."""

    def __init__(self, state: LogState, into: Keys | None = None) -> None:
        self.lists = state.segment_lists
        self.keys: Keys = set() if into is None else into
        self.keys.update(one.key for one in self.lists)
        self.keys.update(one.key for one in state.tables)
        self.keys.update(one.key for one in state.files)
        self.segments: dict[str, SegmentRecord] = {}
        """The live segments, by the key of the ``.index``."""
        self._state = state
        self._ranges: dict[str, dict[int, list[OffsetRange]]] = {}
        """The live offsets, by the key of an ``.index`` and partition. Others of a ``.runs`` may have been replaced."""
        for key, partition in state.partitions.items():
            rows = partition.segments.array()
            self._add(key, (SegmentPart(state.segments[int(row["segment"])], row) for row in rows))

    def may_be_gone(self, key: str) -> bool:
        """Return whether a vacuum may have deleted an object that an entry named, or may do so."""
        return key not in self.keys and keys.born_of(key) < self._state.vacuum_floor

    def listed(self, segments: ListedSegments) -> None:
        """Take in what a list of the state, or a leaf of it, says."""
        for key, parts in segments.items():
            self._add(key, parts)

    def _add(self, key: TopicPartition, parts: Iterable[SegmentPart]) -> None:
        if key.topic_id not in self._state.topics:
            return  # deleted
        start = self._state.partition(key).log_start
        for part in parts:
            if part.range.end > start:
                record = part.record
                self.segments[record.index.key] = record
                named = (record.index, record.markers, record.txnindex)
                self.keys.update(one.key for one in named if one is not None)
                live = OffsetRange(max(start, part.range.start), part.range.end)
                self._ranges.setdefault(record.index.key, {}).setdefault(key.partition, []).append(live)

    def spilled(self, table: int, spilled: Spilled) -> None:
        """Take in the object of a spill that the state names, by its number in LogState.tables."""
        for key, partition in self._state.partitions.items():
            for one in partition.spills:
                if one.table == table and key in spilled.partitions:
                    rows = spilled.partitions[key].within(one.start_offset, one.end_offset)
                    self.keys.update(spilled.files[number].key for number in named_files(rows.extents))
                    tables = set(rows.extents["table"].tolist()) - {-1}
                    self.keys.update(spilled.tables[number].key for number in tables)

    def index(self, key: str, index: SegmentIndex) -> None:
        """Take in the ``.index`` or ``.runs`` at a key; one of no live segment adds nothing."""
        for partition, ranges in self._ranges.get(key, {}).items():
            for live in ranges:
                if index.is_compacted:
                    rows = index.runs_of(partition, live)
                else:
                    rows = index.partition(partition)
                    rows = rows[rows["base_offset"] + rows["records"] > live.start]
                self.keys.update(index.files[int(number)].key for number in np.unique(rows["file"]))


def live_objects(requests: Requests, state: LogState, into: Keys | None = None) -> Live:
    """Return everything that a state leads to. Raises CorruptDataError and StorageError about the first object that cannot be read.

    Requests: 1 GET for each object of its segment lists and each spill, and for the ``.index`` of each segment that is live. Memory: the keys, which go ``into`` a set of their own or into this one, and one leaf or ``.index``.
    """
    live = Live(state, into)
    topics = directories(state)
    for done, named in enumerate(live.lists, 1):
        data = requests.get(named.key)
        if not named.leaves:
            live.listed(decode_segment_list(data, named, topics))
        else:
            for leaf in decode_root(data, named):
                live.keys.add(leaf.record.key)
                live.listed(decode_leaf(requests.get(leaf.record.key), leaf, topics))
        requests.advance("lists", done, len(live.lists))
    for number in sorted({one.table for known in state.partitions.values() for one in known.spills}):
        spill = state.tables[number]
        live.spilled(number, decode_spill(requests.get(spill.key), spill))
    wanted = [segment.index for segment in live.segments.values()]
    answers = requests.parallel("sidecars", lambda named: requests.get(named.key), wanted)
    for index, answer in zip(wanted, answers, strict=True):
        live.index(index.key, decode_index(answer, index))
    return live
