"""Scans by Spark: the DataSource against a bare DataSource over the same row groups, and against Spark's own
Parquet source.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench import shapes
from bench.spark.processor_time import children_seconds
from bench.spark.session import drain, session
from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns
from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.read.splits import Split
from txnformat.log import TxnLog
from txnformat.reading.plan import open_range
from txnformat.reading.sealed import SidecarCache
from txnformat.store.local import LocalStore
from txnformat.types import IsolationLevel

__all__ = ["BENCHMARKS"]

ROWS = 5_000_000
ABORTED_OF_TEN = 3
ROUNDS = 9
WARM_UP = 3
PARQUET_FILES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Data to scan."""

    name: str
    blocks: Callable[[int], Iterator[pa.Table]]
    column: str | None = None
    """The only one that is read."""
    compacted: bool = False
    """Whether the log is compacted first."""


def bare_splits(log: Path, column: str | None) -> list[list[tuple[str, list[int]]]]:
    """Return the row groups of the splits that our source reads, by file, as the bare source takes them."""
    options = {"path": str(log), "topic": "rows"} | ({"columns": column} if column else {})
    source = TxnLogDataSource(options)
    sidecars = SidecarCache(LocalStore(str(log)))
    found = []
    for split in source.reader(source.schema()).partitions():
        if not isinstance(split, Split):
            raise TypeError(f"a split is a {type(split).__name__}")
        planned = [
            open_range(sidecars, part.range, IsolationLevel.READ_COMMITTED, None) for part in split.sealed
        ]
        planned += [(part.planned(), split.files) for part in split.parts]
        runs: list[tuple[str, list[int]]] = []
        for rows, files in planned:
            for row in rows:
                file = str(log / files[int(row["file"])].key)
                if not runs or runs[-1][0] != file:
                    runs.append((file, []))
                first = int(row["row_group"])
                runs[-1][1].extend(range(first, first + int(row["row_group_count"])))
        found.append(runs)
    return found


def _frames(spark: SparkSession, shape: Shape, folder: Path) -> dict[str, DataFrame]:
    log, parquet, column = folder / "log", folder / "spark", shape.column
    spark.read.parquet(str(folder / "parquet")).repartition(PARQUET_FILES).write.parquet(str(parquet))
    ours = spark.read.format("txnlog").option("topic", "rows")
    wanted = [column] if column else None
    if shape.compacted:  # its files also have metadata columns
        wanted = next(shape.blocks(1)).column_names
    bare = spark.read.format("bare_parquet").option("splits", json.dumps(bare_splits(log, column)))
    theirs = spark.read.parquet(str(parquet))
    return {
        "txnlog": (ours.option("columns", column) if column else ours).load(str(log)),
        "bare": bare.option("columns", json.dumps(wanted)).load(),
        "spark_parquet": theirs.select(column) if column else theirs,
    }


