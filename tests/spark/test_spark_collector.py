"""What Spark's workers have imported is not looked through after every task."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_datasource.collector import OBJECTS_MAX
from txnlog import TxnLog


def counts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the collector of the worker that runs this would look through, and what it passes over."""
    for _ in batches:
        pass
    yield pa.record_batch({"seen": [len(gc.get_objects(generation=2))], "frozen": [gc.get_freeze_count()]})


def test_workers_that_wrote_pass_over_what_they_have_imported(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    frame = spark.range(0, 12, numPartitions=12)
    frame.write.format("txnlog").mode("append").option("topic", "t").save(path)
    # Spark gives the tasks of this query those workers, and maybe others; in some, this query itself imports more.
    found = frame.mapInArrow(counts, "seen long, frozen long").collect()
    assert any(row.frozen > 5 * OBJECTS_MAX and row.seen < 2 * OBJECTS_MAX for row in found), found
