"""Logs, producers and readers for the tests that hold txnlog to Pulsar's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from txnformat.clock import Clock
from txnformat.core.intents import TakeCheckpoint
from txnformat.protocol.snapshots import write_hint, write_snapshot
from txnformat.protocol.view import View
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from writers.settings import Buffer

__all__ = [
    "AT_COMMIT",
    "BUFFERS",
    "NUMBERS",
    "again",
    "new_log",
    "opened",
    "plain",
    "read",
    "send",
    "snapshot",
    "stable",
]

NUMBERS = pa.schema([("n", pa.int64())])

BUFFERS = pytest.mark.parametrize("buffer", list(Buffer), ids=str)
"""Every buffer that a producer has: a new one joins by itself."""

AT_COMMIT = pytest.mark.parametrize("buffer", [each for each in Buffer if each is not Buffer.INLINE], ids=str)
"""The buffers whose records get their offsets when the transaction commits (PIP-31's sidecar approach)."""


def new_log(store: ObjectStore | None = None, partitions: int = 1, clock: Clock | None = None) -> TxnLog:
    """Return a log with the topic ``t``."""
    log = TxnLog.create(store or MemoryStore(clock), clock=clock)
    log.create_topic("t", NUMBERS, partitions=partitions)
    return log


def again(log: TxnLog) -> TxnLog:
    """Return the log as a process opens it that knows nothing of it yet."""
    return TxnLog.open(log.store, clock=log.committer.clock)


def opened(log: TxnLog, name: str, buffer: str = Buffer.INLINE, **settings: Any) -> Producer:
    """Return a transactional producer with an open transaction."""
    producer = Producer(log, name, buffer=buffer, **settings)
    producer.init()
    producer.begin()
    return producer


def send(producer: Producer, *numbers: int, partition: int = 0) -> None:
    """Send one record for each number, and flush after each."""
    for n in numbers:
        producer.send("t", [{"n": n}], partition=partition)
        producer.flush()


def plain(log: TxnLog, *numbers: int, partition: int = 0) -> None:
    """Append records outside of any transaction."""
    with Producer(log) as producer:
        send(producer, *numbers, partition=partition)


def read(log: TxnLog, isolation: str = "read_committed", **options: Any) -> list[int]:
    """Return what a reader gets of ``t`` that has just opened the log."""
    found: list[int] = again(log).read("t", isolation=isolation, **options).read_all().column("n").to_pylist()
    return found


def stable(log: TxnLog, partition: int = 0) -> int:
    """Return the last stable offset."""
    return log.offsets("t")[partition].last_stable_offset


def snapshot(log: TxnLog) -> int:
    """Write a snapshot of the newest state, name it, and return its entry: whoever opens the log begins with
    it."""
    committer = log.committer
    checkpoint = committer.read(write_snapshot(View(log.refresh())))
    committer.commit(committer.intend(TakeCheckpoint(checkpoint)))
    committer.read(write_hint(checkpoint))
    return checkpoint.entry
