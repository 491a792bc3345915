"""A query that keeps how far it is twice: in Spark's checkpoint, and as a group's positions in the
transaction that writes.

What Spark calls for each micro-batch, for tests in this process and for drivers that are killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.chaos.jobs import Job
from tests.chaos.origin import INPUT_DDL, TOPIC, TOPIC_DDL, with_origin
from tests.chaos.points import install
from txnlog import SparkTransaction

__all__ = ["APP", "FLOW", "FOR_EACH", "GROUP", "ORDERS", "flow", "for_each", "write_batch"]

ORDERS, GROUP, APP = "orders", "etl", "etl"
COLUMNS = "n,key,_partition,_offset"

FLOW = f"{__name__}:flow"
FOR_EACH = f"{__name__}:for_each"

assert INPUT_DDL == "n long, key string"


def write_batch(
    batch: DataFrame,
    number: int,
    *,
    log: str,
    control: str,
    app: str = APP,
    reached: Callable[[str], None] = lambda _: None,
) -> None:
    """Write a micro-batch and the positions behind it in one transaction, whose version is its number."""
    reached("begin")
    with SparkTransaction(batch.sparkSession, log, app, number) as txn:
        txn.write(batch.select("n", "key").mapInArrow(partial(with_origin, control), TOPIC_DDL), TOPIC)
        reached("written")
        ends = batch.groupBy("_partition").agg({"_offset": "max"}).collect()
        txn.send_offsets(GROUP, {(ORDERS, row[0]): row[1] + 1 for row in ends})
        reached("end")
    reached("ended")


def flow(spark: SparkSession, job: Job, own: Mapping[str, str]) -> DataFrame:
    """Return the stream of a driver."""
    reader = spark.readStream.format("txnlog").options(topic=ORDERS, columns=COLUMNS)
    return reader.options(**job.read_options, **own).load(job.log)


def for_each(job: Job) -> Any:
    """Return what a driver calls for each micro-batch: its steps are points, and each request that writes is
    one."""
    points = install(job.control)

    def call(batch: DataFrame, number: int) -> None:
        def reached(step: str) -> None:
            points.begin(step, batch=number)
            points.reached(f"{step}/here")

        write_batch(batch, number, log=job.log, control=job.control, reached=reached)

    return call
