"""A log with numbered records and a subscription to them."""

from __future__ import annotations

from typing import Any

from tests.integration.clients.failing import NUMBERS, rows
from txnformat.store.memory import MemoryStore
from txnlog import (
    Producer,
    Subscription,
    TxnLog,
)

__all__ = ["fill", "made", "received", "unacknowledged", "work"]


def made(store: Any = None, partitions: int = 1) -> TxnLog:
    """Return a log with ten records in each partition, and a subscription from their beginning on."""
    log = TxnLog.create(store or MemoryStore())
    fill(log, partitions)
    return log


def fill(log: TxnLog, partitions: int = 1) -> None:
    log.create_topic("raw", NUMBERS, partitions=partitions)
    log.create_topic("out", NUMBERS)
    with Producer(log) as producer:
        for number in range(partitions):
            producer.send("raw", rows(*range(10 * number, 10 * number + 10)), partition=number)
    log.subscriptions.create("raw", "work")


def work(log: TxnLog) -> Subscription:
    return Subscription(log, "raw", "work")


def received(subscription: Subscription, most: int = 100) -> list[int]:
    """Receive all there is now."""
    found: list[int] = []
    while (batch := subscription.receive(most, timeout_ms=0)) is not None:
        found += batch.column("n").to_pylist()
    return found


def unacknowledged(log: TxnLog) -> int:
    return log.subscriptions.describe("raw", "work").unacknowledged
