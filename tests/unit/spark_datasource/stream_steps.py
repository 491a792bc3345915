"""A stream's batches step by step, as Spark's processes make them: no session needed.

Each process has its own open logs, and is told of others only what Spark pickles. Requests of each are
counted.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

import spark_datasource.options.storage
import spark_datasource.stream.sink
import spark_datasource.worker.logs
import txnformat.log
from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.stream.messages import BATCH_ID, QUERY_ID, RUN_ID, StreamUpload
from spark_datasource.stream.sink import TxnLogStreamWriter
from txnformat.log import TxnLog
from txnformat.store.base import ObjectStore
from txnformat.store.open import as_store, open_store
from txnlog_testing.stores.counting import CountingStore

__all__ = ["FRAME", "KEYED", "Cluster", "Query", "files", "rows", "table"]

FRAME = StructType().add("n", "long").add("text", "string")
ROUTED = StructType().add("n", "long").add("topic", "string").add("text", "string")
KEYED = {"keyColumns": "n"}


def table(*numbers: int, topics: Mapping[int, str | None] | None = None) -> pa.Table:
    """Return rows; with ``topics`` those that route."""
    columns: dict[str, Any] = {"n": pa.array(numbers, pa.int64())}
    if topics is not None:
        columns["topic"] = pa.array([topics[n] for n in numbers], pa.string())
    return pa.table({**columns, "text": pa.array([f"row {n}" for n in numbers], pa.string())})


def rows(log: TxnLog, topic: str = "t") -> list[int]:
    """Return what is in the log, sorted."""
    log.refresh()
    return sorted(log.read(topic, columns=["n"]).read_all().column("n").to_pylist())


def files(path: str) -> int:
    """Return how many segment files there are, named or not."""
    return len(list(Path(path).glob("*/data/*")))


class Cluster:
    """The driver's two Python workers and those of the tasks."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._logs: dict[str, dict[Any, Any]] = {}
        self._runs: dict[str, dict[Any, Any]] = {}
        self.stores: dict[str, CountingStore] = {}
        self._worker = ""
        patch.setattr(spark_datasource.options.storage, "open_store", self._opened(open_store))
        patch.setattr(txnformat.log, "as_store", self._opened(as_store))

    def _opened(self, real: Any) -> Any:
        def opened(*given: Any, **options: Any) -> ObjectStore:
            if not self._worker:
                found: ObjectStore = real(*given, **options)
                return found
            return self.stores.setdefault(self._worker, CountingStore(real(*given, **options)))

        return opened

    def restart(self, worker: str) -> None:
        """Let a worker end: its successor knows nothing."""
        self._logs.pop(worker, None)
        self._runs.pop(worker, None)
        self.stores.pop(worker, None)

    @contextmanager
    def in_worker(self, worker: str) -> Iterator[None]:
        """Run a block in a worker."""
        with self._patch.context() as patch:
            patch.setattr(spark_datasource.worker.logs, "_logs", self._logs.setdefault(worker, {}))
            patch.setattr(spark_datasource.stream.sink, "_runs", self._runs.setdefault(worker, {}))
            self._worker = worker
            try:
                yield
            finally:
                self._worker = ""


class Query:
    """A run of a streaming query."""

    def __init__(
        self, cluster: Cluster, path: str, *, run: str = "run-1", query: str = "query", **options: str
    ) -> None:
        self.cluster = cluster
        self.options = {"path": path, "checkpointlocation": "/checkpoint", **options}
        self.frame = FRAME if "topic" in options else ROUTED
        self.ids = {QUERY_ID: query, RUN_ID: run}

    def plan(self) -> bytes:
        """Return what Spark sends to the tasks."""
        with self.cluster.in_worker("plan"):
            return pickle.dumps(TxnLogDataSource(self.options).streamWriter(self.frame, False))

    def task(self, plan: bytes, batch: int, number: int, rows: pa.Table) -> StreamUpload:
        """Return what a task reports."""
        context = TaskContext._getOrCreate()
        context._localProperties = {**self.ids, BATCH_ID: str(batch)}
        context._partitionId = number
        try:
            with self.cluster.in_worker("task"):
                writer: TxnLogStreamWriter = pickle.loads(plan)
                message: StreamUpload = pickle.loads(pickle.dumps(writer.write(iter(rows.to_batches()))))
        finally:
            TaskContext._setTaskContext(None)
        return message

    def tasks(self, batch: int, *rows: pa.Table) -> list[Any]:
        """Plan a batch and return what its tasks report."""
        plan = self.plan()
        return [self.task(plan, batch, number, one) for number, one in enumerate(rows)]

    def writer(self) -> TxnLogStreamWriter:
        """Return the writer of the driver's worker that commits."""
        source: TxnLogDataSource = pickle.loads(pickle.dumps(TxnLogDataSource(self.options)))
        return source.streamWriter(schema=self.frame, overwrite=False)

    def commit(self, messages: list[Any], batch: int) -> None:
        with self.cluster.in_worker("commit"):
            self.writer().commit(messages, batch)

    def write(self, batch: int, *rows: pa.Table) -> None:
        """Write a batch, a task for each table."""
        self.commit(self.tasks(batch, *rows), batch)
