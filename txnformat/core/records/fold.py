"""Folding appends: their records are in their partitions, from the log ends on. Pure.

Stages, whose records get offsets when their transaction commits, are folded in
:mod:`txnformat.core.transactions.fold`.
"""

from __future__ import annotations

import numpy as np

from txnformat.core.folding import At, corrupt
from txnformat.core.operations import Append, AppendedPartition
from txnformat.core.producers.state import record
from txnformat.core.records.state import EXTENT, PartitionState, Transaction
from txnformat.core.state import EMBEDDING, LogState, UsedAt
from txnformat.core.transactions.fold import (
    Referred,
    check_follows,
    check_numbers,
    ongoing,
    owner_of,
    range_of,
    table_extent,
    time_of,
    topic_of,
)
from txnformat.core.transactions.state import TransactionStatus, is_legal_transition
from txnformat.persistent import Rows, put, replace, update
from txnformat.types import IDEMPOTENT_EPOCH, NO_PRODUCER, BatchRecord, TopicPartition

__all__ = ["apply_append"]


def apply_append(state: LogState, op: Append, at: At) -> LogState:
    """Return the state after an append."""
    topic = topic_of(state, op, at)
    if EMBEDDING not in state.features.reader and any(file.place is not None for file in op.files):
        corrupt(at, "an append embeds files in a log whose readers need not know that", feature=EMBEDDING)
    owner = None
    if op.transactional_id is not None:
        owner = owner_of(state, op.transactional_id, op.producer_id, op.epoch, at)
        if owner.staged or not is_legal_transition(owner.status, TransactionStatus.ONGOING):
            corrupt(
                at, "an append joins a transaction that stages, or is prepared", producer_id=op.producer_id
            )
    elif op.producer_id != NO_PRODUCER:
        state = _used(state, op, at)
    first_file = state.files.end
    table = state.tables.end if op.table else -1
    by_partition: dict[int, list[BatchRecord]] = {}
    for batch in op.batches:
        by_partition.setdefault(batch.partition, []).append(batch)
    changed: dict[TopicPartition, PartitionState] = {}
    started: dict[TopicPartition, int] = {}
    appended = 0
    for part in op.partitions:
        key = TopicPartition(op.topic_id, part.partition)
        partition = changed.get(key) or state.partition(key)
        _check_appended(op, part, partition, topic.partitions, by_partition.get(part.partition, []), at)
        rows = _extents(op, part, by_partition.get(part.partition, []), first_file, table, at)
        changed[key] = _grown(key, partition, op, part, rows, at)
        appended += len(rows)
        if owner is not None and key not in owner.partitions:
            started.setdefault(key, part.base_offset)
    if owner is not None and op.transactional_id is not None:
        joined = ongoing(owner, at, partitions=update(owner.partitions, started))
        state = state.with_transactional_id(op.transactional_id, joined)
    return replace(
        state,
        partitions=update(state.partitions, changed),
        files=state.files.extend(op.files),
        extents=state.extents + appended,
        tables=state.tables.extend((op.table,)) if op.table else state.tables,
    )


def _used(state: LogState, op: Append, at: At) -> LogState:
    """Note that a producer without a transactional id has appended."""
    if op.epoch != IDEMPOTENT_EPOCH:
        corrupt(at, "an append without a transactional id has an epoch", epoch=op.epoch)
    if op.producer_id not in state.producers and not state.may_begin(op.producer_id):
        corrupt(
            at,
            "an append carries a producer id that was never given, is retired, or has a transactional id",
            producer_id=op.producer_id,
        )
    return replace(state, producers=put(state.producers, op.producer_id, UsedAt(at.entry, at.timestamp_ms)))


def _check_appended(
    op: Append,
    part: AppendedPartition,
    partition: PartitionState,
    count: int,
    batches: list[BatchRecord],
    at: At,
) -> None:
    if part.partition >= count or part.base_offset != partition.log_end:
        corrupt(
            at,
            "an append does not begin at the log end",
            partition=part.partition,
            expected=partition.log_end,
            got=part.base_offset,
        )
    check_numbers(part.base_offset, part.base_sequence, part.records, part.partition, at)
    if op.table is None and (
        len(batches) != part.batch_count or sum(batch.records for batch in batches) != part.records
    ):
        corrupt(at, "an append's totals are not those of its batches", partition=part.partition)
    if op.producer_id != NO_PRODUCER:
        check_follows(partition.sequences.get((op.producer_id, op.epoch), ()), part, op.producer_id, at)


def _extents(
    op: Append, part: AppendedPartition, batches: list[BatchRecord], first_file: int, table: int, at: At
) -> Rows:
    transactional = op.transactional_id is not None
    if op.table is not None:
        return table_extent(
            part,
            part.base_offset,
            (op.producer_id, op.epoch),
            Referred(table, op.section, first_file, len(op.files)),
            at,
            transactional=transactional,
        )
    rows = []
    offset, sequence = part.base_offset, part.base_sequence
    for batch in batches:
        times = (time_of(batch.min_timestamp_ms, at), time_of(batch.max_timestamp_ms, at))
        head = (offset, batch.records, op.producer_id, op.epoch, sequence, at.entry, at.timestamp_ms)
        file = (batch.size, first_file + batch.file, -1, first_file, 0)
        place = (*file, batch.row_group, batch.row_group_count, 1, int(transactional), len(op.files))
        rows.append((*head, *times, *place))
        offset += batch.records
        sequence += batch.records if sequence >= 0 else 0
    return np.array(rows, EXTENT)


def _grown(
    key: TopicPartition, partition: PartitionState, op: Append, part: AppendedPartition, rows: Rows, at: At
) -> PartitionState:
    transaction: Transaction = (op.producer_id, op.epoch)
    sequences, opened = partition.sequences, partition.open
    if op.producer_id != NO_PRODUCER:
        window = record(sequences.get(transaction, ()), range_of(part, part.base_offset, at))
        sequences = put(sequences, transaction, window)
        if at.sequences is not None:
            at.sequences.setdefault(transaction, set()).add(key)
    if op.transactional_id is not None and transaction not in opened:
        opened = put(opened, transaction, part.base_offset)
    return replace(
        partition,
        log_end=part.base_offset + part.records,
        open=opened,
        sequences=sequences,
        extents=partition.extents.append(rows),
    )
