"""Reading in the order of commits: what the entries of a window committed, and where windows may end.

A record belongs to exactly one entry, the one that committed it (docs/internals/spec.md, section 6). So a
window of entries (since, until] shows each transaction whole or not at all, nothing waits for a last stable
offset, and windows that follow each other show every committed record once. Only metadata objects are fetched
here.

Two facts keep it cheap. Appends stand in the order of their entries, and nothing is committed before it is
appended: what lies behind an append of a later entry than ``until`` is not in the window. And below a
partition's *floor* nothing is committed any more: it is never looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

import numpy as np

from txnformat.core.records.scan import (
    PLANNED,
    PartitionPlan,
    check_not_trimmed,
    commit_entries,
    expanded,
    extents_in,
    planned,
)
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.sidecar import SegmentIndex
from txnformat.core.state import LogState, TopicState
from txnformat.errors import InvalidInputError, NotFoundError, OffsetOutOfRangeError
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.plan import Keep, plan_filter, read_tables, topic_predicate
from txnformat.reading.run_commits import in_commit_order, planned_by_commit, run_commits
from txnformat.reading.sealed import SidecarCache
from txnformat.types import FileRecord, OffsetRange, TopicPartition

__all__ = ["CommitWindow", "committed_between", "committed_sizes", "next_end"]

COMMITTED: np.dtype[Any] = np.dtype([("entry", "<i8"), ("records", "<i8"), ("size", "<i8")])
"""A row for each entry that committed records; ``size`` in compressed bytes."""


@dataclass(frozen=True, slots=True)
class CommitWindow:
    """The records that the entries of a window committed in a topic.

    The same window has the same rows on every later state.
    """

    since: int
    """Entry, exclusive."""
    until: int
    """Entry, inclusive."""
    partitions: tuple[PartitionPlan, ...]
    """The rows of every partition by commit entry, then offset, all of them whole batches; ``range`` is the
    range that was looked at."""
    files: Mapping[int, FileRecord]
    """File records, by the numbers that the rows have in ``file``."""
    floors: tuple[int, ...]
    """For every partition an offset below which no entry after ``until`` commits anything, ever; at least the
    one given."""


def committed_between(
    sidecars: SidecarCache,
    state: LogState,
    topic: TopicState | str,
    since: int,
    until: int,
    *,
    floors: Sequence[int] = (),
    where: str | Predicate | None = None,
) -> CommitWindow:
    """Plan to read what the entries of (``since``, ``until``] committed in a topic.

    ``since``, ``until``: entries; -1 is before the first one. ``floors``: by partition, those of a window
    that ended at ``since`` or before. Partitions that are missing at its end begin at their log start.
    ``where``: SQL condition on the records. It leaves out batches in which it cannot be true; the reader
    applies it to the others. Raises NotFoundError: kind ``unknown-topic``; kind ``version-trimmed``: records
    from a floor on, of entries after ``since``, were removed; kind ``unknown-version``: ``until`` is not an
    entry of the state; OffsetOutOfRangeError: a floor is not an offset of its partition; InvalidInputError:
    kind ``invalid-version``: the window ends before it begins; kind ``invalid-where``; CorruptDataError,
    StorageError: a batch table or sidecar is not what the log says, or cannot be read.

    Requests: 1 GET for each sealed segment from the floors on, up to the one in which an append of a later
    entry than ``until`` stands, for each batch table with a batch in the window, and for each spill; none for
    what is kept. Where nothing was appended or ended since, none.
    """
    found = _topic(state, topic)
    if since > until:
        raise InvalidInputError(
            "the window ends before it begins", kind="invalid-version", since=since, until=until
        )
    _check_entry(state, since)
    _check_entry(state, until)
    if where is not None and not isinstance(where, Predicate):
        where = topic_predicate(where, found.schema)
    plans, ends = [], []
    files: dict[int, FileRecord] = {}
    tables: dict[int, Rows] = {}
    for number, floor in enumerate(_floors(state, found, floors)):
        key = TopicPartition(found.topic_id, number)
        if (floors[number] if number < len(floors) else 0) < state.partition(key).log_start:
            check_not_trimmed(state.partition(key), since, found.name, number)
        keep = None if where is None else plan_filter(where, found.name, found.schema, number)
        window = _Window(since, until, OffsetRange(floor, state.partition(key).log_end))
        plan, end = _plan(sidecars, state, key, window, keep, files, tables)
        plans.append(plan)
        ends.append(end)
    return CommitWindow(since, until, tuple(plans), files, tuple(ends))


def committed_sizes(
    sidecars: SidecarCache,
    state: LogState,
    topics: Sequence[TopicState | str],
    since: int,
    until: int,
    floors: Mapping[str, Sequence[int]],
    *,
    rows_enough: int | None = None,
    bytes_enough: int | None = None,
) -> Rows:
    """Return what each of the entries of (``since``, ``until``] committed in some topics.

    ``floors``: as of :func:`committed_between`; topics may be missing. ``rows_enough``, ``bytes_enough``:
    later entries may be left out once there are more records, or compressed bytes, than that. Returns
    ndarray, dtype COMMITTED: ascending by entry; entries that committed nothing there are missing. No batch
    table is opened for it. Raises NotFoundError, OffsetOutOfRangeError, CorruptDataError, StorageError: as
    :func:`committed_between`.
    """
    _check_entry(state, until)
    parts: list[Rows] = []
    rows = size = 0
    for part in _sizes(sidecars, state, topics, since, until, floors):
        parts.append(part)
        rows += int(part["records"].sum())
        size += int(part["size"].sum())
        if _exceeds(rows, rows_enough) or _exceeds(size, bytes_enough):
            break
    return np.concatenate(parts) if parts else np.empty(0, COMMITTED)


def next_end(
    sidecars: SidecarCache,
    state: LogState,
    topics: Sequence[TopicState | str],
    since: int,
    floors: Mapping[str, Sequence[int]],
    *,
    rows_max: int | None = None,
    bytes_max: int | None = None,
    upto: int | None = None,
) -> int:
    """Return where the window that begins at ``since`` ends: at an entry that committed something in the
    topics.

    ``floors``: as of :func:`committed_sizes`. ``rows_max``, ``bytes_max``: records and compressed bytes of a
    window. Windows are cut at entries: one that alone is larger comes whole. ``upto``: no later entry; by
    default the state's last. Returns int: ``since`` where nothing was committed in the topics, whatever else
    the log has got.

    With a limit, segments are opened only until it is exceeded by entries that nothing further on can add to.
    """
    until = state.entry if upto is None else min(upto, state.entry)
    if until <= since:
        return since
    found = committed_sizes(
        sidecars, state, topics, since, until, floors, rows_enough=rows_max, bytes_enough=bytes_max
    )
    if not len(found):
        return since
    fits = np.ones(len(found), np.bool_)
    for name, most in (("records", rows_max), ("size", bytes_max)):
        if most is not None:
            fits &= np.cumsum(found[name]) <= most
    return int(found["entry"][max(1, int(np.count_nonzero(fits))) - 1])


class _Window(NamedTuple):
    """A window of entries in one partition."""

    since: int
    until: int
    offsets: OffsetRange
    """From the floor to the log end."""


def _plan(
    sidecars: SidecarCache,
    state: LogState,
    key: TopicPartition,
    window: _Window,
    keep: Keep | None,
    files: dict[int, FileRecord],
    tables: dict[int, Rows],
) -> tuple[PartitionPlan, int]:
    """Return what to read of a partition, and its floor afterwards; ``files`` and ``tables`` get what they
    lack.
    """
    partition = state.partition(key)
    floor, end = window.offsets
    readable = OffsetRange(partition.log_start, end)
    undecided = min([end, *partition.open.values()])
    if _is_over(partition, state, window):
        # With nothing younger than the window only what is open can still be committed.
        is_last = _newest(partition, state) <= window.until
        nothing = PartitionPlan(key.partition, OffsetRange(floor, floor), np.empty(0, PLANNED))
        return nothing, max(floor, undecided) if is_last else floor
    parts: list[Rows] = []
    later = end
    """The first offset that a later entry commits, as far as was looked."""
    stop = None
    topic = state.topics[key.topic_id]
    for opened in _open(sidecars, state, key, window.offsets):
        rows = opened.rows
        if opened.segment.is_compacted:
            later = min(later, _first_later_run(sidecars, topic, opened, window))
            rows = rows[
                (rows["max_commit_entry"] > window.since) & (rows["min_commit_entry"] <= window.until)
            ]
            rows = rows if keep is None else rows[keep(rows)]
            parts.append(planned_by_commit(rows, readable, window.since, window.until))
        else:
            later = min(later, _first_later(rows, rows["commit_entry"], window))
            rows = rows[_inside(rows["commit_entry"], window)]
            rows = rows if keep is None else rows[keep(rows)]
            parts.append(planned(rows, readable, rows["commit_entry"]))
        files |= {number: opened.segment.files[number] for number in set(rows["file"].tolist())}
        if opened.is_behind(window.until):
            stop = opened.range.end
            break
    if stop is None:
        state = sidecars.whole(state, key, window.offsets)
        partition = state.partition(key)
        extents, stop = _appended(partition, window)
        entries = commit_entries(partition, extents)
        later = min(later, undecided, _first_later(extents, entries, window))
        extents = extents[_inside(entries, window)]
        extents = extents if keep is None else extents[keep(extents)]
        read_tables(sidecars, state, extents, tables)
        batches = expanded(extents, key.partition, tables)
        batches = batches if keep is None else batches[keep(batches)]
        rows = planned(batches, readable, commit_entries(partition, batches))
        parts.append(rows)
        files |= {number: state.files[number] for number in set(rows["file"].tolist())}
    found = in_commit_order(sidecars, topic, files, np.concatenate(parts))
    return PartitionPlan(key.partition, OffsetRange(floor, stop), found), max(floor, min(later, stop))


class _Opened(NamedTuple):
    """A partition's part of a sealed segment."""

    range: OffsetRange
    segment: SegmentIndex
    rows: Rows
    """Rows of dtype INDEX_ROW, or RUN_ROW of a compacted segment, from the floor on."""

    @property
    def newest(self) -> int:
        """Return the entry that appended the last of its records: what lies further on is not older; 0
        without records.
        """
        name = "max_entry" if self.segment.is_compacted else "entry"
        return int(self.rows[name][-1]) if len(self.rows) else 0

    def is_behind(self, entry: int) -> bool:
        """Return whether everything further on was appended after an entry."""
        return self.newest > entry


