"""The files that show a topic as of an entry, and those that hold other records besides.

A file shows a topic if it is *whole*: each of its records was committed at the entry or before, and is still
there. Requests are those of metadata: no data is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from txnformat.core.records.scan import (
    Stored,
    check_not_cleaned,
    check_not_erased,
    check_not_trimmed,
    extents_to_read,
    plan_partition,
    plan_runs,
    plan_sealed,
)
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LogState, TopicState
from txnformat.persistent import Rows
from txnformat.reading.plan import read_tables
from txnformat.reading.sealed import SidecarCache
from txnformat.types import FileRecord, IsolationLevel, OffsetRange, TopicPartition
from txnformat.views.wanted import Wanted

__all__ = ["PartOf", "ShownFile", "ShownTopic", "shown_at"]

SNAPSHOT = IsolationLevel.SNAPSHOT


class PartOf(NamedTuple):
    """A sealed part of a partition."""

    key: TopicPartition
    part: SegmentPart


@dataclass(slots=True)
class ShownFile:
    """A file with records that are shown."""

    record: FileRecord
    rows: int = 0
    """Records that are shown; of a run that is not shown as a whole, none is counted."""
    min_entry: int = 2**63 - 1
    """Smallest entry that committed one of them."""
    max_entry: int = -1
    is_cut: bool = False
    """Some of a run's records are shown, and others not."""
    is_sealed: bool = True
    """All records that are shown are sealed."""
    is_compacted: bool = False
    """It stores where its records stand."""
    parts: list[PartOf] = field(default_factory=list)
    """The sealed parts that they are in."""

    def problem(self, topic: TopicState) -> str | None:
        """Return why the file does not show the topic as it is; None: it does."""
        record = self.record
        if record.place is not None:
            return "its records are still in an entry"
        if record.key.partition("/")[0] != topic.directory:
            return "it lies in the directory of another attempt to create the topic"
        if self.is_cut or self.rows != record.rows:
            return "it has other records besides: aborted, undecided, removed or newer ones"
        current = topic.schema.arrow_schema
        columns = topic.schema.of_file(record)
        if not columns.has_own_names(current.names):
            return "it was written before a column was renamed or dropped"
        if any(current.field(name).type != columns.type_of(name) for name in columns.names):
            return "it was written before a column was widened"
        return None

    def wanted(self, directory: str) -> Wanted:
        """Return the file for the next version of a table in a directory."""
        path = self.record.key.removeprefix(f"{directory}/")
        return Wanted(path, self.record.size, self.rows, self.min_entry, self.max_entry)


@dataclass(slots=True)
class ShownTopic:
    """The files with records of a topic that are shown at an entry."""

    topic: TopicState
    entry: int
    files: dict[str, ShownFile] = field(default_factory=dict)
    """The files, by key."""
    compacted_only: bool = False
    """Whether a file that is not compacted is a problem."""

    def problems(self) -> dict[str, str]:
        """Return the files that do not show the topic as they are, by key, each with the reason."""
        found = ((key, self._problem(one)) for key, one in self.files.items())
        return {key: reason for key, reason in found if reason is not None}

    def can_be_written_anew(self, file: ShownFile) -> bool:
        """Return whether a compaction can mend a problem: it can neither move what is not sealed, nor divide
        what an entry divides.

        A file that is not compacted is left alone where only compacted ones count: that is for the topic's
        own compactions.
        """
        is_asked_for = file.is_compacted or not self.compacted_only
        return file.is_sealed and file.max_entry <= self.entry and is_asked_for

    def _problem(self, file: ShownFile) -> str | None:
        if self.compacted_only and not file.is_compacted:
            return "it is not compacted, so that it does not store the offsets of its records"
        return file.problem(self.topic)

    def wanted(self, directory: str | None = None) -> dict[str, Wanted]:
        """Return all files by path, for a table in a directory; None: the topic's own."""
        where = self.topic.directory if directory is None else directory
        return {one.path: one for one in (file.wanted(where) for file in self.files.values())}

    def to_compact(self) -> list[PartOf]:
        """Return the sealed parts to be written anew so that no file has other records besides, as far as
        such files are sealed.

        A file that shares a part with one of them is written anew, too: it would lose some of its records.
        """
        by_part: dict[tuple[TopicPartition, OffsetRange], list[str]] = {}
        for key, file in self.files.items():
            for one in file.parts:
                by_part.setdefault((one.key, one.part.range), []).append(key)
        found: dict[tuple[TopicPartition, OffsetRange], PartOf] = {}
        done: set[str] = set()
        for begin in self.problems():
            if not self.can_be_written_anew(self.files[begin]):
                continue
            together: dict[tuple[TopicPartition, OffsetRange], PartOf] = {}
            seen, left = {begin}, [begin]
            while left:
                for one in self.files[left.pop()].parts:
                    name = (one.key, one.part.range)
                    together[name] = one
                    more = [key for key in by_part[name] if key not in seen]
                    seen.update(more)
                    left += more
            if begin not in done and all(self.files[key].is_sealed for key in seen):
                found |= together
            done |= seen
        return [found[name] for name in sorted(found)]


