"""Writes the flights in transactions: most commit, some abort, one is left open by a producer that is
killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from rich.progress import Progress

from demo.source import DELAY_COLUMNS, FLIGHTS_SCHEMA, read_flights
from txnlog import Producer, TxnLog

__all__ = ["HANGING_ID", "ROWS_PER_TRANSACTION", "Ingested", "hang", "ingest", "send_rows"]

ROWS_PER_TRANSACTION = 4_000
ABORT_EVERY = 6
"""Every sixth transaction is written with markers (`buffer="inline"`) and aborted; its rows are sent again.
"""
HANGING_AT = 0.6
"""Share of the data after which a producer dies with its transaction open."""
HANGING_ID = "ingest-hanging"
MAIN_ID = "ingest-main"
INLINE_ID = "ingest-inline"


@dataclass(frozen=True, slots=True)
class Ingested:
    """The rows that were written: the demo's own books, to hold the log against."""

    transactions: int
    aborted: int
    hanging: tuple[int, int]
    """Rows [start, end) of the file in the transaction that was left open."""
    commits: tuple[tuple[int, int, int], ...]
    """(first row, end row, entry) of each committed transaction."""


def create_topics(log: TxnLog) -> None:
    """Create the two topics."""
    log.create_topic(
        "flights", FLIGHTS_SCHEMA, partitions=4, key_columns=["carrier"], timestamp_column="time_hour"
    )
    delays = pa.schema([FLIGHTS_SCHEMA.field(name) for name in DELAY_COLUMNS])
    log.create_topic("delays", delays, partitions=2, key_columns=["origin"], timestamp_column="time_hour")


def send_rows(producer: Producer, rows: pa.Table) -> None:
    """Send rows to both topics, within the producer's open transaction."""
    producer.send("flights", rows)
    producer.send("delays", rows.select(list(DELAY_COLUMNS)))


def _slices(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, ROWS_PER_TRANSACTION):
        yield start, min(start + ROWS_PER_TRANSACTION, count)


def ingest(log: TxnLog, flights: pa.Table, progress: Progress) -> Ingested:
    """Write all rows; the rows of the hanging transaction are the only ones left out."""
    task = progress.add_task("transactions", total=flights.num_rows)
    slices = list(_slices(flights.num_rows))
    hanging_at = int(len(slices) * HANGING_AT)
    commits: list[tuple[int, int, int]] = []
    aborted = 0
    with Producer(log, MAIN_ID) as one_shot, Producer(log, INLINE_ID, buffer="inline") as inline:
        for number, (start, end) in enumerate(slices):
            rows = flights.slice(start, end - start)
            if number == hanging_at:
                _leave_open(log.url, start, end)
            else:
                if number % ABORT_EVERY == ABORT_EVERY - 1:
                    inline.begin()
                    send_rows(inline, rows)
                    inline.flush()  # in the log, with offsets; read_uncommitted sees it
                    inline.abort()
                    aborted += 1
                one_shot.begin()
                send_rows(one_shot, rows)
                commits.append((start, end, one_shot.commit().entry or 0))
            progress.update(task, completed=end)
    return Ingested(len(commits), aborted, slices[hanging_at], tuple(commits))


def _leave_open(url: str, start: int, end: int) -> None:
    """Run a producer in a process of its own, and kill it once its records are in the log."""
    command = [sys.executable, "-m", "demo.ingest", url, str(start), str(end)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        process.send_signal(signal.SIGKILL)
    if line.strip() != "flushed":
        raise RuntimeError("the producer that should hang did not get as far as its flush")


def hang(url: str, start: int, end: int) -> None:
    """Send rows in a transaction, say so, and wait to be killed."""
    with TxnLog.open(url) as log:
        producer = Producer(log, HANGING_ID, buffer="inline")
        producer.init()
        producer.begin()
        send_rows(producer, read_flights().slice(start, end - start))
        producer.flush()
        print("flushed", flush=True)
        signal.pause()


if __name__ == "__main__":
    hang(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    os._exit(1)
