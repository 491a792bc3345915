"""What the tests of lingering transactions share: a log with a clock of the test's own, producers,
readers.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from txnformat.clock import Instant
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])


class Clock:
    """Goes only when it is told to."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now(self) -> Instant:
        """Return the time of both clocks."""
        return Instant(self.ms, self.ms)

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Let the time pass at once."""
        self.ms += round(seconds * 1_000)


class Scene:
    """A log with topic ``t`` of two partitions, and what happens to it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.log = TxnLog.create(self.store, clock=self.clock)
        self.log.create_topic("t", NUMBERS, partitions=2)

    def other_process(self) -> TxnLog:
        """Return the log as another process has it."""
        return TxnLog.open(self.store, clock=self.clock)

    def begun(self, name: str, *numbers: int, partition: int = 0, **settings: Any) -> Producer:
        """Return a producer with an open transaction that has appended ``numbers``."""
        settings = {"buffer": "inline", **settings}
        producer = Producer(self.other_process(), name, **settings)
        producer.init()
        producer.begin()
        for number in numbers:
            send(producer, number, partition)
        return producer

    def read(self, partition: int = 0, start: int | None = None, **more: Any) -> list[int]:
        """Return what a new reader reads of a partition."""
        read = self.other_process().read("t", partitions=[partition], start=start, **more)
        found: list[int] = read.read_all().column("n").to_pylist()
        return found

    def stable(self, partition: int = 0) -> int:
        """Return a partition's last stable offset."""
        return self.other_process().offsets("t")[partition].last_stable_offset


def send(producer: Producer, number: int, partition: int = 0) -> None:
    """Send one record, and flush."""
    producer.send("t", [{"n": number}], partition=partition)
    producer.flush()
