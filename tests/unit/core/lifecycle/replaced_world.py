"""A log in memory with listed segments, and the operations that put compacted ones in their place."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.unit.core.memory_log import COMMIT, ORDERS, Log, rows
from txnformat.core.intents import EnableFeatures, OpenProducer, ReplaceSegments, SealSegments, Write
from txnformat.core.lifecycle.operations import CompactedRange, CompactedSegment, Replace, ReplacedList
from txnformat.core.operations import Seal
from txnformat.core.state import LIFECYCLE
from txnformat.keys import sidecar_key, table_key
from txnformat.types import ObjectRecord, SegmentListRecord, TopicPartition
from txnlog_testing.seal_of import seal_of

__all__ = ["INDEX", "KEY", "NEW", "OLD", "SHA", "UUID", "compacted", "intent", "listed", "named", "operation"]

KEY = TopicPartition(ORDERS.topic_id, 0)
UUID = "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f"
SHA = "ab" * 32


def named(number: int, first: int = 0) -> SegmentListRecord:
    return SegmentListRecord(table_key(0, f"00000000-0000-4000-8000-{number:012}"), 1, SHA, first, 1)


OLD, NEW = named(1), named(2)
INDEX = ObjectRecord(sidecar_key(ORDERS.directory, 0, UUID, "runs"), 10, SHA)


def listed(*, upgraded: bool = True) -> Log:
    """Return a log with 4 records and 2 markers in partition 0, sealed and listed."""
    log = Log(ORDERS, OpenProducer("etl"))
    log.commit(Write(log.producer(), rows(), end=COMMIT))
    log.commit(Write(log.producer(), rows(content="more"), end=COMMIT))
    seal = seal_of(log.state)
    log.commit(SealSegments(Seal(seal.segments, OLD, len(seal.segments))))
    if upgraded:
        log.commit(EnableFeatures((LIFECYCLE,)))
    return log


def compacted(log: Log, **values: Any) -> CompactedRange:
    sealed = log.state.partition(KEY).sealed
    part = CompactedRange(0, 0, 6, 0, 1, 4, 50, 1, 2, sealed.records, sealed.size, 0, 0)
    return msgspec.structs.replace(part, **values)


def operation(*parts: CompactedRange, **values: Any) -> Replace:
    op = Replace(ORDERS.topic_id, (CompactedSegment(INDEX, parts),), (ReplacedList(OLD.key, NEW),))
    return msgspec.structs.replace(op, **values)


def intent(op: Replace, log_start: int = 0) -> ReplaceSegments:
    return ReplaceSegments(op, {0: log_start})
