"""Rows that say where they come from."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from pyspark import TaskContext

import spark_datasource.write.task
from tests.chaos.points import begin_task
from txnformat.columns.multiset import Multiset, multiset_of

__all__ = ["INPUT_DDL", "TOPIC", "TOPIC_DDL", "TOPIC_SCHEMA", "compared_without_origin", "with_origin"]

TOPIC = "rows"

INPUT_DDL = "n long, key string"
TOPIC_DDL = f"{INPUT_DDL}, query string, batch long, task long, index long, attempt string"
TOPIC_SCHEMA = pa.schema(
    [
        ("n", pa.int64()),  # of the input: each is there once
        ("key", pa.string()),
        ("query", pa.string()),
        ("batch", pa.int64()),
        ("task", pa.int64()),  # Spark's partition of the micro-batch
        ("index", pa.int64()),  # of the row in the task
        ("attempt", pa.string()),  # of the task, unlike any other
    ]
)


ORIGIN = ("task", "index", "attempt")
"""Columns that are others when a batch is repeated."""


@contextmanager
def compared_without_origin() -> Iterator[None]:
    """Let repetitions be compared by the rows of the input: a query of such rows gives the same ones each
    time.

    Else no repetition would be like the first: every query of these tests had to allow it, and a false alarm
    was not seen.
    """
    real, sink = multiset_of, cast("Any", spark_datasource.write.task)

    def of_input(table: pa.Table) -> Multiset:
        return real(table.drop_columns([name for name in ORIGIN if name in table.schema.names]))

    sink.multiset_of = of_input
    try:
        yield
    finally:
        sink.multiset_of = real


def with_origin(
    control: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema = TOPIC_SCHEMA
) -> Iterator[pa.RecordBatch]:
    """Add to rows of the input which attempt of which task hands them on; ``read/row`` is reached before each
    batch."""
    context = TaskContext.get()
    assert context is not None
    points = begin_task(control, "read", context)
    query = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    attempt, index = uuid.uuid4().hex, 0
    for batch in batches:
        points.reached("read/row")
        rows = batch.num_rows
        own: list[pa.Array] = [
            pa.array([query] * rows, pa.string()),
            pa.array([None if batch_id is None else int(batch_id)] * rows, pa.int64()),
            pa.array([context.partitionId()] * rows, pa.int64()),
            pa.array(range(index, index + rows), pa.int64()),
            pa.array([attempt] * rows, pa.string()),
        ]
        index += rows
        yield pa.RecordBatch.from_arrays([*batch.columns, *own], schema=schema)
