"""Streaming queries that read an input from its beginning to its end, side by side in one session."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.spark.bare_sink import BareSink
from bench.spark.bare_source import BareStreamSource
from bench.spark.processor_time import children_seconds
from bench.spark.session import session
from bench.table import Context
from txnlog import TxnLog

__all__ = [
    "Inputs",
    "Stream",
    "details",
    "from_bare",
    "from_files",
    "from_log",
    "run_in_turns",
    "to_bare",
    "to_files",
    "to_log",
    "to_noop",
]

CORES = 2
SLICES = 5
"""Number of slices of a run that is compared in parts."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The same rows as a log (topic "rows") and as Parquet files, a transaction for each file."""

    log: Path
    files: Path
    rows: int
    triggers: int
    """Micro-batches that they are read in."""
    offsets_per_trigger: int
    files_per_trigger: int


@dataclass(slots=True)
class Stream:
    """A query that reads its input from the beginning to the end in micro-batches, as often as it is
    called.
    """

    name: str
    frame: DataFrame
    start: Callable[[DataStreamWriter, Path], Any]
    inputs: Inputs
    folder: Path
    seconds: list[float] = field(default_factory=list)
    """Seconds of each run, from the query's start to its end."""
    slices: list[float] = field(default_factory=list)
    """Seconds of each fifth of a run's micro-batches, run by run."""
    synced_seconds: list[float] = field(default_factory=list)
    """With the writing back of what the query left in the page cache."""
    processor: list[dict[str, float]] = field(default_factory=list)

    def run(self, number: int) -> None:
        """Run the query to its end; the system is synced before, and what it wrote is removed."""
        folder = self.folder / f"{self.name}-{number}"
        folder.mkdir(parents=True)
        os.sync()
        before, start = children_seconds(), time.perf_counter()
        writer = self.frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        query = self.start(writer.trigger(availableNow=True), folder)
        query.awaitTermination()
        elapsed = time.perf_counter() - start
        os.sync()
        synced, after = time.perf_counter() - start, children_seconds()
        progress = [one for one in query.recentProgress if one["numInputRows"]]
        batches = [one["numInputRows"] for one in progress]
        if (len(batches), sum(batches)) != (self.inputs.triggers, self.inputs.rows):
            raise RuntimeError(f"{self.name}: {len(batches)} micro-batches of {sum(batches)} rows")
        self._check(folder / "out")
        self.seconds.append(elapsed)
        taken = [one["durationMs"]["triggerExecution"] / 1_000 for one in progress]
        bounds = [len(taken) * number // SLICES for number in range(SLICES + 1)]
        self.slices += [sum(taken[start:end]) for start, end in pairwise(bounds) if end > start]
        self.synced_seconds.append(synced)
        self.processor.append({side: max(0.0, after[side] - before[side]) for side in after})
        shutil.rmtree(folder)

    def _check(self, out: Path) -> None:
        if (out / "_txnlog").exists():
            with TxnLog.open(out) as log:
                rows = sum(each.log_end for each in log.offsets("rows"))
            if rows != self.inputs.rows:
                raise RuntimeError(f"{self.name}: the log holds {rows} rows of {self.inputs.rows}")


def from_log(spark: SparkSession, inputs: Inputs, order: str) -> DataFrame:
    """Read the log, in an order."""
    options = {"topic": "rows", "order": order, "startingOffsets": "earliest"}
    reader = spark.readStream.format("txnlog").options(**options)
    return reader.option("maxRowsPerTrigger", inputs.offsets_per_trigger).load(str(inputs.log))


def from_files(spark: SparkSession, inputs: Inputs) -> DataFrame:
    """Read the files with Spark's own source."""
    schema = spark.read.parquet(str(inputs.files)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", inputs.files_per_trigger)
    return reader.parquet(str(inputs.files))


def from_bare(spark: SparkSession, inputs: Inputs) -> DataFrame:
    """Read the files with a Python source that does nothing else."""
    files = json.dumps(sorted(map(str, inputs.files.iterdir())))
    reader = spark.readStream.format("bare_stream").options(files=files, splits=CORES)
    return reader.option("filesPerTrigger", inputs.files_per_trigger).load()


def to_log(writer: DataStreamWriter, folder: Path) -> Any:
    """Write to a log."""
    with TxnLog.create(folder / "out"):
        pass
    return writer.format("txnlog").option("topic", "rows").start(str(folder / "out"))


def to_files(writer: DataStreamWriter, folder: Path) -> Any:
    """Write with Spark's Parquet sink."""
    return writer.format("parquet").start(str(folder / "out"))


def to_bare(writer: DataStreamWriter, folder: Path) -> Any:
    """Hand the rows to a Python sink that drops them."""
    return writer.format("bare_sink").start()


def to_noop(writer: DataStreamWriter, folder: Path) -> Any:
    """Drop the rows in the JVM."""
    return writer.format("noop").start()


Make = Callable[[SparkSession, Inputs, Path], list[Stream]]


def run_in_turns(
    context: Context, make: Make, inputs: Inputs, warm_up: Inputs, rounds: int
) -> dict[str, Stream]:
    """Return the streams, by name, after each ran once to warm up and then in turn."""
    context.tick("starting Spark")
    with session(context.folder) as spark:
        spark.dataSource.register(BareSink)
        spark.dataSource.register(BareStreamSource)
        for stream in make(spark, warm_up, context.folder / "warming"):
            context.tick(f"{stream.name}, warming up")
            stream.run(0)
        streams = make(spark, inputs, context.folder / "out")
        for number in range(rounds):
            for stream in streams if number % 2 == 0 else streams[::-1]:
                context.tick(f"{stream.name} {number + 1}/{rounds}")
                stream.run(number)
    return {stream.name: stream for stream in streams}


def details(streams: Mapping[str, Stream]) -> dict[str, Any]:
    """Return the medians of seconds, rows in a second and processor seconds, by stream."""
    found: dict[str, Any] = {}
    for name, stream in streams.items():
        found[f"{name}_s"] = round(statistics.median(stream.seconds), 2)
        found[f"{name}_synced_s"] = round(statistics.median(stream.synced_seconds), 2)
        found[f"{name}_rows_per_s"] = round(stream.inputs.rows / statistics.median(stream.seconds))
        for side in ("jvm", "python"):
            taken = statistics.median(one[side] for one in stream.processor)
            found[f"{name}_{side}_processor_s"] = round(taken, 1)
    return found
