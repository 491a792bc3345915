"""The data source ``txnlog`` with points in it, as the test driver registers it.

It is the real one with a wrapper around what Spark calls and around the store. Its own option ``chaosControl`` is the
control folder; ``chaosBroken`` names a defect that is to be found (:mod:`tests.chaos.broken`). Python workers import this
module by its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_datasource.datasource import TxnLogDataSource
from tests.chaos.broken import break_sink
from tests.chaos.points import Points, begin_task, install

__all__ = ["BROKEN", "CONTROL", "ChaosSource"]

CONTROL, BROKEN = "chaoscontrol", "chaosbroken"
"""Options, as Spark hands them on: in lower case."""

Messages = Sequence[WriterCommitMessage | None]


class ChaosSource(TxnLogDataSource):
    """``format("txnlog")`` with points."""

    def __init__(self, options: Mapping[str, str]) -> None:
        own = dict(options)
        self._control, self._broken = own.pop(CONTROL), own.pop(BROKEN, None)
        self._born = os.getpid()
        super().__init__(own)
        install(self._control)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        self._reach_plan()
        return ChaosBatchWriter(self._control, self._broken, super().writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # Spark's name
        self._reach_plan()
        return ChaosStreamWriter(self._control, self._broken, super().streamWriter(schema, overwrite))

    def _reach_plan(self) -> None:
        points = install(self._control)
        points.begin("plan")
        if self._born == os.getpid():  # the process that commits has a copy, and asks as well
            points.reached("plan")


class _Wrapper:
    """Around any writer."""

    def __init__(self, control: str, broken: str | None, inner: Any) -> None:
        self._control = control
        self._broken = broken
        self._inner = inner

    def _points(self) -> Points:
        points = install(self._control)
        if self._broken is not None:
            break_sink(self._broken)
        return points

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        points = self._points()
        context = TaskContext.get()
        assert context is not None
        begin_task(self._control, "write", context)
        points.reached("write/start")
        message: WriterCommitMessage = self._inner.write(_handed_in(points, iterator))
        points.reached("write/uploaded")
        return message

    def _around(self, call: str, batch: int | None, do: Any) -> None:
        points = self._points()
        points.begin(call, batch=batch)
        points.reached(f"{call}/start")
        do()
        points.reached(f"{call}/done")


def _handed_in(points: Points, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        points.reached("write/row")
    points.reached("write/last")


class ChaosBatchWriter(_Wrapper, DataSourceArrowWriter):
    """Around the writer of a batch write."""

    def commit(self, messages: Messages) -> None:
        self._around("commit", None, lambda: self._inner.commit(messages))

    def abort(self, messages: Messages) -> None:
        self._around("abort", None, lambda: self._inner.abort(messages))


class ChaosStreamWriter(_Wrapper, DataSourceStreamArrowWriter):
    """Around the writer of a stream."""

    def commit(self, messages: Messages, batchId: int) -> None:  # Spark's name
        self._around("commit", batchId, lambda: self._inner.commit(messages, batchId))

    def abort(self, messages: Messages, batchId: int) -> None:  # Spark's name
        self._around("abort", batchId, lambda: self._inner.abort(messages, batchId))
