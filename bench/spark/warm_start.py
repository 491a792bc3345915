"""The first things that a fresh Spark session does with a log, beside the same with Spark's own Parquet: a
write, a ``show()``, an AvailableNow query.

``python -m bench.spark.warm_start WHAT PEER FOLDER`` does one of them in a process of its own, and prints the
seconds; with ``--profile`` it prints where the time of the driver went.
"""

from __future__ import annotations

import cProfile
import io
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench.table import ROUNDS, Benchmark, Context, Measurement, Row, ratio

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["BENCHMARKS"]

ROWS = 1_000
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("value", pa.float64())])
ENDS_S = 300
"""After that a query that has not ended is a defect."""


def _rows() -> pa.Table:
    numbers = list(range(ROWS))
    return pa.table([numbers, [f"row {one}" for one in numbers], [one / 2 for one in numbers]], schema=SCHEMA)


def prepare(folder: Path) -> None:
    """Write what the reads read: a log, and a file."""
    from txnlog import Producer, TxnLog

    with TxnLog.create(folder / "log") as log:
        log.create_topic("rows", SCHEMA)
        log.create_topic("copy", SCHEMA)
        with Producer(log) as producer:
            producer.send("rows", _rows())
    (folder / "files").mkdir()
    pq.write_table(_rows(), folder / "files" / "part-0.parquet")


def _session(folder: Path) -> SparkSession:
    """Return a session in which nothing of a log has been imported."""
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("txnlog-warm-start")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )


def _register(spark: SparkSession) -> None:
    from spark_datasource.datasource import register

    register(spark)


def _made(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS).selectExpr("id AS number", "'row' AS text", "id / 2D AS value").coalesce(1)


def write_log(spark: SparkSession, folder: Path) -> None:
    _register(spark)
    _made(spark).write.format("txnlog").mode("append").option("topic", "copy").save(str(folder / "log"))


def write_parquet(spark: SparkSession, folder: Path) -> None:
    _made(spark).write.mode("append").parquet(str(folder / "written"))


def write_bare(spark: SparkSession, folder: Path) -> None:
    from bench.spark.bare_sink import BareSink

    spark.dataSource.register(BareSink)
    _made(spark).write.format("bare_sink").mode("append").save()


def show_log(spark: SparkSession, folder: Path) -> None:
    _register(spark)
    spark.read.format("txnlog").option("topic", "rows").load(str(folder / "log")).show()


def show_parquet(spark: SparkSession, folder: Path) -> None:
    spark.read.parquet(str(folder / "files")).show()


def show_bare(spark: SparkSession, folder: Path) -> None:
    from bench.spark.bare_source import BareDataSource

    spark.dataSource.register(BareDataSource)
    splits = [[[str(folder / "files" / "part-0.parquet"), [0]]]]
    spark.read.format("bare_parquet").options(columns="null", splits=json.dumps(splits)).load().show()


def _run(writer: DataStreamWriter, target: Path) -> None:
    query = writer.trigger(availableNow=True).start(str(target))
    if not query.awaitTermination(ENDS_S):
        raise RuntimeError("the query did not end")


def stream_log(spark: SparkSession, folder: Path) -> None:
    _register(spark)
    rows = spark.readStream.format("txnlog").option("topic", "rows").option("startingOffsets", "earliest")
    writer = rows.load(str(folder / "log")).writeStream.format("txnlog").option("topic", "copy")
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{os.getpid()}"))
    _run(writer, folder / "log")


def stream_parquet(spark: SparkSession, folder: Path) -> None:
    rows = spark.readStream.schema("number LONG, text STRING, value DOUBLE").parquet(str(folder / "files"))
    writer = rows.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{os.getpid()}"))
    _run(writer, folder / f"copied-{os.getpid()}")


