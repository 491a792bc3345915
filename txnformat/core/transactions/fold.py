"""Folding what concerns transactions: producers that open, stages, prepared transactions, ends. Pure.

A transaction appends, so that its records have offsets before it is decided, or it stages, and they get
offsets when it commits; never both.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np

from txnformat.core.folding import At, corrupt
from txnformat.core.operations import (
    Append,
    Cause,
    EndTxn,
    GiveUp,
    InitProducer,
    Marker,
    PendingPartition,
    PlacedPartition,
    PrepareTxn,
    Stage,
)
from txnformat.core.ownership import check_files
from txnformat.core.producers.state import AppendedRange, SequenceVerdict, SequenceWindow, classify, record
from txnformat.core.records.state import EXTENT, PartitionState, Transaction, newest_schema
from txnformat.core.state import LIFECYCLE, LogState, TopicState
from txnformat.core.transactions.state import (
    LastEnd,
    StagedFlush,
    TransactionalIdState,
    TransactionStatus,
    is_legal_transition,
)
from txnformat.persistent import Rows, replace, update, without
from txnformat.types import NO_TIMESTAMP_MS, Outcome, TopicPartition

__all__ = [
    "NUMBER_MAX",
    "Referred",
    "apply_stage",
    "check_follows",
    "check_numbers",
    "end_transaction",
    "give_up",
    "init_producer",
    "ongoing",
    "owner_of",
    "prepare_transaction",
    "range_of",
    "table_extent",
    "time_of",
    "topic_of",
]

NUMBER_MAX = 2**62
"""Offsets, sequences and producer ids end below this (exclusive): far above any log, and sums of two fit
int64."""


DecidePending = Callable[[LogState, str, TransactionalIdState, Outcome, At], LogState]
"""Commits or drops the positions and acknowledgements that are pending in a transaction."""


class Referred(NamedTuple):
    """Where the batches of an extent are described: rows of a batch table, and the files that these count."""

    table: int
    section: int
    first_file: int
    file_count: int


def init_producer(state: LogState, op: InitProducer, at: At, decide_pending: DecidePending) -> LogState:
    """Return the state after a producer has opened; see :data:`DecidePending`."""
    known = state.transactional_ids.get(op.transactional_id)
    if known is None:
        expected = (state.next_producer_id, 0)
        next_producer_id = state.next_producer_id + 1
    else:
        expected = (known.producer_id, known.epoch + 1)
        next_producer_id = state.next_producer_id
        if not is_legal_transition(known.status, TransactionStatus.EMPTY):
            corrupt(
                at,
                "a producer opens while its transaction is prepared",
                transactional_id=op.transactional_id,
            )
    if (op.producer_id, op.epoch) != expected:
        corrupt(
            at,
            "a producer opens with the wrong identity",
            transactional_id=op.transactional_id,
            expected=expected,
            got=(op.producer_id, op.epoch),
        )
    last_end = known.last_end if known else None
    if known is not None and known.status is TransactionStatus.ONGOING:
        state = decide_pending(state, op.transactional_id, known, Outcome.ABORT, at)
        state = _ended(state, known, op.aborted, (), Outcome.ABORT, at)
        last_end = LastEnd(known.epoch, Outcome.ABORT, Cause.INIT, at.entry)
    elif op.aborted:
        corrupt(at, "a producer aborts a transaction that is not open", transactional_id=op.transactional_id)
    opened = TransactionalIdState(
        op.producer_id,
        op.epoch,
        TransactionStatus.EMPTY,
        {},
        last_end=last_end,
        timeout_ms=op.timeout_ms,
        deferred_timeout_ms=op.deferred_timeout_ms,
        used_entry=at.entry,
        used_ms=at.timestamp_ms,
    )
    return replace(state, next_producer_id=next_producer_id).with_transactional_id(
        op.transactional_id, opened
    )


def owner_of(
    state: LogState, transactional_id: str, producer_id: int, epoch: int, at: At
) -> TransactionalIdState:
    """Return what is known of a transactional id, which must have this identity."""
    known = state.transactional_ids.get(transactional_id)
    if known is None or (known.producer_id, known.epoch) != (producer_id, epoch):
        corrupt(
            at,
            "an operation carries an identity that its transactional id does not have",
            transactional_id=transactional_id,
            expected=known and (known.producer_id, known.epoch),
            got=(producer_id, epoch),
        )
    return known


def ongoing(owner: TransactionalIdState, at: At, **changes: Any) -> TransactionalIdState:
    """Return the id's state after an operation in its transaction, which may be the first, that changes these
    fields of it.
    """
    fresh = owner.status is not TransactionStatus.ONGOING
    return replace(
        owner,
        status=TransactionStatus.ONGOING,
        started_entry=at.entry if fresh else owner.started_entry,
        started_ms=at.timestamp_ms if fresh else owner.started_ms,
        used_entry=at.entry,
        used_ms=at.timestamp_ms,
        **changes,
    )


def topic_of(state: LogState, op: Append | Stage, at: At) -> TopicState:
    """Return the topic of an append or a stage, which must fit it."""
    topic = state.topics.get(op.topic_id)
    if topic is None or op.partition_count != topic.partitions:
        corrupt(
            at, "records do not fit their topic", topic_id=op.topic_id, partition_count=op.partition_count
        )
    newest = newest_schema(op.files)
    if newest > topic.schema.schema_id:
        corrupt(at, "a file has a schema that its topic does not have", schema_id=newest)
    check_files(topic, op.files, at)
    return topic


def apply_stage(state: LogState, op: Stage, at: At) -> LogState:
    """Return the state after a stage."""
    topic = topic_of(state, op, at)
    owner = owner_of(state, op.transactional_id, op.producer_id, op.epoch, at)
    if owner.partitions or not is_legal_transition(owner.status, TransactionStatus.ONGOING):
        corrupt(at, "a stage joins a transaction that appends, or is prepared", producer_id=op.producer_id)
    sequences: dict[TopicPartition, SequenceWindow] = {}
    for part in op.partitions:
        if (
            part.partition >= topic.partitions
            or (key := TopicPartition(op.topic_id, part.partition)) in sequences
        ):
            corrupt(at, "a stage names a partition wrongly", partition=part.partition)
        check_numbers(0, part.base_sequence, part.records, part.partition, at)
        window = owner.staged_sequences.get(key, ())
        check_follows(window, part, op.producer_id, at)
        sequences[key] = record(window, range_of(part, -1, at))
    flush = StagedFlush(
        op.topic_id, state.tables.end, op.section, state.files.end, len(op.files), op.partitions
    )
    staged_sequences = update(owner.staged_sequences, sequences)
    staging = ongoing(owner, at, staged=(*owner.staged, flush), staged_sequences=staged_sequences)
    return replace(
        state, files=state.files.extend(op.files), tables=state.tables.extend((op.table,))
    ).with_transactional_id(op.transactional_id, staging)


def range_of(part: PendingPartition, base_offset: int, at: At) -> AppendedRange:
    """Return what is remembered of an append or a stage."""
    return AppendedRange(
        part.base_sequence, part.base_sequence + part.records - 1, part.digest, base_offset, at.entry
    )


def prepare_transaction(state: LogState, op: PrepareTxn, at: At) -> LogState:
    """Return the state after a transaction was prepared."""
    known = owner_of(state, op.transactional_id, op.producer_id, op.epoch, at)
    if known.abort_only or not is_legal_transition(known.status, TransactionStatus.PREPARED):
        corrupt(
            at,
            "a transaction is prepared that was not open, or can only be aborted",
            transactional_id=op.transactional_id,
        )
    prepared = replace(known, status=TransactionStatus.PREPARED, used_entry=at.entry, used_ms=at.timestamp_ms)
    return state.with_transactional_id(op.transactional_id, prepared)


def end_transaction(state: LogState, op: EndTxn, at: At, decide_pending: DecidePending) -> LogState:
    """Return the state after the end of a transaction; see :data:`DecidePending`."""
    known = owner_of(state, op.transactional_id, op.producer_id, op.epoch, at)
    commit = op.outcome is Outcome.COMMIT
    target = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
    if not is_legal_transition(known.status, target):
        corrupt(at, "a transaction ends that was not open", transactional_id=op.transactional_id)
    if commit and op.cause is not Cause.PRODUCER:
        corrupt(at, "a client other than its producer commits a transaction", cause=op.cause.value)
    if commit and known.abort_only:
        corrupt(at, "a transaction commits that can only be aborted", transactional_id=op.transactional_id)
    if op.cause is Cause.TIMEOUT and known.status is TransactionStatus.PREPARED:
        corrupt(at, "a timeout ends a prepared transaction", transactional_id=op.transactional_id)
    state = decide_pending(state, op.transactional_id, known, op.outcome, at)
    state = _ended(state, known, op.markers, op.placed, op.outcome, at)
    ended = TransactionalIdState(
        op.producer_id,
        op.epoch + 1,
        target,
        {},
        last_end=LastEnd(op.epoch, op.outcome, op.cause, at.entry),
        timeout_ms=known.timeout_ms,
        deferred_timeout_ms=known.deferred_timeout_ms,
        used_entry=at.entry,
        used_ms=at.timestamp_ms,
    )
    return state.with_transactional_id(op.transactional_id, ended)


def _ended(
    state: LogState,
    known: TransactionalIdState,
    markers: tuple[Marker, ...],
    placed: tuple[PlacedPartition, ...],
    outcome: Outcome,
    at: At,
) -> LogState:
    """Return the state after the markers that end the transaction of ``known``: what was staged has its
    place.
    """
    if outcome is Outcome.COMMIT:
        state = _place(state, known, placed, at)
    else:
        if placed:
            corrupt(at, "an abort gives offsets", producer_id=known.producer_id)
        _forget_staged(known, at)
    expected = set(known.partitions) | {part.topic_partition for part in placed}
    return _marked(state, known, markers, expected, outcome, at)


def _marked(
    state: LogState,
    known: TransactionalIdState,
    markers: tuple[Marker, ...],
    expected: AbstractSet[TopicPartition],
    outcome: Outcome,
    at: At,
) -> LogState:
    """Return the state with the markers of a transaction, one in each of the expected partitions."""
    places = [marker.topic_partition for marker in markers]
    if len(places) != len(expected) or expected - set(places):
        corrupt(
            at, "markers are not in exactly the partitions of the transaction", producer_id=known.producer_id
        )
    changed: dict[TopicPartition, PartitionState] = {}
    for marker, place in zip(markers, places, strict=True):
        partition = state.partitions[place]
        if marker.offset != partition.log_end:
            corrupt(at, "a marker is not at the log end", expected=partition.log_end, got=marker.offset)
        changed[place] = partition.with_marker(
            (known.producer_id, known.epoch), outcome is Outcome.COMMIT, at.entry, at.timestamp_ms
        )
    return replace(state, partitions=update(state.partitions, changed))


def give_up(state: LogState, op: GiveUp, at: At) -> LogState:
    """Return the state after a prepared transaction has lost what it had in some partitions; its end has no
    marker there.
    """
    known = owner_of(state, op.transactional_id, op.producer_id, op.epoch, at)
    lost = {marker.topic_partition for marker in op.markers}
    if (
        known.status is not TransactionStatus.PREPARED
        or not lost <= known.partitions.keys()
        or LIFECYCLE not in state.features.reader
    ):
        corrupt(
            at,
            "what a transaction has in a partition is given up, but it has nothing there or is not "
            "prepared, or the log lacks the feature",
            transactional_id=op.transactional_id,
            feature=LIFECYCLE,
        )
    state = _marked(state, known, op.markers, lost, Outcome.ABORT, at)
    kept = replace(known, partitions=without(known.partitions, lost))
    return state.with_transactional_id(op.transactional_id, kept)


def _forget_staged(known: TransactionalIdState, at: At) -> None:
    """Forget what was staged, at the entry's end: the files are left to the vacuum."""
    for flush in known.staged:
        at.dropped_tables.add(flush.table)
        at.dropped_files.update(range(flush.first_file, flush.first_file + flush.file_count))


