"""Driving the stream reader as Spark does, without Spark: offsets go through JSON, splits through pickle."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.options.read import parse_read_options
from spark_datasource.options.storage import NO_STORAGE
from spark_datasource.stream.followed_log import FollowedLog
from spark_datasource.stream.reader import TxnLogStreamReader
from spark_datasource.worker import logs, stores
from tests.integration.clients.failing import rows
from txnformat.clock import Clock, Instant
from txnformat.log import TxnLog
from txnformat.store.base import ObjectStore
from writers.bulk import BulkAppend

PATH = "/the-log"
ALL = ReadAllAvailable()
LIMITED = ReadMaxRows(1)
"""Its value has no effect: the reader takes the limits of its options."""


class StillClock:
    """A clock that goes on by itself only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.slept: list[float] = []

    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def sleep(self, seconds: float, wake: Any = None) -> None:
        self.slept.append(seconds)
        self.now_ms += round(seconds * 1_000)


def make_reader(
    store: ObjectStore, schema: StructType, clock: Clock | None = None, **options: object
) -> TxnLogStreamReader:
    """Return a reader as in a process that a query has just been started in."""
    given = {"path": PATH, **{name: str(value) for name, value in options.items()}}
    reader = TxnLogStreamReader({name.lower(): value for name, value in given.items()}, None, schema)
    reader._followed = FollowedLog(parse_read_options(given), clock or StillClock(), store)
    return reader


def schema_of(log: TxnLog, topic: str, columns: str | None = None) -> StructType:
    """Return the schema that load() finds."""
    from spark_datasource.schema import spark_schema

    return spark_schema(log.refresh().topic(topic).schema, columns.split(",") if columns else None)


def travelled(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset as it comes back from a checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def batch(
    reader: TxnLogStreamReader, log: TxnLog, start: dict[str, Any], end: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of a micro-batch, split by split."""
    return [row for part in batches(reader, log, start, end) for row in part.to_pylist()]


def batches(
    reader: TxnLogStreamReader, log: TxnLog, start: dict[str, Any], end: dict[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Yield what tasks make of a micro-batch."""
    # A task's process opens the store by its path: here it is one in memory.
    stores._stores[PATH, NO_STORAGE, log.log_id] = log.store
    try:
        splits = pickle.loads(pickle.dumps(reader.partitions(travelled(start), travelled(end))))
        task: TxnLogStreamReader = pickle.loads(pickle.dumps(reader))
        for split in splits:
            yield from task.read(split)
    finally:
        stores._stores.clear()
        logs._sidecars.clear()  # every store in memory has one name


def make_source(path: str, **options: object) -> TxnLogDataSource:
    """Return a data source as Spark makes it."""
    return TxnLogDataSource({"path": path, **{name.lower(): str(value) for name, value in options.items()}})


def append(log: TxnLog, *numbers: int, topic: str = "t", partition: int = 0) -> int:
    with BulkAppend(log) as bulk:
        bulk.send(topic, rows(*numbers), partition)
        entry = bulk.commit().entry
    assert entry is not None
    return entry


def read(reader: TxnLogStreamReader, log: TxnLog, begin: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return [row["n"] for row in batch(reader, log, begin, end)]


def run(
    reader: TxnLogStreamReader, log: TxnLog, begin: dict[str, Any] | None = None, limit: Any = ALL
) -> list[list[int]]:
    """Return the micro-batches up to now; a query without a checkpoint begins with its initial offset."""
    found = []
    begin = begin or travelled(reader.initialOffset())
    while (end := travelled(reader.latestOffset(begin, limit))) != begin:
        found.append(read(reader, log, begin, end))
        begin = end
    return found


def offsets(offset: dict[str, Any]) -> list[list[int]]:
    return [topic["offsets"] for topic in offset["topics"].values()]
