"""Deciding what concerns subscriptions: what may be acknowledged, by whom, and what that conflicts with.

Pure.

Rejections are raised here; :mod:`txnformat.core.decide` makes values of them. An intent with one
conflict changes nothing, and its transaction stays open: the caller aborts it.

| | free | pending in another transaction | pending in the own | acknowledged |
|---|---|---|---|---|
| individual, in a transaction | pending | ``ack-pending`` | ``ack-pending`` | ``already-acknowledged`` |
| cumulative, likewise | pending | ``ack-pending`` | single ones join (*) | ``already-acknowledged`` if all |
| plain individual | acknowledged | ``ack-pending`` | | ``already-acknowledged`` |
| plain cumulative | acknowledged | ``ack-pending`` | | ``already-acknowledged`` if all |
| seek, never in a transaction | the position moves | ``ack-pending`` | | the position moves |
| negative (:func:`check_nack`) | redelivered | ``ack-pending`` | ``ack-pending`` | ``already-acknowledged`` |

(*) ``ack-pending`` of a cumulative one that is not further than the last.

The rules are those of Pulsar's pending acknowledgements; :mod:`txnformat.core.subscriptions.state` says where
they are stricter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from txnformat import keys
from txnformat.core.intents import Acks, ProducerRef
from txnformat.core.ranges import Ranges
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import (
    Ack,
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
)
from txnformat.core.subscriptions.state import (
    ACK_PENDING,
    ACK_RANGES_MAX,
    AckConflict,
    PartitionAcks,
    SubscriptionState,
)
from txnformat.core.transactions.state import TransactionalIdState
from txnformat.errors import (
    AckConflictError,
    ConflictError,
    InvalidInputError,
    OffsetOutOfRangeError,
    repr_of,
)
from txnformat.field_types import INT64_MAX
from txnformat.persistent import replace
from txnformat.types import TopicPartition

__all__ = ["acknowledge", "check_nack", "create_subscription", "delete_subscription"]

END_FIRST = "wait until the transaction has ended"


def create_subscription(state: LogState, action: CreateSubscription) -> CreateSubscription:
    """Return the operation that creates a subscription."""
    keys.check_reader_name(action.subscription, "subscription")
    topic = state.topic_of(action.topic_id, "a subscription")
    if action.key in state.subscriptions:
        raise ConflictError(
            "the subscription exists already",
            kind="subscription-exists",
            hint="use it, or choose another name",
            topic=topic.name,
            subscription=action.subscription,
        )
    _check_named_once([start.partition for start in action.starts])
    for start in action.starts:
        if start.offset < 0:
            raise InvalidInputError(
                f"a subscription cannot begin at offset {start.offset}", kind="negative-offset"
            )
        _check_offset(state, action, start.partition, start.offset)
    return replace(action, intent=0)


def delete_subscription(state: LogState, action: DeleteSubscription) -> DeleteSubscription:
    """Return the operation that deletes a subscription without pending acknowledgements."""
    subscription = _subscription(state, action)
    for number, acks in subscription.partitions.items():
        if (conflict := acks.first_pending()) is not None:
            _raise(conflict, state, action, number, END_FIRST)
    return replace(action, intent=0)


def acknowledge(
    state: LogState,
    wanted: tuple[Acks, ...],
    producer: ProducerRef | None,
    owner: TransactionalIdState | None,
) -> list[Ack]:
    """Return the operations that acknowledge records, in the producer's transaction or at once; raise at the
    first conflict.
    """
    subscriptions = dict(state.subscriptions)
    made: list[Ack] = []
    for acks in wanted:
        subscription = subscriptions.get(acks.key) or _subscription(state, acks)
        op = _operation(_left(state, subscription, acks), producer if owner is not None else None)
        changed = {
            part.partition: _after(
                state, state.kept_acks(subscription, TopicPartition(op.topic_id, part.partition)), op, part
            )
            for part in op.partitions
        }
        subscriptions[acks.key] = subscription.with_partitions(changed)
        made.append(op)
    return made


def _left(state: LogState, subscription: SubscriptionState, acks: Acks) -> Acks:
    """Return what is wanted without those offsets of its gaps that others have covered meanwhile."""
    gaps = {part.partition: Ranges.of(part.ranges) for part in acks.gaps}
    if not gaps:
        return acks
    parts = []
    for part in acks.partitions:
        gap = gaps.get(part.partition)
        if gap is not None:
            known = state.kept_acks(subscription, TopicPartition(acks.topic_id, part.partition))
            free = gap - known.whole() - known.held()
            part = AckedPartition(part.partition, tuple((Ranges.of(part.ranges) - gap | free).pairs()))
        if gap is None or part.ranges:
            parts.append(part)
    if not parts:
        raise ConflictError(
            "other clients have acknowledged the offsets",
            kind="nothing-to-acknowledge",
            hint="no action is needed",
            subscription=acks.subscription,
        )
    return replace(acks, partitions=tuple(parts), gaps=())


def _operation(acks: Acks, producer: ProducerRef | None) -> Ack:
    """Return the operation of what is wanted, with ranges in order."""
    if not acks.partitions:
        raise InvalidInputError("nothing is acknowledged", kind="empty-ack")
    _check_named_once([part.partition for part in acks.partitions])
    if acks.mode is AckMode.SEEK and producer is not None:
        raise InvalidInputError(
            "a subscription cannot seek in a transaction",
            kind="seek-in-transaction",
            hint="seek before it or after it",
        )
    partitions = tuple(_partition(acks.mode, part) for part in acks.partitions)
    if producer is None or producer.transactional_id is None:
        return Ack(acks.topic_id, acks.subscription, acks.mode, partitions)
    identity = (producer.transactional_id, producer.producer_id, producer.epoch)
    return Ack(acks.topic_id, acks.subscription, acks.mode, partitions, *identity)


def _check_named_once(partitions: list[int]) -> None:
    if len(set(partitions)) < len(partitions):
        raise InvalidInputError("a partition is named twice", kind="partition-twice", hint="name it once")


def _partition(mode: AckMode, part: AckedPartition) -> AckedPartition:
    """Return what is acknowledged in a partition, checked."""
    if mode is AckMode.INDIVIDUAL:
        bounds = sorted(part.ranges)
        wrong = next((pair for pair in bounds if not 0 <= pair[0] < pair[1] <= INT64_MAX), None)
        if not bounds or wrong is not None or part.position is not None:
            raise InvalidInputError(
                f"no offsets are acknowledged in partition {part.partition}, with {wrong or 'no range'}",
                kind="invalid-ack",
                hint="give ranges [start, end) with 0 <= start < end < 2**63",
            )
        joined = Ranges.of(bounds)
        if joined.offsets() < sum(end - start for start, end in bounds):
            raise InvalidInputError(
                f"an offset of partition {part.partition} is acknowledged twice in one call",
                kind="acknowledged-twice",
                hint="name each record once",
            )
        return AckedPartition(part.partition, tuple(joined.pairs()))
    least = 0 if mode is AckMode.SEEK else 1
    if part.position is None or part.position < least or part.ranges:
        raise InvalidInputError(
            f"position {repr_of(part.position)} in partition {part.partition} is not possible",
            kind="invalid-ack",
            hint=f"give the offset after the last record to acknowledge, at least {least}",
        )
    return part


def _after(state: LogState, acks: PartitionAcks, op: Ack, part: AckedPartition) -> PartitionAcks:
    end = part.ranges[-1][1] if part.position is None else part.position
    _check_offset(state, op, part.partition, end)
    after = acks.after(op.mode, part, op.transactional_id)
    if isinstance(after, AckConflict):
        hint = "abort the transaction" if op.transactional_id is not None else "do not process it twice"
        _raise(after, state, op, part.partition, END_FIRST if op.mode is AckMode.SEEK else hint)
    if after.range_count() > ACK_RANGES_MAX:
        raise InvalidInputError(
            f"too many separate ranges would be acknowledged in partition {part.partition}: "
            f"{after.range_count():,}, at most {ACK_RANGES_MAX:,} can be",
            kind="too-many-ack-ranges",
            hint="acknowledge older records first, or read further back",
        )
    return after


def check_nack(
    state: LogState, topic_id: str, subscription: str, ranges: Mapping[int, tuple[tuple[int, int], ...]]
) -> None:
    """Refuse a negative acknowledgement, of ranges [start, end) by partition, of what is acknowledged or
    pending: it is not to be delivered again.

    Nothing of it is in the log: no lease was given on the records, so they are free as they are. Raises
    AckConflictError (``ack-pending``, ``already-acknowledged``), NotFoundError, and OffsetOutOfRangeError at
    or beyond the last stable offset.
    """
    wanted = tuple(AckedPartition(partition, pairs) for partition, pairs in ranges.items())
    op = _operation(Acks(topic_id, subscription, AckMode.INDIVIDUAL, wanted), None)
    known = _subscription(state, op)
    for part in op.partitions:
        _check_offset(state, op, part.partition, part.ranges[-1][1])
        conflict = state.acks(known, TopicPartition(topic_id, part.partition)).conflict(
            Ranges.of(part.ranges)
        )
        if conflict is not None:
            hint = "no action is needed: it is redelivered only after an abort"
            _raise(conflict, state, op, part.partition, hint)


def _subscription(state: LogState, named: Acks | Ack | DeleteSubscription) -> SubscriptionState:
    state.topic_of(named.topic_id, "a subscription")
    return state.subscription(*named.key)


def _check_offset(state: LogState, named: Ack | CreateSubscription, partition: int, end: int) -> None:
    """Refuse a partition that is not there, and an end (exclusive) above what is visible to all."""
    topic = state.topic_of(named.topic_id, "a subscription")
    topic.check_partition(partition)
    known = state.partition(TopicPartition(named.topic_id, partition))
    if end > known.last_stable_offset:
        position = isinstance(named, CreateSubscription) or named.mode is AckMode.SEEK
        raise OffsetOutOfRangeError(
            "a subscription cannot begin beyond the last stable offset"
            if position
            else (
                "a record at or beyond the last stable offset cannot be acknowledged: it cannot have "
                "been read yet"
            ),
            hint="use an offset from earliest to latest, the last stable offset"
            if position
            else "acknowledge records that were received: they lie below the last stable offset",
            topic=topic.name,
            subscription=named.subscription,
            partition=partition,
            got=end if position else end - 1,  # as the caller named it: a record, not the end behind it
            earliest=known.log_start,
            latest=known.last_stable_offset if position else known.last_stable_offset - 1,
        )


def _raise(
    conflict: AckConflict,
    state: LogState,
    named: Ack | DeleteSubscription,
    partition: int,
    hint: str,
) -> NoReturn:
    pending = conflict.kind == ACK_PENDING
    raise AckConflictError(
        "a transaction that has not ended has acknowledged the record"
        if pending
        else "the record is acknowledged already",
        kind=conflict.kind,
        hint=hint,
        topic=state.topics[named.topic_id].name,
        subscription=named.subscription,
        partition=partition,
        offset=conflict.offset,
        **({"transactional_id": conflict.transactional_id} if pending else {}),
    )
