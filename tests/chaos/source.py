"""The data source ``txnlog`` with points in it, as the test driver registers it.

It is the real one with a wrapper around what Spark calls and around the store. Its own option
``chaosControl`` is the control folder; ``chaosBroken`` names a defect that is to be found
(:mod:`tests.chaos.broken`). Python workers import this module by its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.stream.reader import TxnLogStreamReader
from tests.chaos.broken import break_sink
from tests.chaos.origin import compared_without_origin
from tests.chaos.points import Points, begin_task, install

__all__ = ["BROKEN", "CONTROL", "ChaosSource"]

CONTROL, BROKEN = "chaoscontrol", "chaosbroken"
"""Options, as Spark hands them on: in lower case."""

Messages = Sequence[WriterCommitMessage | None]
Answer = TypeVar("Answer")


class ChaosSource(TxnLogDataSource):
    """``format("txnlog")`` with points; without a control folder, as in jobs that the product starts, without
    any."""

    def __init__(self, options: Mapping[str, str]) -> None:
        own = dict(options)
        self._control, self._broken = own.pop(CONTROL, None), own.pop(BROKEN, None)
        self._born = os.getpid()
        super().__init__(own)
        if self._control is not None:
            install(self._control)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        if self._control is None:
            return super().writer(schema, overwrite)
        self._reach_plan(self._control)
        return ChaosBatchWriter(self._control, self._broken, super().writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # Spark's name
        if self._control is None:
            return super().streamWriter(schema, overwrite)
        self._reach_plan(self._control)
        return ChaosStreamWriter(self._control, self._broken, super().streamWriter(schema, overwrite))

    def streamReader(self, schema: StructType) -> Any:  # Spark's name
        if self._control is None:
            return super().streamReader(schema)
        return ChaosStreamReader(
            self._control, self._broken, TxnLogStreamReader(self.options, self.hadoop, schema)
        )

    def _reach_plan(self, control: str) -> None:
        points = install(control)
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
        with compared_without_origin():
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


class ChaosStreamReader(TxnLogStreamReader):
    """The reader of a stream; tasks get a pickle of it."""

    def __init__(self, control: str, broken: str | None, inner: TxnLogStreamReader) -> None:
        self._control = control
        self._broken = broken
        super().__init__(inner._raw_options, inner._hadoop, inner._schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "chaos": (self._control, self._broken)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._control, self._broken = state["chaos"]
        super().__init__(*state["args"])

    def _points(self) -> Points:
        points = install(self._control)
        if self._broken is not None:
            break_sink(self._broken)
        return points

    def initialOffset(self) -> dict[str, Any]:  # Spark's name
        return self._around("initial", super().initialOffset)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        return self._around("latest", lambda: super(ChaosStreamReader, self).latestOffset(start, limit))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._around("splits", lambda: super(ChaosStreamReader, self).partitions(start, end))

    def _around(self, call: str, do: Callable[[], Answer]) -> Answer:
        points = self._points()
        points.begin(call)
        points.reached(f"{call}/start")
        answer = do()
        points.reached(f"{call}/done")
        return answer

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        points = self._points()
        context = TaskContext.get()
        assert context is not None
        begin_task(self._control, "fetch", context)
        points.reached("fetch/start")
        for batch in super().read(partition):
            yield batch
            points.reached("fetch/row")
