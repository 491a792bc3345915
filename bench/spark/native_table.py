"""Scans by ``read_table``: whole files by Spark's own Parquet reader, against the same reader over only the
committed rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import shapes
from bench.spark.session import drain, session
from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns
from spark_datasource.native.table import plan_table
from txnlog.spark import read_table

__all__ = ["BENCHMARKS"]

ROWS = 5_000_000
ABORTED_OF_TEN = 3
ROUNDS = 9
WARM_UP = 3
PARQUET_FILES = 4
SPARK = "Spark's Parquet source over only the committed rows"
AS_MANY = "in as many files"

NOTE = (
    "`read_table` is as fast as Spark's source over the log's own files; the limit is their number, one "
    "for each transaction. Against as many files that Spark wrote, the targets "
    "are met but for the condition (0.35 s against 0.30): `read_table` alone verifies the checksums of "
    "pages. "
    "`python -m bench.spark.native_profile` shows one difference after the other (ten columns, 27 "
    "November 2026, beside nothing else): all columns 0.49 s for `read_table`, 0.51 for the log's "
    "35 files, 0.52 for 4 files of Spark; one column 0.13, 0.12 and 0.08; `count(*)` 0.06, 0.06 and 0.05; "
    "35 files that Spark wrote itself take 0.69, 0.13 and 0.06 s. "
    "A compaction makes few files of them. Offsets come by a join with ranges of rows."
)

Query = Callable[[DataFrame], object]


@dataclass(frozen=True, slots=True)
class Work:
    """A query, run on both."""

    key: str
    what: str
    query: Query
    target: float
    columns: tuple[str, ...] | None = None
    """Columns of ``read_table``; by default the topic's own."""
    theirs: Callable[[DataFrame], DataFrame] = lambda frame: frame


def _filtered(frame: DataFrame) -> None:
    drain(frame.where(f"number BETWEEN {ROWS // 2} AND {ROWS // 2 + 20_000}"))


def _run(query: Query, frame: DataFrame) -> None:
    query(frame)


def _frames(spark: SparkSession, context: Context, work: Work) -> dict[str, DataFrame]:
    ours = read_table(spark, context.folder / "log", "rows", columns=work.columns)
    return {
        "read_table": ours,
        "spark_parquet": work.theirs(spark.read.parquet(str(context.folder / "spark"))),
        "as_many_files": work.theirs(spark.read.parquet(str(context.folder / "many"))),
    }


def _measure(
    blocks: Callable[[int], Iterator[pa.Table]], works: tuple[Work, ...], context: Context
) -> list[Measurement]:
    context.tick("writing")
    rows = shapes.write_log(context.folder / "log", blocks(ROWS), aborted_of_ten=ABORTED_OF_TEN)
    shapes.write_parquet(context.folder / "parquet", blocks(ROWS), aborted_of_ten=ABORTED_OF_TEN)
    found = []
    context.tick("starting Spark")
    with session(context.folder) as spark:
        parquet = spark.read.parquet(str(context.folder / "parquet"))
        parquet.coalesce(PARQUET_FILES).write.parquet(str(context.folder / "spark"))
        _as_many_files(spark, context)
        division = plan_table(spark, context.folder / "log", "rows").division
        for work in works:
            frames = _frames(spark, context, work)
            if [frame.count() for frame in frames.values()] != [rows] * len(frames):
                raise RuntimeError("they do not hold the same number of rows")
            scans = {name: partial(_run, work.query, frame) for name, frame in frames.items()}
            seconds: Mapping[str, list[float]] = take_turns(scans, context, rounds=ROUNDS, warm_up=WARM_UP)
            details = {f"{who}_s": round(statistics.median(times), 3) for who, times in seconds.items()}
            details["native_rows"] = division.native_amount.rows
            found.append(
                ratio(work.key, seconds["spark_parquet"], seconds["read_table"], rows=rows, **details)
            )
            found.append(ratio(f"{work.key}-as-many", seconds["as_many_files"], seconds["read_table"]))
    return found


def _as_many_files(spark: SparkSession, context: Context) -> None:
    """Let Spark write each file of committed rows once more, as a file of its own."""
    for path in sorted((context.folder / "parquet").iterdir()):
        one = spark.read.parquet(str(path)).coalesce(1)
        one.write.mode("append").parquet(str(context.folder / "many"))


HOW = (
    f"{ROWS:,} rows in transactions of {shapes.BLOCK_ROWS:,}, three of ten aborted, each in files of its "
    "own; local[2], from the page cache. "
    f"Spark's source reads {PARQUET_FILES} files that Spark wrote from the committed rows, in their "
    "order; or as many as the log has, a file for "
    f"each transaction, which Spark wrote as well. {WARM_UP} rounds to warm up. "
    "Page checksums are verified by `read_table` only. The time of planning is not in it: all DataFrames "
    "are made before."
)


def _benchmark(
    name: str, what: str, blocks: Callable[[int], Iterator[pa.Table]], works: tuple[Work, ...]
) -> Benchmark:
    return Benchmark(
        name=name,
        how=f"{what}. {HOW}",
        rows=tuple(
            Row(
                key=key,
                work=work.what,
                against=against,
                figure="times its speed",
                target=work.target,
                note=NOTE,
                digits=2,
            )
            for work in works
            for key, against in ((work.key, SPARK), (f"{work.key}-as-many", f"{SPARK}, {AS_MANY}"))
        ),
        measure=lambda context: _measure(blocks, works, context),
        minutes=1.5,
    )


BENCHMARKS = (
    _benchmark(
        "table-flights",
        "`read_table`, flights shape",
        shapes.flights,
        (
            Work("table-flights", "`read_table`, flights shape, 30 % aborted", drain, 0.95),
            Work(
                "table-offset",
                "`read_table` with `_offset`, the other with a constant column",
                drain,
                0.6,
                columns=(*next(shapes.flights(1)).column_names, "_offset"),
                theirs=lambda frame: frame.withColumn("_offset", F.lit(1).cast("bigint")),
            ),
        ),
    ),
    _benchmark(
        "table-ten-columns",
        "`read_table`, ten columns",
        shapes.ten_columns,
        (
            Work(
                "table-one-column",
                "`read_table`, one of ten columns",
                lambda frame: drain(frame.select("value_3")),
                0.9,
            ),
            Work("table-count", "`read_table`, `count(*)`", lambda frame: frame.count(), 0.9),
        ),
    ),
    _benchmark(
        "table-narrow",
        "`read_table`, 144-byte rows, sorted by `number`",
        shapes.narrow,
        (Work("table-filter", "`read_table`, a condition on a sorted column", _filtered, 0.9),),
    ),
)
