"""Topics that are deleted, and made again under their names, while queries read them or write to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.integration.clients.failing import NUMBERS
from tests.integration.clients.failing import rows as table_of
from tests.spark.feeds import Feed
from txnformat.log import TxnLog
from writers.bulk import BulkAppend

ALWAYS = {"processingTime": "0 seconds"}


@pytest.fixture
def topic_log(log: TxnLog) -> TxnLog:
    log.create_topic("t", NUMBERS, partitions=2)
    return log


@pytest.fixture
def feed(spark: SparkSession, path: str, tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(spark, path, tmp_path)
    yield feed
    for query in feed.queries:
        query.stop()


def append(log: TxnLog, *numbers: int) -> None:
    with BulkAppend(log) as bulk:
        bulk.send("t", table_of(*numbers), 0)
        bulk.commit()


def made_again(log: TxnLog, *numbers: int) -> None:
    log.create_topic("t", NUMBERS, partitions=2)
    append(log, *numbers)


def ended(query: Any) -> str:
    """Return what a running query ends with."""
    with pytest.raises(PySparkException):
        query.awaitTermination(300)
    return str(query.exception())


def processed(query: Any, batches: int) -> None:
    """Wait until a query has done so many micro-batches; it tells what is wrong when it ends before."""
    while sum(1 for one in query.recentProgress if one["numInputRows"]) < batches:
        assert query.isActive, query.exception()
        time.sleep(0.05)


def numbers_in(log: TxnLog) -> list[int]:
    return sorted(log.read("t", columns=["n"]).read_all()["n"].to_pylist())


@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("again", [False, True])
def test_a_query_that_reads_a_deleted_topic_stops(
    spark: SparkSession, topic_log: TxnLog, path: str, tmp_path: Path, order: str, again: bool
) -> None:
    append(topic_log, 1, 2)
    seen = tmp_path / "seen"
    frame = spark.readStream.format("txnlog").option("topic", "t").option("order", order)
    frame = frame.option("startingOffsets", "earliest")

    def start(trigger: Any, **options: str) -> Any:
        loaded = frame.options(**options).load(path)
        writer = loaded.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
        return writer.option("path", str(seen)).trigger(**trigger).start()

    query = start(ALWAYS)
    try:
        processed(query, 1)
        topic_log.delete_topic("t")
        if again:
            made_again(topic_log, 3)
        assert "[TXNLOG_TOPIC_GONE]" in ended(query)
    finally:
        query.stop()
    if not again:
        made_again(topic_log, 3)
    restarted = start({"availableNow": True})
    assert "[TXNLOG_TOPIC_GONE]" in ended(restarted), "the checkpoint is of the deleted topic"
    assert sorted(row.n for row in spark.read.parquet(str(seen)).collect()) == [1, 2]
    allowed = start({"availableNow": True}, failOnDataLoss="false")
    assert allowed.awaitTermination(300)
    assert sorted(row.n for row in spark.read.parquet(str(seen)).collect()) == [1, 2, 3]


@pytest.mark.parametrize("again", [False, True])
def test_a_query_does_not_write_on_in_a_topic_of_the_same_name(
    feed: Feed, topic_log: TxnLog, again: bool
) -> None:
    feed.add(1, 2)
    options: dict[str, Any] = {"topic": "t", "createTopics": "true"}
    query = feed.query(feed.frame("n"), trigger=ALWAYS, **options)
    processed(query, 1)
    topic_log.delete_topic("t")
    if again:
        made_again(topic_log, 10)
    feed.add(3)
    assert "[TXNLOG_TOPIC_GONE]" in ended(query)
    restarted = feed.query(feed.frame("n"), **options)
    assert "[TXNLOG_TOPIC_GONE]" in ended(restarted)
    assert topic_log.topics() == (["t"] if again else [])
    if again:
        assert numbers_in(topic_log) == [10]


def test_a_data_frame_that_was_loaded_before_is_of_the_deleted_topic(
    spark: SparkSession, topic_log: TxnLog, path: str
) -> None:
    append(topic_log, 1, 2)
    frame = spark.read.format("txnlog").option("topic", "t").load(path)
    topic_log.delete_topic("t")
    made_again(topic_log, 3)
    with pytest.raises(PySparkException, match="TXNLOG_TOPIC_GONE"):
        frame.filter("n > 0").collect()
    loaded = spark.read.format("txnlog").option("topic", "t").load(path)
    assert [row.n for row in loaded.collect()] == [3]


def test_a_job_may_fill_a_new_topic_of_the_name_from_its_first_version(
    spark: SparkSession, topic_log: TxnLog, path: str
) -> None:
    def write(number: int, version: int) -> None:
        frame = spark.range(number, number + 1).withColumnRenamed("id", "n")
        options = {"topic": "t", "txnAppId": "job", "txnVersion": str(version)}
        frame.write.format("txnlog").mode("append").options(**options).save(path)

    for version in range(2):
        write(version, version)
    topic_log.delete_topic("t")
    topic_log.create_topic("t", NUMBERS, partitions=2)
    write(7, 0)
    assert numbers_in(topic_log) == [7]
