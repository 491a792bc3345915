"""Invariants of subscriptions, for every state and every step. Pure. See :mod:`txnformat.core.invariants`."""

from __future__ import annotations

from collections.abc import Iterator

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.operations import EndTxn, InitProducer
from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import (
    Ack,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionKey,
)
from txnformat.core.subscriptions.state import ACK_RANGES_MAX, PartitionAcks, SubscriptionState
from txnformat.core.transactions.state import UNDECIDED
from txnformat.types import TopicPartition

__all__ = ["check_subscriptions", "check_subscriptions_step"]

_Problems = Iterator[str]


def check_subscriptions_step(before: LogState, entry: CommitEntry, after: LogState) -> list[str]:
    """Return the violations of what an entry does to subscriptions; the cost is that of those that it
    names.
    """
    named: set[SubscriptionKey] = set()
    gone: set[SubscriptionKey] = set()
    anew: set[SubscriptionKey] = set()
    deleted: set[str] = set()
    for operation in entry.operations:
        match operation:
            case Ack():
                named.add(operation.key)
                if operation.mode is AckMode.SEEK:
                    anew.add(operation.key)
            case CreateSubscription():
                named.add(operation.key)
                gone.discard(operation.key)
            case DeleteTopic():
                deleted.add(operation.topic_id)
            case DeleteSubscription():
                gone.add(operation.key)
                anew.add(operation.key)
            case EndTxn() | InitProducer():
                known = before.transactional_ids.get(operation.transactional_id)
                named |= known.subscriptions if known is not None else frozenset()
            case _:
                pass
    problems = [
        f"I19 subscription {key}: it is still there" for key in sorted(gone) if key in after.subscriptions
    ]
    for key in sorted(key for key in named - gone if key[0] not in deleted):
        new = after.subscriptions.get(key)
        if new is None:
            problems.append(f"I19 subscription {key}: it is gone")
            continue
        if key not in anew and key in before.subscriptions:
            problems += _check_grows(key, before.subscriptions[key], new)
        problems += _check_subscription(key, new, after)
    return problems


def _check_grows(key: SubscriptionKey, old: SubscriptionState, new: SubscriptionState) -> _Problems:
    for number, acks in old.partitions.items():
        if len(acks.whole() - new.partition(number).whole()):
            yield f"I19 subscription {key}: an acknowledgement in partition {number} no longer holds"


def check_subscriptions(state: LogState) -> list[str]:
    """Return the violations in the subscriptions of one state."""
    problems: list[str] = []
    for key, subscription in sorted(state.subscriptions.items()):
        problems += _check_subscription(key, subscription, state)
    for transactional_id, known in sorted(state.transactional_ids.items()):
        pending = {key for key, one in state.subscriptions.items() if transactional_id in one.holders()}
        if pending != known.subscriptions:
            problems.append(
                f"I19 id {transactional_id}: it has acknowledgements pending of {sorted(pending)}, and "
                f"names {sorted(known.subscriptions)}"
            )
    return problems


def _check_subscription(key: SubscriptionKey, subscription: SubscriptionState, state: LogState) -> _Problems:
    topic = state.topics.get(key[0])
    for number, acks in subscription.partitions.items():
        name = f"I19 subscription {key}: partition {number}"
        if topic is None or not 0 <= number < topic.partitions:
            yield f"{name}: there is none"
            continue
        for transactional_id in acks.pending:
            known = state.transactional_ids.get(transactional_id)
            if known is None or known.status not in UNDECIDED or key not in known.subscriptions:
                yield f"{name}: {transactional_id} has no open transaction with acknowledgements of it"
        partition = state.partition(TopicPartition(key[0], number))
        found = _check_acks(acks, partition.log_start, partition.last_stable_offset)
        yield from (f"{name}: {problem}" for problem in found)


def _check_acks(acks: PartitionAcks, log_start: int, last_stable_offset: int) -> _Problems:
    if acks.range_count() > ACK_RANGES_MAX:
        yield f"it has {acks.range_count()} ranges"
    if len(acks.acked) and acks.acked.starts[0] <= acks.mark:
        yield f"it has ranges at or below its mark {acks.mark}"
    taken, apart = NO_RANGES, True
    for held in acks.pending.values():
        if not len(held.ranges) and held.position is None:
            yield "a transaction holds nothing"
        parts = held.ranges.above(min(acks.mark, log_start))  # a mark of removed records may be above
        if held.position is not None:
            apart &= acks.mark < held.position or 0 < held.position <= log_start
            apart &= not len(held.ranges.below(held.position))
            parts = parts | (Ranges.of([(acks.mark, held.position)]) - acks.acked)
        apart &= taken.first_common(parts) is None
        taken = taken | parts
    if not apart or acks.whole().first_common(taken) is not None:
        yield "something is pending twice, or pending and acknowledged"
    ends = (acks.whole() | taken).ends
    if len(ends) and ends[-1] > last_stable_offset:
        yield f"it goes to {ends[-1]}, beyond the last stable offset {last_stable_offset}"
