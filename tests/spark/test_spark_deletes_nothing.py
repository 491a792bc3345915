"""Neither an abort nor a stream of Spark deletes an object: what an aborted transaction has uploaded waits
for a vacuum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.transactions import Numbers, rows
from txnformat import keys
from txnformat.store.local import LocalStore
from txnlog import SparkTransaction, TxnLog


def objects(path: str) -> set[str]:
    """Return the keys of all objects but the probes, which a process deletes after its first look at the
    store."""
    return {one.key for one in LocalStore(path).list("") if keys.parse_probe_key(one.key) is None}


def test_an_abort_deletes_nothing(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    with pytest.raises(KeyError), SparkTransaction(spark, path, "job", 5) as txn:  # noqa: PT012
        txn.write(numbers(0, 50), "numbers")
        before = objects(path)
        raise KeyError
    assert any(keys.named_after(key) for key in before), "files were uploaded"
    assert before <= objects(path)
    assert rows(log, "numbers") == []


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_stream_deletes_nothing(
    spark: SparkSession,
    log: TxnLog,
    path: str,
    read: Callable[..., DataFrame],
    numbers: Numbers,
    topics: None,
    tmp_path: Path,
    order: str,
) -> None:
    with SparkTransaction(spark, path, "job", 5) as txn:
        txn.write(numbers(0, 50), "numbers")
    before = objects(path)
    source = spark.readStream.format("txnlog").option("path", path).option("topic", "numbers")
    frame = source.option("order", order).option("startingOffsets", "earliest").load()
    checkpoint = str(tmp_path / "checkpoint")
    sink = frame.select("n").writeStream.format("txnlog").option("path", path).option("topic", "numbers")
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    assert read("numbers").count() == 100
    assert before < objects(path)
