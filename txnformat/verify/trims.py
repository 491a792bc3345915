"""Trims compared with the segments that earlier entries sealed. Pure.

A trim says how much it removed, and which entry committed the newest of it. Nobody who folds can tell whether that is true: the segments
are objects. Here they are known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from txnformat import keys
from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import Trim, TrimmedPartition
from txnformat.core.operations import Seal, SealedPartition
from txnformat.core.sealing.sidecar import SegmentIndex
from txnformat.core.state import LogState
from txnformat.persistent import Rows
from txnformat.types import OffsetRange, TopicPartition
from txnformat.verify.report import ProblemKind, Record

__all__ = ["TrimCheck"]

REPORT = "run no writer on this log before its cause is known, and please report it"
SUMS = ("records", "size", "aborted_records", "aborted_size")


class _Sealed(NamedTuple):
    """A partition's part of a segment."""

    part: SealedPartition
    key: str
    """Of its ``.index``."""


class _Trimmed(NamedTuple):
    """What an entry has trimmed, whose commit entry is still to be checked."""

    entry: int
    partition: TopicPartition
    gone: OffsetRange
    commit_entry: int
    segments: tuple[_Sealed, ...]


class TrimCheck:
    """Collects seals and trims, entry by entry; ``record``: where problems go."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._sealed: dict[TopicPartition, list[_Sealed]] = {}
        self._trims: list[_Trimmed] = []
        self._wanted: dict[str, set[TopicPartition]] = {}
        """By key of an ``.index``: partitions of it that were trimmed."""
        self._rows: dict[tuple[str, TopicPartition], Rows] = {}
        """Rows (INDEX_ROW) of these."""

    def add(self, before: LogState, entry: CommitEntry) -> None:
        """Take in an entry that follows a state."""
        starts: dict[TopicPartition, int] = {}
        for op in entry.operations:
            if isinstance(op, Seal):
                for segment in op.segments:
                    for part in segment.partitions:
                        key = TopicPartition(segment.record.topic_id, part.partition)
                        self._sealed.setdefault(key, []).append(_Sealed(part, segment.record.index.key))
            elif isinstance(op, Trim):
                for trimmed in op.partitions:
                    key = TopicPartition(op.topic_id, trimmed.partition)
                    start = starts.get(key, before.partition(key).log_start)
                    self._trim(entry.entry, key, start, trimmed)
                    starts[key] = trimmed.log_start

    def _trim(self, entry: int, key: TopicPartition, start: int, trimmed: TrimmedPartition) -> None:
        gone = OffsetRange(start, trimmed.log_start)
        segments = [
            one
            for one in self._sealed.get(key, ())
            if one.part.start_offset < gone.end and one.part.end_offset > gone.start
        ]
        if not segments or segments[0].part.start_offset > gone.start:
            return  # sealed by entries that are deleted
        whole = [one.part for one in segments if one.part.end_offset <= gone.end]
        expected = {name: sum(getattr(part, name) for part in whole) for name in SUMS}
        got = {name: getattr(trimmed, name) for name in SUMS}
        if expected != got:
            self._problem(entry, key, "a trim does not remove what lies below its log start", expected, got)
        self._trims.append(_Trimmed(entry, key, gone, trimmed.commit_entry, tuple(segments)))
        for one in segments:
            self._wanted.setdefault(one.key, set()).add(key)

    def index(self, key: str, index: SegmentIndex) -> None:
        """Take in an ``.index``, which was compared with what it must hold."""
        for partition in self._wanted.get(key, ()):
            self._rows[key, partition] = index.partition(partition.partition)

    def finish(self) -> None:
        """Compare what each trim says of the newest commit that it removed; after all indexes that could be read."""
        for one in self._trims:
            places = [(part.key, one.partition) for part in one.segments]
            if not self._rows.keys() >= set(places):
                continue  # an .index could not be read, which is reported
            most = least = -1
            for found in map(self._rows.__getitem__, places):
                below = found[: np.searchsorted(found["base_offset"], one.gone.end)]
                since = np.searchsorted(below["base_offset"] + below["records"], one.gone.start, side="right")
                most = max(most, int(below["commit_entry"].max(initial=-1)))
                least = max(least, int(below["commit_entry"][since:].max(initial=-1)))
            if not least <= one.commit_entry <= most:
                what = "a trim names another newest commit than that of the records which it removes"
                self._problem(one.entry, one.partition, what, most, one.commit_entry)

    def _problem(self, entry: int, key: TopicPartition, what: str, expected: object, got: object) -> None:
        where = f"{what} (partition {key.partition} of topic {key.topic_id})"
        self._record.add(ProblemKind.INVARIANT, keys.entry_key(entry), where, expected, got, REPORT)
