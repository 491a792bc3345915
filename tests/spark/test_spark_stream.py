"""The sink of streams on real Spark: every batch is one entry, once; what goes wrong is said in the query's
exception."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tests.spark.feeds import Feed, entries, rows
from tests.spark.sessions import BOTH_SESSIONS
from tests.unit.spark_datasource.stream_steps import Cluster, Query, table
from txnformat.core.operations import Append, AppVersion, CreateTopic
from txnformat.errors import StaleAppVersionError
from txnformat.log import TxnLog

PLAIN = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def feed(spark: SparkSession, path: str, tmp_path: Path) -> Iterator[Feed]:
    feed = Feed(spark, path, tmp_path)
    yield feed
    for query in feed.queries:
        query.stop()  # one that still runs would take the next test's slots


@BOTH_SESSIONS
def test_every_batch_is_one_entry_with_its_number_and_the_first_creates_the_topic(
    log: TxnLog, feed: Feed
) -> None:
    for start in (0, 10, 20):
        feed.add(*range(start, start + 10))
    feed.run(partitions="2", keyColumns="n")
    assert sorted(rows(log)) == list(range(30))
    found = entries(log)
    assert [[type(op) for op in entry.operations] for entry in found] == [
        [CreateTopic, Append, AppVersion],
        [Append, AppVersion],
        [Append, AppVersion],
    ]
    versions = [entry.operations[-1] for entry in found]
    query_id = json.loads((feed.checkpoint / "metadata").read_text())["id"]
    assert [(op.namespace, op.app_id, op.version) for op in versions] == [  # type: ignore[union-attr]
        ("spark-stream", query_id, number) for number in range(3)
    ]
    assert len({op.instance for op in versions}) == 1  # type: ignore[union-attr]
    feed.add(30)
    feed.run()
    assert sorted(rows(log)) == list(range(31))
    assert entries(log)[-1].operations[-1].version == 3  # type: ignore[union-attr]


def test_rows_are_routed_and_an_unknown_topic_is_named_until_it_is_there(log: TxnLog, feed: Feed) -> None:
    log.create_topic("a", PLAIN)
    feed.add(1, 2, topic="a")
    feed.add(3, topic="b")
    feed.add(4, topic="a")
    told = feed.fails(feed.frame("n, text, topic"))
    assert "[TXNLOG_UNROUTABLE_ROWS]" in told
    assert "there is no topic 'b' (1 rows)" in told
    assert rows(log, "a") == [1, 2]
    log.create_topic("b", PLAIN)
    feed.run(feed.frame("n, text, topic"))
    assert (rows(log, "a"), rows(log, "b")) == ([1, 2, 4], [3])
    feed.add(5)
    assert "its value is null (1 rows)" in feed.fails(feed.frame("n, text, topic"))
    feed.run(feed.frame("n, text, nvl(topic,'c') AS topic"), createTopics="true")
    assert rows(log, "c") == [5]


@BOTH_SESSIONS
def test_a_batch_that_spark_repeats_is_there_once(log: TxnLog, feed: Feed) -> None:
    """As after a crash between our entry and Spark's own note of the batch's end."""
    feed.add(1, 2)
    feed.add(3)
    feed.run(queryName="clicks")
    entry = log.refresh().entry
    (feed.checkpoint / "commits" / "1").unlink()
    (feed.checkpoint / "commits" / ".1.crc").unlink()
    feed.run(queryName="clicks")
    assert (log.refresh().entry, rows(log)) == (entry, [1, 2, 3])
    feed.add(4)
    feed.run()
    assert rows(log) == [1, 2, 3, 4]


def test_a_batch_without_rows_is_counted_too(log: TxnLog, feed: Feed) -> None:
    feed.add(1)
    feed.add(2)
    feed.add(3)
    feed.run(feed.frame().where("n <> 2"), topic="t")
    assert [len(entry.operations) for entry in entries(log)] == [3, 1, 2]
    assert rows(log) == [1, 3]


def test_an_older_checkpoint_is_refused_and_the_newest_goes_on(
    log: TxnLog, feed: Feed, tmp_path: Path
) -> None:
    feed.add(1)
    feed.run()
    shutil.copytree(feed.checkpoint, tmp_path / "older")
    feed.add(2)
    feed.add(3)
    feed.run()
    told = feed.fails(checkpoint=tmp_path / "older")
    assert "[TXNLOG_STALE_APP_VERSION] the log holds a later batch of this query" in told
    assert "continue with the newest checkpoint" in told
    feed.add(4)
    feed.run()
    assert rows(log) == [1, 2, 3, 4]


def test_of_two_drivers_on_one_checkpoint_the_one_before_is_stopped(
    cluster: Cluster, log: TxnLog, feed: Feed
) -> None:
    """Within one driver Spark itself stops the one before. So the other driver is played by its steps."""
    feed.add(1)
    first = feed.query(trigger={"processingTime": "0 seconds"})
    first.processAllAvailable()
    other = Query(cluster, feed.path, query=first.id, run="another", topic="t")
    other.write(1, table(2))
    feed.add(3)
    with pytest.raises(PySparkException):
        first.awaitTermination(300)
    assert "[TXNLOG_STALE_INSTANCE] another run of this query has taken over" in str(first.exception())
    assert rows(log) == [1, 2]
    assert "[TXNLOG_DIFFERENT_REPEAT]" in feed.fails()  # the batch is the other driver's
    feed.run(allowDifferentRepeat="true")
    feed.add(4)
    feed.run()
    assert rows(log) == [1, 2, 4]
    with pytest.raises(StaleAppVersionError, match="TXNLOG_STALE_INSTANCE"):
        other.write(3, table(5))


def test_a_deleted_checkpoint_is_told_by_the_application_id(log: TxnLog, feed: Feed) -> None:
    feed.add(1)
    feed.add(2)
    feed.run(txnAppId="clicks")
    feed.checkpoint.rename(feed.folder / "away")
    assert "[TXNLOG_STALE_APP_VERSION]" in feed.fails(txnAppId="clicks")
    assert rows(log) == [1, 2]
    shutil.rmtree(feed.checkpoint)
    (feed.folder / "away").rename(feed.checkpoint)
    feed.add(3)
    feed.run(txnAppId="clicks")
    assert rows(log) == [1, 2, 3]


def test_a_log_that_was_made_anew_is_told_and_may_be_accepted(log: TxnLog, feed: Feed) -> None:
    feed.add(1)
    feed.run()
    shutil.rmtree(feed.path)
    anew = TxnLog.create(feed.path, embedding=False)
    feed.add(2)
    told = feed.fails()
    assert "[TXNLOG_MISSING_VERSIONS]" in told
    assert "allowMissingBatches" in told
    assert anew.topics() == []
    feed.run(allowMissingBatches="true")
    assert rows(anew) == [2]
    feed.add(3)
    feed.run()
    assert rows(anew) == [2, 3]
    shutil.rmtree(feed.path)
    feed.add(4)
    assert "[TXNLOG_NO_LOG]" in feed.fails()


def test_columns_that_changed_are_named_and_the_query_goes_on_when_they_fit(log: TxnLog, feed: Feed) -> None:
    feed.add(1)
    feed.run()
    feed.add(2)
    told = feed.fails(feed.frame("n AS number, text"), topic="t")
    assert "[TXNLOG_SCHEMA_MISMATCH]" in told
    assert "'n' is missing" in told
    assert "'number'" in told
    feed.run()
    log.alter_topic("t", add_columns=pa.schema([("topic", pa.string())]), partitions=2)
    feed.add(3, topic="x")
    feed.run()
    feed.add(4, topic="x")
    feed.run(feed.frame("n, text, topic"), topic="t")
    log.refresh()
    found = {row["n"]: row["topic"] for row in log.read("t").read_all().to_pylist()}
    assert found == {1: None, 2: None, 3: None, 4: "x"}


def test_what_spark_itself_refuses_and_what_we_do(log: TxnLog, feed: Feed) -> None:
    feed.add(1)
    with pytest.raises(AnalysisException, match="checkpointLocation must be specified"):
        feed.frame().writeStream.format("txnlog").option("topic", "t").start(feed.path)
    assert "does not support Update mode" in feed.fails(mode="update", checkpoint=feed.folder / "b")
    counts = feed.frame().groupBy("text").count()
    told = feed.fails(counts, mode="complete", topic="t", checkpoint=feed.folder / "d")
    assert "[TXNLOG_UNSUPPORTED_OPERATION] output mode complete" in told
    assert "foreachBatch" in told
    told = feed.fails(topic="t", partition="2", checkpoint=feed.folder / "e")
    assert "there is no option 'partition'; did you mean partitions?" in told
    assert log.refresh().entry <= 0
    assert log.topics() == []


def test_a_session_that_nobody_registered_the_source_in_writes_too(
    spark: SparkSession, log: TxnLog, path: str, tmp_path: Path
) -> None:
    rates = spark.newSession().readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rates.selectExpr("value AS n").writeStream.format("txnlog").option("topic", "t")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(path)
    assert query.awaitTermination(300)
    assert sorted(rows(log)) == list(range(10))