def stream_bare(spark: SparkSession, folder: Path) -> None:
    from bench.spark.bare_sink import BareSink
    from bench.spark.bare_source import BareStreamSource

    spark.dataSource.register(BareStreamSource)
    spark.dataSource.register(BareSink)
    files = json.dumps([str(folder / "files" / "part-0.parquet")])
    rows = spark.readStream.format("bare_stream").options(files=files, filesPerTrigger=1, splits=1).load()
    writer = rows.writeStream.format("bare_sink")
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{os.getpid()}"))
    _run(writer, folder / "nothing")


WORK: Mapping[str, Mapping[str, Callable[[SparkSession, Path], None]]] = {
    "write": {"log": write_log, "parquet": write_parquet, "bare": write_bare},
    "show": {"log": show_log, "parquet": show_parquet, "bare": show_bare},
    "stream": {"log": stream_log, "parquet": stream_parquet, "bare": stream_bare},
}


def _seconds(what: str, peer: str, folder: Path) -> float:
    command = [sys.executable, "-m", __spec__.name, what, peer, str(folder)]
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {
        "PYTHONPATH": str(root),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout.splitlines()[-1])


def _measure(context: Context) -> Sequence[Measurement]:
    context.tick("preparing")
    prepare(context.folder)
    found: list[Measurement] = []
    for what, peers in WORK.items():
        seconds: dict[str, list[float]] = {peer: [] for peer in peers}
        for number in range(ROUNDS):
            context.tick(f"{what} {number + 1}/{ROUNDS}")
            for peer in list(peers)[:: 1 if number % 2 else -1]:
                seconds[peer].append(_seconds(what, peer, context.folder))
        details = {f"{peer}_s": [round(one, 2) for one in taken] for peer, taken in seconds.items()}
        found.append(ratio(f"warm-start-{what}", seconds["log"], seconds["parquet"], **details))
        found.append(ratio(f"warm-start-{what}-bare", seconds["log"], seconds["bare"]))
    return found


BARE = {
    "write": "a bare DataSource that drops its rows",
    "show": "a bare DataSource",
    "stream": "a bare source, and a bare sink that drops its rows",
}
SAID = {"write": "write", "show": "`show()`", "stream": "AvailableNow query"}

NOTE = (
    "Spark starts Python processes for a DataSource, however little it does: one for the schema, one for "
    "the plan and one for the task, and a sink has "
    "processes of its own. The rows against a bare DataSource, which only opens its file or drops its "
    "rows, show what is txnlog's part. "
    "`python -m bench.spark.warm_start show log FOLDER --profile` shows the driver's"
)

BENCHMARKS = (
    Benchmark(
        name="warm-start",
        how=(
            f"the first write, the first `show()` and the first AvailableNow query of {ROWS:,} rows in a "
            "fresh Spark session, each in a process of its own, from after the session is there; the "
            "imports "
            "and the registration of txnlog are within the time."
        ),
        rows=(
            *(
                Row(
                    key=f"warm-start-{what}",
                    work=f"first {said} of a fresh session",
                    against="Spark's own Parquet",
                    figure="times its time",
                    target=1.2,
                    at_least=False,
                    note=NOTE,
                )
                for what, said in SAID.items()
            ),
            *(
                Row(
                    key=f"warm-start-{what}-bare",
                    work=f"first {said} of a fresh session",
                    against=BARE[what],
                    figure="times its time",
                )
                for what, said in SAID.items()
            ),
        ),
        minutes=11,
        measure=_measure,
    ),
)


def main(arguments: Sequence[str]) -> None:
    """Do one piece of work, and print its seconds."""
    what, peer, folder, *options = arguments
    spark = _session(Path(folder))
    profile = cProfile.Profile()
    begun = time.perf_counter()
    if options:
        profile.runcall(WORK[what][peer], spark, Path(folder))
    else:
        WORK[what][peer](spark, Path(folder))
    seconds = time.perf_counter() - begun
    spark.stop()
    if options:
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(60)
        print(text.getvalue())
    print(seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