def _open(
    sidecars: SidecarCache, state: LogState, key: TopicPartition, wanted: OffsetRange
) -> Iterator[_Opened]:
    """Open a partition's sealed segments in the order of their offsets, but those in which all was
    aborted.
    """
    for part in sidecars.segments(state, key, wanted):
        if part.row["records"] > part.row["aborted_records"]:
            segment = sidecars.index(part.record.index)
            yield _Opened(part.range, segment, segment.rows_from(key.partition, part.range, wanted.start))


def _appended(partition: PartitionState, window: _Window) -> tuple[Rows, int]:
    """Return the unsealed extents that were appended up to the end of the window, and where others begin."""
    extents = extents_in(partition, window.offsets)
    count = int(np.searchsorted(extents["entry"], window.until, side="right"))
    stop = window.offsets.end if count == len(extents) else int(extents["base_offset"][count])
    return extents[:count], stop


def _inside(entries: Rows, window: _Window) -> Rows:
    """Tell for each commit entry whether it is in the window: THE rule of reads in the order of commits."""
    inside: Rows = (entries > window.since) & (entries <= window.until)
    return inside


def _first_later(rows: Rows, entries: Rows, window: _Window) -> int:
    """Return the first offset that an entry after the window commits; the log end where there is none."""
    later = np.flatnonzero(entries > window.until)
    return int(rows["base_offset"][later[0]]) if len(later) else window.offsets.end


