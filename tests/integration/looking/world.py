"""A log with transactions of every outcome, on a clock that a test moves."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa

from tests.cli.left_open import prepare
from tests.model.groups import ManualClock
from txnformat.admin.describe import PartitionOffsets
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, Producer, TxnLog

__all__ = ["SCHEMA", "World"]

SCHEMA = pa.schema([("id", pa.int64())])

_numbers = itertools.count()


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number} for number in range(count)]


class World:
    """A log of two topics; ``seen`` has the offsets of every entry after which they were looked at."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, f"looked-at-{next(_numbers)}")
        self.log = TxnLog.create(self.store, clock=self.clock)
        self.log.create_topic("a", SCHEMA, partitions=2)
        self.log.create_topic("b", SCHEMA)
        self.seen: dict[int, list[PartitionOffsets]] = {}
        self.look()

    def look(self) -> int:
        """Note the offsets as the log tells them now; return its newest entry."""
        self.clock.sleep(1)
        entry = self.log.refresh().entry
        self.seen[entry] = [part for topic in self.log.topics() for part in self.log.offsets(topic)]
        return entry

    def opened(self, store: ObjectStore | None = None) -> TxnLog:
        """Return the log as another process opens it."""
        return TxnLog.open(self.store if store is None else store, clock=self.clock)

    def begun(self, name: str, *, buffer: str = "inline", records: int = 3, **settings: Any) -> Producer:
        """Return a producer whose transaction has records in both partitions of one topic, and in the other
        topic."""
        producer = Producer(self.log, name, buffer=buffer, **settings)
        producer.init()
        producer.begin()
        for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
            producer.send(topic, rows(records), partition=partition)
            producer.flush()
            self.look()
        return producer

    def everything(self) -> None:
        """Let transactions end in every way, and leave some open."""
        for name, end, buffer in (
            ("kept", "commit", "inline"),
            ("lost", "abort", "inline"),
            ("staged", "commit", "deferred"),
            ("unstaged", "abort", "deferred"),
        ):
            getattr(self.begun(name, buffer=buffer), end)()
            self.look()
        with Producer(self.log) as producer:
            producer.send("a", rows(2), partition=0)
        self.look()
        with Consumer(self.log, "readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["a"])
            consumer.poll()
            consumer.commit()
        self.look()
        self.begun("fenced")
        Producer(self.log, "fenced").init()  # aborts what the instance before left
        self.look()
        self.begun("late", transaction_timeout_ms=2_000)
        self.begun("prepared")
        prepare(self.log, "prepared")
        self.look()
        self.begun("open", transaction_timeout_ms=600_000)
        self.begun("open-staged", buffer="deferred")
