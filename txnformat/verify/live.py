"""Live objects: those that a state leads to, by itself, by its segment lists, its spills and the sidecars of
its segments.

Everything else that an entry named once may be deleted, when it was born below the vacuum's floor
(:mod:`txnformat.admin.vacuum`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

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
from txnformat.core.sealing.spills import Spilled, named_files
from txnformat.core.snapshot.spilled import decode_spill
from txnformat.core.state import LogState
from txnformat.types import ObjectRecord, OffsetRange, SegmentRecord
from txnformat.verify.requests import Requests
from txnformat.verify.spool import Spool

__all__ = ["Live", "live_objects"]


class Live:
    """The keys of what a state leads to, as far as it was shown: lists first, then the ``.index`` of each
    segment.

    Pure.
    """

    def __init__(self, state: LogState) -> None:
        self.lists = state.segment_lists
        self.keys = set(_named_by(state))
        self._state = state
        self._ranges: dict[str, dict[int, list[OffsetRange]]] = {}
        """The live offsets, by the key of an ``.index`` and partition. Others of a ``.runs`` may have been
        replaced."""
        self.listed(_unlisted(state))

    def may_be_gone(self, key: str) -> bool:
        """Return whether a vacuum may have deleted an object that an entry named, or may do so."""
        return key not in self.keys and keys.born_of(key) < self._state.vacuum_floor

    def listed(self, segments: ListedSegments) -> None:
        """Take in what a list of the state, or a leaf of it, says."""
        for record, partition, live in _live_parts(self._state, segments):
            self.keys.update(one.key for one in record.objects())
            self._ranges.setdefault(record.index.key, {}).setdefault(partition, []).append(live)

    def spilled(self, table: int, spilled: Spilled) -> None:
        """Take in the object of a spill that the state names, by its number in LogState.tables."""
        self.keys.update(_in_spill(self._state, table, spilled))

    def index(self, key: str, index: SegmentIndex) -> None:
        """Take in the ``.index`` or ``.runs`` at a key; one of no live segment adds nothing."""
        for partition, ranges in self._ranges.get(key, {}).items():
            self.keys.update(_in_index(index, partition, ranges))


def _named_by(state: LogState) -> Iterator[str]:
    """Yield the keys of all objects that a state itself names, but for its segments."""
    for named in (state.segment_lists, state.tables, state.files):
        for one in named:
            yield one.key


def _unlisted(state: LogState) -> ListedSegments:
    """Return the segments that are in no list yet."""
    return {
        key: tuple(
            SegmentPart(state.segments[int(row["segment"])], row) for row in partition.segments.array()
        )
        for key, partition in state.partitions.items()
    }


def _live_parts(
    state: LogState, segments: ListedSegments
) -> Iterator[tuple[SegmentRecord, int, OffsetRange]]:
    """Yield segments with a partition and the offsets of it that can still be read."""
    for key, parts in segments.items():
        if key.topic_id not in state.topics:
            continue  # deleted
        start = state.partition(key).log_start
        for part in parts:
            if part.range.end > start:
                yield part.record, key.partition, OffsetRange(max(start, part.range.start), part.range.end)


def _in_spill(state: LogState, table: int, spilled: Spilled) -> Iterator[str]:
    """Yield the keys that the object of a spill leads to. ``table``: its number in LogState.tables."""
    for key, partition in state.partitions.items():
        for one in partition.spills:
            if one.table == table and key in spilled.partitions:
                rows = spilled.partitions[key].within(one.start_offset, one.end_offset)
                for number in named_files(rows.extents):
                    yield spilled.files[number].key
                for number in set(rows.extents["table"].tolist()) - {-1}:
                    yield spilled.tables[number].key


def _in_index(index: SegmentIndex, partition: int, ranges: Iterable[OffsetRange]) -> Iterator[str]:
    """Yield the keys of the files that an ``.index`` or ``.runs`` names for live offsets of a partition."""
    for live in ranges:
        for number in np.unique(index.rows_from(partition, live, live.start)["file"]):
            yield index.files[int(number)].key


def live_objects(requests: Requests, state: LogState, add: Callable[[str], object]) -> None:
    """Call ``add`` with the key of everything that a state leads to; with some more than once.

    Raises CorruptDataError and StorageError about the first object that cannot be read.

    Requests: 1 GET for each object of its segment lists and each spill, and for the ``.index`` of each
    segment that is live. Memory: one leaf of a list, and one part of the segments
    (:class:`~txnformat.verify.spool.Spool`).
    """
    for key in _named_by(state):
        add(key)
    with Spool() as segments:
        _spool_segments(state, _unlisted(state), segments)
        topics, lists = directories(state), state.segment_lists
        for done, named in enumerate(lists, 1):
            data = requests.get(named.key)
            if not named.leaves:
                _spool_segments(state, decode_segment_list(data, named, topics), segments)
            else:
                for leaf in decode_root(data, named):
                    add(leaf.record.key)
                    listed = decode_leaf(requests.get(leaf.record.key), leaf, topics)
                    _spool_segments(state, listed, segments)
            requests.advance("lists", done, len(lists))
        for number in sorted({one.table for known in state.partitions.values() for one in known.spills}):
            spill = state.tables[number]
            for key in _in_spill(state, number, decode_spill(requests.get(spill.key), spill)):
                add(key)
        for rows in segments.parts():
            _add_segments(requests, rows, add)


def _spool_segments(state: LogState, listed: ListedSegments, into: Spool) -> None:
    """Put the live segments of a list into a spool: what is named once, and then each range of offsets."""
    seen: set[str] = set()
    for record, partition, live in _live_parts(state, listed):
        index = record.index
        if index.key not in seen:
            seen.add(index.key)
            into.add(index.key, index.size, index.sha256, *(one.key for one in record.objects()[1:]))
        into.add(index.key, partition, live.start, live.end)


def _add_segments(requests: Requests, rows: Sequence[list[Any]], add: Callable[[str], object]) -> None:
    """Read the ``.index`` of each segment of a part, and add what it leads to."""
    named: dict[str, ObjectRecord] = {}
    ranges: dict[str, dict[int, list[OffsetRange]]] = {}
    for key, first, *rest in rows:
        if isinstance(first, int) and isinstance(rest[0], int):
            ranges.setdefault(key, {}).setdefault(first, []).append(OffsetRange(*rest))
            continue
        named[key] = ObjectRecord(key, first, rest[0])
        for one in rest[1:]:
            add(one)
    wanted = list(named.values())
    answers = requests.parallel("sidecars", lambda one: requests.get(one.key), wanted)
    for one, answer in zip(wanted, answers, strict=True):
        add(one.key)
        index = decode_index(answer, one)
        for partition, live in ranges[one.key].items():
            for key in _in_index(index, partition, live):
                add(key)
