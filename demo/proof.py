"""Reads the log with Spark and holds it against the source file: counts and a checksum per column."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from txnlog import IsolationLevel

__all__ = ["Fingerprint", "fingerprint", "read_topic", "spark_session", "table_frame"]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Count of rows, and per column a checksum that does not depend on their order."""

    rows: int
    columns: dict[str, int]


def spark_session() -> SparkSession:
    """Return a quiet local session on two cores."""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("txnlog demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.log.level", "ERROR")
        # A worker that waits to be used again may print a BrokenPipeError when Spark stops: it answers the
        # end of its
        # input, and Spark has gone. It depends on which comes first, that or the signal of its daemon.
        .config("spark.python.worker.reuse", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def read_topic(spark: SparkSession, path: str, topic: str, isolation: str, **options: str) -> DataFrame:
    """Return a topic as a DataFrame."""
    reader = (
        spark.read.format("txnlog")
        .option("topic", topic)
        .option("isolation", IsolationLevel(isolation).value)
    )
    return reader.options(**options).load(path)


def table_frame(spark: SparkSession, table: pa.Table, path: Path) -> DataFrame:
    """Return an Arrow table as a DataFrame that knows nothing of the log (by way of a Parquet file)."""
    pq.write_table(table, path)
    return spark.read.parquet(str(path))


def fingerprint(frame: DataFrame) -> Fingerprint:
    """Return count and checksums: the sum over rows of a 64-bit hash of each column's value."""
    sums = [F.sum(F.xxhash64(F.col(name)).cast("decimal(38,0)")).alias(name) for name in frame.columns]
    row = frame.agg(F.count(F.lit(1)).alias("rows of the frame"), *sums).first()
    if row is None:
        raise RuntimeError("an aggregate without a row")
    return Fingerprint(row[0], {name: int(row[name] or 0) for name in frame.columns})
