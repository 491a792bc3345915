"""Folding seals and spills: offset ranges leave the state for sidecars and other objects, and with them the
files that only they needed.

Pure.
"""

from __future__ import annotations

import numpy as np

from txnformat.core.folding import At, corrupt
from txnformat.core.operations import Seal, SealedPartition, SealedSegment, Spill
from txnformat.core.ownership import check_segment
from txnformat.core.records.state import SEGMENT, PartitionState, SealedTotals, SpilledRange
from txnformat.core.sealing.lists import lists_with
from txnformat.core.sealing.spills import taken_by
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.persistent import replace, update
from txnformat.types import TopicPartition

__all__ = ["after_seals", "apply_seal", "apply_spill"]


def apply_seal(state: LogState, op: Seal, at: At) -> LogState:
    """Return the state after a seal, but for what leaves it with the entry's end (:func:`after_seals`)."""
    if not op.segments and op.segment_list is None:
        corrupt(at, "a seal seals nothing")
    changed: dict[TopicPartition, PartitionState] = {}
    for number, segment in enumerate(op.segments, state.segments.end):
        _seal(state, changed, segment, number, at)
    sealed = replace(
        state,
        partitions=update(state.partitions, changed),
        segments=state.segments.extend([one.record for one in op.segments]),
    )
    at.sealed = (state.files.end, state.tables.end)
    return sealed if op.segment_list is None else _listed(sealed, op, at)


def _seal(
    state: LogState,
    changed: dict[TopicPartition, PartitionState],
    segment: SealedSegment,
    number: int,
    at: At,
) -> None:
    topic_id = segment.record.topic_id
    if topic_id not in state.topics or not segment.partitions:
        corrupt(at, "a sealed segment is of no topic, or of no partition", topic_id=topic_id)
    check_segment(state.topics[topic_id], segment.record, at)
    first_aborted = 0
    for part in segment.partitions:
        key = TopicPartition(topic_id, part.partition)
        partition = changed.get(key) or state.partition(key)
        changed[key] = _sealed(partition, part, number, first_aborted, at)
        first_aborted += part.aborted
    record = segment.record
    for name, sidecar, rows in (
        ("markers", record.markers, sum(part.markers for part in segment.partitions)),
        ("txnindex", record.txnindex, first_aborted),
    ):
        if (sidecar is None) != (rows == 0):
            corrupt(
                at, "a sealed segment has a sidecar exactly when it has rows for it", sidecar=name, rows=rows
            )


def _sealed(
    partition: PartitionState, part: SealedPartition, number: int, first_aborted: int, at: At
) -> PartitionState:
    start, end = part.start_offset, part.end_offset
    if start != partition.sealed_end or not start < end <= partition.last_stable_offset:
        corrupt(
            at,
            "a segment does not go from the sealed end to at most the last stable offset",
            partition=part.partition,
            expected=(partition.sealed_end, partition.last_stable_offset),
            got=(start, end),
        )
    spills = [one for one in partition.spills if one.end_offset <= end]
    left = partition.spills[len(spills) :]
    inside = partition.extents.until("base_offset", end)
    marker_count = len(partition.markers.until("offset", end))
    aborted = partition.aborted.count_below("first_offset", end) + sum(one.aborted for one in spills)
    found = (
        int(inside["batch_count"].sum()) + sum(one.batches for one in spills),
        marker_count + sum(one.markers for one in spills),
        # Of transactions that are aborted in a spill further on only the object says where they began.
        min(max(aborted, part.aborted), aborted + sum(one.aborted for one in left)),
        int(inside["records"].sum()) + sum(one.records for one in spills),
        int(inside["size"].sum()) + sum(one.size for one in spills),
    )
    named = (part.batches, part.markers, part.aborted, part.records, part.size)
    # The partition's rows tile the range, so a cut inside an extent, or a spill, shows as a wrong number of
    # offsets.
    if found != named or part.records + part.markers != end - start:
        corrupt(
            at,
            "a segment's totals are not those of its offsets",
            partition=part.partition,
            expected=found,
            got=named,
        )
    counts = (part.batches, part.markers, first_aborted, part.aborted, part.records, part.size)
    rest = (part.aborted_records, part.aborted_size, part.min_timestamp_ms, part.max_timestamp_ms)
    # A transaction's entry is needed for as long as offsets up to its marker are in the state.
    gone = len(partition.aborted.until("last_offset", end))
    return replace(
        partition,
        sealed_end=end,
        sealed=SealedTotals(
            partition.sealed.records + part.records,
            partition.sealed.size + part.size,
            partition.sealed.aborted_records + part.aborted_records,
            partition.sealed.aborted_size + part.aborted_size,
            partition.sealed.aborted_transactions + gone + sum(one.aborted for one in spills),
        ),
        segments=partition.segments.append(np.array([(start, end, number, *counts, *rest)], SEGMENT)),
        extents=partition.extents.drop(len(inside)),
        markers=partition.markers.drop(marker_count),
        aborted=partition.aborted.drop(gone),
        spills=left,
    )


