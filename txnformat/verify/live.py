"""Live objects: those that a state leads to, by itself, by its segment lists and by the sidecars of its segments.

Everything else that an entry named once may be deleted, when it was born below the vacuum's floor (:mod:`txnformat.admin.vacuum`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

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
from txnformat.core.state import LogState
from txnformat.types import OffsetRange, SegmentRecord, TopicPartition
from txnformat.verify.requests import Requests

__all__ = ["Live", "live_objects"]


class Live:
    """The keys of what a state leads to, as far as it was shown: lists first, then the ``.index`` of each segment. Pure."""

    def __init__(self, state: LogState) -> None:
        self.lists = state.segment_lists
        self.keys: set[str] = {one.key for one in self.lists}
        self.keys.update(one.key for one in state.tables)
        self.keys.update(one.key for one in state.files)
        self.segments: dict[str, SegmentRecord] = {}
        """By the key of the ``.index``."""
        self._state = state
        self._starts: dict[str, dict[int, int]] = {}
        """By the key of an ``.index``, and partition: the log start."""
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
                self._starts.setdefault(record.index.key, {})[key.partition] = start

    def index(self, key: str, index: SegmentIndex) -> None:
        """Take in the ``.index`` or ``.runs`` at a key; one of no live segment adds nothing."""
        for partition, start in self._starts.get(key, {}).items():
            if index.is_compacted:
                rows = index.runs_of(partition, OffsetRange(start, 2**63 - 1))
            else:
                rows = index.partition(partition)
                rows = rows[rows["base_offset"] + rows["records"] > start]
            self.keys.update(index.files[int(number)].key for number in np.unique(rows["file"]))


def live_objects(requests: Requests, state: LogState) -> Live:
    """Return everything that a state leads to. Raises CorruptDataError and StorageError about the first object that cannot be read.

    Requests: 1 GET for each object of its segment lists, and for the ``.index`` of each segment that is live. Memory: the keys, and one leaf or ``.index``.
    """
    live = Live(state)
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
    wanted = [segment.index for segment in live.segments.values()]
    answers = requests.parallel("sidecars", lambda named: requests.get(named.key), wanted)
    for index, answer in zip(wanted, answers, strict=True):
        live.index(index.key, decode_index(answer, index))
    return live
