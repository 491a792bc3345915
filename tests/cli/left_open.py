"""Transactions that producers left open or prepared."""

from __future__ import annotations

from txnformat.clock import Instant, SystemClock
from txnformat.core.intents import ProducerRef, Write
from txnlog import Producer, TxnLog

__all__ = ["HourAgo", "left_open", "prepare"]


class HourAgo(SystemClock):
    """A machine whose log is an hour old."""

    def now(self) -> Instant:
        now = super().now()
        return now._replace(wall_ms=now.wall_ms - 3_600_000)


def left_open(log: TxnLog, *names: str) -> list[Producer]:
    """Leave an open transaction of one record under each id."""
    found = []
    for name in names:
        producer = Producer(log, name, buffer="inline")
        producer.init()
        producer.begin()
        producer.send("t", [{"id": 1}], partition=0)
        producer.flush()
        found.append(producer)
    return found


def prepare(log: TxnLog, name: str) -> None:
    """Let the id's open transaction wait for an outcome that is decided elsewhere."""
    known = log.refresh().transactional_ids[name]
    producer = ProducerRef(known.producer_id, known.epoch, name)
    log.committer.commit(log.committer.intend(Write(producer, prepare=True)))
