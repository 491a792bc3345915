"""Streams of topics on real Spark: triggers, restarts, what the progress says, and what users are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.integration.clients.failing import NUMBERS
from tests.integration.clients.failing import rows as table_of
from tests.rounds import rounds
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.log import TxnLog
from txnlog import Producer
from writers.bulk import BulkAppend

ORDERS = pytest.mark.parametrize("order", ["offset", "commit"])


class Streams:
    """Queries that read the log at a path, and what they write."""

    def __init__(self, spark: SparkSession, path: str, folder: Path) -> None:
        self.spark, self.path, self.folder = spark, path, folder
        self.queries: list[Any] = []

    def frame(self, **options: object) -> DataFrame:
        given = {"topic": "t", "startingOffsets": "earliest", **options}
        if "subscribePattern" in given:
            del given["topic"]
        reader = self.spark.readStream.format("txnlog")
        return reader.options(**{name: str(value) for name, value in given.items()}).load(self.path)

    def start(self, name: str = "q", trigger: Any = None, to: str = "parquet", **options: object) -> Any:
        """Start a query with a checkpoint of its own."""
        writer = self.frame(**options).writeStream.format(to)
        writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{name}"))
        if to == "parquet":
            writer = writer.option("path", str(self.folder / name))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        self.queries.append(query)
        return query

    def run(self, name: str = "q", **options: Any) -> list[Any]:
        """Read what is there; return the progress of the micro-batches that had rows."""
        query = self.start(name, **options)
        assert query.awaitTermination(300)
        assert query.exception() is None
        return [one for one in query.recentProgress if one["numInputRows"]]

    def fails(self, name: str = "q", **options: Any) -> str:
        """Return what the user is told."""
        query = self.start(name, **options)
        with pytest.raises(PySparkException):
            query.awaitTermination(300)
        return str(query.exception())

    def batches(self, name: str = "q") -> int:
        """Return how many micro-batches wrote anything."""
        return len(list((self.folder / name / "_spark_metadata").glob("[0-9]*")))

    def read(self, name: str = "q") -> list[int]:
        if not self.batches(name):
            return []
        return sorted(row.n for row in self.spark.read.parquet(str(self.folder / name)).collect())


@pytest.fixture
def streams(spark: SparkSession, path: str, log: TxnLog, tmp_path: Path) -> Iterator[Streams]:
    log.create_topic("t", NUMBERS, partitions=2)
    streams = Streams(spark, path, tmp_path)
    yield streams
    for query in streams.queries:
        query.stop()


def append(log: TxnLog, *numbers: int, topic: str = "t", partition: int = 0) -> None:
    with BulkAppend(log) as bulk:
        bulk.send(topic, table_of(*numbers), partition)
        bulk.commit()


def wait_for(done: Callable[[], bool], query: Any) -> None:
    """Wait until something is so; the query tells what is wrong when it ends before."""
    while not done():
        assert not query.awaitTermination(0.05), query.exception()


@pytest.mark.parametrize(
    ("spark", "order"),
    [
        ("classic", "commit"),
        ("connect", "offset"),
        *rounds([], [("classic", "offset"), ("connect", "commit")]),
    ],
    indirect=["spark"],
)
def test_available_now_reads_all_in_limited_batches_and_a_restart_goes_on(
    log: TxnLog, streams: Streams, order: str
) -> None:
    for number in range(5):
        append(log, 2 * number, 2 * number + 1, partition=number % 2)
    streams.run(order=order, maxRowsPerTrigger=4)
    assert streams.batches() == 3
    assert streams.read() == list(range(10))
    append(log, 10, 11)
    log.maintain("seal")
    streams.run(order=order, maxRowsPerTrigger=4)
    streams.run(order=order, maxRowsPerTrigger=4)
    assert streams.batches() == 4
    assert streams.read() == list(range(12))


def test_the_progress_tells_the_latest_offset_and_the_lag(log: TxnLog, streams: Streams) -> None:
    append(log, *range(10))
    first, second = streams.run(maxRowsPerTrigger=7)
    lags = [json.loads(one["sources"][0]["latestOffset"])["lag"] for one in (first, second)]
    assert lags == [{"offsets": 3, "topics": {"t": 3}}, {"offsets": 0, "topics": {"t": 0}}]
    assert json.loads(second["sources"][0]["endOffset"])["log_id"] == log.log_id


@ORDERS
def test_the_default_trigger_follows_the_log(log: TxnLog, streams: Streams, order: str) -> None:
    query = streams.start(trigger={"processingTime": "0 seconds"}, order=order)
    for number in range(3):
        append(log, number)
        wait_for(lambda: number in streams.read(), query)  # noqa: B023
    query.stop()
    assert streams.read() == [0, 1, 2]


def test_once_takes_everything_whatever_the_limit(log: TxnLog, streams: Streams) -> None:
    append(log, *range(10))
    assert [one["numInputRows"] for one in streams.run(trigger={"once": True}, maxRowsPerTrigger=2)] == [10]


@ORDERS
def test_a_query_may_read_and_write_the_same_log_and_comes_to_rest(
    log: TxnLog, streams: Streams, order: str
) -> None:
    log.create_topic("copy", NUMBERS)
    append(log, 1, 2, 3)
    frame = streams.frame(order=order)
    writer = frame.writeStream.format("txnlog").option("topic", "copy")
    writer = writer.option("checkpointLocation", str(streams.folder / "checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start(streams.path)
    streams.queries.append(query)
    wait_for(lambda: _numbers(log, "copy") == [1, 2, 3], query)
    append(log, 4)
    wait_for(lambda: _numbers(log, "copy") == [1, 2, 3, 4], query)
    entry = log.refresh().entry
    idle = len([one for one in query.recentProgress if not one["numInputRows"]])
    wait_for(lambda: not query.status["isTriggerActive"] or bool(idle), query)
    query.stop()
    assert log.refresh().entry == entry
    assert max(one["batchId"] for one in query.recentProgress) <= 2, "its own entries are no news"


def _numbers(log: TxnLog, topic: str) -> list[int]:
    log.refresh()
    return sorted(log.read(topic, columns=["n"]).read_all().column("n").to_pylist())


@BOTH_SESSIONS
def test_topics_of_a_pattern_join_a_stream(log: TxnLog, streams: Streams) -> None:
    append(log, 1)
    options = {"subscribePattern": "t|more-.*", "columns": "n,_topic"}
    streams.run(**options)
    log.create_topic("more-1", NUMBERS)
    append(log, 2, topic="more-1")
    streams.run(**options)
    found = streams.spark.read.parquet(str(streams.folder / "q")).collect()
    assert sorted((row.n, row._topic) for row in found) == [(1, "t"), (2, "more-1")]


def test_several_topics_are_one_data_frame(
    log: TxnLog, streams: Streams, spark: SparkSession, path: str
) -> None:
    log.create_topic("u", NUMBERS)
    append(log, 1, 2)
    append(log, 3, topic="u")
    log.maintain("seal")
    append(log, 4, topic="u")

    def read(**options: str) -> list[tuple[Any, ...]]:
        reader = spark.read.format("txnlog").options(columns="n,_topic", **options)
        return sorted(tuple(row) for row in reader.load(path).collect())

    everything = [(1, "t"), (2, "t"), (3, "u"), (4, "u")]
    assert read(topic="t,u") == read(subscribe="u, t") == read(subscribePattern="[tu]") == everything
    assert read(topic="t,u", startingOffsets='{"t": {"0": 1}, "u": {"0": 1}}') == [(2, "t"), (4, "u")]
    assert read(topic="t,u", where="_topic = 'u' AND n > 3") == [(4, "u")]
    assert read(topic="t,u", order="commit") == everything


def test_what_was_committed_between_two_entries(
    log: TxnLog, streams: Streams, spark: SparkSession, path: str
) -> None:
    with Producer(log, "slow", buffer="inline") as slow:
        slow.begin()
        slow.send("t", table_of(1), partition=0)
        slow.flush()
        append(log, 2)
        between = log.refresh().entry
        slow.commit()

    def read(**options: object) -> list[int]:
        reader = spark.read.format("txnlog").options(topic="t", order="commit", columns="n")
        return [
            row.n for row in reader.options(**{k: str(v) for k, v in options.items()}).load(path).collect()
        ]

    assert read() == [2, 1]
    assert read(versionAsOf=between) == read(endingOffsets=f'{{"entry": {between}}}') == [2]
    assert read(startingOffsets=f'{{"entry": {between + 1}}}') == [1]
    assert read(startingOffsets="latest") == []


def test_what_is_wrong_with_a_checkpoint_is_told_and_it_goes_on_once_mended(
    log: TxnLog, streams: Streams, tmp_path: Path
) -> None:
    append(log, 1)
    streams.run()
    assert "TXNLOG_CHECKPOINT_OF_OTHER_ORDER" in streams.fails(order="commit")
    other = TxnLog.create(tmp_path / "other", embedding=False)
    other.create_topic("t", NUMBERS, partitions=2)
    path, streams.path = streams.path, str(tmp_path / "other")
    assert "TXNLOG_CHECKPOINT_OF_OTHER_LOG" in streams.fails()
    streams.path = path
    append(log, 2)
    streams.run()
    assert streams.read() == [1, 2]


def test_a_type_that_changes_under_a_query_stops_it_and_a_new_load_goes_on(
    log: TxnLog, streams: Streams
) -> None:
    log.create_topic("s", pa.schema([("n", pa.int32())]))
    query = streams.start(topic="s", trigger={"processingTime": "0 seconds"}, to="noop")
    wait_for(lambda: bool(query.recentProgress), query)
    log.alter_topic("s", widen={"n": pa.int64()})
    append(log, 2**40, topic="s")
    with pytest.raises(PySparkException):
        query.awaitTermination(300)
    assert "TXNLOG_SCHEMA_MISMATCH" in str(query.exception())
    assert "load() it again and start from the same checkpoint" in str(query.exception())
    assert [one["numInputRows"] for one in streams.run(topic="s", to="noop")] == [1]


@BOTH_SESSIONS
def test_bad_options_of_a_stream_are_one_clear_error(log: TxnLog, streams: Streams) -> None:
    log.create_topic("other", pa.schema([("m", pa.int64())]))
    for options, text in (
        ({"maxRowsPerTrigger": 0}, "maxRowsPerTrigger is '0'; use an integer from 1 on"),
        ({"startingOffsets": '{"0": 99}'}, "the start offset is outside"),
        ({"startingOffsets": "newest"}, "use earliest, latest, or JSON"),
        ({"topic": "nowhere"}, "TXNLOG_UNKNOWN_TOPIC"),
        ({"order": "time"}, "use offset or commit"),
        ({"topic": "t,other", "columns": "n"}, "there is no column 'n': topic=`other`"),
    ):
        with pytest.raises(PySparkException, match=None) as caught:
            streams.frame(**options).schema  # noqa: B018
        assert text in str(caught.value)


def test_what_only_batch_reads_know_is_told_in_the_querys_exception(log: TxnLog, streams: Streams) -> None:
    text = streams.fails(endingOffsets="latest")
    assert "[TXNLOG_INVALID_OPTION] option endingOffsets is for batch reads only" in text
    assert "UnboundLocalError" not in text
    assert "TXNLOG" not in str(streams.run())


def test_the_continuous_trigger_is_refused_by_spark(log: TxnLog, streams: Streams) -> None:
    with pytest.raises(PySparkException, match="txnlog does not support continuous processing"):
        streams.start(trigger={"continuous": "1 second"}, to="noop").awaitTermination(300)
