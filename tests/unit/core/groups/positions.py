"""Positions of a group and a log with records to read."""

from __future__ import annotations

from tests.unit.core.memory_log import ORDERS, Log, rows
from txnformat.core.groups.operations import OffsetCommit
from txnformat.core.intents import (
    GroupOffsets,
    JoinAsMember,
    OpenProducer,
    ProducerRef,
    Write,
)
from txnformat.types import TopicPartition

__all__ = ["GROUP", "JOIN", "KEY", "at", "now", "with_records", "within"]

GROUP = "readers"
KEY = TopicPartition(ORDERS.topic_id, 0)
JOIN = JoinAsMember(GROUP, "a process", 45_000)


def at(offset: int, expected: int | None = None, partition: int = 0, **more: object) -> GroupOffsets:
    """Return the commit of one offset of ``orders``."""
    commit = OffsetCommit(ORDERS.topic_id, partition, offset, "", expected)
    return GroupOffsets(GROUP, (commit,), **more)  # type: ignore[arg-type]


def now(offset: int, expected: int | None = None, **more: object) -> Write:
    """Return a commit outside of transactions."""
    return Write(offsets=(at(offset, expected, **more),))  # type: ignore[arg-type]


def within(producer: ProducerRef, offset: int, expected: int | None = None) -> Write:
    """Return a commit in the producer's transaction."""
    return Write(producer, offsets=(at(offset, expected),))


def with_records(*names: str) -> tuple[Log, list[ProducerRef]]:
    """Return a log with ten records in each partition of ``orders``, and opened producers."""
    log = Log(ORDERS, Write(appends=rows(-1, 10, "bulk", 0, 1)), *map(OpenProducer, names or ("etl",)))
    return log, [log.producer(name) for name in names or ("etl",)]