class _Scan:
    """Runs a query and keeps what processor time it took."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._taken: list[dict[str, float]] = []

    def __call__(self) -> None:
        before = children_seconds()
        drain(self._frame)
        after = children_seconds()
        self._taken.append({side: after[side] - before[side] for side in after})

    def processor_seconds(self) -> dict[str, float]:
        """Return the medians of the JVM and of the Python workers, without the rounds that warm up."""
        taken = self._taken[WARM_UP:]
        return {side: round(statistics.median(one[side] for one in taken), 2) for side in taken[0]}


def _measure(shape: Shape, context: Context) -> list[Measurement]:
    """Return our speed by that of the two others (one column: our time by theirs)."""
    context.tick("writing")
    rows = shapes.write_log(context.folder / "log", shape.blocks(ROWS), aborted_of_ten=ABORTED_OF_TEN)
    if shape.compacted:
        context.tick("compacting")
        with TxnLog.open(context.folder / "log") as log:
            log.compact("rows", min_lag_ms=0)
    shapes.write_parquet(context.folder / "parquet", shape.blocks(ROWS), aborted_of_ten=ABORTED_OF_TEN)
    context.tick("starting Spark")
    with session(context.folder) as spark:
        frames = _frames(spark, shape, context.folder)
        if [frame.count() for frame in frames.values()] != [rows] * len(frames):
            raise RuntimeError("they do not hold the same number of rows")
        scans = {name: _Scan(frame) for name, frame in frames.items()}
        seconds = take_turns(scans, context, rounds=ROUNDS, warm_up=WARM_UP)
    details = {f"{who}_s": round(statistics.median(times), 3) for who, times in seconds.items()}
    for who, scan in scans.items():
        details |= {f"{who}_{side}_processor_s": value for side, value in scan.processor_seconds().items()}
    found = []
    for other in ("bare", "spark_parquet"):
        above, below = seconds[other], seconds["txnlog"]
        if shape.column:
            above, below = below, above
        key = f"scan-{shape.name}-{other.replace('_', '-')}"
        found.append(ratio(key, above, below, rows=rows, **details))
    found.append(
        ratio(f"scan-{shape.name}-bare-spark-parquet", seconds["spark_parquet"], seconds["bare"], **details)
    )
    return found


BARE = "a bare DataSource reading the same row groups"
SPARK = "Spark's Parquet source over only the committed rows"
HOW = (
    f"{ROWS:,} rows in transactions of {shapes.BLOCK_ROWS:,}, three of ten aborted; into the noop sink, "
    "local[2], Unix domain "
    "sockets, from the page cache. The bare DataSource (`bench/spark/bare_source.py`) yields the record "
    "batches of pyarrow's "
    "`ParquetFile.iter_batches`, cast to Spark's types, for the very splits of txnlog, and checks "
    "nothing. Spark's source reads "
    f"{PARQUET_FILES} files that Spark wrote from the committed rows. {WARM_UP} rounds to warm up."
)
PROFILE = (
    "a Python source hands its rows to the JVM as Arrow, and the JVM copies them into rows of its own. "
    "The processor times "
    "below say what that takes: the JVM alone spends about as much on a Python source's rows as Spark's "
    "Parquet source does "
    "on reading, decoding and copying, and decoding in Python comes on top. The row of the bare "
    "DataSource is therefore the "
    "limit of any Python source; `make bench BENCH=scan-flights` shows both"
)


def _benchmark(shape: Shape, work: str, rows: tuple[Row, ...]) -> Benchmark:
    reported = Row(
        key=f"scan-{shape.name}-bare-spark-parquet",
        work=f"for comparison: the bare DataSource, {work}",
        against=SPARK,
        figure="times its speed",
    )
    return Benchmark(
        name=f"scan-{shape.name}",
        how=f"{work}. {HOW}",
        rows=(*rows, reported),
        measure=lambda context: _measure(shape, context),
        minutes=1.5,
    )


BENCHMARKS = (
    _benchmark(
        Shape("flights", shapes.flights),
        "Spark scan, flights shape",
        (
            Row(
                key="scan-flights-spark-parquet",
                work="Spark scan, flights shape",
                against=SPARK,
                figure="times its speed",
                target=1,
                note=PROFILE,
            ),
            Row(
                key="scan-flights-bare",
                work="Spark scan, flights shape",
                against=BARE,
                figure="times its speed",
                target=0.95,
            ),
        ),
    ),
    _benchmark(
        Shape("narrow", shapes.narrow),
        "Spark scan, 144-byte rows",
        (
            Row(
                key="scan-narrow-bare",
                work="Spark scan, 144-byte rows",
                against=BARE,
                figure="times its speed",
                target=0.95,
            ),
            Row(
                key="scan-narrow-spark-parquet",
                work="Spark scan, 144-byte rows",
                against=SPARK,
                figure="times its speed",
            ),
        ),
    ),
    _benchmark(
        Shape("compacted", shapes.flights, compacted=True),
        "Spark scan of a compacted topic, flights shape",
        (
            Row(
                key="scan-compacted-bare",
                work="Spark scan of a compacted topic, flights shape",
                against=BARE,
                figure="times its speed",
                target=0.95,
            ),
            Row(
                key="scan-compacted-spark-parquet",
                work="Spark scan of a compacted topic, flights shape",
                against=SPARK,
                figure="times its speed",
            ),
        ),
    ),
    _benchmark(
        Shape("one-column", shapes.ten_columns, "value_3"),
        "Spark scan, one of ten columns",
        (
            Row(
                key="scan-one-column-bare",
                work="Spark scan, one of ten columns",
                against=BARE,
                figure="times its time",
                target=1.1,
                at_least=False,
            ),
            Row(
                key="scan-one-column-spark-parquet",
                work="Spark scan, one of ten columns",
                against=SPARK,
                figure="times its time",
            ),
        ),
    ),
)
