"""Spark's Python processes of a query, all in this one: each has logs and stores of its own, and its requests
are counted.

Spark keeps a process for the source of a query, others to plan and to commit its batches, and some for tasks.
Nothing but pickles goes from one to another.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

import spark_datasource.options.storage
import spark_datasource.stream.sink
import spark_datasource.worker.logs
import spark_datasource.worker.stores
import txnformat.log
from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.stream.messages import BATCH_ID, QUERY_ID, RUN_ID
from txnformat.store.base import ObjectStore
from txnlog_testing.stores.counting import CountingStore, RequestCounts
from txnlog_testing.stores.latency import FarStore

__all__ = ["SinkSteps", "Worker"]

_GLOBALS = (
    (spark_datasource.worker.logs, "_logs"),
    (spark_datasource.worker.logs, "_sidecars"),
    (spark_datasource.worker.stores, "_stores"),
    (spark_datasource.stream.sink, "_runs"),
)
"""The globals that a process keeps between calls."""
_OPENERS = ((spark_datasource.options.storage, "open_store"), (txnformat.log, "as_store"))


class Worker:
    """A process: what it has open, and what it asked of the store, which counts as an object store."""

    def __init__(self) -> None:
        self._kept: list[dict[Any, Any]] = [{} for _ in _GLOBALS]
        self._store: CountingStore | None = None

    @property
    def counts(self) -> RequestCounts:
        """Requests so far."""
        return RequestCounts() if self._store is None else self._store.counts

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a block in it."""
        before = [(module, name, getattr(module, name)) for module, name in (*_GLOBALS, *_OPENERS)]
        for (module, name), kept in zip(_GLOBALS, self._kept, strict=True):
            setattr(module, name, kept)
        for module, name in _OPENERS:
            setattr(module, name, self._counting(getattr(module, name)))
        try:
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)

    def _counting(self, opened: Callable[..., ObjectStore]) -> Callable[..., ObjectStore]:
        def open_counted(*given: Any, **options: Any) -> ObjectStore:
            if not isinstance(given[0], str | os.PathLike):  # a store that is open already
                return opened(*given, **options)
            if self._store is None:
                self._store = CountingStore(FarStore(opened(*given, **options)))
            return self._store

        return open_counted


class SinkSteps:
    """The sink of a query, batch by batch, with a task in each.

    Parameters
    ----------
    tasks : Worker
        May be shared: an executor's workers serve all queries.
    """

    def __init__(self, name: str, path: str, topic: str, frame: StructType, tasks: Worker) -> None:
        self.planner, self.committer, self.tasks = Worker(), Worker(), tasks
        self._options = {"path": path, "checkpointlocation": f"/checkpoint-{name}", "topic": topic}
        self._frame = frame
        self._ids = {QUERY_ID: name, RUN_ID: f"run-of-{name}"}

    def write(self, number: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Plan a batch, upload its rows, and commit it."""
        with self.planner.running():
            plan = pickle.dumps(TxnLogDataSource(self._options).streamWriter(self._frame, False))
        context = TaskContext._getOrCreate()
        context._localProperties = {**self._ids, BATCH_ID: str(number)}
        context._partitionId = 0
        try:
            with self.tasks.running():
                message = pickle.loads(plan).write(rows)
        finally:
            TaskContext._setTaskContext(None)
        with self.committer.running():
            source: TxnLogDataSource = pickle.loads(pickle.dumps(TxnLogDataSource(self._options)))
            source.streamWriter(self._frame, False).commit([message], number)