def _first_later_run(sidecars: SidecarCache, topic: TopicState, opened: _Opened, window: _Window) -> int:
    """Return the first offset of a compacted segment that an entry after the window commits; the log end
    where there is none.
    """
    runs = opened.rows
    for place in np.flatnonzero(runs["max_commit_entry"] > window.until).tolist():
        if runs["min_commit_entry"][place] > window.until:
            return int(runs["start_offset"][place])
        found = run_commits(sidecars, topic, opened.segment.files, runs[place : place + 1])
        return int(found["start_offset"][found["entry"] > window.until].min())
    return window.offsets.end


def _newest(partition: PartitionState, state: LogState) -> int:
    """Return the last entry that appended to a partition, or ended a transaction there; a later one when all
    is sealed.
    """
    last = [int(rows.last()["entry"]) for rows in (partition.extents, partition.markers) if len(rows)]
    return max(last, default=state.entry)


def _is_over(partition: PartitionState, state: LogState, window: _Window) -> bool:
    """Return whether nothing in a partition can be in the window, as far as that can be told without a
    look.
    """
    is_empty = window.since >= window.until or window.offsets.start >= window.offsets.end
    return is_empty or _newest(partition, state) <= window.since


def _sizes(
    sidecars: SidecarCache,
    state: LogState,
    topics: Sequence[TopicState | str],
    since: int,
    until: int,
    floors: Mapping[str, Sequence[int]],
) -> Iterator[Rows]:
    """Yield rows of dtype COMMITTED, ascending by entry over all that is yielded, each entry once and
    complete.

    All partitions are gone through side by side, always the one that is farthest behind: an entry is complete
    once the appends of all partitions have passed it.
    """
    scans = []
    for topic in topics:
        found = _topic(state, topic)
        for number, floor in enumerate(_floors(state, found, floors.get(found.topic_id, ()))):
            key = TopicPartition(found.topic_id, number)
            window = _Window(since, until, OffsetRange(floor, state.partition(key).log_end))
            if not _is_over(state.partition(key), state, window):
                scans.append(_scan(sidecars, state, key, window))
    heap = [(since + 1, number) for number in range(len(scans))]
    heapify(heap)
    pending: list[Rows] = []
    while heap:
        before, number = heap[0]
        part = next(scans[number], None)
        if part is None:
            heappop(heap)
        else:
            pending.append(part.rows)
            heapreplace(heap, (max(before, part.complete_below), number))
        complete_below = heap[0][0] if heap else until + 1
        if complete_below > before:
            rows = np.concatenate(pending)
            is_complete = rows["entry"] < complete_below
            pending = [rows[~is_complete]]
            if is_complete.any():
                yield _by_entry(rows[is_complete])


