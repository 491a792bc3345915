"""The fold: state and entry give the next state. Pure, total on valid logs, and strict on invalid ones.

An entry that does not fit (a wrong base offset, an epoch that goes back, an unknown topic) was not made by a
correct writer: CorruptDataError, and the log stops rather than guess. Time is never a reason to refuse here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from txnformat.core.app_versions.state import NO_VERSION
from txnformat.core.entry import CommitEntry
from txnformat.core.folding import At, corrupt
from txnformat.core.groups.fold import commit_offsets, delete_group, join_group
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.core.lifecycle.erased import (
    apply_abandon_erasure,
    apply_advance_erasure,
    apply_complete_erasure,
    apply_request_erasure,
)
from txnformat.core.lifecycle.fold import apply_expire, apply_replace, apply_trim, apply_vacuum_mark
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    DeleteTopic,
    Replace,
    RequestErasure,
    Trim,
    VacuumMark,
)
from txnformat.core.lifecycle.removal import apply_delete_topic
from txnformat.core.lifecycle.truncation import ENTRY_AGE_MS_MIN, is_entry_age
from txnformat.core.lifecycle.vacuum import check_named
from txnformat.core.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppendedPartition,
    AppVersion,
    Checkpoint,
    CreateTopic,
    EndTxn,
    Expire,
    GiveUp,
    InitProducer,
    Operation,
    PrepareTxn,
    Seal,
    Spill,
    Stage,
    Upgrade,
)
from txnformat.core.ownership import directories, shares_directory
from txnformat.core.producers.state import record
from txnformat.core.records.state import EXTENT, PartitionState, Transaction
from txnformat.core.sealing.fold import after_seals, apply_seal, apply_spill
from txnformat.core.state import (
    COLUMNS,
    EMBEDDING,
    LIFECYCLE,
    Features,
    LogState,
    ProducerIdBlock,
    TopicState,
    UsedAt,
    check_features,
)
from txnformat.core.subscriptions.fold import acknowledge, create_subscription, delete_subscription
from txnformat.core.subscriptions.operations import Ack, CreateSubscription, DeleteSubscription
from txnformat.core.topics.evolution import next_version
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.transactions.fold import (
    NUMBER_MAX,
    Referred,
    apply_stage,
    check_follows,
    check_numbers,
    end_transaction,
    give_up,
    init_producer,
    ongoing,
    owner_of,
    prepare_transaction,
    range_of,
    table_extent,
    time_of,
    topic_of,
)
from txnformat.core.transactions.state import TransactionStatus, is_legal_transition
from txnformat.errors import CorruptDataError
from txnformat.field_types import LOG_PARTITIONS_MAX
from txnformat.persistent import Rows, put, replace, update
from txnformat.types import IDEMPOTENT_EPOCH, NO_PRODUCER, BatchRecord, TopicPartition

__all__ = ["At", "apply", "apply_operation", "finish_entry"]


def apply(state: LogState, entry: CommitEntry, sha256: str) -> LogState:
    """Return the state after ``entry``, whose bytes have this hash: the next link of the chain.

    Raises CorruptDataError (kind ``broken-chain``: it does not chain; ``invalid-entry``: it does not fit the state) and UnsupportedFeatureError (it
    asks readers for a feature that this version does not have).
    """
    for name, expected, got in (
        ("log_id", state.log_id, entry.log_id),
        ("entry", state.entry + 1, entry.entry),
        ("previous", state.entry_sha256, entry.previous),
    ):
        if expected != got:
            raise CorruptDataError(
                "a commit entry does not follow the entry before it",
                kind="broken-chain",
                entry=entry.entry,
                field=name,
                expected=expected,
                got=got,
            )
    at = At(entry.entry, entry.timestamp_ms)
    if state.entry >= 0 and entry.timestamp_ms <= state.timestamp_ms:
        corrupt(at, "log time does not advance", previous=state.timestamp_ms, got=entry.timestamp_ms)
    _check_opens_alone(entry, at)
    for operation in entry.operations:
        state = apply_operation(state, operation, at)
    return finish_entry(state, entry, sha256, at)


def _check_opens_alone(entry: CommitEntry, at: At) -> None:
    """Refuse an entry that opens a transactional id and does something else with it."""
    opened = {op.transactional_id for op in entry.operations if isinstance(op, InitProducer)}
    if not opened or len(entry.operations) == 1:
        return
    named = {
        op.transactional_id
        for op in entry.operations
        if isinstance(op, Append | Stage | CommitOffsets | Ack | PrepareTxn | EndTxn | GiveUp)
        and op.transactional_id is not None
    }
    if opened & named:
        corrupt(
            at,
            "an entry opens a producer, and does something else with its transactional id",
            transactional_ids=sorted(opened & named),
        )


def finish_entry(state: LogState, entry: CommitEntry, sha256: str, at: At) -> LogState:
    """Return the state after ``entry``, all of whose operations ``state`` has; the last part of :func:`apply`."""
    state = after_seals(state, at)
    if at.dropped_tables:
        state = replace(
            state,
            files=state.files.keep({*state.files.numbers()} - at.dropped_files),
            tables=state.tables.keep({*state.tables.numbers()} - at.dropped_tables),
        )
    return replace(
        state,
        entry=entry.entry,
        entry_sha256=sha256,
        timestamp_ms=entry.timestamp_ms,
        window=state.window.push(entry.entry, entry.intents),
    )


def apply_operation(state: LogState, operation: Operation, at: At) -> LogState:
    """Return the state after one operation of entry ``at``."""
    check_named(state, operation, at)
    return _FOLDS[type(operation)](state, operation, at)


def _upgrade(state: LogState, op: Upgrade, at: At) -> LogState:
    check_features("reader", op.reader)
    longest, age_ms = op.max_transaction_timeout_ms, op.truncate_older_than_ms
    if age_ms is not None and not (LIFECYCLE in op.reader and is_entry_age(age_ms)):
        corrupt(
            at,
            "a log lets entries go that are too young, or lacks the feature",
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


def _create_topic(state: LogState, op: CreateTopic, at: At) -> LogState:
    if op.name in state.topic_ids or op.topic_id in state.topics:
        corrupt(at, "a topic is created twice", topic=op.name, topic_id=op.topic_id)

    def taken() -> set[str]:
        if at.directories is None:
            at.directories = set(directories(state).values())
        return at.directories

    if op.directory in state.deleted or shares_directory(op.directory, taken):
        corrupt(at, "a topic has the directory of another topic", topic=op.name, directory=op.directory)
    if at.directories is not None:
        at.directories.add(op.directory)
    _check_room(state, op.partitions, at)
    schema = TopicSchema.from_json(op.fields, op.key_columns, op.timestamp_column)
    topic = TopicState(op.topic_id, op.name, op.directory, op.partitions, schema, op, at.entry, op.settings)
    return replace(
        state,
        topics=put(state.topics, op.topic_id, topic),
        topic_ids=put(state.topic_ids, op.name, op.topic_id),
        partition_count=state.partition_count + op.partitions,
    )


def _check_room(state: LogState, more_partitions: int, at: At) -> None:
    if not state.may_have(more_partitions):
        corrupt(
            at,
            "a log gets more partitions than it may have",
            has=state.partition_count,
            more=more_partitions,
            maximum=LOG_PARTITIONS_MAX,
        )


def _alter_topic(state: LogState, op: AlterTopic, at: At) -> LogState:
    topic = state.topics.get(op.topic_id)
    if topic is None:
        corrupt(at, "a topic is altered that does not exist", topic_id=op.topic_id)
    schema = topic.schema if op.fields is None else next_version(topic.schema, op.fields, op.places)
    if op.places and (op.fields is None or COLUMNS not in state.features.reader):
        corrupt(at, "a topic is altered in a way that is not allowed", topic_id=op.topic_id, places=op.places)
    changes = op.fields is not None or op.settings is not None
    grows = op.partitions > topic.partitions or (op.partitions == topic.partitions and changes)
    if not grows or schema is None or op.schema_id != schema.schema_id:
        corrupt(
            at,
            "a topic is altered in a way that is not allowed",
            topic_id=op.topic_id,
            partitions=op.partitions,
            schema_id=op.schema_id,
        )
    more = op.partitions - topic.partitions
    _check_room(state, more, at)
    settings = topic.settings if op.settings is None else op.settings
    altered = replace(topic, partitions=op.partitions, schema=schema, settings=settings)
    return replace(
        state,
        topics=put(state.topics, op.topic_id, altered),
        partition_count=state.partition_count + more,
    )


def _allocate(state: LogState, op: AllocateProducerIds, at: At) -> LogState:
    if op.first != state.next_producer_id:
        corrupt(
            at,
            "a block of producer ids does not begin where it must",
            expected=state.next_producer_id,
            got=op.first,
        )
    if op.last >= NUMBER_MAX:
        corrupt(at, "a block of producer ids goes beyond the largest id", got=op.last)
    block = ProducerIdBlock(op.owner, op.first, op.last, at.entry, at.timestamp_ms)
    return replace(
        state,
        next_producer_id=op.last + 1,
        blocks=put(state.blocks, op.first, block),
    )


def _app_version(state: LogState, op: AppVersion, at: At) -> LogState:
    key = (op.namespace, op.app_id)
    known = state.app_versions.get(key)
    if known is not None and op.version <= known.version:
        corrupt(
            at, "an application version does not grow", app_id=op.app_id, known=known.version, got=op.version
        )
    if known is not None and known.is_superseded(op.instance):
        corrupt(at, "an instance of an application that had been superseded goes on", app_id=op.app_id)
    if any(topic_id not in state.topics for topic_id in op.topics):
        corrupt(at, "an application version names a topic that does not exist", app_id=op.app_id)
    now = (known or NO_VERSION).followed_by(op.version, at.entry, op.instance, op.topics)
    return replace(state, app_versions=put(state.app_versions, key, now))


def _checkpoint(state: LogState, op: Checkpoint, at: At) -> LogState:
    if op.entry >= at.entry or (state.checkpoints and op.entry <= state.checkpoints[-1].entry):
        corrupt(at, "a checkpoint does not advance", got=op.entry)
    return replace(state, checkpoints=(*state.checkpoints, op)[-2:])


def _append(state: LogState, op: Append, at: At) -> LogState:
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


_FOLDS: dict[type, Callable[[LogState, Any, At], LogState]] = {
    Upgrade: _upgrade,
    CreateTopic: _create_topic,
    AlterTopic: _alter_topic,
    InitProducer: init_producer,
    AllocateProducerIds: _allocate,
    Append: _append,
    Stage: apply_stage,
    PrepareTxn: prepare_transaction,
    EndTxn: end_transaction,
    GiveUp: give_up,
    AppVersion: _app_version,
    Checkpoint: _checkpoint,
    Seal: apply_seal,
    Spill: apply_spill,
    Expire: apply_expire,
    Trim: apply_trim,
    VacuumMark: apply_vacuum_mark,
    DeleteTopic: apply_delete_topic,
    Replace: apply_replace,
    RequestErasure: apply_request_erasure,
    AdvanceErasure: apply_advance_erasure,
    CompleteErasure: apply_complete_erasure,
    AbandonErasure: apply_abandon_erasure,
    JoinGroup: join_group,
    CommitOffsets: commit_offsets,
    DeleteGroup: delete_group,
    CreateSubscription: create_subscription,
    DeleteSubscription: delete_subscription,
    Ack: acknowledge,
}
