"""The plain-Python processes of the latency benchmark: one that commits, and one that polls.

No Spark here.
"""

from __future__ import annotations

import random
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from txnformat.store.open import open_store
from txnlog import Consumer, Producer, TxnLog
from txnlog_testing.stores.latency import LatencyStore

__all__ = ["ROWS", "SCHEMA", "TOPIC", "commit", "poll"]

ROWS = 100
"""Rows of a commit, all with its number."""
TOPIC = "numbers"
SCHEMA = pa.schema([("number", pa.int64())])


def rows(number: int) -> pa.Table:
    """Return the rows of a commit."""
    return pa.table([pa.array([number] * ROWS, pa.int64())], schema=SCHEMA)


def commit(orders: Connection, log: str | None, folder: Path) -> None:
    """Serve orders: (first number, breaks in seconds, least and most, one before each commit); answer with
    the times.

    A commit is a transaction, or without a log a Parquet file that appears in ``folder`` by a rename. Its
    time is when that was done, on the machine's monotonic clock.
    """
    drawn = random.Random(7)
    opened = None if log is None else TxnLog.open(log)
    producer = None if opened is None else Producer(opened, "bench")
    if producer is not None:
        producer.init()
    orders.send("ready")
    while (order := orders.recv()) is not None:
        numbers, least, most = order
        done: dict[int, float] = {}
        for number in numbers:
            time.sleep(drawn.uniform(least, most))
            if producer is not None:
                with producer.transaction() as transaction:
                    transaction.send(TOPIC, rows(number))
            else:
                hidden = folder / f".{number}"
                pq.write_table(rows(number), hidden)
                hidden.rename(folder / f"{number}.parquet")
            done[number] = time.monotonic()
        orders.send(done)
    if producer is not None:
        producer.close()
    if opened is not None:
        opened.close()


def poll(orders: Connection, log: str, look_interval_ms: int = 1_000, round_trip_ms: float = 0.0) -> None:
    """Poll until as many commits as an order says are there; answer with the time at which the first row of
    each was.

    ``round_trip_ms``: how long each request of the consumer takes more; 0: its store is the local disk.
    """
    seen: dict[int, float] = {}
    place = LatencyStore(open_store(log), round_trip_ms) if round_trip_ms else log
    with TxnLog.open(place) as opened, Consumer(opened, look_interval_ms=look_interval_ms) as consumer:
        consumer.subscribe([TOPIC])
        orders.send("ready")
        wanted: int | None = None
        while wanted is None or len(seen) < wanted:
            batch = consumer.poll()
            wanted = orders.recv() if wanted is None and orders.poll() else wanted
            if batch is not None:
                now = time.monotonic()
                for number in batch.column("number").unique().to_pylist():
                    seen.setdefault(number, now)
    orders.send(seen)
