"""A stream from log to log beside Spark's file source and file sink, and the sources alone, into the noop
sink.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bench import shapes
from bench.spark.stream_runs import (
    SLICES,
    Inputs,
    Stream,
    details,
    from_bare,
    from_files,
    from_log,
    run_in_turns,
    to_bare,
    to_files,
    to_log,
    to_noop,
)
from bench.table import ROUNDS, Benchmark, Context, Measurement, Row, ratio, ratios
from txnlog import TxnLog

__all__ = ["BENCHMARKS"]

COPY_ROWS = 20_000_000
COPY_ROUNDS = 2
READ_ROWS = 2_000_000
READ_ROUNDS = ROUNDS
WARM_UP_ROWS = 1_000_000
"""Copied and read once by all sides before anything is timed."""
FILES_PER_TRIGGER = 10
TRIGGER_ROWS = FILES_PER_TRIGGER * shapes.BLOCK_ROWS


def _inputs(folder: Path, rows: int) -> Inputs:
    """Return inputs whose micro-batches are ten transactions each, with the offsets that their ends take."""
    folder.mkdir()
    log, files = folder / "log", folder / "files"
    shapes.write_log(log, shapes.narrow(rows))
    shapes.write_parquet(files, shapes.narrow(rows))
    with TxnLog.open(log) as opened:
        offsets = sum(each.log_end for each in opened.offsets("rows"))
    triggers = rows // TRIGGER_ROWS
    return Inputs(log, files, rows, triggers, offsets // triggers, FILES_PER_TRIGGER)


def _copies(spark: SparkSession, inputs: Inputs, folder: Path) -> list[Stream]:
    return [
        Stream("txnlog", from_log(spark, inputs, "offset"), to_log, inputs, folder),
        Stream("files", from_files(spark, inputs), to_files, inputs, folder),
    ]


def _reads(spark: SparkSession, inputs: Inputs, folder: Path) -> list[Stream]:
    return [
        Stream("offset", from_log(spark, inputs, "offset"), to_noop, inputs, folder),
        Stream("commit", from_log(spark, inputs, "commit"), to_noop, inputs, folder),
        Stream("bare", from_bare(spark, inputs), to_noop, inputs, folder),
        Stream("files", from_files(spark, inputs), to_noop, inputs, folder),
        Stream("copy", from_log(spark, inputs, "offset"), to_log, inputs, folder),
        Stream("bare_copy", from_bare(spark, inputs), to_bare, inputs, folder),
    ]


def _both(context: Context, rows: int) -> tuple[Inputs, Inputs]:
    """Return inputs, and those to warm up with."""
    context.tick("writing")
    inputs = _inputs(context.folder / "input", rows)
    return inputs, inputs if rows <= WARM_UP_ROWS else _inputs(context.folder / "warm-up", WARM_UP_ROWS)


def _copy(context: Context) -> list[Measurement]:
    streams = run_in_turns(context, _copies, *_both(context, COPY_ROWS), COPY_ROUNDS)
    ours, theirs = streams["txnlog"], streams["files"]
    found = details(streams)
    return [ratio("stream-copy-files", theirs.slices, ours.slices, **found)]


def _read(context: Context) -> list[Measurement]:
    streams = run_in_turns(context, _reads, *_both(context, READ_ROWS), READ_ROUNDS)
    found = details(streams)
    seconds = {name: stream.seconds for name, stream in streams.items()}
    return [
        ratio("stream-read-files", seconds["files"], seconds["offset"], **found),
        ratio("stream-read-bare", seconds["bare"], seconds["offset"], **found),
        ratio("stream-read-commit", seconds["offset"], seconds["commit"], **found),
        Measurement("stream-read-bare-files", ratios(seconds["files"], seconds["bare"]), found),
        ratio("stream-read-bare-copy", seconds["bare_copy"], seconds["copy"], **found),
    ]


FILES = "Spark's file source to Spark's Parquet file sink, the same micro-batches"
_COPY = f"stream copy of {COPY_ROWS:,} rows, log to log"
_READ = f"stream read of {READ_ROWS:,} rows, into the noop sink"
NOTE = (
    "the rows go from Python to the JVM as Arrow, are copied into Spark's rows there, and back to Python: "
    "what Spark takes for "
    "both ways is the row of the Python source and the Python sink that do nothing (`stream-read`), and "
    "no Python source and "
    "sink are faster. Besides that, txnlog does its checks, its encoder, and a sync of each file before "
    "the batch is "
    "committed, where Spark leaves its files in the page cache. `make bench BENCH=stream-copy` gives the "
    "processor time of both "
    "sides"
)
_ALIKE = (
    f"144-byte rows in transactions of {shapes.BLOCK_ROWS:,}, one partition, against Parquet files of as "
    "many rows that are "
    f"compressed alike; trigger availableNow, micro-batches of {TRIGGER_ROWS:,} rows on every side "
    "(`maxRowsPerTrigger`, "
    "`maxFilesPerTrigger`; that they are the same is checked), local[2], Unix domain sockets; the system "
    "is synced, untimed, before each, and "
    "what a query wrote is removed after it"
)

BENCHMARKS = (
    Benchmark(
        name="stream-copy",
        how=(
            f"{COPY_ROWS:,} {_ALIKE}. Spark writes with snappy, its default, and leaves its files in the "
            "page cache; txnlog writes "
            "with zstd, and syncs; `synced_s` below is with the time that the system takes to write back "
            "what is left. Both copy "
            f"everything {COPY_ROUNDS} times, in turns; a round's figure is that of a fifth of the "
            f"micro-batches, {SLICES} of each "
            "turn, by the time that Spark says a micro-batch took (`triggerExecution`)."
        ),
        rows=(
            Row(
                key="stream-copy-files",
                work=_COPY,
                against=FILES,
                figure="times its speed",
                target=0.9,
                note=NOTE,
            ),
        ),
        measure=_copy,
        minutes=3,
    ),
    Benchmark(
        name="stream-read",
        how=(
            f"{READ_ROWS:,} {_ALIKE}. The Python source (`bench/spark/bare_source.py`) yields the record "
            "batches of pyarrow's "
            "`ParquetFile.iter_batches`, cast to Spark's types, from those files, and checks nothing; the "
            "Python sink drops what "
            f"it gets. Timed is the whole query, from its start to its end. {READ_ROUNDS} rounds."
        ),
        rows=(
            Row(
                key="stream-read-files",
                work=f"{_READ}, order=offset",
                against="Spark's file source",
                figure="times its speed",
            ),
            Row(
                key="stream-read-bare",
                work=f"{_READ}, order=offset",
                against="a Python source that only reads files",
                figure="times its speed",
            ),
            Row(
                key="stream-read-commit",
                work=f"{_READ}, order=commit",
                against="order=offset",
                figure="times its speed",
            ),
            Row(
                key="stream-read-bare-files",
                work=f"for comparison: a Python source that only reads files, {READ_ROWS:,} rows",
                against="Spark's file source",
                figure="times its speed",
            ),
            Row(
                key="stream-read-bare-copy",
                work=f"stream copy of {READ_ROWS:,} rows, log to log",
                against="a Python source that only reads files, to a Python sink that drops its rows",
                figure="times its speed",
            ),
        ),
        measure=_read,
        minutes=1.2,
    ),
)