class _Scanned(NamedTuple):
    """The commits found in a part of a partition."""

    rows: Rows
    """Rows of dtype COMMITTED, in any order."""
    complete_below: int
    """Nothing further on is committed by an entry below."""


def _scan(
    sidecars: SidecarCache, state: LogState, key: TopicPartition, window: _Window
) -> Iterator[_Scanned]:
    """Yield what a partition has in a window, from its floor on."""
    for opened in _open(sidecars, state, key, window.offsets):
        if opened.segment.is_compacted:
            rows = _committed_runs(sidecars, state.topics[key.topic_id], opened, window)
        else:
            rows = _committed(opened.rows, opened.rows["commit_entry"], window)
        yield _Scanned(rows, opened.newest)
        if opened.is_behind(window.until):
            return
    partition = sidecars.whole(state, key, window.offsets).partition(key)
    extents, _ = _appended(partition, window)
    yield _Scanned(_committed(extents, commit_entries(partition, extents), window), window.until + 1)


def _committed(rows: Rows, entries: Rows, window: _Window) -> Rows:
    inside = _inside(entries, window)
    found = np.empty(np.count_nonzero(inside), COMMITTED)
    found["entry"] = entries[inside]
    for name in ("records", "size"):
        found[name] = rows[name][inside]
    return found


def _committed_runs(sidecars: SidecarCache, topic: TopicState, opened: _Opened, window: _Window) -> Rows:
    parts = [np.empty(0, COMMITTED)]
    runs = opened.rows
    for place in np.flatnonzero(
        (runs["max_commit_entry"] > window.since) & (runs["min_commit_entry"] <= window.until)
    ).tolist():
        run = runs[place : place + 1]
        commits = run_commits(sidecars, topic, opened.segment.files, run)
        commits = commits[_inside(commits["entry"], window)]
        rows = np.empty(len(commits), COMMITTED)
        rows["entry"], rows["records"] = commits["entry"], commits["records"]
        rows["size"] = run["size"] * commits["records"] // run["records"]
        parts.append(rows)
    return np.concatenate(parts)


def _by_entry(rows: Rows) -> Rows:
    """Return the sums for each entry."""
    entries, place = np.unique(rows["entry"], return_inverse=True)
    found = np.zeros(len(entries), COMMITTED)
    found["entry"] = entries
    for name in ("records", "size"):
        np.add.at(found[name], place, rows[name])
    return found


def _exceeds(value: int, most: int | None) -> bool:
    return most is not None and value > most


def _topic(state: LogState, topic: TopicState | str) -> TopicState:
    if isinstance(topic, str):
        return state.topic(topic)
    if topic.topic_id not in state.topics:
        raise NotFoundError("no such topic", kind="unknown-topic", topic=topic.name, topic_id=topic.topic_id)
    return topic


def _floors(state: LogState, topic: TopicState, floors: Sequence[int]) -> list[int]:
    """Return where to begin in each partition."""
    count = state.topics[topic.topic_id].partitions
    found = []
    for number in range(max(count, len(floors))):
        partition = state.partition(TopicPartition(topic.topic_id, number))
        floor = floors[number] if number < len(floors) else 0
        if number >= count or not 0 <= floor <= partition.log_end:
            raise OffsetOutOfRangeError(
                "a floor is not an offset of its partition",
                hint="leave floors out: they only save requests",
                topic=topic.name,
                partition=number,
                expected=f"0 to {partition.log_end}" if number < count else f"partitions 0 to {count - 1}",
                got=floor,
            )
        found.append(max(partition.log_start, floor))
    return found


def _check_entry(state: LogState, entry: int) -> None:
    if not -1 <= entry <= state.entry:
        raise NotFoundError(
            "no such version of the log",
            kind="unknown-version",
            hint=f"there are versions 0 to {state.entry}; -1 is before them",
            version=entry,
        )
