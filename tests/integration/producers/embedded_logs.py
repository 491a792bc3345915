"""Logs in which small transactions travel in their entries, and all that readers see of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

__all__ = ["ALL", "SCHEMA", "copy_of", "log_on", "rows", "seen", "write"]

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
ALL = ["n", "text", "_partition", "_offset", "_entry", "_commit_entry", "_producer_id", "_producer_epoch"]


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]}, schema=SCHEMA)


def log_on(store: Any, *, embedding: bool = True, **topic: Any) -> TxnLog:
    log = TxnLog.create(store, embedding=embedding)
    for name in ("t", "u"):
        log.create_topic(name, SCHEMA, partitions=3, **topic)
    return log


def seen(log: TxnLog) -> dict[str, list[dict[str, Any]]]:
    """Return all that readers see of a topic, by isolation level."""
    return {
        isolation: log.read("t", columns=ALL, isolation=isolation).read_all().to_pylist()
        for isolation in ("read_committed", "read_uncommitted", "snapshot")
    }


def write(log: TxnLog) -> None:
    """Commit, abort and leave open, inline and in one entry."""
    with Producer(log, "one") as producer:
        for number in range(6):
            producer.begin()
            producer.send("t", rows(number, number + 100))
            if number % 3 == 2:
                producer.abort()
            else:
                producer.commit()
    with Producer(log, "inline", buffer="inline") as producer:
        for number in range(6, 12):
            producer.begin()
            producer.send("t", rows(number))
            producer.flush()
            producer.send("t", rows(number + 100))
            if number % 2:
                producer.abort()
            else:
                producer.commit()


def copy_of(store: Any) -> CountingStore:
    other = MemoryStore()
    for info in store.list(""):
        other.put(info.key, store.get(info.key) or b"")
    return CountingStore(other)
