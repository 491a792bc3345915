"""What Spark does: reads ``orders`` as a stream, transforms the records, and names the topic of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from tests.chaos.jobs import Job
from tests.chaos.origin import with_origin
from tests.pipeline.notes import Notes
from tests.pipeline.topics import ORDERS, ROUTED_DDL, ROUTED_SCHEMA, SIDES

__all__ = ["FLOW", "flow"]

FLOW = "tests.pipeline.flow:flow"

COLUMNS = "n,key,_partition,_offset"


def flow(spark: SparkSession, job: Job, own: Mapping[str, str]) -> DataFrame:
    """Return the rows to write; ``own``: options of the data source with points."""
    orders = (
        spark.readStream.format("txnlog")
        .options(topic=ORDERS, columns=COLUMNS, **job.read_options, **job.options, **own)
        .load(job.log)
    )
    routed = orders.selectExpr(
        "n",
        "key",
        "CAST(_partition AS LONG) AS part",
        "_offset AS at",
        "2 * n AS doubled",
        f"CASE WHEN n % 2 = 0 THEN '{SIDES[0]}' ELSE '{SIDES[1]}' END AS topic",
    )
    return routed.mapInArrow(partial(_handed_on, job.control, job.notes), ROUTED_DDL)


def _handed_on(control: str, notes: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the origin of rows, and note what is handed to the sink."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    assert query is not None
    assert batch_id is not None
    with contextlib.closing(Notes(notes)) as noted:
        for batch in with_origin(control, batches, ROUTED_SCHEMA):
            noted.note(query, int(batch_id), batch.select(["topic", "n"]).to_pylist())
            yield batch
