"""SparkTransaction: what it commits, in how many entries, once for each version; foreachBatch and threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.sessions import BOTH_SESSIONS
from tests.spark.transactions import Numbers, caught, rows, version
from txnlog import (
    Consumer,
    Producer,
    SparkTransaction,
    Subscription,
    TxnLog,
)


@BOTH_SESSIONS
def test_frames_topics_positions_and_the_version_are_one_commit_and_one_entry_each(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    before = log.refresh().entry
    with SparkTransaction(spark, path, "job", 5) as txn:
        assert not txn.is_done
        assert log.refresh().entry == before + 1, "the producer opens"
        txn.write(numbers(0, 50, tasks=3), "numbers")
        txn.write(numbers(0, 10, "concat('row ', id) AS text"), "texts")
        assert log.refresh().entry == before + 3, "a stage for each"
        assert rows(log, "numbers", "read_uncommitted") == []
        txn.send("numbers", [{"n": 1_000}])
        txn.send_offsets("readers", positions={"elsewhere": "line 7"})
    assert log.refresh().entry == before + 4, "records, positions, version and the end"
    assert txn.info is not None
    assert txn.info.entry == before + 4
    assert not txn.is_done
    assert rows(log, "numbers") == [*range(50), 1_000]
    assert rows(log, "texts") == list(range(10))
    assert txn.info.offsets == {("numbers", 0): 0, ("numbers", 1): 0, ("numbers", 2): 0, ("texts", 0): 0}
    found = log.read("numbers", columns=["_commit_entry"]).read_all().column(0).to_pylist()
    assert set(found) == {txn.info.entry}
    assert log.state.groups["readers"].value("elsewhere") == "line 7"
    assert version(log) == 5
    assert log.verify(deep=True).ok


@BOTH_SESSIONS
def test_a_version_that_is_done_runs_nothing_and_writes_nothing(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    with SparkTransaction(spark, path, "job", 5) as first:
        first.write(numbers(0, 3), "numbers")
    entry, files = log.refresh().entry, len(list(Path(path).rglob("*.parquet")))
    failing = numbers(0, 3).selectExpr("raise_error('it ran') AS n")
    with SparkTransaction(spark, path, "job", 5) as again:
        assert again.is_done
        again.write(failing, "numbers")
        again.send("numbers", [{"n": 7}])
        again.send_offsets("readers", positions={"elsewhere": "line 7"})
    assert log.refresh().entry == entry
    assert len(list(Path(path).rglob("*.parquet"))) == files
    assert again.info is not None
    assert first.info is not None
    assert again.info.entry == first.info.entry
    assert rows(log, "numbers") == [0, 1, 2]


def test_a_write_by_a_column_goes_to_many_topics_and_makes_those_that_are_missing(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers
) -> None:
    with SparkTransaction(spark, path, "job") as txn:
        txn.write(numbers(0, 10, "concat('t', id % 2) AS topic"), partitions=2)
        txn.write(numbers(10, 20), "t0")
        assert log.topics() == ["t0", "t1"]
        assert log.state.topic("t1").partitions == 2
    assert rows(log, "t0") == [0, 2, 4, 6, 8, *range(10, 20)]
    assert rows(log, "t1") == [1, 3, 5, 7, 9]
    assert log.verify(deep=True).ok


def test_the_order_is_that_of_the_calls_also_between_frames_and_records_that_are_sent(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    before = log.refresh().entry
    with SparkTransaction(spark, path, "job") as txn:
        txn.send("texts", [{"n": 1, "text": ""}])
        txn.write(numbers(2, 4, "'' AS text", tasks=1), "texts")
        txn.send("texts", [{"n": 4, "text": ""}])
        txn.send("texts", [{"n": 5, "text": ""}])
        txn.write(numbers(6, 8, "'' AS text", tasks=1), "texts")
    assert log.read("texts", columns=["n"]).read_all().column("n").to_pylist() == list(range(1, 8))
    assert log.refresh().entry == before + 6
    assert log.verify(deep=True).ok


def test_an_empty_frame_needs_no_stage_but_makes_its_topic(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    before = log.refresh().entry
    with SparkTransaction(spark, path, "job") as txn:
        txn.write(numbers(0, 0), "numbers")
        assert log.refresh().entry == before + 1
        txn.write(numbers(0, 0), "new", partitions=4)
        assert log.refresh().entry == before + 2
        assert log.state.topic("new").partitions == 4
    assert log.refresh().entry == before + 2, "nothing to commit"
    assert txn.info is not None
    assert txn.info.entry is None


@pytest.mark.parametrize("written", [False, True], ids=["nothing", "an-empty-frame"])
def test_of_nothing_only_the_version_is_written(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None, written: bool
) -> None:
    before = log.refresh().entry
    for done in (False, True):
        with SparkTransaction(spark, path, "job", 0) as txn:
            if written:
                txn.write(numbers(0, 0), "numbers")
        assert txn.is_done is done
        assert log.refresh().entry == before + 2
        assert version(log) == 0
    with SparkTransaction(spark, path, "job"):
        pass
    assert log.refresh().entry == before + 3, "a producer that opens"
    assert log.verify(deep=True).ok


def test_acknowledgements_and_a_consumers_positions_go_along(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    with Producer(log) as producer:
        producer.send("texts", [{"n": n, "text": ""} for n in range(5)])
    log.subscriptions.create("texts", "workers", start="earliest")
    with Consumer(log, "readers") as consumer, Subscription(log, "texts", "workers") as subscription:
        consumer.subscribe(["texts"])
        consumer.poll(timeout_ms=0)
        received = subscription.receive(max_records=3, timeout_ms=0)

        def job() -> None:
            with SparkTransaction(spark, path, "job") as txn:
                txn.write(numbers(0, 5), "numbers")
                txn.send_offsets(consumer)
                raise ZeroDivisionError

        caught(ZeroDivisionError, job)
        assert consumer.committed("texts", 0) is None
        with SparkTransaction(spark, path, "job") as txn:
            txn.write(numbers(0, 5), "numbers")
            txn.send_offsets(consumer)
            txn.acknowledge(subscription, received)
        assert consumer.committed("texts", 0) == 5
    assert log.subscriptions.describe("texts", "workers").unacknowledged == 2
    assert rows(log, "numbers") == list(range(5))


# --- foreachBatch, threads ----------------------------------------------------------------------------------


@BOTH_SESSIONS
def test_in_foreach_batch_each_batch_is_there_once_in_every_topic(
    spark: SparkSession, log: TxnLog, path: str, tmp_path: Path, topics: None
) -> None:
    def write(batch: DataFrame, number: int) -> None:
        with SparkTransaction(batch.sparkSession, path, "stream", number) as txn:
            txn.write(batch.selectExpr("value AS n"), "numbers")
            txn.write(batch.selectExpr("value AS n", "'x' AS text"), "texts")

    def run(batches: int) -> None:
        rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
        rates = rates.option("startTimestamp", 0).option("advanceMillisPerBatch", 1000)
        stream = rates.load().writeStream.foreachBatch(write)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            while (version(log, "stream") or 0) < batches and query.isActive:
                query.awaitTermination(1)
        finally:
            query.stop()

    run(1)
    (tmp_path / "checkpoint" / "commits" / "1").unlink(missing_ok=True)
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    run(2)
    done = version(log, "stream")
    assert done is not None
    assert rows(log, "numbers") == list(range(10 * (done + 1))) == rows(log, "texts")
    assert log.verify(deep=True).ok


@BOTH_SESSIONS
def test_writes_of_many_threads_take_turns(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    failures: list[BaseException] = []

    def write(start: int) -> None:
        try:
            txn.write(numbers(start, start + 5), "numbers")
        except BaseException as error:  # noqa: BLE001  # the test's own thread raises it
            failures.append(error)

    with SparkTransaction(spark, path, "job") as txn:
        threads = [threading.Thread(target=write, args=[5 * number]) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
    assert rows(log, "numbers") == list(range(15))
