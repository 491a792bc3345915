"""Streams of the fault cases whose source is a topic of the log that they write to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.chaos.source import CONTROL
from tests.spark.case_stream import Stream, open_stream
from txnlog import Producer

__all__ = ["ORDERS", "PARTITIONS", "LogStream", "open_log_stream"]

ORDERS = "orders"
SCHEMA = pa.schema([("n", pa.int64()), ("key", pa.string())])
PARTITIONS = 2


class LogStream(Stream):
    """A log with ``orders``, and a query that copies them into another topic of it, with the origin of each
    row."""

    def __init__(self, spark: SparkSession, folder: Path, key_columns: list[str]) -> None:
        super().__init__(spark, folder, key_columns)
        self.log.create_topic(ORDERS, SCHEMA, partitions=PARTITIONS, key_columns=["key"])
        self.read_options: dict[str, str] = {"startingOffsets": "earliest", "maxRowsPerTrigger": "10"}
        self.sent = 0

    @property
    def wanted(self) -> list[int]:
        """What is committed in ``orders``, in no order."""
        self.log.refresh()
        found: list[int] = self.log.read(ORDERS, columns=["n"]).read_all().column("n").to_pylist()
        return found

    def records(self, count: int) -> list[dict[str, Any]]:
        """Return the next records, over both partitions."""
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        return [{"n": n, "key": f"key-{n % 7}"} for n in numbers]

    def append(self, *counts: int) -> None:
        """Commit records, each number of them in an entry."""
        with Producer(self.log, linger_ms=60_000) as producer:
            for count in counts:
                producer.send(ORDERS, self.records(count))
                producer.flush()

    def give_up(self, count: int) -> None:
        """Append records of a transaction that aborts: they have offsets, and are read by nobody."""
        with Producer(self.log, "given-up", buffer="inline") as producer:
            producer.begin()
            producer.send(ORDERS, self.records(count))
            producer.flush()
            producer.abort()

    def seal(self) -> None:
        """Seal, and see that there was something to seal."""
        assert self.log.maintain("seal").batches > 0

    def source(self) -> DataFrame:
        """Return ``orders`` as a stream."""
        return (
            self.spark.readStream.format("txnlog")
            .options(**{"topic": ORDERS, CONTROL: str(self.control.folder), **self.read_options})
            .load(self.path)
        )


@contextlib.contextmanager
def open_log_stream(classic: SparkSession, folder: Path, **read_options: str) -> Iterator[LogStream]:
    """Yield a stream, with a reader that follows the topic that it writes."""
    with open_stream(classic, folder, ["key"], LogStream) as stream:
        assert isinstance(stream, LogStream)
        stream.read_options |= read_options
        yield stream
