"""``count()`` in Spark over many small commits, against Spark's file source over as many files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.lifecycle.small_commits import COMMITS, ROWS, SCHEMA, TOPIC, rows_of, write
from bench.spark.session import session
from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns

__all__ = ["BENCHMARKS"]


def _write_files(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        pq.write_table(pa.Table.from_pylist(rows_of(number), SCHEMA), folder / f"{number:05}.parquet")


def _measure(context: Context) -> Sequence[Measurement]:
    context.tick(f"writing {COMMITS:,} commits, and as many files")
    log, files = context.folder / "log", context.folder / "files"
    write(log, COMMITS)
    _write_files(files, COMMITS)

    def ours(spark: SparkSession) -> int:
        found = spark.read.format("txnlog").option("path", str(log)).option("topic", TOPIC).load()
        return found.count()

    def theirs(spark: SparkSession) -> int:
        return spark.read.schema("number long, text string, value double").parquet(str(files)).count()

    def run(count: int) -> None:
        if count != COMMITS * ROWS:
            raise RuntimeError(f"{count} rows, not {COMMITS * ROWS}")

    with session(context.folder) as spark:
        calls = {"txnlog": lambda: run(ours(spark)), "files": lambda: run(theirs(spark))}
        seconds = take_turns(calls, context, rounds=5)
    details = {f"{name}_s": sorted(times)[len(times) // 2] for name, times in seconds.items()}
    return [ratio("small-commits-count", seconds["files"], seconds["txnlog"], **details)]


NOTE = (
    "this is a local disk, where a file costs Spark no round trip: opening one takes it less than a millisecond in the JVM. Each Python task of ours costs about as much as some hundred of its files. "
    "With 30 ms a request the 10,000 files are at least 10,000 requests of 30 ms each, one after the other in each task; that comparison was not run"
)

BENCHMARKS = (
    Benchmark(
        name="small-count",
        how=(
            f"`count()` of {COMMITS:,} transactions of {ROWS} rows, against `spark.read.parquet` with the schema given over {COMMITS:,} files of the same rows; local disk, page cache."
        ),
        rows=(
            Row(
                key="small-commits-count",
                work=f"Spark: count() over {COMMITS:,} commits of {ROWS} rows, local disk",
                against="Spark's Parquet source over as many files",
                figure="times its speed",
                target=10,
                note=NOTE,
            ),
        ),
        measure=_measure,
        minutes=6,
    ),
)