def apply_spill(state: LogState, op: Spill, at: At) -> LogState:
    """Return the state after a spill, but for the files and tables that leave it with the entry's end
    (:func:`after_seals`).
    """
    if LIFECYCLE not in state.features.reader:
        corrupt(at, "a spill in a log whose readers need not know spills", feature=LIFECYCLE)
    changed: dict[TopicPartition, PartitionState] = {}
    for part in op.partitions:
        key = part.topic_partition
        partition = changed.get(key) or state.partition(key)
        taken = taken_by(partition, state.tables, part)
        if taken is None:
            corrupt(
                at,
                "a spill does not continue the existing spills, above the last stable offset",
                partition=part.partition,
                expected=(partition.spilled_end, partition.last_stable_offset, partition.log_end),
                got=(part.start_offset, part.end_offset, part.replaced),
            )
        named = (part.extents, part.batches, part.markers, part.aborted, part.records, part.size)
        # As of a seal, a cut inside an extent shows as a wrong number of offsets.
        if taken.totals != named or part.records + part.markers != part.end_offset - part.start_offset:
            corrupt(
                at,
                "a spill's totals are not those of its offsets",
                partition=part.partition,
                expected=taken.totals,
                got=named,
            )
        spill = SpilledRange(part.start_offset, part.end_offset, state.tables.end, *named)
        changed[key] = replace(
            partition,
            extents=partition.extents.drop(taken.extents),
            markers=partition.markers.drop(taken.markers),
            aborted=partition.aborted.drop(taken.aborted),
            spills=(*taken.kept, spill),
        )
    spilled = replace(
        state, partitions=update(state.partitions, changed), tables=state.tables.extend((op.table,))
    )
    at.sealed = (spilled.files.end, spilled.tables.end)
    return spilled


def after_seals(state: LogState, at: At) -> LogState:
    """Return the state without what the seals of an entry, all of whose operations it has, have made
    superfluous.
    """
    if at.sealed is None:
        return state
    state = _without_unused(state, *at.sealed)
    if not at.listed:
        return state
    listed = state.listed_segments
    return replace(
        state,
        segments=state.segments.keep({number for number in state.segments.numbers() if number >= listed}),
        partitions={key: _without_listed(one, listed) for key, one in state.partitions.items()},
    )


def _without_unused(state: LogState, files_end: int, tables_end: int) -> LogState:
    """Drop the files and tables with numbers below the ends that no extent, no spill and nothing staged
    refers to any more.
    """
    files = set(range(files_end, state.files.end))
    tables = set(range(tables_end, state.tables.end))
    appends: set[tuple[int, int]] = set()
    count = 0
    for partition in state.partitions.values():
        tables.update(one.table for one in partition.spills)
        extents = partition.extents.array()
        count += len(extents)
        in_table = extents["table"] >= 0
        files.update(extents["file"][~in_table].tolist())
        tables.update(extents["table"][in_table].tolist())
        appends.update(extents[["first_file", "file_count"]][in_table].tolist())
    for name in state.undecided:
        for flush in state.transactional_ids[name].staged:
            tables.add(flush.table)
            appends.add((flush.first_file, flush.file_count))
    for first, number in appends:  # once for each append, which may be in thousands of partitions
        files.update(range(first, first + number))
    return replace(state, files=state.files.keep(files), tables=state.tables.keep(tables), extents=count)


def _listed(state: LogState, op: Seal, at: At) -> LogState:
    if not state.listed_segments <= op.listed_segments <= state.segments.end:
        corrupt(
            at,
            "a segment list goes back",
            expected=f"from {state.listed_segments}, to {state.segments.end}",
            got=op.listed_segments,
        )
    lists = lists_with(state, op)
    if lists is None:
        corrupt(
            at,
            "a segment list does not follow the lists that are there",
            expected=[(one.first, one.key) for one in state.segment_lists],
            got=(op.segment_list and op.segment_list.first, op.replaced_lists),
        )
    at.listed = True
    return replace(state, segment_lists=lists, listed_segments=op.listed_segments)


def _without_listed(partition: PartitionState, listed_segments: int) -> PartitionState:
    rows = partition.segments.array()
    count = int(np.searchsorted(rows["segment"], listed_segments))
    if not count:
        return partition
    return replace(
        partition,
        segments=partition.segments.drop(count),
        listed_end=int(rows["end_offset"][count - 1]),
    )
