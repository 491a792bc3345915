"""A Spark job in a process of its own, which ends itself (kill -9) at a named point: ``python -m
tests.spark.transaction_job``.

Its transactions go through a store that has points around every request that writes
(:mod:`tests.killing.points`). Further points are between its calls, and ``during-write`` is in a task of a
write: the task kills the driver.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_datasource.write.transaction import NAMESPACE, SparkTransaction
from tests.jvm import java_options
from tests.killing.points import KillingStore, Points
from txnformat.store.open import open_store
from txnlog import Consumer, TxnLog

__all__ = ["RAW", "RAW_PARTITIONS", "ROWS", "VERSIONS", "Job"]

VERSIONS = 3
ROWS = 8
"""That a version writes to each of its topics."""
RAW = pa.schema([("n", pa.int64())])
RAW_PARTITIONS = 2
ROUND_RECORDS = 5
"""Most records of a partition in one transaction of the loop."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process does, and where it ends. Travels as JSON."""

    path: str
    way: str
    """``versions``: a job with versions; ``loop``: read, process, write."""
    remote: str | None = None
    """URL of a Connect server; None: a classic session with a JVM of its own."""
    at: str | None = None
    nth: int = 1

    def argument(self) -> str:
        return json.dumps(asdict(self))


class _Transaction(SparkTransaction):
    """A transaction whose requests are points."""

    points: Points

    def _open_log(self) -> TxnLog:
        return TxnLog.open(KillingStore(open_store(self._path), self.points))


def _killing(frame: DataFrame, job: Job) -> DataFrame:
    """Let a task of the frame kill this process, if that is the point."""
    if job.at != "during-write":
        return frame
    driver = os.getpid()

    def kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with suppress(ProcessLookupError):  # another task was faster
                os.kill(driver, signal.SIGKILL)
            yield batch

    return frame.mapInArrow(kill, frame.schema)


def versions(spark: Any, job: Job, points: Points) -> None:
    """Write VERSIONS versions, each to two topics with different schemas, with a position; begin with the
    newest again."""
    with TxnLog.open(job.path) as log:
        newest = log.state.app_versions.get((NAMESPACE, "job"))
    for number in range(newest.version if newest else 0, VERSIONS):
        points.call = "begin"
        with _Transaction(spark, job.path, "job", number) as txn:
            if txn.is_done:
                continue
            rows = spark.range(0, ROWS, numPartitions=2).selectExpr(f"{number} AS version", "id")
            points.reached("before-write")
            txn.write(rows, "first")
            points.reached("after-write")
            txn.write(_killing(rows.selectExpr("*", "concat('row ', id) AS text"), job), "second")
            txn.send_offsets("job", positions={"source": f"version {number}"})
            points.reached("before-end")
            points.call = "commit"
        points.reached("after-commit")


def loop(spark: Any, job: Job, points: Points) -> None:
    """Copy what is in ``raw``, and count it: the recipe of docs/spark-write.md, in small rounds."""
    with TxnLog.open(job.path) as log, Consumer(log, "etl") as consumer:

        def ranges() -> tuple[dict[int, int | None], dict[int, int]]:
            ends = {part.partition: part.last_stable_offset for part in log.offsets("raw")}
            done = {number: consumer.committed("raw", number) for number in ends}
            return done, {
                number: min(end, (done[number] or 0) + ROUND_RECORDS) for number, end in ends.items()
            }

        while True:
            done, ends = ranges()
            if all((done[number] or 0) >= end for number, end in ends.items()):
                return
            points.call = "begin"
            with _Transaction(spark, job.path, "etl") as txn:
                done, ends = ranges()
                options = {
                    "topic": "raw",
                    "columns": "n,_partition,_offset",
                    "startingOffsets": json.dumps({number: done[number] or 0 for number in ends}),
                    "endingOffsets": json.dumps(ends),
                }
                rows = spark.read.format("txnlog").options(**options).load(job.path)
                points.reached("before-write")
                txn.write(rows.selectExpr("n", "_partition AS partition", "_offset AS offset"), "first")
                points.reached("after-write")
                txn.write(_killing(rows.groupBy().count(), job), "second")
                txn.send_offsets(
                    "etl",
                    {("raw", number): end for number, end in ends.items()},
                    expected={("raw", number): done[number] for number in ends},
                )
                points.reached("before-end")
                points.call = "commit"
            points.reached("after-commit")


def main() -> None:
    """Do a job."""
    job = Job(**json.loads(sys.argv[1]))
    if job.remote is not None:
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        spark: Any = ConnectSession.builder.remote(job.remote).create()
    else:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("killed")
        builder = builder.config("spark.driver.extraJavaOptions", java_options())
        spark = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
    points = Points(job.at, job.nth, signal.SIGKILL)
    _Transaction.points = points
    {"versions": versions, "loop": loop}[job.way](spark, job, points)
    spark.stop()


if __name__ == "__main__":
    main()
