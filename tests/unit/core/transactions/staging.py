"""Records that a transaction stages and appends when it ends."""

from __future__ import annotations

from tests.unit.core.memory_log import ORDERS, Log
from txnformat import keys
from txnformat.core.intents import (
    ProducerRef,
    TopicAppend,
    Verdict,
    Write,
)
from txnformat.persistent import replace
from txnformat.types import ObjectRecord
from txnlog_testing.strategies import make_append

__all__ = ["SHA", "stage", "staged"]

SHA = "cd" * 32


def staged(
    sequence: int = 0, records: int = 2, content: str = "rows", partitions: tuple[int, ...] = (0,)
) -> tuple[TopicAppend, ...]:
    """Return an append in the form in which it can be staged: its batches are in a table."""
    append = make_append(ORDERS, dict.fromkeys(partitions, (sequence, records)), content=content)
    table = ObjectRecord(keys.table_key(0, append.files[0].key[-44:-8]), 100, SHA)
    return (replace(append, batches=(), table=table),)


def stage(log: Log, producer: ProducerRef, *args: object, **more: object) -> Verdict:
    return log.commit(Write(producer, staged(*args, **more), deferred=True))  # type: ignore[arg-type]
