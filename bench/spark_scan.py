"""A full scan by Spark: a topic through the DataSource against the same rows through Spark's Parquet source."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_datasource.datasource import register
from txnformat.log import TxnLog

ROWS = 2_000_000
TASKS = 4
ROUNDS = 7
WARM_UP = 2
EXPRESSIONS = (
    "id as number",
    "rand(7) as value",
    "format_string('name-%015d', id % 100000) as name",
    "unhex(repeat(md5(cast(id as string)), 6)) as payload",
)


def session(folder: Path) -> SparkSession:
    """Return a local session with two slots, whose workers import this checkout."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("txnlog-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    register(spark)
    return spark


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _scan(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def measure(folder: Path) -> dict[str, Any]:
    """Return medians in seconds and the ratio; the two take turns, so that both see the same machine."""
    spark = session(folder)
    try:
        rows = spark.range(ROWS, numPartitions=TASKS).selectExpr(*EXPRESSIONS)
        TxnLog.create(folder / "log").close()
        written = {
            "txnlog": _timed(
                lambda: (
                    rows.write.format("txnlog")
                    .mode("append")
                    .option("topic", "rows")
                    .save(str(folder / "log"))
                )
            ),
            "parquet": _timed(lambda: rows.write.parquet(str(folder / "parquet"))),
        }
        ours = spark.read.format("txnlog").option("topic", "rows").load(str(folder / "log"))
        theirs = spark.read.parquet(str(folder / "parquet"))
        if ours.count() != ROWS or theirs.count() != ROWS:
            raise RuntimeError("the two do not hold the same number of rows")
        times: dict[str, list[float]] = {"txnlog": [], "parquet": []}
        for number in range(ROUNDS + WARM_UP):
            found = {"txnlog": _timed(lambda: _scan(ours)), "parquet": _timed(lambda: _scan(theirs))}
            if number >= WARM_UP:
                for name, seconds in found.items():
                    times[name].append(seconds)
        medians = {name: statistics.median(values) for name, values in times.items()}
        return {
            "what": f"Spark scan of {ROWS} rows of {len(EXPRESSIONS)} columns into noop, local[2], local disk",
            "rounds": ROUNDS,
            "txnlog_s": round(medians["txnlog"], 3),
            "spark_parquet_s": round(medians["parquet"], 3),
            "txnlog_rows_per_s": round(ROWS / medians["txnlog"]),
            "times_the_time_of_spark_parquet": round(medians["txnlog"] / medians["parquet"], 2),
            "first_write_s": {name: round(seconds, 2) for name, seconds in written.items()},
            "bytes": {"txnlog": _bytes(folder / "log"), "spark_parquet": _bytes(folder / "parquet")},
            "versions": {"pyspark": spark.version, "pyarrow": pa.__version__},
        }
    finally:
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder)), indent=2))
