"""Deciding a write: appends, the end of a transaction, application versions, topics made on the way. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from txnformat.errors import (
    ConflictError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerIdConflictError,
    StaleAppVersionError,
    TxnLogError,
    UnknownProducerIdError,
)
from txnformat.intents import (
    AppRef,
    Done,
    Included,
    PendingPartition,
    ProducerRef,
    Rejected,
    TopicAppend,
    Verdict,
    Write,
)
from txnformat.operations import (
    Append,
    AppendedPartition,
    AppVersion,
    Cause,
    CreateTopic,
    EndTxn,
    Marker,
    Operation,
)
from txnformat.producer_state import AppendedRange, SequenceVerdict, classify
from txnformat.state import LogState
from txnformat.transactions import LastEnd, TransactionalIdState, TransactionStatus
from txnformat.types import NO_EPOCH, NO_PRODUCER, Outcome, TopicPartition

__all__ = ["decide_write"]


def decide_write(state: LogState, write: Write) -> Verdict:
    """Decide a write; see :func:`txnformat.decide.decide`."""
    try:
        return _decide(state, write)
    except TxnLogError as error:
        # Rejections are values here: whoever decides tells the public edge, which raises.
        return Rejected(error.with_traceback(None))


def _decide(state: LogState, write: Write) -> Verdict:
    if write.app is not None:
        known = state.app_versions.get((write.app.namespace, write.app.app_id))
        if known is not None and known.version == write.app.version:
            return Done(known.entry)
        _check_grows(state, write.app, *write.apps_beside)
    owner = None
    if write.producer is not None and write.producer.transactional_id is not None:
        owner = state.transactional_ids.get(write.producer.transactional_id)
        ended = _check_identity(write.producer, write.producer.transactional_id, owner, write.end)
        if ended is not None:
            return ended
    created, renamed = _created(state, write.create)
    operations: list[Operation] = list(created)
    repeats: list[tuple[TopicPartition, AppendedRange]] = []
    ends: dict[TopicPartition, int] = {}
    for append in _renamed(write.appends, renamed):
        placed = _place(state, created, write.producer, append, ends, repeats)
        if placed is not None:
            operations.append(placed)
    if write.end is not None:
        operations.append(_end(state, write, owner, ends, appended=len(operations) > len(created)))
    elif write.appends and len(operations) == len(created):
        # Every partition was known: the answer is the original one.
        return Done(
            max(known.entry for _, known in repeats), {key: known.base_offset for key, known in repeats}
        )
    if write.app is not None:
        apps = (write.app, *write.apps_beside)
        operations += [AppVersion(app.namespace, app.app_id, app.version) for app in apps]
    if not operations:
        raise InvalidInputError("a write without any effect", kind="empty-write")
    return Included(tuple(operations))


def _check_grows(state: LogState, *apps: AppRef) -> None:
    for app in apps:
        known = state.app_versions.get((app.namespace, app.app_id))
        if known is not None and known.version >= app.version:
            raise StaleAppVersionError(
                f"the log holds {'this' if known.version == app.version else 'a later'} version of the application",
                hint="do not repeat old batches with new data; use a new application id for a new history",
                app_id=app.app_id,
                version=app.version,
                newest=known.version,
            )


def _check_identity(
    producer: ProducerRef, transactional_id: str, owner: TransactionalIdState | None, end: Outcome | None
) -> Done | None:
    """Return Done for a repeated end, None when the identity is current, else raise."""
    if owner is None or owner.producer_id != producer.producer_id:
        raise InvalidTransactionStateError(
            "the log does not know this transactional id with this producer id",
            kind="unknown-transactional-id",
            hint="call init() first, on this log",
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
        )
    last = owner.last_end
    if end is not None and last is not None and last.epoch == producer.epoch:
        return _repeated_end(producer, last, end)
    if producer.epoch < owner.epoch:
        if last is not None and last.epoch == producer.epoch and last.cause is Cause.PRODUCER:
            raise InvalidTransactionStateError(
                "the transaction has ended",
                kind="transaction-ended",
                hint="begin a new transaction",
                transactional_id=transactional_id,
                outcome=last.outcome.value,
                entry=last.entry,
            )
        raise ProducerFencedError(
            "a newer instance of this producer has opened",
            hint="stop this instance",
            transactional_id=transactional_id,
            epoch=producer.epoch,
            current_epoch=owner.epoch,
        )
    if producer.epoch > owner.epoch:
        raise InvalidTransactionStateError(
            "the log does not know this epoch",
            kind="unknown-epoch",
            hint="call init() on this log; is this a copy of another log?",
            transactional_id=transactional_id,
            epoch=producer.epoch,
            current_epoch=owner.epoch,
        )
    return None


def _repeated_end(producer: ProducerRef, last: LastEnd, end: Outcome) -> Done:
    if last.cause is Cause.INIT:
        raise ProducerFencedError(
            "a newer instance of this producer has opened and aborted the transaction",
            hint="stop this instance",
            transactional_id=producer.transactional_id,
            epoch=producer.epoch,
            entry=last.entry,
        )
    if last.outcome is not end:
        past = "committed" if last.outcome is Outcome.COMMIT else "aborted"
        raise InvalidTransactionStateError(
            f"the transaction was {past} already",
            kind=f"transaction-{past}",
            hint="begin a new transaction",
            transactional_id=producer.transactional_id,
            epoch=producer.epoch,
            entry=last.entry,
        )
    return Done(last.entry)


def _created(state: LogState, create: tuple[CreateTopic, ...]) -> tuple[list[CreateTopic], dict[str, str]]:
    """Return the topics that must be made, and the ids of those that somebody else has made meanwhile."""
    created, renamed = [], {}
    for wanted in create:
        topic_id = state.topic_ids.get(wanted.name)
        if topic_id is None:
            created.append(replace(wanted, intent=0))
            continue
        topic = state.topics[topic_id]
        mine = (wanted.partitions, wanted.fields, wanted.key_columns, wanted.timestamp_column)
        theirs = topic.created
        if mine != (theirs.partitions, theirs.fields, theirs.key_columns, theirs.timestamp_column):
            raise ConflictError(
                "somebody else has created the topic with another schema or partition count",
                kind="topic-exists",
                hint="look at the topic with describe, and write what fits it",
                topic=wanted.name,
                partitions=topic.partitions,
            )
        renamed[wanted.topic_id] = topic_id
    return created, renamed


def _renamed(appends: tuple[TopicAppend, ...], renamed: dict[str, str]) -> tuple[TopicAppend, ...]:
    """Return the appends with the ids that their topics have in the log."""
    if not renamed:
        return appends
    return tuple(
        replace(append, topic_id=renamed.get(append.topic_id, append.topic_id)) for append in appends
    )


def _place(
    state: LogState,
    created: list[CreateTopic],
    producer: ProducerRef | None,
    append: TopicAppend,
    ends: dict[TopicPartition, int],
    repeats: list[tuple[TopicPartition, AppendedRange]],
) -> Append | None:
    """Return the append with offsets, without the partitions that the log holds already; None when all are."""
    _check_topic(state, created, producer, append)
    placed = []
    for part in append.partitions:
        key = TopicPartition(append.topic_id, part.partition)
        if key in ends:
            raise InternalError(
                "one write appends to a partition twice", topic_id=key.topic_id, partition=key.partition
            )
        partition = state.partition(key)
        if producer is not None:
            known = _known_range(state, producer, part, key)
            if known is not None:
                repeats.append((key, known))
                continue
        elif part.base_sequence != -1:
            raise InternalError("a sequence without a producer", base_sequence=part.base_sequence)
        ends[key] = partition.log_end + part.records
        placed.append(
            AppendedPartition(
                part.partition,
                partition.log_end,
                part.records,
                part.batch_count,
                part.base_sequence,
                part.digest,
                part.size,
                part.min_timestamp_ms,
                part.max_timestamp_ms,
            )
        )
    if not placed:
        return None
    return Append(
        topic_id=append.topic_id,
        producer_id=producer.producer_id if producer else NO_PRODUCER,
        epoch=producer.epoch if producer else NO_EPOCH,
        transactional_id=producer.transactional_id if producer else None,
        partition_count=append.partition_count,
        files=append.files,
        partitions=tuple(placed),
        batches=append.batches,
        table=append.table,
        section=append.section,
    )


def _check_topic(
    state: LogState, created: list[CreateTopic], producer: ProducerRef | None, append: TopicAppend
) -> None:
    topic = state.topics.get(append.topic_id)
    made = next((op for op in created if op.topic_id == append.topic_id), None)
    count = topic.partitions if topic else made.partitions if made else None
    if count is None:
        raise NotFoundError(
            "the topic of an append does not exist", kind="unknown-topic", topic_id=append.topic_id
        )
    if count != append.partition_count and not _is_repeat(state, producer, append):
        raise ConflictError(
            "the topic's partition count has changed since the records were distributed",
            kind="partition-count-changed",
            hint="distribute the records again",
            topic_id=append.topic_id,
            expected=append.partition_count,
            got=count,
        )
    beyond = [part.partition for part in append.partitions if not 0 <= part.partition < count]
    if beyond:
        raise NotFoundError(
            "no such partition", kind="unknown-partition", partitions=beyond, partition_count=count
        )
    newest = max((file.schema_id for file in append.files), default=0)
    if newest > (topic.schema.schema_id if topic else 0):
        raise InternalError("a file has a schema that its topic does not have", schema_id=newest)


def _is_repeat(state: LogState, producer: ProducerRef | None, append: TopicAppend) -> bool:
    """Return whether the log holds all of an append: then the topic may have grown since."""
    if producer is None:
        return False
    who = (producer.producer_id, producer.epoch)
    windows = (
        (part, state.partition(TopicPartition(append.topic_id, part.partition)).sequences.get(who, ()))
        for part in append.partitions
    )
    return all(
        classify(window, part.base_sequence, part.records, part.digest)[0] is SequenceVerdict.REPEAT
        for part, window in windows
    )


def _known_range(
    state: LogState, producer: ProducerRef, part: PendingPartition, key: TopicPartition
) -> AppendedRange | None:
    """Return what the window knows of a repeat, None for a new append, else raise."""
    if producer.transactional_id is None and producer.producer_id >= state.next_producer_id:
        raise UnknownProducerIdError(
            "the log has never given this producer id",
            hint="open a new producer",
            producer_id=producer.producer_id,
        )
    window = state.partition(key).sequences.get((producer.producer_id, producer.epoch), ())
    verdict, known = classify(window, part.base_sequence, part.records, part.digest)
    if verdict is SequenceVerdict.NEW:
        return None
    if verdict is SequenceVerdict.REPEAT:
        return known
    _refuse_sequence(verdict, producer, part, key, window[-1].last_sequence + 1 if window else 0)


def _refuse_sequence(
    verdict: SequenceVerdict,
    producer: ProducerRef,
    part: PendingPartition,
    key: TopicPartition,
    expected: int,
) -> NoReturn:
    values: dict[str, Any] = {
        "producer_id": producer.producer_id,
        "topic_id": key.topic_id,
        "partition": key.partition,
        "expected": expected,
        "got": part.base_sequence,
    }
    if verdict is SequenceVerdict.FORK:
        raise ProducerIdConflictError(
            "other data was appended under the same producer id and sequence",
            hint="two processes share one producer (a fork, a cloned machine): give each its own",
            **values,
        )
    if verdict is SequenceVerdict.UNKNOWN_PRODUCER:
        raise UnknownProducerIdError(
            "the partition does not know this producer, and its sequence does not start at 0",
            hint="open a new producer",
            **values,
        )
    raise OutOfOrderSequenceError(
        "the sequence has a gap, overlaps, or repeats something too old", hint="open a new producer", **values
    )


def _end(
    state: LogState,
    write: Write,
    owner: TransactionalIdState | None,
    ends: dict[TopicPartition, int],
    *,
    appended: bool,
) -> EndTxn:
    if (
        owner is None
        or write.producer is None
        or write.producer.transactional_id is None
        or write.end is None
    ):
        raise InternalError("only a transactional producer can end a transaction")
    ongoing = owner.status is TransactionStatus.ONGOING
    if write.end is Outcome.COMMIT and not ongoing and not appended:
        raise InvalidTransactionStateError(
            "there is no open transaction to commit",
            kind="no-transaction",
            hint="begin a transaction and send something",
            transactional_id=write.producer.transactional_id,
        )
    touched = sorted(set(ends) | (set(owner.partitions) if ongoing else set()))
    markers = tuple(
        Marker(key.topic_id, key.partition, ends.get(key, state.partition(key).log_end)) for key in touched
    )
    return EndTxn(
        write.producer.transactional_id,
        write.producer.producer_id,
        write.producer.epoch,
        write.end,
        Cause.PRODUCER,
        markers,
    )
