"""Rows that say where they come from."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from tests.chaos.points import begin_task

__all__ = ["INPUT_DDL", "TOPIC", "TOPIC_DDL", "TOPIC_SCHEMA", "with_origin"]

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


def with_origin(
    control: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema = TOPIC_SCHEMA
) -> Iterator[pa.RecordBatch]:
    """Add to rows of the input which attempt of which task hands them on; ``read/row`` is reached before each batch."""
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