def _place(
    state: LogState, known: TransactionalIdState, placed: tuple[PlacedPartition, ...], at: At
) -> LogState:
    """Give everything that was staged its offsets: per partition one run from the log end, in the order of
    the stages.
    """
    ends: dict[TopicPartition, int] = {}
    for part in placed:
        log_end = state.partition(part.topic_partition).log_end
        if part.base_offset != log_end or part.topic_partition in ends:
            corrupt(
                at,
                "staged records do not go to the log end",
                partition=part.partition,
                expected=log_end,
                got=part.base_offset,
            )
        check_numbers(part.base_offset, 0, part.records, part.partition, at)
        ends[part.topic_partition] = part.base_offset
    if {part.topic_partition: part.records for part in placed} != known.staged_records():
        corrupt(at, "a commit gives no offsets to the staged records", producer_id=known.producer_id)
    transaction = (known.producer_id, known.epoch)
    rows: dict[TopicPartition, list[Rows]] = {}
    for flush in known.staged:
        where = Referred(flush.table, flush.section, flush.first_file, flush.file_count)
        for staged in flush.partitions:
            key = TopicPartition(flush.topic_id, staged.partition)
            rows.setdefault(key, []).append(
                table_extent(staged, ends[key], transaction, where, at, transactional=True)
            )
            ends[key] += staged.records
    changed: dict[TopicPartition, PartitionState] = {}
    for key, extents in rows.items():
        partition = state.partition(key)
        changed[key] = replace(
            partition, log_end=ends[key], extents=partition.extents.append(np.concatenate(extents))
        )
    return replace(
        state,
        partitions=update(state.partitions, changed),
        extents=state.extents + sum(map(len, rows.values())),
    )


