"""Folding what a log forgets or writes anew: idle ids leave the state, log starts move, compacted segments
replace others; features.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from txnformat.core.folding import At, corrupt
from txnformat.core.lifecycle.cleaned import apply_cleaned
from txnformat.core.lifecycle.erased import apply_erased, with_erased
from txnformat.core.lifecycle.operations import CompactedRange, Replace, Trim, TrimmedPartition, VacuumMark
from txnformat.core.lifecycle.truncation import ENTRY_AGE_MS_MIN, is_entry_age
from txnformat.core.operations import Expire, Upgrade
from txnformat.core.ownership import check_segment
from txnformat.core.records.state import PartitionState, SealedTotals
from txnformat.core.sealing.lists import lists_replaced
from txnformat.core.state import LIFECYCLE, Features, LogState, check_features
from txnformat.core.transactions.state import UNDECIDED
from txnformat.persistent import replace, update, without
from txnformat.types import IDEMPOTENT_EPOCH, SegmentRecord, TopicPartition

__all__ = ["apply_expire", "apply_replace", "apply_trim", "apply_upgrade", "apply_vacuum_mark"]


def apply_expire(state: LogState, op: Expire, at: At) -> LogState:
    """Return the state without what the operation names."""
    for name in op.transactional_ids:
        known = state.transactional_ids.get(name)
        if known is None or known.status in UNDECIDED:
            corrupt(at, "a transactional id expires that is not there or not idle", transactional_id=name)
    for producer_id in op.producers:
        if producer_id not in state.producers:
            corrupt(at, "a producer expires that is not there", producer_id=producer_id)
    for first in op.blocks:
        if first not in state.blocks:
            corrupt(at, "a block of producer ids expires that is not there", first=first)
    for name in op.groups:
        if name not in state.groups or state.groups[name].pending:
            corrupt(at, "a group expires that is not there, or has pending positions", group=name)
    for names in (sorted(op.transactional_ids), op.producers, op.blocks, sorted(op.groups)):
        if any(later <= earlier for earlier, later in pairwise(names)):  # type: ignore[operator]
            corrupt(at, "something expires twice", names=list(names)[:10])
    gone = frozenset((producer_id, IDEMPOTENT_EPOCH) for producer_id in op.producers)
    owned = [state.transactional_ids[name].producer_id for name in op.transactional_ids]
    return replace(
        state.without_groups(op.groups),
        transactional_ids=without(state.transactional_ids, op.transactional_ids),
        owners=without(state.owners, owned),
        producers=without(state.producers, op.producers),
        retired_below=max([state.retired_below, *(producer_id + 1 for producer_id in op.producers)]),
        blocks=without(state.blocks, op.blocks),
        partitions=_without_sequences(state, gone, at) if gone else state.partitions,
    )


def _without_sequences(
    state: LogState, gone: frozenset[tuple[int, int]], at: At
) -> Mapping[TopicPartition, PartitionState]:
    if at.sequences is None:
        at.sequences = {}
        for key, one in state.partitions.items():
            for producer in one.sequences:
                at.sequences.setdefault(producer, set()).add(key)
    changed: dict[TopicPartition, PartitionState] = {}
    for producer in gone:
        for key in at.sequences.pop(producer, ()):
            one = changed.get(key) or state.partitions[key]
            changed[key] = replace(one, sequences=without(one.sequences, (producer,)))
    return update(state.partitions, changed)


def apply_trim(state: LogState, op: Trim, at: At) -> LogState:
    """Return the state with later log starts."""
    topic = state.topics.get(op.topic_id)
    if topic is None or LIFECYCLE not in state.features.reader:
        corrupt(
            at,
            "a trim is of no topic, or of a log without the feature",
            topic_id=op.topic_id,
            feature=LIFECYCLE,
        )
    changed: dict[TopicPartition, PartitionState] = {}
    for part in op.partitions:
        key = TopicPartition(op.topic_id, part.partition)
        if key in changed:
            corrupt(at, "a partition is trimmed twice", topic=topic.name, partition=part.partition)
        changed[key] = _trimmed(state.partition(key), part, at)
    return replace(state, partitions=update(state.partitions, changed))


def _trimmed(partition: PartitionState, part: TrimmedPartition, at: At) -> PartitionState:
    if not partition.log_start < part.log_start <= partition.sealed_end:
        corrupt(
            at,
            "a log start does not go from the old one to at most the sealed end",
            partition=part.partition,
            expected=f"above {partition.log_start}, at most {partition.sealed_end}",
            got=part.log_start,
        )
    sealed = partition.sealed
    rest = SealedTotals(
        sealed.records - part.records,
        sealed.size - part.size,
        sealed.aborted_records - part.aborted_records,
        sealed.aborted_size - part.aborted_size,
        sealed.aborted_transactions,
    )
    if (
        part.commit_entry >= at.entry
        or not 0 <= rest.aborted_records <= rest.records
        or not 0 <= rest.aborted_size <= rest.size
    ):
        corrupt(
            at,
            "a trim removes what its partition does not have",
            partition=part.partition,
            expected=sealed,
            got=part,
        )
    return replace(
        partition,
        log_start=part.log_start,
        sealed=rest,
        trimmed_entry=max(partition.trimmed_entry, part.commit_entry),
    )


def apply_vacuum_mark(state: LogState, op: VacuumMark, at: At) -> LogState:
    """Return the state with a higher floor, which no longer remembers what was deleted below it."""
    if not state.vacuum_floor < op.floor < at.entry or LIFECYCLE not in state.features.reader:
        corrupt(
            at,
            "a floor does not go up to an earlier entry, or the log lacks the feature",
            expected=f"above {state.vacuum_floor}, below {at.entry}",
            got=op.floor,
            feature=LIFECYCLE,
        )
    # Of what was deleted below, no object can be named any more.
    passed = [directory for directory, gone in state.deleted.items() if gone.entry < op.floor]
    deleted = without(state.deleted, passed) if passed else state.deleted
    return replace(state, vacuum_floor=op.floor, deleted=deleted)


def apply_replace(state: LogState, op: Replace, at: At) -> LogState:
    """Return the state after listed segments were compacted: lists and totals change, offsets do not."""
    topic = state.topics.get(op.topic_id)
    if topic is None or LIFECYCLE not in state.features.reader:
        corrupt(at, "a compaction is of no topic, or of a log without the feature", topic_id=op.topic_id)
    lists = lists_replaced(state, op)
    if lists is None or len({one.replaced for one in op.lists}) < len(op.lists):
        corrupt(
            at,
            "a compaction replaces segment lists that are not there",
            expected=[(one.first, one.key) for one in state.segment_lists],
            got=[(one.segment_list.first, one.replaced) for one in op.lists],
        )
    parts: dict[int, list[CompactedRange]] = {}
    for segment in op.segments:
        check_segment(topic, SegmentRecord(op.topic_id, segment.index), at)
        for part in segment.partitions:
            parts.setdefault(part.partition, []).append(part)
    changed: dict[TopicPartition, PartitionState] = {}
    for number, ranges in parts.items():
        key = TopicPartition(op.topic_id, number)
        changed[key] = _compacted(state.partition(key), ranges, at)
    numbers = [cleaned.partition for cleaned in op.cleaned]
    if not topic.schema.key_columns and numbers:
        corrupt(at, "a key compaction is of a topic without key columns", topic=topic.name)
    if sorted({*numbers} & parts.keys()) != numbers:
        corrupt(
            at,
            "partitions of a key compaction do not ascend, or none of their ranges is replaced",
            got=numbers,
        )
    for cleaned in op.cleaned:
        key = TopicPartition(op.topic_id, cleaned.partition)
        changed[key] = apply_cleaned(changed[key], cleaned, at)
    if op.erased is not None:
        state, entries = apply_erased(state, op.topic_id, op.erased, set(parts), at)
        for number, commit_entry in entries.items():
            key = TopicPartition(op.topic_id, number)
            changed[key] = with_erased(changed[key], commit_entry)
    return replace(state, partitions=update(state.partitions, changed), segment_lists=lists)


def _compacted(partition: PartitionState, ranges: list[CompactedRange], at: At) -> PartitionState:
    end = partition.log_start
    for part in ranges:
        begins = max(part.start_offset, partition.log_start)
        if not (begins >= end and begins < part.end_offset <= partition.listed_end):
            corrupt(
                at,
                "compacted offsets are not in order between the log start and the end of what is listed",
                partition=part.partition,
                expected=(end, partition.listed_end),
                got=(part.start_offset, part.end_offset),
            )
        end = part.end_offset
        if part.revision != partition.revision:
            corrupt(
                at,
                "a compaction is of another revision of its partition",
                partition=part.partition,
                expected=partition.revision,
                got=part.revision,
            )
        if (
            part.records
            > min(part.old_records - part.old_aborted_records, part.end_offset - part.start_offset)
            or part.old_aborted_size > part.old_size
            or not min(1, part.records) <= part.runs <= part.records
        ):
            corrupt(
                at, "a compacted segment has more than what it replaces", partition=part.partition, got=part
            )
    sealed = partition.sealed
    stays = [
        getattr(sealed, name) - sum(getattr(part, f"old_{name}") for part in ranges)
        for name in ("records", "size", "aborted_records", "aborted_size")
    ]
    records, size, aborted_records, aborted_size = stays
    if min(stays) < 0 or aborted_records > records or aborted_size > size:
        corrupt(at, "a compaction replaces what its partition does not have", expected=sealed, got=stays)
    rest = SealedTotals(
        records + sum(part.records for part in ranges),
        size + sum(part.size for part in ranges),
        aborted_records,
        aborted_size,
        sealed.aborted_transactions,
    )
    return replace(partition, sealed=rest, revision=partition.revision + 1)


def apply_upgrade(state: LogState, op: Upgrade, at: At) -> LogState:
    """Return the state with the features and the bounds that the operation names."""
    check_features("reader", op.reader)
    longest, age_ms = op.max_transaction_timeout_ms, op.truncate_older_than_ms
    if age_ms is not None and not (LIFECYCLE in op.reader and is_entry_age(age_ms)):
        corrupt(
            at,
            "the log deletes entries younger than allowed, or lacks the feature",
            expected=f"-1, or at least {ENTRY_AGE_MS_MIN}",
            got=age_ms,
            feature=LIFECYCLE,
        )
    return replace(
        state,
        features=Features(frozenset(op.reader), frozenset(op.writer), frozenset(op.maintenance)),
        max_transaction_timeout_ms=state.max_transaction_timeout_ms if longest is None else longest,
        truncate_older_than_ms=state.truncate_older_than_ms if age_ms is None else age_ms,
    )
