"""The operations of subscriptions: plain values. See :mod:`txnformat.core.operations`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from txnformat.field_types import (
    FEATURE,
    LEFT_OUT,
    Count,
    OrMinusOne,
    PartitionNumber,
    ReaderName,
    TransactionalId,
    Uuid,
)

__all__ = [
    "Ack",
    "AckMode",
    "AckedPartition",
    "CreateSubscription",
    "DeleteSubscription",
    "SubscriptionKey",
    "SubscriptionStart",
]

SubscriptionKey = tuple[str, str]
"""Topic id, and the name of a subscription of it."""


class AckMode(StrEnum):
    """Modes of an acknowledgement."""

    INDIVIDUAL = "individual"
    """Ranges of offsets are acknowledged."""
    CUMULATIVE = "cumulative"
    """Everything below a position is acknowledged."""
    SEEK = "seek"
    """Exactly what is below a position is acknowledged: the subscription begins there again."""


class SubscriptionStart(Struct, frozen=True, gc=False):
    """Where a subscription begins in a partition."""

    partition: PartitionNumber
    offset: Count
    """The first that it wants."""


class CreateSubscription(Struct, frozen=True, tag_field="operation", tag="create_subscription"):
    """A topic gets a subscription. Partitions that it does not name begin at offset 0, later ones too."""

    topic_id: Uuid
    subscription: ReaderName
    starts: Annotated[tuple[SubscriptionStart, ...], LEFT_OUT] = ()
    intent: Count = 0

    @property
    def key(self) -> SubscriptionKey:
        """Return the subscription."""
        return self.topic_id, self.subscription


class DeleteSubscription(Struct, frozen=True, tag_field="operation", tag="delete_subscription"):
    """A subscription leaves the state, with all its acknowledgements."""

    topic_id: Uuid
    subscription: ReaderName
    intent: Count = 0

    @property
    def key(self) -> SubscriptionKey:
        """Return the subscription."""
        return self.topic_id, self.subscription


class AckedPartition(Struct, frozen=True, gc=False, omit_defaults=True):
    """The acknowledged offsets of one partition."""

    partition: PartitionNumber
    ranges: tuple[tuple[Count, Count], ...] = ()
    """Individual only: [start, end), ascending, of which no two overlap or touch."""
    position: Count | None = None
    """Cumulative and seek only: everything below (exclusive)."""


class Ack(Struct, frozen=True, tag_field="operation", tag="ack"):
    """Records of one subscription are acknowledged: at once, or with the end of a transaction."""

    topic_id: Uuid
    subscription: ReaderName
    mode: Annotated[AckMode, FEATURE]
    partitions: tuple[AckedPartition, ...]
    transactional_id: TransactionalId | None = None
    """The transaction that acknowledges: pending until it ends; never of a seek. If None, acknowledged at
    once."""
    producer_id: OrMinusOne = -1
    epoch: OrMinusOne = -1
    intent: Count = 0

    @property
    def key(self) -> SubscriptionKey:
        """Return the subscription."""
        return self.topic_id, self.subscription
