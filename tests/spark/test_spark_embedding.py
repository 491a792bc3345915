"""Spark's sinks hand small files over to the driver, which embeds them: the same rows, once, in one
request.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # as everybody calls it

from tests.spark.sessions import BOTH_SESSIONS
from txnformat import keys
from txnformat.log import TxnLog

Read = Callable[..., DataFrame]


def frame_of(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    return spark.range(rows, numPartitions=tasks).select(
        F.col("id").alias("n"), F.format_string("row %d", "id").alias("text")
    )


def data_keys(log: TxnLog) -> list[str]:
    return [info.key for info in log.store.list("") if keys.parse_data_key(info.key)]


def numbers(log: TxnLog) -> list[int]:
    found: list[int] = sorted(log.read("t", columns=["n"]).read_all().column("n").to_pylist())
    return found


@pytest.fixture
def embedding(log: TxnLog) -> TxnLog:
    log.create_topic(
        "other", pa.schema([("n", pa.int64())])
    )  # a log without an entry does not say yet that it embeds
    return log


def save(frame: DataFrame, path: str, **options: Any) -> None:
    frame.write.format("txnlog").mode("append").option("topic", "t").options(**options).save(path)


@BOTH_SESSIONS
def test_a_small_write_is_one_entry_and_no_file(
    embedding: TxnLog, spark: SparkSession, path: str, read: Read
) -> None:
    log = embedding
    entry = log.refresh().entry
    save(frame_of(spark, 40, 4), path, partitions="3", txnAppId="job", txnVersion="1")
    save(frame_of(spark, 40, 4), path, txnAppId="job", txnVersion="1")
    assert log.refresh().entry == entry + 1
    assert data_keys(log) == []
    assert numbers(log) == list(range(40))
    assert sorted(row.n for row in read("t").collect()) == list(range(40))
    committed = read("t", versionAsOf=str(log.state.entry))
    assert sorted(row.n for row in committed.collect()) == list(range(40))
    log.maintain("seal")
    assert len(data_keys(log)) == 1
    assert sorted(row.n for row in read("t").collect()) == list(range(40))
    assert log.verify(deep=True).ok


@pytest.mark.parametrize(("rows", "tasks", "files"), [(20_000, 2, 2), (30_000, 30, 30)])
def test_what_is_too_large_for_a_task_or_for_the_entry_is_uploaded(
    embedding: TxnLog, spark: SparkSession, path: str, rows: int, tasks: int, files: int
) -> None:
    save(frame_of(spark, rows, tasks), path)
    assert len(data_keys(embedding)) == files
    embedding.refresh()
    assert numbers(embedding) == list(range(rows))
    assert embedding.verify(deep=True).ok


def test_a_topic_that_forbids_it_gets_files(embedding: TxnLog, spark: SparkSession, path: str) -> None:
    save(frame_of(spark, 10, 2), path)
    embedding.refresh()
    embedding.alter_topic("t", settings={"embed": "false"})
    save(frame_of(spark, 10, 2), path)
    assert len(data_keys(embedding)) == 2


def test_a_stream_embeds_each_small_batch_once_also_after_a_restart(
    embedding: TxnLog, spark: SparkSession, path: str, tmp_path: Path, read: Read
) -> None:
    log = embedding
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    for number in range(3):
        frame_of(spark, 10, 1).select((F.col("n") + 10 * number).alias("n"), "text").write.mode(
            "append"
        ).parquet(str(source))
    stream = (
        spark.readStream.schema("n bigint, text string").option("maxFilesPerTrigger", 1).parquet(str(source))
    )
    for _ in range(2):
        query = (
            stream.writeStream.format("txnlog")
            .option("topic", "t")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(path)
        )
        assert query.awaitTermination(300)
        frame_of(spark, 10, 1).select((F.col("n") + 30).alias("n"), "text").write.mode("append").parquet(
            str(source)
        )
    log.refresh()
    assert numbers(log) == list(range(40))
    assert data_keys(log) == []
    copied = tmp_path / "copied"
    query = (
        spark.readStream.format("txnlog")
        .option("topic", "t")
        .option("order", "commit")
        .option("startingOffsets", "earliest")
        .load(path)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "copy"))
        .trigger(availableNow=True)
        .start(str(copied))
    )
    assert query.awaitTermination(300)
    assert sorted(row.n for row in spark.read.parquet(str(copied)).collect()) == list(range(40))
