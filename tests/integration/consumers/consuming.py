"""A log in memory, as the tests of consumers share it: its time passes only where somebody waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS, QuickClock, rows
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import TopicPartition
from txnlog import Consumer, Producer, TxnLog, TxnLogError
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.latency import FarStore

DATA_GET = RequestClass(RequestKind.GET_RANGE, KeyClass.DATA)
ENTRY_GET = RequestClass(RequestKind.GET, KeyClass.ENTRY)

ENTRY_PUT = RequestClass(RequestKind.CREATE, KeyClass.ENTRY)
T0 = ("t", 0)


class World:
    """A log with the topic ``t`` of some partitions, those who write to it, and the requests of those who
    read."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        is_far: bool = False,
        clock: QuickClock | None = None,
        embedding: bool | None = None,
    ) -> None:
        """``is_far``: the store of readers says that each request is a round trip."""
        self.clock = clock or QuickClock()
        self.memory = MemoryStore(self.clock)
        self.writing = TxnLog.create(self.memory, clock=self.clock, embedding=embedding)
        self.writing.create_topic("t", NUMBERS, partitions=partitions)
        self.store = CountingStore(FarStore(self.memory) if is_far else self.memory)
        self.log = TxnLog.open(self.store, clock=self.clock)
        self._producers: dict[str, Producer] = {}

    def producer(self, name: str = "p") -> Producer:
        """Return an open producer whose flushes are in the log at once."""
        if name not in self._producers:
            self._producers[name] = Producer(self.writing, name, buffer="inline")
            self._producers[name].init()
        return self._producers[name]

    def append(
        self, *numbers: int, partition: int = 0, topic: str = "t", producer: str = "p", commit: bool = True
    ) -> None:
        """Write a transaction of one batch and its marker."""
        writer = self.producer(producer)
        writer.begin()
        writer.send(topic, rows(*numbers), partition=partition)
        writer.flush()
        writer.commit() if commit else writer.abort()

    def abort(self, *numbers: int, partition: int = 0) -> None:
        self.append(*numbers, partition=partition, commit=False)

    def begin(self, *numbers: int, partition: int = 0, producer: str = "open") -> Producer:
        """Leave a transaction open behind some records."""
        writer = self.producer(producer)
        writer.begin()
        writer.send("t", rows(*numbers), partition=partition)
        writer.flush()
        return writer

    def consumer(self, *partitions: int, **settings: Any) -> Consumer:
        """Return a consumer of some partitions of ``t``; of the whole topic, if none is named."""
        consumer = Consumer(self.log, **settings)
        if partitions:
            consumer.assign([("t", number) for number in partitions])
        else:
            consumer.subscribe(["t"])
        return consumer


class HookedStore(CountingStore):
    """A store with something that happens before each ranged read."""

    def __init__(self, inner: ObjectStore, before: Callable[[], None]) -> None:
        super().__init__(inner)
        self._before = before

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._before()
        return super().get_range(key, start, length)


def numbers(batch: pa.RecordBatch | None) -> list[int] | None:
    """Return what is in the column ``n``; None where there is no batch."""
    return None if batch is None else batch.column("n").to_pylist()


def drained(consumer: Consumer, max_records: int | None = None) -> list[int]:
    """Return all that a consumer can read now."""
    return [number for batch in consumer.batches(max_records) for number in batch.column("n").to_pylist()]


def refuses(error: type[TxnLogError], kind: str, call: Callable[[], object]) -> TxnLogError:
    """Return the error of a call, which has this class and kind."""
    with pytest.raises(error) as caught:
        call()
    assert (type(caught.value), caught.value.kind) == (error, kind)
    return caught.value


def reading(world: World, group: str = "g", **settings: Any) -> Consumer:
    """Return a consumer in a group, in a process of its own."""
    return Consumer(TxnLog.open(world.store, clock=world.clock), group, **settings)


def subscribed(world: World, group: str = "g", **settings: Any) -> Consumer:
    consumer = reading(world, group, **settings)
    consumer.subscribe(["t"])
    return consumer


def committed(world: World, group: str = "g", partition: int = 0) -> int | None:
    """Return what is in force, whatever is pending."""
    state = world.writing.refresh()
    found = state.groups.get(group)
    value = -1 if found is None else found.value(TopicPartition(state.topic_ids["t"], partition))
    assert isinstance(value, int)
    return None if value < 0 else value
