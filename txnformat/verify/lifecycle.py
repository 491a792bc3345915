"""Trims and compactions compared with the segments that earlier entries sealed. Pure.

A trim says how much it removed, and which entry committed the newest of it; a compaction, how much it
replaced and what came in its place. The fold cannot tell whether that is true, because it reads no segments;
verification does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from txnformat import keys
from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import CompactedRange, Replace, Trim, TrimmedPartition
from txnformat.core.operations import Seal, SealedPartition
from txnformat.core.sealing.sidecar import RUN_ROW, SegmentIndex
from txnformat.core.state import LogState
from txnformat.persistent import Rows
from txnformat.types import OffsetRange, TopicPartition
from txnformat.verify.report import ProblemKind, Record

__all__ = ["LifecycleCheck"]

REPORT = "run no writer on this log before its cause is known, and please report it"
SUMS = ("records", "size", "aborted_records", "aborted_size")


class _Sealed(NamedTuple):
    """A partition's part of a segment."""

    part: SealedPartition
    key: str
    """Key of its ``.index``."""


class _Trimmed(NamedTuple):
    """A trimmed partition whose commit entry is still to be checked."""

    entry: int
    partition: TopicPartition
    gone: OffsetRange
    commit_entry: int
    segments: tuple[_Sealed, ...]


