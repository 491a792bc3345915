"""The Spark session of the benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.spark.bare_source import BareDataSource
from spark_datasource.datasource import register

__all__ = ["drain", "session"]


@contextmanager
def session(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Give a local session with two slots, whose workers import this checkout; ``settings`` are added to its
    own.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("txnlog-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "OFF")
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        register(spark)
        spark.dataSource.register(BareDataSource)
        yield spark
    finally:
        spark.stop()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def drain(frame: DataFrame) -> None:
    """Run a query for nothing but its rows."""
    frame.write.format("noop").mode("overwrite").save()
