"""Streams of the fault cases that need no kill: queries of the shared session, with points in them and rows that say
where they come from; and the oracle for what they have to leave.

A session of its own has the source with points (:class:`tests.chaos.source.ChaosSource`); the others are not changed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.chaos import inputs
from tests.chaos.faults import DRIVER_FILE, Control, wait_until, write_whole
from tests.chaos.oracle import Found, Row
from tests.chaos.origin import INPUT_DDL, TOPIC, TOPIC_DDL, TOPIC_SCHEMA, with_origin
from tests.chaos.outside import Tail, examine, final_rows, versions_of
from tests.chaos.source import CONTROL, ChaosSource
from txnlog import TxnLog

__all__ = ["NAMESPACE", "PARTITIONS", "Stream", "open_stream"]

NAMESPACE = "spark-stream"
PARTITIONS = 2
ROWS_PER_FILE = 40
"""A batch is a file: several tasks, and several Arrow batches in each."""
END_SECONDS_MAX = 240
"""For a query to end. Generous: a loaded machine is no defect."""


class Stream:
    """A log, input for a query into its topic, and a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, key_columns: list[str]) -> None:
        self.spark = spark
        self.folder = folder
        self.path = str(folder / "log")
        self.log = TxnLog.create(self.path, embedding=False)
        self.log.create_topic(TOPIC, TOPIC_SCHEMA, partitions=PARTITIONS, key_columns=key_columns)
        self.checkpoint = folder / "checkpoint"
        self.input = folder / "input"
        self.input.mkdir()
        self.control = Control(folder / "control")
        self.control.folder.mkdir()
        jvm: Any = spark.sparkContext._gateway
        write_whole(self.control.folder / DRIVER_FILE, {"python": os.getpid(), "jvm": jvm.proc.pid})
        self.tail = Tail(self.path, PARTITIONS)
        self._files = 0

    # --- input ----------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> list[int]:
        """The rows of the input."""
        return inputs.numbers_in(self.input)

    def feed(self, files: int = 1) -> None:
        """Add files, a batch each: Spark takes them by their times, in milliseconds."""
        for _ in range(files):
            start = self._files * ROWS_PER_FILE
            inputs.feed(self.input, f"{self._files:04}", range(start, start + ROWS_PER_FILE))
            self._files += 1
            self._wait_millisecond()

    def _wait_millisecond(self) -> None:
        """Wait until a new file has a later time than those that are there."""
        clock = self.folder / "clock"
        clock.touch()
        before = _changed_ms(clock)

        def is_later() -> bool:
            clock.touch()
            return _changed_ms(clock) > before

        when(is_later, "the next millisecond")

    # --- queries --------------------------------------------------------------------------------------------

    def source(self) -> DataFrame:
        """Return the input as a stream, a file a batch."""
        return self.spark.readStream.schema(INPUT_DDL).option("maxFilesPerTrigger", 1).json(str(self.input))

    def rows(self) -> DataFrame:
        """Return the stream with each row's origin."""
        return self.with_origin(self.source())

    def with_origin(self, frame: DataFrame) -> DataFrame:
        """Return a frame of the input's columns with each row's origin."""
        return frame.mapInArrow(partial(with_origin, str(self.control.folder)), TOPIC_DDL)

    def start(
        self,
        frame: DataFrame | None = None,
        *,
        mode: str = "append",
        checkpoint: Path | None = None,
        trigger: dict[str, Any] | None = None,
        **options: str,
    ) -> Any:
        """Start a query, by default for what is there (``trigger``: as its method has them)."""
        writer = (self.rows() if frame is None else frame).writeStream.format("txnlog").outputMode(mode)
        options = {"topic": TOPIC, CONTROL: str(self.control.folder), **options}
        writer = writer.options(**options).option("checkpointLocation", str(checkpoint or self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start(self.path)

    @contextlib.contextmanager
    def running(self, *given: Any, **options: Any) -> Iterator[Any]:
        """Yield a query that goes on until the block ends."""
        query = self.start(*given, **{"trigger": {"processingTime": "20 milliseconds"}, **options})
        try:
            yield query
        finally:
            query.stop()

    def run(self, *given: Any, **options: Any) -> Any:
        """Process everything that is there; return the query, which has ended."""
        query = self.start(*given, **options)
        try:
            assert query.awaitTermination(END_SECONDS_MAX), "the query goes on"
        finally:
            query.stop()
        return query

    def catch_up(self, *given: Any, **options: Any) -> Any:
        """Process everything that is there, with batches without data; return the query, which has ended."""
        with self.running(*given, **options) as query:
            query.processAllAvailable()
        return query

    def fails(self, *given: Any, **options: Any) -> str:
        """Return what the user of a query is told in the end."""
        query = self.start(*given, **options)
        try:
            return said(query)
        finally:
            query.stop()

    # --- what there is --------------------------------------------------------------------------------------

    @property
    def application(self) -> tuple[str, str]:
        """The query of the checkpoint, as the log knows it."""
        return NAMESPACE, json.loads((self.checkpoint / "metadata").read_text())["id"]

    def versions(self) -> list[int]:
        """Return the versions that the log has of it."""
        return versions_of(self.log).get(self.application, [])

    def content(self) -> list[Row]:
        """Return the committed rows."""
        return final_rows(self.log)

    def numbers(self) -> list[int]:
        """Return their numbers, sorted."""
        return sorted(row.n for row in self.content())

    def entry(self) -> int:
        """Return the newest entry."""
        return self.log.refresh().entry

    def notes(self, kind: str) -> list[int]:
        """Return the batches that Spark has noted: ``offsets`` when it begins one, ``commits`` when it is
        done."""
        return sorted(int(path.name) for path in (self.checkpoint / kind).glob("[0-9]*"))

    def forget(self, kind: str, *batches: int) -> None:
        """Delete notes of Spark, with their checksums."""
        for batch in batches:
            (self.checkpoint / kind / str(batch)).unlink()
            (self.checkpoint / kind / f".{batch}.crc").unlink(missing_ok=True)

    def check(self, wanted: list[int] | None = None) -> Found:
        """Apply the oracle: every row of the input once, in order, in whole batches; also as the reader saw
        it."""
        found = examine(
            self.log, self.wanted if wanted is None else wanted, [self.tail.end()], self.application
        )
        assert found.violations == ()
        return found


def said(query: Any) -> str:
    """Wait for a query to fail, and return what its user is told."""
    with contextlib.suppress(PySparkException):
        assert query.awaitTermination(END_SECONDS_MAX), "the query goes on"
    found = query.exception()
    assert found is not None, "the query ended without an error"
    return str(found)


@contextlib.contextmanager
def open_stream(
    classic: SparkSession, folder: Path, key_columns: list[str], kind: type[Stream] = Stream
) -> Iterator[Stream]:
    """Yield a stream, with a reader that follows its topic from the beginning."""
    spark = classic.newSession()
    spark.dataSource.register(ChaosSource)
    for name, value in {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
        "spark.sql.files.maxPartitionBytes": "1024",
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "1000",
    }.items():
        spark.conf.set(name, value)
    stream = kind(spark, folder, key_columns)
    with stream.tail, stream.log:
        yield stream


def when(condition: Callable[[], bool], what: str) -> None:
    """Wait for something."""
    wait_until(lambda: condition() or None, what)


def _changed_ms(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000
