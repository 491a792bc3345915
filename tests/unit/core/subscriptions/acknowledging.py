"""Acknowledgements and a log with a subscription."""

from __future__ import annotations

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.memory_log import ORDERS, Log, rows
from txnformat.core.intents import Acks, OpenProducer, ProducerRef, Write
from txnformat.core.invariants import check_whole
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
)
from txnformat.core.subscriptions.state import PartitionAcks
from txnformat.errors import (
    AckConflictError,
)
from txnformat.persistent import replace

__all__ = [
    "CREATE",
    "KEY",
    "NAME",
    "RECORDS",
    "TOPIC",
    "Pairs",
    "acks_of",
    "below",
    "conflict",
    "each",
    "now",
    "reread",
    "seek",
    "seen",
    "some",
    "subscribed",
    "within",
]

TOPIC = ORDERS.topic_id
NAME = "billing"
KEY = (TOPIC, NAME)
RECORDS = 20
CREATE = CreateSubscription(TOPIC, NAME)
Pairs = tuple[tuple[int, int], ...]


def each(*offsets: int) -> Pairs:
    """Return ranges of one offset each."""
    return tuple((offset, offset + 1) for offset in offsets)


def some(*pairs: tuple[int, int], partition: int = 0) -> Acks:
    """Return individual acknowledgements."""
    return Acks(TOPIC, NAME, AckMode.INDIVIDUAL, (AckedPartition(partition, pairs),))


def below(position: int, partition: int = 0, mode: AckMode = AckMode.CUMULATIVE) -> Acks:
    """Return a cumulative acknowledgement."""
    return Acks(TOPIC, NAME, mode, (AckedPartition(partition, position=position),))


def seek(position: int) -> Write:
    return now(below(position, mode=AckMode.SEEK))


def now(*acks: Acks) -> Write:
    return Write(acks=acks)


def within(producer: ProducerRef, *acks: Acks) -> Write:
    return Write(producer, acks=acks)


def subscribed(*names: str) -> tuple[Log, list[ProducerRef]]:
    """Return a log with a subscription, records in two partitions of ``orders``, and opened producers."""
    names = names or ("etl",)
    log = Log(ORDERS, CREATE, Write(appends=rows(-1, RECORDS, "bulk", 0, 1)), *map(OpenProducer, names))
    return log, [log.producer(name) for name in names]


def acks_of(log: Log, partition: int = 0) -> PartitionAcks:
    assert check_whole(log.state) == []
    return log.state.subscriptions[KEY].partition(partition)


def seen(log: Log) -> tuple[int, list[tuple[int, int]]]:
    """Return the mark and what is acknowledged above it."""
    acks = acks_of(log)
    return acks.mark, acks.acked.pairs()


def reread(log: Log) -> None:
    """A snapshot of the state holds all of it."""
    encoded = encode_snapshot(log.state)
    checkpoint = replace(checkpoint_of(log.state, encoded), digest=state_digest(log.state))
    decoded = decode_snapshot(encoded, checkpoint, log.state.log_id)
    assert decoded.subscriptions == log.state.subscriptions
    assert decoded.transactional_ids == log.state.transactional_ids


def conflict(log: Log, write: Write, kind: str, offset: int, holder: str | None = None) -> None:
    """The write is refused, and says what it meets."""
    error = log.refusal(write)
    assert isinstance(error, AckConflictError), error
    values = {"topic": "orders", "subscription": NAME, "partition": 0, "offset": offset}
    if holder is not None:
        values["transactional_id"] = holder
    assert (error.kind, error.values) == (kind, values)
