"""A long backlog of small commits: how long a query takes to plan and read it, what it asks of the store, and
what a restart does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from bench.spark.stream_runs import Inputs, Stream, details, from_files, from_log, run_in_turns, to_noop
from bench.spark.workers import Worker
from bench.table import Benchmark, Context, Measurement, Row, ratio
from spark_datasource.datasource import TxnLogDataSource
from txnformat.protocol.commit import CommitSettings
from txnlog import Producer, TxnLog

__all__ = ["BENCHMARKS"]

COMMITS = 4_000
WARM_UP_COMMITS = 200
ROWS = 100
"""Rows of a commit."""
SEAL_EXTENTS = 512
"""Batches that the log's state keeps before they are sealed; by default 4,096."""
TRIGGERS = 20
RUNS = 1
RESTARTS = 5
ORDERS = ("offset", "commit")
SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.float64())])


def _block(number: int) -> pa.Table:
    first = number * ROWS
    numbers = pa.array(range(first, first + ROWS), pa.int64())
    return pa.table([numbers, numbers.cast(pa.float64())], schema=SCHEMA)


def _inputs(folder: Path, commits: int, triggers: int) -> Inputs:
    folder.mkdir()
    log, files = folder / "log", folder / "files"
    files.mkdir()
    with TxnLog.create(log, settings=CommitSettings(seal_extents=SEAL_EXTENTS)) as created:
        created.create_topic("rows", SCHEMA)
        with Producer(created, "bench") as producer:
            for number in range(commits):
                with producer.transaction() as transaction:
                    transaction.send("rows", _block(number))
        offsets = sum(each.log_end for each in created.offsets("rows"))
    for number in range(commits):
        pq.write_table(_block(number), files / f"part-{number:05d}.parquet")
    return Inputs(log, files, commits * ROWS, triggers, -(-offsets // triggers), commits // triggers)


def _streams(spark: SparkSession, inputs: Inputs, folder: Path) -> list[Stream]:
    return [
        *(Stream(order, from_log(spark, inputs, order), to_noop, inputs, folder) for order in ORDERS),
        Stream("files", from_files(spark, inputs), to_noop, inputs, folder),
    ]


class _Reading:
    """A query's source in a process of its own, and its tasks in another one, without Spark."""

    def __init__(self, inputs: Inputs, order: str) -> None:
        options = {"path": str(inputs.log), "topic": "rows", "order": order, "startingOffsets": "earliest"}
        source = TxnLogDataSource(options | {"maxRowsPerTrigger": str(inputs.offsets_per_trigger)})
        self._reader: Any = source.streamReader(source.schema())
        self._limit = ReadMaxRows(inputs.offsets_per_trigger)
        self._driver, self._tasks = Worker(), Worker()
        self.milliseconds: dict[str, float] = {}
        self.counts: dict[str, Counter[str]] = {"open": Counter(), "plan": Counter(), "read": Counter()}
        """Requests by step, and by what they were for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._reader.stop()

    def first(self) -> dict[str, Any]:
        """Return where the query begins; that opens the log."""
        with self._taken("open", self._driver):
            offset: dict[str, Any] = self._reader.initialOffset()
        return offset

    def batch(self, start: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """Return the end and the splits of the next micro-batch."""
        with self._taken("plan", self._driver):
            end = self._reader.latestOffset(start, self._limit)
            splits = [] if end == start else self._reader.partitions(start, end)
        return end, splits

    def read(self, splits: list[Any]) -> int:
        """Return how many rows a micro-batch has."""
        with self._taken("read", self._tasks):
            return sum(batch.num_rows for split in splits for batch in self._reader.read(split))

    @contextmanager
    def _taken(self, what: str, worker: Worker) -> Iterator[None]:
        counts, start = worker.counts, time.perf_counter()
        with worker.running():
            yield
        elapsed = (time.perf_counter() - start) * 1_000
        self.milliseconds[what] = self.milliseconds.get(what, 0) + elapsed
        for request, number in (worker.counts - counts).requests.items():
            self.counts[what][f"{request.operation.value} {request.key_class.value}"] += number

    def requests(self, what: str) -> str:
        """Return the requests of a step as a text."""
        return " + ".join(f"{number} {name}" for name, number in sorted(self.counts[what].items())) or "none"


def _driven(inputs: Inputs, order: str) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Return what the steps of reading the backlog took, and the requests of each micro-batch and of
    restarts.
    """
    found: dict[str, Any] = {}
    counts: dict[str, list[float]] = {"plan": [], "read": [], "restart": []}
    with _Reading(inputs, order) as reading:
        ends, rows = [reading.first()], 0
        while True:
            before = {what: reading.counts[what].total() for what in ("plan", "read")}
            end, splits = reading.batch(ends[-1])
            if end == ends[-1]:
                break
            rows += reading.read(splits)
            ends.append(end)
            for what, total in before.items():
                counts[what].append(float(reading.counts[what].total() - total))
        if rows != inputs.rows:
            raise RuntimeError(f"{rows} rows of {inputs.rows} were read")
        found["batches"] = len(ends) - 1
        for what in ("open", "plan", "read"):
            found[f"{what}_ms"] = round(reading.milliseconds[what], 1)
            found[f"{what}_requests"] = reading.requests(what)
    for number in np.linspace(1, len(ends) - 1, RESTARTS).astype(int):
        with _Reading(inputs, order) as again:
            again.batch(ends[number])
        found[f"restart_after_{number}_ms"] = round(again.milliseconds["plan"], 1)
        found[f"restart_after_{number}_requests"] = again.requests("plan")
        counts["restart"].append(float(again.counts["plan"].total()))
    return found, counts


def measure(context: Context) -> list[Measurement]:
    """Return times against Spark's file source, and requests."""
    context.tick("committing")
    inputs = _inputs(context.folder / "input", COMMITS, TRIGGERS)
    warm_up = _inputs(context.folder / "warm-up", WARM_UP_COMMITS, 2)
    found = []
    for order in ORDERS:
        context.tick(f"requests, order={order}")
        taken, counts = _driven(inputs, order)
        found += [
            Measurement(f"catch-up-{order}-{what}", tuple(counts[what]), taken)
            for what in ("plan", "read", "restart")
        ]
    streams = run_in_turns(context, _streams, inputs, warm_up, RUNS)
    taken = details(streams)
    found += [
        ratio(f"catch-up-{order}-files", streams["files"].slices, streams[order].slices, **taken)
        for order in ORDERS
    ]
    return found


_BACKLOG = f"catch-up with {COMMITS:,} commits of {ROWS} rows"


def _rows(order: str) -> tuple[Row, ...]:
    work = f"{_BACKLOG}, order={order}"
    return (
        Row(
            key=f"catch-up-{order}-files",
            work=work,
            against="Spark's file source over as many files",
            figure="times its speed",
        ),
        Row(
            key=f"catch-up-{order}-plan",
            work=f"{work}: planning",
            against="–",
            figure="requests a micro-batch",
            digits=1,
        ),
        Row(
            key=f"catch-up-{order}-read",
            work=f"{work}: reading",
            against="–",
            figure="requests a micro-batch",
            digits=0,
        ),
        Row(
            key=f"catch-up-{order}-restart",
            work=f"{work}: restart from a checkpoint, to the first splits",
            against="–",
            figure="requests",
            digits=0,
        ),
    )


BENCHMARKS = (
    Benchmark(
        name="catch-up",
        how=(
            f"A log of one partition with {COMMITS:,} transactions of {ROWS} rows, sealed by its writer "
            "whenever "
            f"{SEAL_EXTENTS} batches were not, is read from the beginning in {TRIGGERS} micro-batches "
            "(`maxRowsPerTrigger`) into "
            f"the noop sink; against Spark's file source over {COMMITS:,} Parquet files of the same rows "
            "(`maxFilesPerTrigger`), "
            "local[2]; a round's figure is that of a fifth of the micro-batches, in turns of all of "
            "them. Requests are counted in this process, which does what the query's Python processes do: "
            "one for the driver, one for the tasks. A restart, from five checkpoints between the first "
            "and the last, opens the log and plans one micro-batch. No file is compacted: "
            "each commit's file is read for itself."
        ),
        rows=tuple(row for order in ORDERS for row in _rows(order)),
        measure=measure,
        minutes=1.2,
    ),
)