def shown_at(
    sidecars: SidecarCache, state: LogState, topic: TopicState, entry: int, *, compacted_only: bool = False
) -> ShownTopic:
    """Return the files with records of a topic that are shown at an entry, as they are in ``state``.

    ``compacted_only``: files that are not compacted are problems.

    Raises NotFoundError of kind ``version-trimmed``: records of that entry were removed. Requests: 1 GET for
    each batch table, spill and sealed segment that is not kept.
    """
    shown = ShownTopic(topic, entry, compacted_only=compacted_only)
    tables: dict[int, Rows] = {}
    for number in range(topic.partitions):
        key = TopicPartition(topic.topic_id, number)
        partition = state.partition(key)
        for check in (check_not_trimmed, check_not_cleaned, check_not_erased):
            check(partition, entry, topic.name, number)
        wanted = OffsetRange(partition.log_start, partition.log_end)
        for part in sidecars.segments(state, key, wanted):
            _add_sealed(sidecars, shown, PartOf(key, part), wanted)
        whole = sidecars.whole(state, key, wanted)
        partition = whole.partition(key)
        extents = extents_to_read(partition, wanted, SNAPSHOT, None, entry)
        read_tables(sidecars, whole, extents, tables)
        rows = plan_partition(number, partition, wanted, SNAPSHOT, tables, None, entry).rows
        for file, some in _by_file(rows):
            found = _file(shown, whole.files[file])
            found.is_sealed = False
            _count(found, some)
    return shown


def _add_sealed(sidecars: SidecarCache, shown: ShownTopic, one: PartOf, wanted: OffsetRange) -> None:
    start, end = one.part.range
    within = OffsetRange(max(start, wanted.start), min(end, wanted.end))
    if one.part.row["records"] <= one.part.row["aborted_records"]:
        return
    index = sidecars.index(one.part.record.index)
    number = one.key.partition
    if not index.is_compacted:
        for file, some in _by_file(plan_sealed(index.partition(number), within, SNAPSHOT, shown.entry)):
            found = _file(shown, index.files[file])
            found.parts.append(one)
            _count(found, some)
        return
    runs = index.runs_of(number, within)
    runs = runs[runs["min_commit_entry"] <= shown.entry]
    planned = plan_runs(runs, within, SNAPSHOT, shown.entry)
    for file in np.unique(runs["file"]).tolist():
        some = runs["file"] == file
        found = _file(shown, index.files[file])
        found.parts.append(one)
        found.is_compacted = True
        is_whole = planned["stored"][some] == Stored.WHOLE
        found.is_cut |= not is_whole.all()
        found.rows += int(runs["records"][some][is_whole].sum())
        found.min_entry = min(found.min_entry, int(runs["min_commit_entry"][some].min()))
        found.max_entry = max(found.max_entry, int(runs["max_commit_entry"][some].max()))


def _by_file(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield the rows (PLANNED) of each file, by its number."""
    if not len(rows):
        return
    ordered = rows[np.argsort(rows["file"], kind="stable")]
    for some in np.split(ordered, np.flatnonzero(np.diff(ordered["file"])) + 1):
        yield int(some["file"][0]), some


def _file(shown: ShownTopic, record: FileRecord) -> ShownFile:
    return shown.files.setdefault(record.key, ShownFile(record))


def _count(found: ShownFile, rows: Rows) -> None:
    found.rows += int(rows["take"].sum())
    found.min_entry = min(found.min_entry, int(rows["commit_entry"].min()))
    found.max_entry = max(found.max_entry, int(rows["commit_entry"].max()))
