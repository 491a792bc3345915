"""Sealing: offset ranges below the last stable offset move from the state into sidecars.

When, what, and the steps.

Without IO, like :mod:`txnformat.protocol.snapshots`. A log that is never sealed is complete; its state only
grows. So every failure here leaves the log as it was, and objects that no entry came to name are left to the
vacuum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.operations import Seal, SealedPartition, SealedSegment
from txnformat.core.records.batch_table import decode_batch_table
from txnformat.core.records.scan import commit_entries, committed, expanded, extents_in
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.lists import taken_in
from txnformat.core.sealing.sidecar import (
    INDEX_ROW,
    MARKER_ROW,
    BatchOutcome,
    encode_index,
    encode_markers,
    encode_txnindex,
)
from txnformat.core.sealing.spills import Spilled, unspilled
from txnformat.core.snapshot.spilled import decode_spill
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.core.transactions.abort_index import AbortedTransaction
from txnformat.errors import CorruptDataError
from txnformat.persistent import Rows
from txnformat.protocol.effects import DrawId, Steps
from txnformat.protocol.follow import get_object
from txnformat.protocol.segment_lists import write_list
from txnformat.protocol.snapshots import OTHERS_PROBABILITY, create_object
from txnformat.protocol.unembedding import KeptPayload, nothing_kept, unembed
from txnformat.types import ObjectRecord, OffsetRange, TopicPartition

__all__ = [
    "SEAL_EXTENTS",
    "list_segments",
    "may_spill",
    "merge_lists",
    "rows_in_state",
    "rows_min",
    "seal_due",
    "sealable",
    "sealable_end",
    "stable_ends",
    "with_spills",
    "within",
    "write_segments",
]

SEAL_EXTENTS = 4_096
"""Extents in the state above which they are sealed."""
PARTITIONS_MAX = 1_000
"""Partitions that one seal takes: it is one entry."""
BATCHES_MAX = 100_000
"""Batches that one seal takes, unless a single append has more in a partition: a reader keeps decoded
sidecars."""
UNSEALABLE_BATCHES = 400_000
"""Batches of one append in one partition above which it is never sealed: no reader would take an ``.index``
so large."""
LISTED_SEGMENTS = 16
"""Sealed segments in the state above which they go to the segment list,"""
LISTED_ROWS = 1_000
"""and their rows: one for each partition of each."""
LIST_ROWS_MAX = 200_000
"""Rows of the largest list that a writer makes beside its work; larger ones are for maintenance."""

ROWS_SHARE = 16
"""A partition has this share of the bound of extents before it is spilled: a spill is an object, and a row of
the state."""


def seal_due(state: LogState, extents_before: int, appended_by_us: bool, uniform: float, bound: int) -> bool:
    """Return whether this process should seal now, right after an entry, before which it had
    ``extents_before`` in the state.

    The author of the entry that crosses the bound (inclusive: so many need no sealing) seals. Should that
    author die, or should an open transaction have held back what could be sealed (and be spilled, where the
    log allows that), others do beyond twice the bound, each with probability 1/16 per own commit; ``uniform``
    is in [0, 1), drawn anew for every entry.
    """
    if not appended_by_us or state.extents <= bound:
        return False
    is_ours = extents_before <= bound or (state.extents > 2 * bound and uniform < OTHERS_PROBABILITY)
    if not is_ours:
        return False
    may_go = sum(_extents(one, wanted) for one, wanted in _ranges(state))
    return 2 * (may_go + held_extents(state, bound)) >= bound


def stable_ends(state: LogState, topic_id: str | None = None) -> dict[TopicPartition, int]:
    """Return the last stable offset of each partition, of one topic or of all."""
    found = {key: partition.last_stable_offset for key, partition in state.partitions.items()}
    return found if topic_id is None else {key: end for key, end in found.items() if key.topic_id == topic_id}


def sealable(
    state: LogState, ends: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, OffsetRange]:
    """Return what a seal of ``state`` takes: of each partition, the offsets; those with most extents first.

    Nothing at or above ``ends`` is taken, and nothing of partitions that are not in it: :func:`stable_ends`
    of an earlier state, for a caller that seals in several steps and comes to an end however much is appended
    meanwhile.
    """
    found = [
        (_extents(partition, wanted), key, wanted)
        for (partition, wanted), key in zip(_ranges(state), sorted(state.partitions), strict=True)
    ]
    found.sort(key=lambda one: (-one[0], one[1]))
    chosen: dict[TopicPartition, OffsetRange] = {}
    left = BATCHES_MAX
    for _, key, whole in found:
        if len(chosen) == PARTITIONS_MAX:
            break
        end = whole.end if ends is None else min(whole.end, ends.get(key, 0))
        # An earlier end may lie inside of what was spilled since.
        end = next((one.start_offset for one in state.partitions[key].spills if one.end_offset > end), end)
        wanted, batches = within(state.partitions[key], OffsetRange(whole.start, end), left)
        if wanted.start < wanted.end and (batches <= left or not chosen):
            chosen[key] = wanted
            left -= batches
    return chosen


def _ranges(state: LogState) -> list[tuple[PartitionState, OffsetRange]]:
    partitions = [state.partitions[key] for key in sorted(state.partitions)]
    return [(one, OffsetRange(one.sealed_end, sealable_end(one))) for one in partitions]


def sealable_end(partition: PartitionState) -> int:
    """Return where a partition can be sealed up to: the last stable offset, a spill that it is inside of, or
    an append that is too large.
    """
    end = partition.last_stable_offset
    for one in partition.spills:
        if one.end_offset > end or one.batches > UNSEALABLE_BATCHES:
            return one.start_offset
    extents = extents_in(partition, OffsetRange(partition.spilled_end, end))
    too_large = np.flatnonzero(extents["batch_count"] > UNSEALABLE_BATCHES)
    return int(extents["base_offset"][too_large[0]]) if len(too_large) else end


def _extents(partition: PartitionState, wanted: OffsetRange) -> int:
    """Return how many extents a range from the sealed end on has, spilled ones included."""
    spilled = sum(one.extents for one in partition.spills if one.end_offset <= wanted.end)
    return spilled + len(extents_in(partition, wanted))


def within(partition: PartitionState, wanted: OffsetRange, batches_max: int) -> tuple[OffsetRange, int]:
    """Return as much of ``wanted``, from its start, as has that many batches, but at least an extent or a
    spill; and how many it has.

    A spill is taken whole; ``wanted`` begins at one or behind all of them, and ends inside of none.
    """
    taken = 0
    for one in partition.spills:
        if wanted.start < one.end_offset <= wanted.end:
            if taken and taken + one.batches > batches_max:
                return OffsetRange(wanted.start, one.start_offset), taken
            taken += one.batches
    extents = extents_in(partition, OffsetRange(max(wanted.start, partition.spilled_end), wanted.end))
    batches = taken + np.cumsum(extents["batch_count"], dtype=np.int64)
    if not len(batches) or batches[-1] <= batches_max:
        return wanted, int(batches[-1]) if len(batches) else taken
    count = max(0 if taken else 1, int(np.searchsorted(batches, batches_max, side="right")))
    end = int(extents["base_offset"][count]) if count < len(extents) else wanted.end
    if not count and partition.spilled_end <= end:
        end = partition.spilled_end
    return OffsetRange(wanted.start, end), int(batches[count - 1]) if count else taken


def write_segments(
    state: LogState, ends: Mapping[TopicPartition, int] | None = None, kept: KeptPayload = nothing_kept
) -> Steps[Seal | None]:
    """Write the sidecars of what one seal takes (:func:`sealable`); the caller commits it.

    None: nothing can be sealed. ``kept``: payloads that need not be fetched.

    A damaged payload holds back its partitions from there on, and nothing else. Raises CorruptDataError about
    it when nothing else is left.

    Requests: a GET for each batch table in range and each spill from there on, a PUT for each of the up to
    three sidecars of each topic; what embedded files take (:func:`~txnformat.protocol.unembedding.unembed`);
    rarely those of a segment list (:func:`~txnformat.protocol.segment_lists.write_list`).
    """
    wanted = sealable(state, ends)
    state = yield from with_spills(state, {key: one.start for key, one in wanted.items()})
    tables: dict[int, Rows] = {}
    damage: CorruptDataError | None = None
    segments: list[SealedSegment] = []
    topics = sorted({key.topic_id for key in wanted})
    while topics:
        ranges = {key.partition: wanted[key] for key in sorted(wanted) if key.topic_id == topics[0]}
        try:
            if ranges:
                segments.append((yield from _write_segment(state, topics[0], ranges, tables, kept)))
            del topics[0]
        except CorruptDataError as error:
            left = _before_damage(state, wanted, topics[0], error)
            if left is None:
                raise
            wanted, damage = left, damage or error
    if damage is not None and not segments:
        raise damage
    if _is_listing_due(state):
        listed = yield from write_list(state, LIST_ROWS_MAX)
        return Seal(tuple(segments), listed.record, state.segments.end, replaced_lists=listed.replaced)
    return Seal(tuple(segments)) if segments else None


def _before_damage(
    state: LogState, wanted: Mapping[TopicPartition, OffsetRange], topic_id: str, error: CorruptDataError
) -> dict[TopicPartition, OffsetRange] | None:
    """Return what can be sealed without the entry that cannot be read, in which the topic has rows; None: the
    error is about none such.
    """
    entry = keys.parse_entry_key(str(error.values.get("object")))
    left = dict(wanted)
    for key, one in wanted.items():
        if entry is not None and key.topic_id == topic_id:
            extents = extents_in(state.partitions[key], one)
            found = np.flatnonzero(extents["entry"] == entry)
            if len(found):
                end = int(extents["base_offset"][found[0]])
                del left[key]
                if end > one.start:
                    left[key] = OffsetRange(one.start, end)
    return None if left == wanted else left


def _is_listing_due(state: LogState) -> bool:
    return len(state.segments) > LISTED_SEGMENTS or _segment_rows(state) > LISTED_ROWS


def _segment_rows(state: LogState) -> int:
    return sum(len(one.segments) for one in state.partitions.values())


def _write_segment(
    state: LogState,
    topic_id: str,
    ranges: Mapping[int, OffsetRange],
    tables: dict[int, Rows],
    kept: KeptPayload,
) -> Steps[SealedSegment]:
    """Write one segment; ``tables`` are the batch tables that were read already, and gets those that were
    not.
    """
    directory = state.topics[topic_id].directory
    parts: list[_Part] = []
    for number, wanted in ranges.items():
        partition = state.partition(TopicPartition(topic_id, number))
        for table in sorted(set(extents_in(partition, wanted)["table"].tolist()) - {-1} - tables.keys()):
            data = yield from get_object(state.tables[table].key)
            tables[table] = decode_batch_table(data, state.tables[table])
        parts.append(_part(number, partition, wanted, tables))
    rows = np.concatenate([part.rows for part in parts])
    markers = np.concatenate([part.markers for part in parts])
    rows, files = yield from unembed(state, topic_id, rows, kept)
    uuid = yield DrawId()
    named: dict[str, ObjectRecord | None] = {"markers": None, "txnindex": None}
    for kind, data in (
        ("index", encode_index(rows, files)),
        ("markers", encode_markers(markers) if len(markers) else b""),
        ("txnindex", encode_txnindex(part.aborted for part in parts)),
    ):
        if data:
            named[kind] = yield from _create(
                keys.sidecar_key(directory, max(0, state.entry), uuid, kind), data
            )
    index = named["index"]
    assert index is not None  # an Arrow file is never empty
    partitions = tuple(part.operation() for part in parts)
    return SealedSegment(topic_id, index, named["markers"], named["txnindex"], partitions=partitions)


def _create(key: str, data: bytes) -> Steps[ObjectRecord]:
    yield from create_object(key, data)
    return ObjectRecord(key, len(data), sha256_hex(data))


def merge_lists(state: LogState) -> Steps[Seal | None]:
    """Write the list that takes in those that writers left because they are large, or the segments of which
    the state has too many; the caller commits it.

    None: there are none.
    """
    if not _is_listing_due(state) and not taken_in(state.segment_lists, _segment_rows(state)):
        return None
    listed = yield from write_list(state)
    return Seal((), listed.record, state.segments.end, replaced_lists=listed.replaced)


def list_segments(state: LogState) -> Steps[Seal | None]:
    """Write a list of the segments in the state; the caller commits it. None: there are none."""
    if not len(state.segments):
        return None
    listed = yield from write_list(state)
    return Seal((), listed.record, state.segments.end, replaced_lists=listed.replaced)


class _Part(NamedTuple):
    """One partition's rows of the sidecars."""

    number: int
    wanted: OffsetRange
    extents: Rows
    rows: Rows
    markers: Rows
    aborted: list[AbortedTransaction]

    def operation(self) -> SealedPartition:
        aborted = self.rows[self.rows["outcome"] == BatchOutcome.ABORTED]
        return SealedPartition(
            self.number,
            self.wanted.start,
            self.wanted.end,
            len(self.rows),
            len(self.markers),
            len(self.aborted),
            int(self.extents["records"].sum()),
            int(self.extents["size"].sum()),
            int(aborted["records"].sum()),
            int(aborted["size"].sum()),
            int(self.rows["min_timestamp_ms"].min()) if len(self.rows) else 0,
            int(self.rows["max_timestamp_ms"].max()) if len(self.rows) else 0,
        )


