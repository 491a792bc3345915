"""What Spark's workers have imported is not looked through after every task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_datasource.worker import collector
from spark_datasource.worker.collector import FREEZES_MAX, OBJECTS_MAX, settle
from txnlog import TxnLog


def counts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield how many objects the collector of the worker that runs this passes over."""
    for _ in batches:
        pass
    yield pa.record_batch({"frozen": [gc.get_freeze_count()]})


def test_workers_that_wrote_pass_over_what_they_have_imported(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    frame = spark.range(0, 12, numPartitions=12)
    frame.write.format("txnlog").mode("append").option("topic", "t").save(path)
    # Spark gives the tasks of this query those workers, and maybe others. What a worker imports after its
    # last freeze, for another test, is not asked.
    found = frame.mapInArrow(counts, "frozen long").collect()
    assert any(row.frozen > 5 * OBJECTS_MAX for row in found), found


def test_a_worker_freezes_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user's functions drop later is collected all the same."""
    daemon = type(sys)("__main__")
    daemon.__spec__ = type("Spec", (), {"name": "pyspark.daemon"})()
    freezes = []
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    monkeypatch.setattr(collector, "_freezes", 0)
    monkeypatch.setattr(gc, "freeze", lambda: freezes.append(1))
    kept = [[[number]] for number in range(2 * OBJECTS_MAX)]
    gc.collect()
    for _ in range(2 * FREEZES_MAX):
        settle()
    assert len(freezes) == FREEZES_MAX
    assert kept


def test_nothing_is_frozen_outside_of_spark_s_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "freeze", lambda: pytest.fail("this is no worker"))
    kept = [[[number]] for number in range(2 * OBJECTS_MAX)]
    gc.collect()
    settle()
    assert kept
