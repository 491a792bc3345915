"""The cost of dictionaries of values that do not repeat, for a reader: the same rows by Spark's Parquet
source, and by pyarrow.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench import shapes
from bench.spark.session import drain, session
from txnformat.segments.column_values import columns_that_repeat

__all__ = ["main"]

SHAPES = {"ten columns": shapes.ten_columns, "flights": shapes.flights, "144-byte rows": shapes.narrow}
WARM_UP = 3
BLOCKS_OF_A_FILE = 4


def main() -> None:
    """Print megabytes, and the median processor seconds of scans, of files with all dictionaries, chosen
    ones, and none.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.spark.native_dictionaries", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txnlog-bench-") as name, session(Path(name)) as spark:
        for shape, blocks in SHAPES.items():
            _compare(
                spark, Path(name) / shape.replace(" ", "-"), shape, list(blocks(given.rows)), given.rounds
            )


def _compare(spark: SparkSession, folder: Path, shape: str, blocks: list[pa.Table], rounds: int) -> None:
    ways: dict[str, bool | list[str]] = {
        "all": True,
        "where values repeat": columns_that_repeat(blocks[0]),
        "none": False,
    }
    scans: dict[tuple[str, str], Callable[[], float]] = {}
    sizes: dict[str, int] = {}
    for way, dictionaries in ways.items():
        files = folder / way.replace(" ", "-")
        sizes[way] = _write(files, blocks, dictionaries)
        frame = spark.read.parquet(str(files))
        scans[way, "Spark"] = partial(_spark_seconds, spark, frame)
        scans[way, "pyarrow"] = partial(_own_seconds, files)
    seconds: dict[tuple[str, str], list[float]] = {scan: [] for scan in scans}
    for number in range(WARM_UP + rounds):
        for scan in list(scans) if number % 2 else list(scans)[::-1]:
            elapsed = scans[scan]()
            if number >= WARM_UP:
                seconds[scan].append(elapsed)
    for way, size in sizes.items():
        times = ", ".join(
            f"{who} {statistics.median(seconds[way, who]):.2f} s" for who in ("Spark", "pyarrow")
        )
        print(f"{shape:14} dictionaries {way:20} {size / 1e6:6.1f} MB  {times}", flush=True)


def _write(files: Path, blocks: list[pa.Table], dictionaries: bool | list[str]) -> int:
    files.mkdir(parents=True)
    size = 0
    for start in range(0, len(blocks), BLOCKS_OF_A_FILE):
        path = files / f"{start:05d}.parquet"
        options = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
        with pq.ParquetWriter(path, blocks[0].schema, use_dictionary=dictionaries, **options) as writer:
            for block in blocks[start : start + BLOCKS_OF_A_FILE]:
                writer.write_table(block)
        size += path.stat().st_size
    return size


def _spark_seconds(spark: SparkSession, frame: DataFrame) -> float:
    jvm: Any = spark._jvm
    process = jvm.java.lang.ProcessHandle.current().pid()
    before = _process_seconds(process)
    drain(frame)
    return _process_seconds(process) - before


def _process_seconds(process: int) -> float:
    """Return the processor time of a process of Linux: clock ticks of a hundredth of a second, in its own
    code and in the system's.
    """
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _own_seconds(files: Path) -> float:
    before = time.process_time()
    ds.dataset(files).to_table(use_threads=False)
    return time.process_time() - before


if __name__ == "__main__":
    main()
