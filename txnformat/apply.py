"""The fold: state and entry give the next state. Pure, total on valid logs, and strict on invalid ones.

An entry that does not fit (a wrong base offset, an epoch that goes back, an unknown topic) was not made by a
correct writer: CorruptDataError, and the log stops rather than guess. Time is never a reason to refuse here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from txnformat.apply_seal import apply_seal
from txnformat.entry import CommitEntry
from txnformat.errors import CorruptDataError, UnsupportedFeatureError
from txnformat.evolution import next_version
from txnformat.folding import At, corrupt
from txnformat.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppendedPartition,
    AppVersion,
    Cause,
    Checkpoint,
    CreateTopic,
    EndTxn,
    InitProducer,
    Marker,
    Operation,
    Seal,
    Upgrade,
)
from txnformat.partition import EXTENT, PartitionState, Transaction
from txnformat.persistent import Rows
from txnformat.producer_state import AppendedRange, SequenceVerdict, classify, record
from txnformat.schema import TopicSchema
from txnformat.state import FEATURES, Features, LogState, ProducerIdBlock, TopicState, VersionAt
from txnformat.transactions import LastEnd, TransactionalIdState, TransactionStatus, is_legal_transition
from txnformat.types import NO_PRODUCER, NO_TIMESTAMP_MS, BatchRecord, Outcome, TopicPartition

__all__ = ["At", "apply", "apply_operation", "finish_entry"]


NUMBER_MAX = 2**62
"""Offsets, sequences and producer ids end below this (exclusive): far above any log, and sums of two fit int64."""


def apply(state: LogState, entry: CommitEntry, sha256: str) -> LogState:
    """Return the state after ``entry``.

    Parameters
    ----------
    sha256 : str
        Of the entry's bytes: the next link of the chain.

    Raises
    ------
    CorruptDataError
        The entry does not chain (kind ``broken-chain``) or does not fit the state (``invalid-entry``).
    UnsupportedFeatureError
        It asks readers for a feature that this version does not have.
    """
    for name, expected, got in (
        ("log_id", state.log_id, entry.log_id),
        ("entry", state.entry + 1, entry.entry),
        ("previous", state.entry_sha256, entry.previous),
    ):
        if expected != got:
            raise CorruptDataError(
                "a commit entry does not chain to the one before",
                kind="broken-chain",
                entry=entry.entry,
                field=name,
                expected=expected,
                got=got,
            )
    at = At(entry.entry, entry.timestamp_ms)
    if state.entry >= 0 and entry.timestamp_ms <= state.timestamp_ms:
        corrupt(at, "log time does not advance", previous=state.timestamp_ms, got=entry.timestamp_ms)
    for operation in entry.operations:
        state = apply_operation(state, operation, at)
    return finish_entry(state, entry, sha256)


def finish_entry(state: LogState, entry: CommitEntry, sha256: str) -> LogState:
    """Return the state after ``entry``, all of whose operations ``state`` has; the last part of :func:`apply`."""
    return replace(
        state,
        entry=entry.entry,
        entry_sha256=sha256,
        timestamp_ms=entry.timestamp_ms,
        window=state.window.push(entry.entry, entry.intents),
    )


def apply_operation(state: LogState, operation: Operation, at: At) -> LogState:
    """Return the state after one operation of entry ``at``."""
    match operation:
        case Append():
            return _append(state, operation, at)
        case EndTxn():
            return _end_txn(state, operation, at)
        case InitProducer():
            return _init_producer(state, operation, at)
        case CreateTopic():
            return _create_topic(state, operation, at)
        case AlterTopic():
            return _alter_topic(state, operation, at)
        case AllocateProducerIds():
            return _allocate(state, operation, at)
        case AppVersion():
            return _app_version(state, operation, at)
        case Checkpoint():
            return _checkpoint(state, operation, at)
        case Seal():
            return apply_seal(state, operation, at)
        case Upgrade():
            return _upgrade(state, operation)


def _upgrade(state: LogState, op: Upgrade) -> LogState:
    unknown = sorted(set(op.reader) - FEATURES.reader)
    if unknown:
        raise UnsupportedFeatureError(
            "the log needs reader features that this version does not have",
            hint="upgrade txnlog",
            features=unknown,
        )
    return replace(
        state, features=Features(frozenset(op.reader), frozenset(op.writer), frozenset(op.maintenance))
    )


def _create_topic(state: LogState, op: CreateTopic, at: At) -> LogState:
    if op.name in state.topic_ids or op.topic_id in state.topics:
        corrupt(at, "a topic is created twice", topic=op.name, topic_id=op.topic_id)
    schema = TopicSchema.from_json(op.fields, op.key_columns, op.timestamp_column)
    topic = TopicState(op.topic_id, op.name, op.directory, op.partitions, schema, op, at.entry)
    return replace(
        state,
        topics={**state.topics, op.topic_id: topic},
        topic_ids={**state.topic_ids, op.name: op.topic_id},
    )


def _alter_topic(state: LogState, op: AlterTopic, at: At) -> LogState:
    topic = state.topics.get(op.topic_id)
    if topic is None:
        corrupt(at, "a topic is altered that does not exist", topic_id=op.topic_id)
    schema = topic.schema if op.fields is None else next_version(topic.schema, op.fields)
    grows = op.partitions > topic.partitions or (op.partitions == topic.partitions and op.fields is not None)
    if not grows or schema is None or op.schema_id != schema.schema_id:
        corrupt(
            at,
            "a topic is altered in a way that is not allowed",
            topic_id=op.topic_id,
            partitions=op.partitions,
            schema_id=op.schema_id,
        )
    altered = replace(topic, partitions=op.partitions, schema=schema)
    return replace(state, topics={**state.topics, op.topic_id: altered})


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
    return replace(
        state,
        next_producer_id=op.last + 1,
        blocks=(*state.blocks, ProducerIdBlock(op.owner, op.first, op.last, at.entry)),
    )


def _app_version(state: LogState, op: AppVersion, at: At) -> LogState:
    key = (op.namespace, op.app_id)
    known = state.app_versions.get(key)
    if known is not None and op.version <= known.version:
        corrupt(
            at, "an application version does not grow", app_id=op.app_id, known=known.version, got=op.version
        )
    return replace(state, app_versions={**state.app_versions, key: VersionAt(op.version, at.entry)})


def _checkpoint(state: LogState, op: Checkpoint, at: At) -> LogState:
    if op.entry >= at.entry or (state.checkpoints and op.entry <= state.checkpoints[-1].entry):
        corrupt(at, "a checkpoint does not advance", got=op.entry)
    return replace(state, checkpoints=(*state.checkpoints, op)[-2:])


def _init_producer(state: LogState, op: InitProducer, at: At) -> LogState:
    known = state.transactional_ids.get(op.transactional_id)
    if known is None:
        expected = (state.next_producer_id, 0)
        next_producer_id = state.next_producer_id + 1
    else:
        expected = (known.producer_id, known.epoch + 1)
        next_producer_id = state.next_producer_id
    if (op.producer_id, op.epoch) != expected:
        corrupt(
            at,
            "a producer opens with the wrong identity",
            transactional_id=op.transactional_id,
            expected=expected,
            got=(op.producer_id, op.epoch),
        )
    last_end = known.last_end if known else None
    partitions = state.partitions
    if known is not None and known.status is TransactionStatus.ONGOING:
        partitions = _with_markers(state, known, op.aborted, Outcome.ABORT, at)
        last_end = LastEnd(known.epoch, Outcome.ABORT, Cause.INIT, at.entry)
    elif op.aborted:
        corrupt(at, "a producer aborts a transaction that is not open", transactional_id=op.transactional_id)
    opened = TransactionalIdState(op.producer_id, op.epoch, TransactionStatus.EMPTY, {}, last_end=last_end)
    return replace(
        state,
        next_producer_id=next_producer_id,
        partitions=partitions,
        transactional_ids={**state.transactional_ids, op.transactional_id: opened},
    )


def _owner(
    state: LogState, transactional_id: str, producer_id: int, epoch: int, at: At
) -> TransactionalIdState:
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


def _end_txn(state: LogState, op: EndTxn, at: At) -> LogState:
    known = _owner(state, op.transactional_id, op.producer_id, op.epoch, at)
    commit = op.outcome is Outcome.COMMIT
    target = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
    if not is_legal_transition(known.status, target):
        corrupt(at, "a transaction ends that was not open", transactional_id=op.transactional_id)
    partitions = _with_markers(state, known, op.markers, op.outcome, at)
    ended = TransactionalIdState(
        op.producer_id,
        op.epoch + 1,
        target,
        {},
        last_end=LastEnd(op.epoch, op.outcome, op.cause, at.entry),
    )
    return replace(
        state,
        partitions=partitions,
        transactional_ids={**state.transactional_ids, op.transactional_id: ended},
    )


def _with_markers(
    state: LogState, known: TransactionalIdState, markers: tuple[Marker, ...], outcome: Outcome, at: At
) -> dict[TopicPartition, PartitionState]:
    """Return the partitions after the markers that end the transaction of ``known``."""
    if {marker.topic_partition for marker in markers} != set(known.partitions) or len(markers) != len(
        known.partitions
    ):
        corrupt(
            at, "markers are not in exactly the partitions of the transaction", producer_id=known.producer_id
        )
    partitions = dict(state.partitions)
    for marker in markers:
        partition = partitions[marker.topic_partition]
        if marker.offset != partition.log_end:
            corrupt(at, "a marker is not at the log end", expected=partition.log_end, got=marker.offset)
        partitions[marker.topic_partition] = partition.with_marker(
            (known.producer_id, known.epoch), outcome is Outcome.COMMIT, at.entry, at.timestamp_ms
        )
    return partitions


def _append(state: LogState, op: Append, at: At) -> LogState:
    topic = state.topics.get(op.topic_id)
    if topic is None or op.partition_count != topic.partitions:
        corrupt(
            at, "an append does not fit its topic", topic_id=op.topic_id, partition_count=op.partition_count
        )
    newest = max((file.schema_id for file in op.files), default=0)
    if newest > topic.schema.schema_id:
        corrupt(at, "a file has a schema that its topic does not have", schema_id=newest)
    owner = None
    if op.transactional_id is not None:
        owner = _owner(state, op.transactional_id, op.producer_id, op.epoch, at)
    elif op.producer_id != NO_PRODUCER and op.producer_id >= state.next_producer_id:
        corrupt(at, "an append carries a producer id that was never given", producer_id=op.producer_id)
    first_file = state.files.end
    table = state.tables.end if op.table else -1
    by_partition: dict[int, list[BatchRecord]] = {}
    for batch in op.batches:
        by_partition.setdefault(batch.partition, []).append(batch)
    partitions = dict(state.partitions)
    started = dict(owner.partitions) if owner else {}
    appended = 0
    for part in op.partitions:
        key = TopicPartition(op.topic_id, part.partition)
        partition = partitions.get(key, PartitionState())
        _check_appended(op, part, partition, topic.partitions, by_partition.get(part.partition, []), at)
        rows = _extents(op, part, by_partition.get(part.partition, []), first_file, table, at)
        partitions[key] = _grown(partition, op, part, rows, at)
        appended += len(rows)
        if owner is not None:
            started.setdefault(key, part.base_offset)
    transactional_ids = state.transactional_ids
    if owner is not None and op.transactional_id is not None:
        fresh = owner.status is not TransactionStatus.ONGOING
        ongoing = replace(
            owner,
            status=TransactionStatus.ONGOING,
            partitions=started,
            started_entry=at.entry if fresh else owner.started_entry,
            started_ms=at.timestamp_ms if fresh else owner.started_ms,
        )
        transactional_ids = {**transactional_ids, op.transactional_id: ongoing}
    return replace(
        state,
        partitions=partitions,
        transactional_ids=transactional_ids,
        files=state.files.extend(op.files),
        extents=state.extents + appended,
        tables=state.tables.extend((op.table,)) if op.table else state.tables,
    )


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
    if max(part.base_offset, part.base_sequence) + part.records > NUMBER_MAX:
        corrupt(
            at, "an append goes beyond the largest offset", partition=part.partition, records=part.records
        )
    if op.table is None and (
        len(batches) != part.batch_count or sum(batch.records for batch in batches) != part.records
    ):
        corrupt(at, "an append's totals are not those of its batches", partition=part.partition)
    if op.producer_id != NO_PRODUCER:
        window = partition.sequences.get((op.producer_id, op.epoch), ())
        verdict, _ = classify(window, part.base_sequence, part.records, part.digest)
        if verdict is not SequenceVerdict.NEW:
            corrupt(
                at,
                "an append's sequence does not follow",
                producer_id=op.producer_id,
                partition=part.partition,
                base_sequence=part.base_sequence,
            )


def _extents(
    op: Append, part: AppendedPartition, batches: list[BatchRecord], first_file: int, table: int, at: At
) -> Rows:
    transactional = int(op.transactional_id is not None)
    if op.table is not None:
        times = (_time(part.min_timestamp_ms, at), _time(part.max_timestamp_ms, at))
        whole = (part.base_offset, part.records, op.producer_id, op.epoch, part.base_sequence, at.entry)
        place = (
            part.size,
            -1,
            table,
            first_file,
            op.section,
            0,
            0,
            part.batch_count,
            transactional,
            len(op.files),
        )
        return np.array([(*whole, at.timestamp_ms, *times, *place)], EXTENT)
    rows = []
    offset, sequence = part.base_offset, part.base_sequence
    for batch in batches:
        times = (_time(batch.min_timestamp_ms, at), _time(batch.max_timestamp_ms, at))
        head = (offset, batch.records, op.producer_id, op.epoch, sequence, at.entry, at.timestamp_ms)
        groups = (batch.row_group, batch.row_group_count)
        place = (
            batch.size,
            first_file + batch.file,
            -1,
            first_file,
            0,
            *groups,
            1,
            transactional,
            len(op.files),
        )
        rows.append((*head, *times, *place))
        offset += batch.records
        sequence += batch.records if sequence >= 0 else 0
    return np.array(rows, EXTENT)


def _time(timestamp_ms: int, at: At) -> int:
    return at.timestamp_ms if timestamp_ms == NO_TIMESTAMP_MS else timestamp_ms


def _grown(
    partition: PartitionState, op: Append, part: AppendedPartition, rows: Rows, at: At
) -> PartitionState:
    transaction: Transaction = (op.producer_id, op.epoch)
    sequences, opened = partition.sequences, partition.open
    if op.producer_id != NO_PRODUCER:
        appended = AppendedRange(
            part.base_sequence, part.base_sequence + part.records - 1, part.digest, part.base_offset, at.entry
        )
        sequences = {**sequences, transaction: record(sequences.get(transaction, ()), appended)}
    if op.transactional_id is not None and transaction not in opened:
        opened = {**opened, transaction: part.base_offset}
    return replace(
        partition,
        log_end=part.base_offset + part.records,
        open=opened,
        sequences=sequences,
        extents=partition.extents.append(rows),
    )