def _part(number: int, partition: PartitionState, wanted: OffsetRange, tables: Mapping[int, Rows]) -> _Part:
    extents = extents_in(partition, wanted)
    batches = expanded(extents, number, tables)
    rows = np.zeros(len(batches), INDEX_ROW)
    for name in INDEX_ROW.names or ():
        if name in (batches.dtype.names or ()):
            rows[name] = batches[name]
    rows["partition"] = number
    is_plain = batches["transactional"] == 0
    outcome = np.where(committed(partition, batches), int(BatchOutcome.COMMITTED), int(BatchOutcome.ABORTED))
    rows["outcome"] = np.where(is_plain, int(BatchOutcome.PLAIN), outcome)
    rows["commit_entry"] = commit_entries(partition, batches)
    known = partition.markers.array()
    known = known[known["offset"] < wanted.end]
    markers = np.zeros(len(known), MARKER_ROW)
    for name in MARKER_ROW.names or ():
        markers[name] = number if name == "partition" else known[name]
    return _Part(number, wanted, extents, rows, markers, _aborted(partition, wanted.end))


def _aborted(partition: PartitionState, end: int) -> list[AbortedTransaction]:
    """Return every aborted transaction that overlaps [sealed end, ``end``), in the order of their markers."""
    rows: Any = partition.aborted.array()
    rows = rows[rows["first_offset"] < end]
    fields = ["producer_id", "first_offset", "last_offset", "last_stable_offset"]
    return [AbortedTransaction(*values) for values in rows[fields].tolist()]


