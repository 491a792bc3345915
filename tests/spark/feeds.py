"""A stream whose batches a test feeds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from txnformat.core.entry import CommitEntry, decode_entry
from txnformat.keys import entry_key
from txnformat.log import TxnLog

__all__ = ["Feed", "entries", "rows"]


class Feed:
    """A folder of JSON files that a stream reads, one file a batch; and the queries that write it to
    the log.
    """

    def __init__(self, spark: SparkSession, path: str, folder: Path) -> None:
        self.spark = spark
        self.path = path
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        (folder / "feed").mkdir()
        self._files = 0
        self.queries: list[Any] = []

    def add(self, *numbers: int, topic: str | None = None) -> None:
        """Add a file of rows; Spark takes files by their times of modification."""
        lines = [json.dumps({"n": n, "text": f"row {n}", "topic": topic}) + "\n" for n in numbers]
        file = self.folder / f"{self._files}.json"
        file.write_text("".join(lines))
        os.utime(file, (1_700_000_000 + self._files, 1_700_000_000 + self._files))
        file.rename(self.folder / "feed" / file.name)
        self._files += 1

    def frame(self, columns: str = "n, text", schema: str = "n long, text string, topic string") -> DataFrame:
        reader = self.spark.readStream.format("json").schema(schema).option("maxFilesPerTrigger", 1)
        return reader.load(str(self.folder / "feed")).selectExpr(*columns.split(", "))

    def query(
        self,
        frame: DataFrame | None = None,
        *,
        checkpoint: Path | None = None,
        mode: str = "append",
        trigger: Any = None,
        **options: Any,
    ) -> Any:
        """Start a query for what is there."""
        if "topic" not in options and frame is None:
            options["topic"] = "t"
        writer = (frame if frame is not None else self.frame()).writeStream.format("txnlog").outputMode(mode)
        writer = writer.options(**options).option("checkpointLocation", str(checkpoint or self.checkpoint))
        query = writer.trigger(**(trigger or {"availableNow": True})).start(self.path)
        self.queries.append(query)
        return query

    def run(self, *given: Any, **options: Any) -> None:
        """Write everything that is there."""
        query = self.query(*given, **options)
        assert query.awaitTermination(300)
        assert query.exception() is None

    def fails(self, *given: Any, **options: Any) -> str:
        """Return what the user is told."""
        query = self.query(*given, **options)
        with pytest.raises(PySparkException):
            query.awaitTermination(300)
        found = query.exception()
        assert found is not None
        return str(found)


def rows(log: TxnLog, topic: str = "t") -> list[int]:
    log.refresh()
    return log.read(topic, columns=["n"]).read_all().column("n").to_pylist()  # type: ignore[no-any-return]


def entries(log: TxnLog) -> list[CommitEntry]:
    """Return the entries after the first one, which writers of a new log make."""
    found = []
    for number in range(1, log.refresh().entry + 1):
        data = log.store.get(entry_key(number))
        assert data is not None
        found.append(decode_entry(data, number))
    return found
