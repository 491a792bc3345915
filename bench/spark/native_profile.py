"""Why ``read_table`` is slower than Spark's source over files that Spark wrote: the same scans, one
difference after the other.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from bench import shapes
from bench.spark.native_table import ABORTED_OF_TEN, PARQUET_FILES
from bench.spark.session import drain, session
from bench.table import Context, take_turns
from spark_datasource.native.table import READ_OPTIONS, plan_table
from txnlog.spark import read_table

__all__ = ["main"]

CHECKSUM = "parquet.page.verify-checksum.enabled"
SHAPES = {
    "flights": (shapes.flights, "distance"),
    "ten-columns": (shapes.ten_columns, "value_3"),
    "narrow": (shapes.narrow, "value"),
}
"""Rows of a shape, and the column that is read alone."""


def main() -> None:
    """Print the median seconds of each way to read the committed rows, for each query."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark.native_profile", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--shape", choices=SHAPES, default="ten-columns")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txnlog-bench-") as name, session(Path(name)) as spark:
        folder = Path(name)
        context = Context(folder, lambda _: None)
        rows, column = SHAPES[given.shape]
        shapes.write_log(folder / "log", rows(given.rows), aborted_of_ten=ABORTED_OF_TEN)
        plan = plan_table(spark, folder / "log", "rows")
        paths = [f"{plan.base}/{one.record.key}" for one in plan.division.native]
        plain = spark.read.parquet(*paths)
        plain.coalesce(PARQUET_FILES).write.parquet(f"{folder}/few")
        plain.repartition(len(paths)).write.parquet(f"{folder}/many")
        plain.coalesce(PARQUET_FILES).write.option("compression", "zstd").parquet(f"{folder}/zstd")
        options = {key: text for key, text in READ_OPTIONS.items() if key != CHECKSUM}
        frames: dict[str, DataFrame] = {
            f"{PARQUET_FILES} files of Spark": spark.read.parquet(f"{folder}/few"),
            f"{PARQUET_FILES} files of Spark, zstd": spark.read.parquet(f"{folder}/zstd"),
            f"{len(paths)} files of Spark": spark.read.parquet(f"{folder}/many"),
            f"the log's {len(paths)} files": plain,
            "the same with the options, without checksums": spark.read.options(**options).parquet(*paths),
            "the same with checksums": spark.read.options(**READ_OPTIONS).parquet(*paths),
            "read_table": read_table(spark, folder / "log", "rows"),
        }
        queries = {
            "all columns": drain,
            "one column": lambda frame: drain(frame.select(column)),
            "count(*)": lambda frame: frame.count(),
        }
        for what, query in queries.items():
            scans = {key: partial(query, frame) for key, frame in frames.items()}
            for key, times in take_turns(scans, context, rounds=given.rounds, warm_up=3).items():
                print(f"{what:12} {statistics.median(times):7.3f} s  {key}", flush=True)


if __name__ == "__main__":
    main()
