"""Streams into several sinks, a micro-batch of each in turn: a process of its own, because some settings are
Spark's for good.

``python -m bench.spark.stream_queries`` takes an :class:`Order` as JSON on its standard input, says on its
standard output what it is doing, a line for each step, and last what it found (:class:`Found` for each sink)
as JSON. It imports nothing that an older pyspark does not come with, so that it runs in another environment,
too.

Every query is open all the time, and gets one micro-batch after the other: all are as warm as they get, and a
machine that slows down slows down all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.spark.bare_sink import BareSink
from bench.spark.processor_time import children_seconds
from spark_datasource.datasource import register
from txnlog import TxnLog

__all__ = ["PARTITIONS", "SMALL_ROWS", "Found", "Order", "Stream", "main"]

PARTITIONS = 8
"""Partitions of the topic, and tasks of a small micro-batch."""
SMALL_ROWS = 80
"""Rows of a small micro-batch."""
PROGRESS_S = 10
"""How long a query may take to say what its last micro-batch took."""
POLLING_MS = 50
"""How long an idle query waits before it looks for data again: idle queries leave the processor to the one
that is timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The query to run."""

    folder: str
    """An empty directory."""
    sinks: tuple[str, ...]
    """Names of ``SINKS``."""
    settings: Mapping[str, str]
    """Settings of Spark."""
    rounds: int
    batches: int
    """Micro-batches of each sink in a round."""
    warm_up: int
    """Micro-batches of each sink before them."""
    files: tuple[str, ...] = ()
    """Parquet files that are a micro-batch; none for small ones of ``SMALL_ROWS``."""
    rows: int = SMALL_ROWS
    """Rows of a micro-batch."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Found:
    """The measurements of one sink: for every round, its micro-batches' medians in milliseconds."""

    trigger_ms: list[float] = field(default_factory=list)
    """The whole micro-batch, as the query's progress has it: ``triggerExecution``."""
    add_ms: list[float] = field(default_factory=list)
    """Its part from the first task to the commit: ``addBatch``."""
    jvm_processor_ms: list[float] = field(default_factory=list)
    """Processor time of a micro-batch: the mean of the round."""
    python_processor_ms: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, list[float]]:
        """Return it as JSON values."""
        return asdict(self)


def _noop(frame: DataFrame, folder: Path) -> StreamingQuery:
    return _writer(frame, folder).format("noop").start()


def _bare(frame: DataFrame, folder: Path) -> StreamingQuery:
    return _writer(frame, folder).format("bare_sink").start()


def _parquet(frame: DataFrame, folder: Path) -> StreamingQuery:
    return _writer(frame, folder).format("parquet").start(str(folder / "out"))


def _delta(frame: DataFrame, folder: Path) -> StreamingQuery:
    return _writer(frame, folder).format("delta").start(str(folder / "out"))


def _txnlog(frame: DataFrame, folder: Path) -> StreamingQuery:
    with TxnLog.create(folder / "out"):
        pass
    writer = _writer(frame, folder).format("txnlog").option("topic", "rows")
    return writer.option("partitions", PARTITIONS).start(str(folder / "out"))


def _writer(frame: DataFrame, folder: Path) -> DataStreamWriter:
    return frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))


SINKS: Mapping[str, Callable[[DataFrame, Path], StreamingQuery]] = {
    "noop": _noop,
    "bare": _bare,
    "parquet": _parquet,
    "delta": _delta,
    "txnlog": _txnlog,
}


