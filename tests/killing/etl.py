"""A job that reads a topic, transforms it and writes to others, in a process that is there to be killed.

It reads ``raw`` under a group, and makes of every record one of ``copies`` and 0 to 2 of ``parts``, which has
other keys and more partitions. All of them name the record that they come from. It ends when there is nothing
left to read.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.killing.points import KillingStore, Points
from txnformat.store.open import open_store
from txnlog import Consumer, Producer, TxnLog

RAW = pa.schema([("n", pa.int64())])
COPIES = pa.schema([("partition", pa.int64()), ("offset", pa.int64()), ("n", pa.int64())])
PARTS = pa.schema([("key", pa.int64()), ("partition", pa.int64()), ("offset", pa.int64()), ("i", pa.int64())])
SUMS = pa.schema(
    [("partition", pa.int64()), ("first", pa.int64()), ("last", pa.int64()), ("total", pa.int64())]
)
RAW_PARTITIONS, PARTS_PARTITIONS = 2, 3
WINDOW = 4
"""How many records of a partition make one of ``sums``."""

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker does, and where it ends. Plain values: it travels to the process as JSON."""

    source: str
    """Path or URL of the log that has ``raw``."""
    target: str
    """Of the log that has the others, and the group's positions. Often the same."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    way: str = "in_transactions"
    """The name of a function in WAYS."""
    transactional_id: str = "etl"
    group: str = "etl"
    buffer: str = "auto"
    batch: int = 4
    """Most records in one transaction."""
    flushes: bool = False
    """Whether a transaction is flushed between its records, and again after its positions."""
    timeout_ms: int = 60_000
    """Of its transactions."""
    pending_ms: int = 500
    """How long it waits for positions that are pending in another one's transaction."""
    assigns: bool = False
    """Read the partitions without becoming the group's member."""
    at: str | None = None
    nth: int = 1
    stops: bool = False
    """Stand still at the point (SIGSTOP) and go on when somebody continues it, instead of SIGKILL."""
    note: str | None = None


def copies(rows: list[Record]) -> list[Record]:
    return [{"partition": row["_partition"], "offset": row["_offset"], "n": row["n"]} for row in rows]


def parts(rows: list[Record]) -> list[Record]:
    return [
        {"key": row["n"] % 7 + i, "partition": row["_partition"], "offset": row["_offset"], "i": i}
        for row in rows
        for i in range(row["n"] % 3)
    ]


def sums(window: list[Record]) -> list[Record]:
    first, last = window[0], window[-1]
    total = sum(row["n"] for row in window)
    return [
        {"partition": first["_partition"], "first": first["_offset"], "last": last["_offset"], "total": total}
    ]


def create_topics(source: TxnLog, target: TxnLog) -> None:
    source.create_topic("raw", RAW, partitions=RAW_PARTITIONS)
    target.create_topic("copies", COPIES)
    target.create_topic("parts", PARTS, partitions=PARTS_PARTITIONS, key_columns=["key"])


def run(job: Job) -> None:
    """Do a job."""
    points = Points(job.at, job.nth, signal.SIGSTOP if job.stops else signal.SIGKILL, job.note)

    def opened(location: str) -> TxnLog:
        return TxnLog.open(KillingStore(open_store(location, storage_options=job.storage_options), points))

    source = opened(job.source)
    target = source if job.target == job.source else opened(job.target)
    points.call = "init"
    producer = Producer(
        target, job.transactional_id, buffer=job.buffer, transaction_timeout_ms=job.timeout_ms,
        deferred_timeout_ms=job.timeout_ms,
    )  # fmt: skip
    with (
        producer
    ):  # first: what an earlier instance left open is aborted, and the consumer need not wait for it
        points.call = "join"
        with Consumer(
            source,
            job.group,
            columns=["n", "_partition", "_offset"],
            max_poll_records=job.batch,
            default_api_timeout_ms=job.pending_ms,
            offsets_log=target,
        ) as consumer:
            if job.assigns:
                consumer.assign([("raw", number) for number in range(RAW_PARTITIONS)])
            else:
                consumer.subscribe(["raw"])
            points.reached("after-join")
            WAYS[job.way](job, points, consumer, producer)
            points.call = "close"


def _polled(job: Job, points: Points, consumer: Consumer) -> list[Record]:
    points.call = "poll"
    rows = consumer.poll_dicts(timeout_ms=0)
    if rows:
        points.reached("after-poll")
    return rows


def _send(job: Job, points: Points, producer: Producer, rows: list[Record]) -> None:
    points.call = "send"
    producer.send("copies", copies(rows))
    points.reached("after-first-send")
    if job.flushes:
        points.call = "flush"
        producer.flush()
        points.reached("after-flush")
    points.call = "send"
    if made := parts(rows):
        producer.send("parts", made)


def _commit(points: Points, producer: Producer) -> None:
    points.call = "commit"
    producer.commit()
    points.reached("after-commit")


def in_transactions(job: Job, points: Points, consumer: Consumer, producer: Producer) -> None:
    """Commit records and positions together: the recipe."""
    while rows := _polled(job, points, consumer):
        producer.begin()
        _send(job, points, producer, rows)
        producer.send_offsets(consumer)
        points.reached("after-send-offsets")
        if job.flushes:
            points.call = "flush-offsets"
            producer.flush()
            points.reached("after-flush-offsets")
        _commit(points, producer)


def positions_after(job: Job, points: Points, consumer: Consumer, producer: Producer) -> None:
    """Commit the records, and then the positions by themselves."""
    while rows := _polled(job, points, consumer):
        producer.begin()
        _send(job, points, producer, rows)
        _commit(points, producer)
        points.call = "commit-offsets"
        consumer.commit()


def positions_before(job: Job, points: Points, consumer: Consumer, producer: Producer) -> None:
    """Commit the positions by themselves, and then the records."""
    while rows := _polled(job, points, consumer):
        points.call = "commit-offsets"
        consumer.commit()
        points.reached("after-commit-offsets")
        producer.begin()
        _send(job, points, producer, rows)
        _commit(points, producer)


def windows(job: Job, points: Points, consumer: Consumer, producer: Producer) -> None:
    """Make one record of each WINDOW records: it and the position behind the window are one transaction."""
    open_windows: dict[int, list[Record]] = {}
    while rows := _polled(job, points, consumer):
        for row in rows:
            window = open_windows.setdefault(row["_partition"], [])
            window.append(row)
            if len(window) == WINDOW:
                producer.begin()
                producer.send("sums", sums(window))
                behind = {("raw", row["_partition"]): row["_offset"] + 1}
                producer.send_offsets(consumer.group_metadata, behind)
                points.reached("after-send-offsets")
                _commit(points, producer)
                window.clear()


def windows_acknowledged(job: Job, points: Points, consumer: Consumer, producer: Producer) -> None:
    """The same, but what was received is acknowledged at once, by itself."""
    open_windows: dict[int, list[Record]] = {}
    while rows := _polled(job, points, consumer):
        points.call = "commit-offsets"
        consumer.commit()
        for row in rows:
            window = open_windows.setdefault(row["_partition"], [])
            window.append(row)
            if len(window) == WINDOW:
                producer.begin()
                producer.send("sums", sums(window))
                _commit(points, producer)
                window.clear()


WAYS = {
    way.__name__: way
    for way in (in_transactions, positions_after, positions_before, windows, windows_acknowledged)
}
