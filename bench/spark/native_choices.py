"""The tables of ADR 0031, about choices of ``read_table``.

``python -m bench.spark.native_choices bits``: the bits of a float column after ``-(-x)`` and ``x * 1.0D``,
and whether conditions on them reach Spark's Parquet reader. ``… bounds``: the time to make a DataFrame of
files of one size and to read all of it, natively and by the DataSource in turns. On a local disk; no store
with a latency.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.spark.session import drain, session
from txnlog import Producer, TxnLog
from txnlog.spark import read_table

__all__ = ["main"]

BITS = (0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000, 0x0)

SIZES = (32, 128, 256, 512, 1024, 4096)
"""Sizes of a file, in KiB."""
TOTAL_KIB = 64 * 1024
"""Size of the files of a topic together, in KiB."""
FILES_MAX = 256
"""Most files of a topic: many small ones have fewer bytes together."""
COLUMNS = 5
WARM_UP = 2
WAYS: dict[str, dict[str, Any]] = {
    "natively": {"native_bytes_min": 0},
    "by the DataSource": {"native": False},
}


def bits(spark: SparkSession, folder: Path) -> None:
    """Print a line for each expression."""
    pq.write_table(pa.table({"x": np.array(BITS, np.uint64).view(np.float64)}), folder / "x.parquet")
    frame = spark.read.parquet(str(folder / "x.parquet"))
    for expression in ("x", "x * 1.0D", "-(-x)"):
        column = frame.selectExpr(f"{expression} AS x")
        found = column.toArrow().column("x").combine_chunks().view(pa.uint64()).to_pylist()
        kept = column.where("x > 5").count()
        print(f"{expression:10} bits {[f'{bits:016x}' for bits in found]}; x > 5 keeps {kept} of 3 NaN")


def files_of(size: int) -> int:
    """Return how many files of a size a topic has."""
    return min(FILES_MAX, TOTAL_KIB // size)


def block(generator: np.random.Generator, size: int) -> pa.Table:
    """Return numbers that no codec makes smaller, of about ``size`` KiB."""
    rows = size * 1024 // (8 * COLUMNS)
    return pa.table({f"c{number}": generator.integers(0, 1 << 62, rows) for number in range(COLUMNS)})


def bounds(spark: SparkSession, folder: Path, rounds: int) -> None:
    """Print a line for each size."""
    generator = np.random.default_rng(1)
    root = str(folder / "log")
    with TxnLog.create(root) as log, Producer(log, "p", embed_bytes=0) as producer:
        for size in SIZES:
            log.create_topic(f"t{size}", block(generator, 1).schema)
            for _ in range(files_of(size)):
                with producer.transaction() as txn:
                    txn.send(f"t{size}", block(generator, size))
    for size in SIZES:
        took: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(WARM_UP + rounds):
            for way, options in WAYS.items():
                begun = time.perf_counter()
                drain(read_table(spark, root, f"t{size}", **options))
                if number >= WARM_UP:
                    took[way].append(time.perf_counter() - begun)
        told = ", ".join(f"{way} {statistics.median(times):.3f} s" for way, times in took.items())
        print(f"{files_of(size)} files of {size} KiB: {told}", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", choices=["bits", "bounds"])
    parser.add_argument("--rounds", type=int, default=7, help="of bounds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txnlog-bench-") as name, session(Path(name)) as spark:
        if given.table == "bits":
            bits(spark, Path(name))
        else:
            bounds(spark, Path(name), given.rounds)


if __name__ == "__main__":
    main()