class Stream:
    """A query into one sink, that gets its micro-batches one by one."""

    def __init__(self, spark: SparkSession, name: str, order: Order) -> None:
        self._folder = Path(order.folder) / name
        self._folder.mkdir()
        self._order = order
        self._steps = 0
        frame, self._feed = self._files(spark) if order.files else self._memory(spark)
        self._query = SINKS[name](frame, self._folder)
        self.batches: list[tuple[float, float]] = []
        """Milliseconds of ``triggerExecution`` and ``addBatch`` in the current round."""
        self.processor: dict[str, float] = {}
        """Seconds by side in the current round."""

    def _memory(self, spark: SparkSession) -> tuple[DataFrame, Callable[[], object]]:
        """Return a source that holds its rows in the JVM.

        It is Spark's own for tests: nothing else gives so little work.
        """
        jvm: Any = spark._jvm
        memory = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream.apply(
            spark._jsparkSession, PARTITIONS, jvm.org.apache.spark.sql.Encoders.INT()
        )
        frame = DataFrame(memory.toDF(), spark).selectExpr(
            "value AS number", "value * 0.5D AS value", "concat('name-', value) AS name"
        )
        rows = jvm.PythonUtils.toSeq(list(range(self._order.rows)))
        return frame, lambda: memory.addData(rows)

    def _files(self, spark: SparkSession) -> tuple[DataFrame, Callable[[], object]]:
        """Return a source that finds new files, all of a micro-batch at once."""
        source = self._folder / "source"
        source.mkdir()
        schema = spark.read.parquet(*self._order.files).schema
        frame = spark.readStream.schema(schema).parquet(str(source / "*"))

        def feed() -> None:
            hidden = source / f".{self._steps}"
            hidden.mkdir()
            for number, file in enumerate(self._order.files):
                os.link(file, hidden / f"{self._steps}-{number}.parquet")
            hidden.rename(source / str(self._steps))

        return frame, feed

    def step(self) -> None:
        """Run one micro-batch, and keep what it took. The system is synced before it."""
        os.sync()
        before = children_seconds()
        self._steps += 1
        self._feed()
        self._query.processAllAvailable()
        after = children_seconds()
        took = self._progress()["durationMs"]
        self.batches.append((took["triggerExecution"], took["addBatch"]))
        for side, seconds in after.items():
            self.processor[side] = self.processor.get(side, 0) + seconds - before[side]

    def _progress(self) -> Mapping[str, Any]:
        """Return the progress of the micro-batch that has just run; Spark may say so a moment after it is
        done.
        """
        deadline = time.monotonic() + PROGRESS_S
        progress = self._query.lastProgress
        while progress is None or progress["batchId"] < self._steps - 1:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no progress of batch {self._steps - 1}: {progress}")
            time.sleep(0.01)
            progress = self._query.lastProgress
        if (progress["batchId"], progress["numInputRows"]) != (self._steps - 1, self._order.rows):
            raise RuntimeError(f"not one micro-batch of {self._order.rows} rows: {progress}")
        return progress

    def end_round(self, found: Found) -> None:
        """Move what the round gave to ``found``."""
        found.trigger_ms.append(statistics.median(trigger for trigger, _ in self.batches))
        found.add_ms.append(statistics.median(add for _, add in self.batches))
        found.jvm_processor_ms.append(1000 * self.processor["jvm"] / len(self.batches))
        found.python_processor_ms.append(1000 * self.processor["python"] / len(self.batches))
        self.forget()

    def forget(self) -> None:
        """Drop what the steps so far gave."""
        self.batches.clear()
        self.processor.clear()

    def stop(self, name: str) -> None:
        """Stop the query, and check that our sink has written what it got."""
        self._query.stop()
        if name == "txnlog":
            with TxnLog.open(self._folder / "out") as log:
                rows = sum(each.log_end for each in log.offsets("rows"))
            if rows != self._steps * self._order.rows:
                raise RuntimeError(f"the log holds {rows} rows of {self._steps} x {self._order.rows}")
        shutil.rmtree(self._folder)


def run(order: Order, say: Callable[[str], None]) -> dict[str, Found]:
    """Run the queries side by side, and return what was found by sink."""
    say("starting Spark")
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]").appName("txnlog-bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.sql.streaming.pollingDelay": f"{POLLING_MS}ms",
        "spark.sql.warehouse.dir": str(Path(order.folder) / "warehouse"),
        **order.settings,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    try:
        register(spark)
        spark.dataSource.register(BareSink)
        streams = {name: Stream(spark, name, order) for name in order.sinks}
        found = {name: Found() for name in order.sinks}
        for number in range(order.warm_up + order.rounds * order.batches):
            counted = number - order.warm_up
            say(f"micro-batch {number + 1}/{order.warm_up + order.rounds * order.batches}")
            names = order.sinks if number % 2 == 0 else order.sinks[::-1]
            for name in names:
                streams[name].step()
            for name, stream in streams.items():
                if counted == -1:
                    stream.forget()
                if counted >= 0 and (counted + 1) % order.batches == 0:
                    stream.end_round(found[name])
        for name, stream in streams.items():
            stream.stop(name)
        return found
    finally:
        spark.stop()


def main() -> None:
    """Run the order on standard input."""
    given = json.load(sys.stdin)
    given |= {"sinks": tuple(given["sinks"]), "files": tuple(given["files"])}
    with suppress(BrokenPipeError):
        found = run(Order(**given), lambda what: print(what, flush=True))
        print(json.dumps({name: one.as_json() for name, one in found.items()}), flush=True)


if __name__ == "__main__":
    main()