def may_spill(state: LogState) -> bool:
    """Return whether the readers of the log know spills."""
    return LIFECYCLE in state.features.reader


def rows_min(bound: int) -> int:
    """Return how many rows a partition has at least before they are spilled.

    ``bound``: of extents in the state.
    """
    return max(1, bound // ROWS_SHARE)


def rows_in_state(partition: PartitionState) -> int:
    """Return how many rows of a partition a spill could take."""
    return len(partition.extents) + len(partition.markers) + len(partition.aborted)


def held_extents(state: LogState, bound: int) -> int:
    """Return how many extents above last stable offsets could be spilled; 0 in a log that does not
    allow it.
    """
    if not may_spill(state):
        return 0
    least = rows_min(bound)
    return sum(
        len(extents_in(one, OffsetRange(max(one.last_stable_offset, one.spilled_end), one.log_end)))
        for one in state.partitions.values()
        if one.open and rows_in_state(one) >= least
    )


def with_spills(state: LogState, starts: Mapping[TopicPartition, int]) -> Steps[LogState]:
    """Return the state with the rows of some partitions in it that were spilled, from an offset of each on.

    Requests: 1 GET for each object. Raises CorruptDataError, StorageError.
    """
    wanted = {
        one.table
        for key, start in starts.items()
        for one in state.partition(key).spills
        if one.end_offset > start
    }
    found: dict[int, Spilled] = {}
    for number in sorted(wanted):
        named = state.tables[number]
        found[number] = decode_spill((yield from get_object(named.key)), named)
    return unspilled(state, starts, found)
