"""The sink of streams: what it adds to a small micro-batch, and how fast a large one is, beside Spark's own
sinks and Delta's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench import shapes
from bench.machine import ROOT
from bench.spark.stream_queries import PARTITIONS, SMALL_ROWS, Found, Order
from bench.table import Benchmark, Context, Measurement, Row, ratio, ratios
from tests.smoke.versions import environment

__all__ = ["BENCHMARKS"]

ROUNDS = 5
BATCHES = 8
WARM_UP = 15
BULK_ROUNDS = 5
BULK_WARM_UP = 2
BULK_ROWS = 1_000_000
SHAPES = {"flights": shapes.flights, "narrow": shapes.narrow}

UNIX = "spark.python.unix.domain.socket.enabled"
SOCKETS = {"unix": "Unix domain sockets", "tcp": "TCP"}

DELTA_PYSPARK = "4.2.1"
"""The newest that the newest Delta runs with: with 4.3.0 it cannot read a table."""
DELTA = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Its default of 50 tasks for a table's state is for clusters.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
}


def run(order: Order, context: Context, python: Path | str = sys.executable) -> dict[str, Found]:
    """Return what the queries of an order gave, by sink, in a process with the given interpreter.

    Raises
    ------
    RuntimeError
        It failed; what it wrote is on the standard error.
    """
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    clean |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    errors = Path(order.folder).with_suffix(".errors")
    with (
        errors.open("wb") as file,
        subprocess.Popen(
            [python, "-m", "bench.spark.stream_queries"],
            cwd=ROOT,
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        json.dump(order.as_json(), child.stdin)
        child.stdin.close()
        last = ""
        for line in child.stdout:
            last = line
            if not line.startswith("{"):
                context.tick(line.strip())
    if child.returncode:
        print(errors.read_text("utf-8", errors="replace")[-4000:], file=sys.stderr)
        raise RuntimeError(f"the queries ended with {child.returncode}; what they wrote is above the table")
    return {name: Found(**found) for name, found in json.loads(last).items()}


def _order(folder: Path, sinks: tuple[str, ...], settings: Mapping[str, str]) -> Order:
    folder.mkdir()
    return Order(
        folder=str(folder),
        sinks=sinks,
        settings=settings,
        rounds=ROUNDS,
        batches=BATCHES,
        warm_up=WARM_UP,
    )


def _details(found: Mapping[str, Found]) -> dict[str, Any]:
    """Return the medians of all that was measured, by sink."""
    return {
        f"{sink}_{what}": round(statistics.median(rounds), 1)
        for sink, one in found.items()
        for what, rounds in one.as_json().items()
    }


def _above(found: Mapping[str, Found], sink: str, other: str) -> tuple[float, ...]:
    """Return the milliseconds that a micro-batch takes longer with one sink than with the other, by round."""
    pairs = zip(found[sink].trigger_ms, found[other].trigger_ms, strict=True)
    return tuple(mine - theirs for mine, theirs in pairs)


def _batch(context: Context) -> list[Measurement]:
    measured = []
    for sockets in SOCKETS:
        settings = {UNIX: str(sockets == "unix").lower()}
        order = _order(context.folder / sockets, ("noop", "bare", "parquet", "txnlog"), settings)
        found = run(order, context)
        details = _details(found)
        key = f"stream-batch-{sockets}"
        added = {sink: _above(found, sink, "noop") for sink in found}
        measured += [
            Measurement(f"{key}-noop", added["txnlog"], details),
            Measurement(f"{key}-bare", _above(found, "txnlog", "bare"), details),
            ratio(f"{key}-parquet", added["txnlog"], added["parquet"], **details),
            Measurement(f"{key}-bare-noop", added["bare"], details),
        ]
    return measured


def _delta(context: Context) -> list[Measurement]:
    context.tick(f"pyspark {DELTA_PYSPARK}")
    python = environment(DELTA_PYSPARK)
    order = _order(context.folder / "delta", ("noop", "bare", "delta", "txnlog"), {UNIX: "true", **DELTA})
    found = run(order, context, python)
    details = _details(found)
    added = _above(found, "txnlog", "noop"), _above(found, "delta", "noop")
    return [ratio("stream-batch-delta", *added, **details)]


def _bulk(context: Context) -> list[Measurement]:
    measured = []
    for name, blocks in SHAPES.items():
        context.tick(f"making {name}")
        folder = context.folder / f"{name}-files"
        folder.mkdir()
        files = []
        for number, block in enumerate(blocks(BULK_ROWS)):
            files.append(folder / f"{number}.parquet")
            pq.write_table(block, files[-1])
        (context.folder / name).mkdir()
        order = Order(
            folder=str(context.folder / name),
            sinks=("noop", "bare", "parquet", "txnlog"),
            settings={UNIX: "true"},
            rounds=BULK_ROUNDS,
            batches=1,
            warm_up=BULK_WARM_UP,
            files=tuple(map(str, files)),
            rows=BULK_ROWS,
        )
        found = run(order, context)
        details = _details(found)
        times: dict[str, Sequence[float]] = {sink: one.trigger_ms for sink, one in found.items()}
        measured += [
            ratio(f"stream-bulk-{name}-parquet", times["parquet"], times["txnlog"], **details),
            ratio(f"stream-bulk-{name}-bare", times["bare"], times["txnlog"], **details),
            Measurement(f"stream-bulk-{name}-bare-parquet", ratios(times["parquet"], times["bare"]), details),
        ]
    return measured


NOOP = "Spark's noop sink, in the JVM"
BARE = "a Python sink that drops its rows"
PARQUET = "Spark's Parquet file sink"

BATCH_NOTE = (
    "a Python sink costs a task for Python in each of the batch's tasks, and two calls of driver-side "
    "Python to plan and "
    "commit, before it does anything: the row of the sink that drops its rows is what Spark takes for "
    "that, and no Python "
    "sink is faster. The row against that sink shows txnlog's own work: of each task a Parquet file that "
    "is synced with "
    "its directory, of the batch an entry that is synced with its directory. `make bench "
    "BENCH=stream-batch` gives all of them"
)
BULK_NOTE = (
    "Spark hands rows to Python as Arrow, over a socket and copied twice: the row of the Python sink that "
    "drops its rows is "
    "the limit of any Python sink. On two cores its encoder then shares the processors with the JVM that "
    "feeds it. "
    "`make bench BENCH=stream-bulk` gives the processor time of both sides"
)

_TAKEN = (
    "The time is that of the whole micro-batch (`triggerExecution` of the query's progress; `addBatch` is "
    "beside it). All queries "
    "are open all the time in one session, local[2], and get one micro-batch each in turn; the system is "
    "synced, untimed, before "
    "each. Python workers are shared by the Python sinks, so the one that drops its rows profits from "
    "`spark_datasource/worker/collector.py`, too: without that it takes about 100 ms more."
)


def _batch_rows(sockets: str, name: str) -> tuple[Row, ...]:
    key, work = f"stream-batch-{sockets}", f"stream: micro-batch of {PARTITIONS} small tasks, {name}"
    return (
        Row(
            key=f"{key}-noop",
            work=work,
            against=NOOP,
            figure="ms more",
            target=15,
            at_least=False,
            digits=0,
            note=BATCH_NOTE,
        ),
        Row(key=f"{key}-bare", work=work, against=BARE, figure="ms more", digits=0),
        Row(
            key=f"{key}-parquet",
            work=work,
            against=f"{PARQUET}, both less noop",
            figure="times what it adds",
            target=0.5,
            at_least=False,
            note=BATCH_NOTE,
        ),
        Row(
            key=f"{key}-bare-noop",
            work=f"for comparison: {BARE}, {name}",
            against=NOOP,
            figure="ms more",
            digits=0,
        ),
    )


def _bulk_rows(name: str, shape: str) -> tuple[Row, ...]:
    key, work = f"stream-bulk-{name}", f"stream: micro-batch of {BULK_ROWS:,} rows, {shape}"
    return (
        Row(
            key=f"{key}-parquet",
            work=work,
            against=PARQUET,
            figure="times its speed",
            target=0.9,
            note=BULK_NOTE,
        ),
        Row(key=f"{key}-bare", work=work, against=BARE, figure="times its speed"),
        Row(
            key=f"{key}-bare-parquet",
            work=f"for comparison: {BARE}, {shape}",
            against=PARQUET,
            figure="times its speed",
        ),
    )


BENCHMARKS = (
    Benchmark(
        name="stream-batch",
        how=(
            f"Micro-batches of {SMALL_ROWS} rows of three columns in {PARTITIONS} tasks, from memory, "
            "into a topic of "
            f"{PARTITIONS} partitions on local disk. {ROUNDS} rounds of {BATCHES} after {WARM_UP} to warm "
            "up; a round's figure "
            f"is of its medians. With `{UNIX}`, and without, as Spark has it by default. {_TAKEN}"
        ),
        rows=tuple(row for sockets, name in SOCKETS.items() for row in _batch_rows(sockets, name)),
        measure=_batch,
        minutes=3.5,
    ),
    Benchmark(
        name="stream-bulk",
        how=(
            f"Micro-batches of {BULK_ROWS:,} rows from Parquet files of {shapes.BLOCK_ROWS:,}; "
            f"{BULK_ROUNDS} after "
            f"{BULK_WARM_UP} to warm up, with Unix domain sockets. Spark writes with snappy, its default, "
            "and leaves its files "
            f"in the page cache; txnlog writes with zstd, and syncs. {_TAKEN}"
        ),
        rows=tuple(
            row
            for name, shape in (("flights", "flights shape"), ("narrow", "144-byte rows"))
            for row in _bulk_rows(name, shape)
        ),
        measure=_bulk,
        minutes=2,
    ),
    Benchmark(
        name="stream-delta",
        how=(
            "As stream-batch with Unix domain sockets, beside Delta's sink: "
            f"`{DELTA['spark.jars.packages']}` with pyspark "
            f"{DELTA_PYSPARK} in an environment of its own, because that release of Delta cannot read its "
            "tables with Spark "
            "4.3 (`NoSuchMethodError`). A table's state is computed by 2 tasks, not 50. Delta's files "
            "stay in the page cache."
        ),
        rows=(
            Row(
                key="stream-batch-delta",
                work=f"stream: micro-batch of {PARTITIONS} small tasks, Unix domain sockets, Spark "
                f"{DELTA_PYSPARK}",
                against="Delta's sink, both less noop",
                figure="times what it adds",
            ),
        ),
        measure=_delta,
        minutes=2.5,
    ),
)
