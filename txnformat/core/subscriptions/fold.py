"""Folding what concerns subscriptions: they come and go, and what is acknowledged, at once or in a
transaction.

Pure.

A conflict was refused when it was decided (:mod:`txnformat.core.subscriptions.state` has the rules of both):
here it means that the log is corrupt.
"""

from __future__ import annotations

from collections.abc import Container

from txnformat.core.folding import At, corrupt
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import (
    Ack,
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
)
from txnformat.core.subscriptions.state import ACK_RANGES_MAX, AckConflict, PartitionAcks, SubscriptionState
from txnformat.core.transactions.fold import ongoing, owner_of
from txnformat.core.transactions.state import TransactionStatus, is_legal_transition
from txnformat.persistent import including, put, replace, without
from txnformat.types import TopicPartition

__all__ = ["acknowledge", "create_subscription", "delete_subscription"]


def create_subscription(state: LogState, op: CreateSubscription, at: At) -> LogState:
    """Return the state with one more subscription."""
    if op.topic_id not in state.topics or op.key in state.subscriptions:
        corrupt(at, "a subscription has no topic, or exists already", subscription=op.subscription)
    made = SubscriptionState(created_entry=at.entry, used_entry=at.entry, used_ms=at.timestamp_ms)
    starts: dict[int, PartitionAcks] = {}
    for start in op.starts:
        _check_partition(state, op.topic_id, start.partition, starts, start.offset, at)
        starts[start.partition] = PartitionAcks(start.offset)
    made = made.with_partitions(starts)
    return replace(state, subscriptions=put(state.subscriptions, op.key, made))


def delete_subscription(state: LogState, op: DeleteSubscription, at: At) -> LogState:
    """Return the state without a subscription."""
    subscription = state.subscriptions.get(op.key)
    if subscription is None or subscription.holders():
        corrupt(
            at,
            "a subscription is deleted that is not there, or has pending acknowledgements",
            subscription=op.subscription,
        )
    return replace(state, subscriptions=without(state.subscriptions, (op.key,)))


def acknowledge(state: LogState, op: Ack, at: At) -> LogState:
    """Return the state after records were acknowledged, or are pending in a transaction."""
    subscription = state.subscriptions.get(op.key)
    if subscription is None or not op.partitions:
        corrupt(at, "an acknowledgement names no subscription, or no records", subscription=op.subscription)
    changed: dict[int, PartitionAcks] = {}
    for part in op.partitions:
        end = part.ranges[-1][1] if part.ranges else part.position
        if end is None:
            corrupt(at, "nothing is acknowledged in a partition", partition=part.partition)
        _check_partition(state, op.topic_id, part.partition, changed, end, at)
        acks = state.kept_acks(subscription, TopicPartition(op.topic_id, part.partition))
        changed[part.partition] = _acknowledged(acks, op, part, at)
    subscription = replace(
        subscription.with_partitions(changed), used_entry=at.entry, used_ms=at.timestamp_ms
    )
    state = replace(state, subscriptions=put(state.subscriptions, op.key, subscription))
    if op.transactional_id is None:
        return state
    if op.key in at.holding:
        at.holding[op.key].setdefault(op.transactional_id, set()).update(changed)
    owner = owner_of(state, op.transactional_id, op.producer_id, op.epoch, at)
    if op.mode is AckMode.SEEK or not is_legal_transition(owner.status, TransactionStatus.ONGOING):
        corrupt(
            at,
            "a seek is in a transaction, or an acknowledgement joins one that is prepared",
            producer_id=op.producer_id,
        )
    joined = ongoing(owner, at, subscriptions=including(owner.subscriptions, op.key))
    return state.with_transactional_id(op.transactional_id, joined)


def _check_partition(
    state: LogState, topic_id: str, partition: int, named: Container[int], offset: int, at: At
) -> None:
    if not 0 <= partition < state.topics[topic_id].partitions or partition in named:
        corrupt(at, "a subscription names a partition wrongly", topic_id=topic_id, partition=partition)
    latest = state.partition(TopicPartition(topic_id, partition)).last_stable_offset
    if offset > latest:
        corrupt(
            at, "a subscription goes beyond the last stable offset", expected=f"at most {latest}", got=offset
        )


def _acknowledged(acks: PartitionAcks, op: Ack, part: AckedPartition, at: At) -> PartitionAcks:
    after = acks.after(op.mode, part, op.transactional_id)
    if isinstance(after, AckConflict):
        corrupt(
            at,
            "an acknowledged offset is acknowledged already, or pending",
            partition=part.partition,
            conflict=after.kind,
            offset=after.offset,
            transactional_id=after.transactional_id,
        )
    if after.range_count() > ACK_RANGES_MAX:
        corrupt(
            at,
            "too many separate ranges are acknowledged",
            expected=f"at most {ACK_RANGES_MAX}",
            got=after.range_count(),
        )
    return after