def table_extent(
    part: PendingPartition,
    base_offset: int,
    transaction: Transaction,
    where: Referred,
    at: At,
    *,
    transactional: bool,
) -> Rows:
    """Return the extent that stands for all batches of a partition in one section of a batch table."""
    times = (time_of(part.min_timestamp_ms, at), time_of(part.max_timestamp_ms, at))
    whole = (base_offset, part.records, *transaction, part.base_sequence, at.entry, at.timestamp_ms)
    place = (part.size, -1, where.table, where.first_file, where.section, 0, 0, part.batch_count)
    return np.array([(*whole, *times, *place, int(transactional), where.file_count)], EXTENT)


def time_of(timestamp_ms: int, at: At) -> int:
    """Return a time of records; log time when they have none."""
    return at.timestamp_ms if timestamp_ms == NO_TIMESTAMP_MS else timestamp_ms


def check_numbers(base_offset: int, base_sequence: int, records: int, partition: int, at: At) -> None:
    """Refuse offsets and sequences beyond the largest."""
    if max(base_offset, base_sequence) + records > NUMBER_MAX:
        corrupt(at, "an append goes beyond the largest offset", partition=partition, records=records)


def check_follows(window: SequenceWindow, part: PendingPartition, producer_id: int, at: At) -> None:
    """Refuse sequences that do not follow those of ``window``."""
    verdict, _ = classify(window, part.base_sequence, part.records, part.digest)
    if verdict is not SequenceVerdict.NEW:
        corrupt(
            at,
            "an append's sequence does not follow",
            producer_id=producer_id,
            partition=part.partition,
            base_sequence=part.base_sequence,
        )
