"""The operations of subscriptions: plain values. See :mod:`txnformat.operations`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    """What an acknowledgement says."""

    INDIVIDUAL = "individual"
    """Ranges of offsets are acknowledged."""
    CUMULATIVE = "cumulative"
    """Everything below a position is acknowledged."""
    SEEK = "seek"
    """Exactly what is below a position is acknowledged: the subscription begins there again."""


@dataclass(frozen=True, slots=True)
class SubscriptionStart:
    """Where a subscription begins in a partition."""

    partition: int
    offset: int
    """The first that it wants."""


@dataclass(frozen=True, slots=True)
class CreateSubscription:
    """A topic gets a subscription. Partitions that it does not name begin at offset 0, later ones too."""

    topic_id: str
    subscription: str
    starts: tuple[SubscriptionStart, ...] = ()
    intent: int = 0

    @property
    def key(self) -> SubscriptionKey:
        """Return the subscription."""
        return self.topic_id, self.subscription


@dataclass(frozen=True, slots=True)
class DeleteSubscription:
    """A subscription leaves the state, with all its acknowledgements."""

    topic_id: str
    subscription: str
    intent: int = 0

    @property
    def key(self) -> SubscriptionKey:
        """Return the subscription."""
        return self.topic_id, self.subscription


@dataclass(frozen=True, slots=True)
class AckedPartition:
    """What is acknowledged in one partition."""

    partition: int
    ranges: tuple[tuple[int, int], ...] = ()
    """Individual only: [start, end), ascending, of which no two overlap or touch."""
    position: int | None = None
    """Cumulative and seek only: everything below (exclusive)."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Records of one subscription are acknowledged: at once, or with the end of a transaction."""

    topic_id: str
    subscription: str
    mode: AckMode
    partitions: tuple[AckedPartition, ...]
    transactional_id: str | None = None
    """None: at once. Else pending until that id's transaction ends; never of a seek."""
    producer_id: int = -1
    epoch: int = -1
    intent: int = 0

    @property
    def key(self) -> SubscriptionKey:
        """Return the subscription."""
        return self.topic_id, self.subscription
