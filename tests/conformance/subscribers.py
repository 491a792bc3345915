"""Subscriptions of the topic ``t`` for the tests that hold acknowledgements to Pulsar's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.pulsar import NUMBERS, again, new_log
from txnformat.clock import Clock
from txnformat.core.subscriptions.state import PartitionAcks
from txnformat.store.base import ObjectStore
from txnlog import AckConflictError, Producer, Subscription, TxnLog

__all__ = [
    "BATCHES",
    "SUB",
    "acks_of",
    "figures",
    "fill",
    "numbers",
    "received",
    "refused",
    "subscribed",
    "worker",
]

SUB = "sub"

BATCHES = pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
"""Whether each message is an append of its own, or all of them are one batch."""


def fill(log: TxnLog, content: Iterable[int], *, batched: bool = True, partition: int = 0) -> None:
    """Append messages outside of any transaction."""
    sent = list(content)
    with Producer(log) as producer:
        for some in [sent] if batched else [[n] for n in sent]:
            producer.send("t", pa.table({"n": some}, schema=NUMBERS), partition=partition)
            producer.flush()


def subscribed(
    messages: int = 10,
    store: ObjectStore | None = None,
    *,
    partitions: int = 1,
    batched: bool = True,
    clock: Clock | None = None,
) -> TxnLog:
    """Return a log with messages 0, 1, … in each partition, and a subscription from their beginning on."""
    log = new_log(store, partitions, clock)
    for partition in range(partitions):
        fill(
            log, range(messages * partition, messages * (partition + 1)), batched=batched, partition=partition
        )
    log.subscriptions.create("t", SUB)
    return log


def worker(log: TxnLog, name: str = SUB) -> Subscription:
    """Return an instance of a subscription, in a process that has just opened the log."""
    return Subscription(again(log), "t", name)


def received(subscription: Subscription, most: int = 10_000) -> list[dict[str, Any]]:
    """Receive what there is now, at most ``most`` at once."""
    found: list[dict[str, Any]] = []
    while some := subscription.receive_dicts(most, timeout_ms=0):
        found += some
    return found


def numbers(subscription: Subscription, most: int = 10_000) -> list[int]:
    """Receive what there is now, and return the messages' content."""
    return [each["n"] for each in received(subscription, most)]


def refused(call: Any, *arguments: Any, kind: str = "ack-pending") -> None:
    """Call what must be refused as a conflict of acknowledgements (Pulsar: TransactionConflictException)."""
    with pytest.raises(AckConflictError) as caught:
        call(*arguments)
    assert caught.value.kind == kind


def figures(log: TxnLog, name: str = SUB) -> tuple[int, int]:
    """Return how many messages are not acknowledged, and how many of those are pending."""
    details = again(log).subscriptions.describe("t", name)
    return details.unacknowledged, sum(each.pending for each in details.partitions)


def acks_of(log: TxnLog, partition: int = 0, name: str = SUB) -> PartitionAcks:
    """Return what a process that has just opened the log knows of a subscription."""
    state = again(log).state
    return state.subscriptions[state.topic("t").topic_id, name].partition(partition)
