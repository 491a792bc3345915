"""The least that a Python sink can do: take its rows from Spark as Arrow, drop them, and say so.

It opens nothing and writes nothing. The difference between a job or a micro-batch with it and one with the
noop sink is the time that Spark takes to hand rows to Python, and to ask Python to plan and to commit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

__all__ = ["BareSink"]


class BareSink(DataSource):
    """Takes no options."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "bare_sink"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch."""
        return _BareBatchWriter()

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:  # Spark's name
        """Return the writer."""
        return _BareWriter()


class _BareBatchWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class _BareWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # Spark's name
        pass
