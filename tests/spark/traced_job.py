"""A Spark job in a process of its own: it writes, reads and streams, within a span of its own, ``python -m
tests.spark.traced_job FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from opentelemetry import trace
from pyspark.sql import SparkSession

from spark_datasource.datasource import register
from tests.jvm import java_options

__all__ = ["SPLITS", "STREAMED"]

SPLITS = 2
"""Tasks of the write."""

STREAMED = 10
"""Rows of the one batch."""


def main(folder: Path) -> None:
    """Run the job on the log in a folder."""
    path = str(folder / "log")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.extraJavaOptions", java_options())
        .getOrCreate()
    )
    with trace.get_tracer("job").start_as_current_span("job"):
        register(spark)
        rows = spark.range(0, STREAMED, 1, SPLITS).selectExpr("id AS n")
        rows.write.format("txnlog").mode("append").option("topic", "orders").save(path)
        assert spark.read.format("txnlog").option("topic", "orders").load(path).count() == STREAMED
        stream = spark.readStream.format("txnlog").option("topic", "orders")
        orders = stream.option("startingOffsets", "earliest").load(path).select("n")
        copies = orders.writeStream.format("txnlog").option("topic", "copies").trigger(availableNow=True)
        query = copies.option("checkpointLocation", str(folder / "checkpoint")).start(path)
        assert query.awaitTermination(300)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
