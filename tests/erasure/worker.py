"""One process of the campaign: ``python -m tests.erasure.worker ROLE ROOT NUMBER BATCHES ROWS``. It prints a
line after each step, and ends by itself or by a kill."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.erasure.world import PEOPLE
from txnlog import Consumer, Producer, TxnLog, TxnLogError

__all__ = ["KEY", "WHERE", "main"]

WHERE = "name LIKE 'canary-%'"
KEY = "0123456789abcdef" * 2
GRACE = datetime.timedelta(seconds=5)


def produce(log: TxnLog, number: int, batches: int, rows: int) -> None:
    """Write batches, in each as many canaries as other records; an instance after a kill goes on behind what
    was committed."""
    while True:
        try:
            with Producer(
                log, f"producer-{number}", buffer=("auto", "inline", "deferred")[number % 3]
            ) as producer:
                kept = log.read("t", columns=["n"], where=f"name LIKE 'keep-{number}-%'").read_all().num_rows
                for batch in range(kept // rows, batches):
                    with producer.transaction() as transaction:
                        for kind in ("canary", "keep"):
                            names = [f"{kind}-{number}-{batch:06}-{row:06}" for row in range(rows)]
                            table = pa.table({"name": names, "n": list(range(rows))}, PEOPLE)
                            transaction.send("t", table, partition=batch % 2)
                    print("batch", batch, flush=True)
            return
        except (
            TxnLogError
        ) as error:  # an upload that a vacuum with a short grace has passed, or a fenced instance
            print("again", error.kind, flush=True)


def forever(step: Callable[[], object]) -> None:
    """Repeat a step; errors of a log that others change all the time are no failure."""
    while True:
        try:
            step()
            print("done", flush=True)
        except TxnLogError as error:
            print("error", error.kind, flush=True)


def follow(log: TxnLog) -> None:
    """Read on as a group that commits its positions, to where nothing new comes."""
    with Consumer(log, "followers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        while (batch := consumer.poll(timeout_ms=200)) is not None:
            consumer.commit()
            print("followed", batch.num_rows, flush=True)


AGAIN = ("TXNLOG_UPLOAD_EXPIRED", "Python worker failed to connect back")
"""Ends of a query that are no finding: a vacuum with a short grace has passed an upload; on a busy machine
Spark has not waited for a Python that it started."""


def stream(root: str, *, waits: bool) -> None:
    """Copy topic "t" into topic "copy" with a Spark query, whose checkpoint is beside the log."""
    from bench.spark.session import session

    folder = Path(root).parent / "stream"
    folder.mkdir(exist_ok=True)
    with session(folder) as spark:
        rows = spark.readStream.format("txnlog").option("topic", "t").option("startingOffsets", "earliest")
        writer = rows.load(root).writeStream.format("txnlog").option("topic", "copy")
        # A batch that was committed and is repeated lacks what was erased in between.
        writer = writer.option("allowDifferentRepeat", "true").option(
            "checkpointLocation", str(folder / "checkpoint")
        )
        while True:
            try:
                if not waits:
                    writer.trigger(availableNow=True).start(root).awaitTermination()
                    return
                _report(writer.trigger(processingTime="200 milliseconds").start(root))
            except Exception as error:
                if not any(reason in str(error) for reason in AGAIN):
                    raise
                print("again", flush=True)


def _report(query: Any) -> None:
    """Print a line for each second of a query that does not end."""
    print("begun", flush=True)
    while not query.awaitTermination(1):
        print("goes on", flush=True)


def main(role: str, root: str, number: int, batches: int, rows: int) -> None:
    """Do the work of a role."""
    log = TxnLog.open(root)
    match role:
        case "produce":
            produce(log, number, batches, rows)
        case "compact":
            forever(lambda: log.compact("t", min_lag_ms=0))
        case "vacuum":
            forever(lambda: (log.vacuum(GRACE, allow_short_grace=True), log.maintain("erasures")))
        case "erase":
            forever(
                lambda: log.erase(
                    "t", WHERE, requested_by="the campaign", key=f"{KEY}-{number}", all_rows=True
                )
            )
        case "stream" | "copy":
            stream(root, waits=role == "stream")
        case "follow":
            forever(lambda: follow(log))
        case _:
            forever(lambda: log.read("t").read_all())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