class LifecycleCheck:
    """Collects seals, trims and compactions, entry by entry; ``record``: where problems go."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._anchor: LogState | None = None
        """The snapshot that the fold began with: parts that were sealed up to it are not known."""
        self._sealed: dict[TopicPartition, list[_Sealed]] = {}
        self._trims: list[_Trimmed] = []
        self._wanted: dict[str, set[TopicPartition]] = {}
        """The trimmed partitions, by key of an ``.index``."""
        self._rows: dict[tuple[str, TopicPartition], Rows] = {}
        """Rows (BOUND) of these."""
        self._compacted: dict[str, list[tuple[int, TopicPartition, CompactedRange]]] = {}
        """Entry, partition and range that a ``.runs`` was named for, by its key."""

    def begin(self, snapshot: LogState) -> None:
        """Go on from a snapshot: what was sealed and replaced up to it was not seen, or not all of it."""
        self._anchor = snapshot
        self._sealed = {}

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
            elif isinstance(op, Replace):
                cleaned = {part.partition: part.commit_entry for part in op.cleaned}
                erased = (
                    {}
                    if op.erased is None
                    else {part.partition: part.commit_entry for part in op.erased.partitions}
                )
                for one in op.segments:
                    for compacted in one.partitions:
                        key = TopicPartition(op.topic_id, compacted.partition)
                        start = starts.get(key, before.partition(key).log_start)
                        known = before.partition(key)
                        lost = known.cleaned_entry if key.partition in cleaned else None
                        if lost is not None:
                            lost = max(lost, cleaned[key.partition])
                        if erased.get(key.partition, -1) >= 0:
                            lost = max(-1 if lost is None else lost, erased[key.partition])
                        self._replace(entry.entry, key, start, compacted, one.index.key, lost)

    def _replace(
        self,
        entry: int,
        key: TopicPartition,
        log_start: int,
        part: CompactedRange,
        index: str,
        lost: int | None,
    ) -> None:
        """``lost``: of a partition in which only the latest record of each key stays, or some are erased, the
        entry that says which versions are no longer whole.
        """
        self._compacted.setdefault(index, []).append((entry, key, part))
        start, end = part.start_offset, part.end_offset
        known = self._sealed.get(key, [])
        gone = [one for one in known if one.part.start_offset < end and one.part.end_offset > start]
        self._sealed[key] = sorted(
            [*(one for one in known if one not in gone), _Sealed(_as_sealed(part), index)],
            key=lambda one: one.part.start_offset,
        )
        if not self._is_known(key, gone, OffsetRange(start, end)):
            return
        expected: dict[str, int] = {"start_offset": start, "end_offset": end}
        got = {
            "start_offset": gone[0].part.start_offset if gone else end,
            "end_offset": gone[-1].part.end_offset if gone else start,
        }
        for name in SUMS:
            expected[name] = sum(getattr(one.part, name) for one in gone)
            got[name] = getattr(part, f"old_{name}")
        committed = expected["records"] - expected["aborted_records"]
        may_lose = lost is not None and lost >= 0 and part.records <= committed
        if start >= log_start and part.records != committed and not may_lose:
            what = "a compaction has another number of records than what it replaces"
            self._problem(entry, key, what, committed, part.records)
        if expected != got:
            self._problem(entry, key, "a compaction does not replace whole parts", expected, got)

    def _trim(self, entry: int, key: TopicPartition, start: int, trimmed: TrimmedPartition) -> None:
        gone = OffsetRange(start, trimmed.log_start)
        segments = [
            one
            for one in self._sealed.get(key, ())
            if one.part.start_offset < gone.end and one.part.end_offset > gone.start
        ]
        if not self._is_known(key, segments, gone):
            return
        whole = [one.part for one in segments if one.part.end_offset <= gone.end]
        expected = {name: sum(getattr(part, name) for part in whole) for name in SUMS}
        got = {name: getattr(trimmed, name) for name in SUMS}
        if expected != got:
            self._problem(entry, key, "a trim does not remove what lies below its log start", expected, got)
        self._trims.append(_Trimmed(entry, key, gone, trimmed.commit_entry, tuple(segments)))
        for one in segments:
            self._wanted.setdefault(one.key, set()).add(key)

    def _is_known(self, key: TopicPartition, parts: Sequence[_Sealed], wanted: OffsetRange) -> bool:
        """Return whether parts are all that there were at some offsets: if some are missing, entries that
        were not seen have not sealed them.

        A compaction of older offsets may be seen where the seal of newer ones is not, so a part may be
        missing between others.
        """
        sealed_end = 0 if self._anchor is None else self._anchor.partition(key).sealed_end
        covered = wanted.start
        for one in parts:
            if covered < min(one.part.start_offset, sealed_end):
                return False
            covered = max(covered, one.part.end_offset)
        return covered >= min(wanted.end, sealed_end)

    def index(self, key: str, index: SegmentIndex) -> None:
        """Take in an ``.index``, which was compared with what it must hold, or a ``.runs``."""
        for partition in self._wanted.get(key, ()):
            self._rows[key, partition] = _bounds(index, partition.partition)
        for entry, partition, part in self._compacted.get(key, ()):
            within = OffsetRange(part.start_offset, part.end_offset)
            runs = index.runs_of(partition.partition, within) if index.is_compacted else np.zeros(0, RUN_ROW)
            got = _totals(runs)
            expected = {name: getattr(part, name) for name in got}
            if expected != got or not _is_inside(runs, within):
                what = "the runs of a compacted segment are not those in its entry"
                self._problem(entry, partition, what, expected, got)

    def finish(self) -> None:
        """Compare what each trim says of the newest commit that it removed; after all indexes that could be
        read.
        """
        for one in self._trims:
            places = [(part.key, one.partition) for part in one.segments]
            if not self._rows.keys() >= set(places):
                continue  # an .index could not be read, which is reported
            most = least = -1
            for found in map(self._rows.__getitem__, places):
                below = found[: np.searchsorted(found["base_offset"], one.gone.end)]
                since = np.searchsorted(below["base_offset"] + below["records"], one.gone.start, side="right")
                most = max(most, int(below["commit_entry"].max(initial=-1)))
                least = max(least, int(below["least_entry"][since:].max(initial=-1)))
            if not least <= one.commit_entry <= most:
                what = "a trim names another newest commit than that of the records which it removes"
                self._problem(one.entry, one.partition, what, most, one.commit_entry)

    def _problem(self, entry: int, key: TopicPartition, what: str, expected: object, got: object) -> None:
        where = f"{what} (partition {key.partition} of topic {key.topic_id})"
        self._record.add(ProblemKind.INVARIANT, keys.entry_key(entry), where, expected, got, REPORT)


BOUND: np.dtype[Any] = np.dtype(
    [("base_offset", "<i8"), ("records", "<i8"), ("commit_entry", "<i8"), ("least_entry", "<i8")]
)
"""A batch, or the offsets of a run, with the largest commit entry, and the largest that is sure to be of any
part of it."""


def _bounds(index: SegmentIndex, partition: int) -> Rows:
    if not index.is_compacted:
        rows = index.partition(partition)
        found = np.zeros(len(rows), BOUND)
        for name in ("base_offset", "records", "commit_entry"):
            found[name] = rows[name]
        found["least_entry"] = rows["commit_entry"]
        return found
    runs = index.runs_of(partition, OffsetRange(0, 2**62))
    found = np.zeros(len(runs), BOUND)
    found["base_offset"], found["records"] = runs["start_offset"], runs["end_offset"] - runs["start_offset"]
    found["commit_entry"], found["least_entry"] = runs["max_commit_entry"], runs["min_commit_entry"]
    return found


def _as_sealed(part: CompactedRange) -> SealedPartition:
    return SealedPartition(
        part.partition,
        part.start_offset,
        part.end_offset,
        part.runs,
        0,
        0,
        part.records,
        part.size,
        0,
        0,
        part.min_timestamp_ms,
        part.max_timestamp_ms,
    )


def _totals(runs: Rows) -> dict[str, int]:
    return {
        "runs": len(runs),
        "records": int(runs["records"].sum()),
        "size": int(runs["size"].sum()),
        "min_timestamp_ms": int(runs["min_timestamp_ms"].min()) if len(runs) else 0,
        "max_timestamp_ms": int(runs["max_timestamp_ms"].max()) if len(runs) else 0,
    }


def _is_inside(runs: Rows, within: OffsetRange) -> bool:
    return not len(runs) or (
        int(runs["start_offset"][0]) >= within.start and int(runs["end_offset"][-1]) <= within.end
    )
