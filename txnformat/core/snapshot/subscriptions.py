"""Subscriptions in the JSON section of a snapshot. Pure. See :mod:`txnformat.core.snapshot.state`."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from txnformat.core.operation_codec import check_ranges
from txnformat.core.ranges import Ranges
from txnformat.core.subscriptions.operations import SubscriptionKey
from txnformat.core.subscriptions.state import PartitionAcks, PendingAcks, SubscriptionState
from txnformat.field_types import Count, LogTime, PartitionNumber, ReaderName, TransactionalId, Uuid

__all__ = ["AcksRow", "PendingAcksRow", "SubscriptionRow", "decode_subscription", "encode_subscription"]

Pairs = tuple[tuple[Count, Count], ...]


class PendingAcksRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """The offsets that a transaction has acknowledged in a partition, pending."""

    transactional_id: TransactionalId
    ranges: Pairs
    position: Count | UnsetType | None = UNSET


class AcksRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """The acknowledged offsets of a partition."""

    partition: PartitionNumber
    mark: Count
    acked: Pairs
    pending: tuple[PendingAcksRow, ...]


class SubscriptionRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A subscription."""

    topic_id: Uuid
    subscription: ReaderName
    partitions: tuple[AcksRow, ...]
    created_entry: Count
    used_entry: Count
    used_ms: LogTime


def encode_subscription(key: SubscriptionKey, subscription: SubscriptionState) -> SubscriptionRow:
    """Return the row of a subscription."""
    return SubscriptionRow(
        *key,
        tuple(
            AcksRow(
                number,
                acks.mark,
                tuple(acks.acked.pairs()),
                tuple(
                    PendingAcksRow(transactional_id, tuple(held.ranges.pairs()), held.position)
                    for transactional_id, held in sorted(acks.pending.items())
                ),
            )
            for number, acks in sorted(subscription.partitions.items())
        ),
        subscription.created_entry,
        subscription.used_entry,
        subscription.used_ms,
    )


def decode_subscription(row: SubscriptionRow, path: str) -> tuple[SubscriptionKey, SubscriptionState]:
    """Return the subscription that a row says, and its topic id and name."""
    partitions = {}
    for index, acks in enumerate(row.partitions):
        where = f"{path}.partitions[{index}]"
        check_ranges(acks.acked, "acked", where)
        for held in acks.pending:
            check_ranges(held.ranges, "ranges", where)
        partitions[acks.partition] = PartitionAcks(
            acks.mark,
            Ranges.of(acks.acked),
            {
                held.transactional_id: PendingAcks(
                    Ranges.of(held.ranges), None if held.position is UNSET else held.position
                )
                for held in acks.pending
            },
        )
    state = SubscriptionState(partitions, row.created_entry, row.used_entry, row.used_ms)
    return (row.topic_id, row.subscription), state
