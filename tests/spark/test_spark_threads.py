"""Writes from any thread and any session, and tables of a catalog, which are refused before Spark makes
one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_datasource.datasource import register
from tests.spark.conftest import Numbers
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.errors import InvalidInputError
from txnformat.log import TxnLog
from txnlog import Producer

WAY_OUT = "use CREATE TEMPORARY VIEW name USING txnlog OPTIONS"


def rows(log: TxnLog, topic: str) -> list[int]:
    return sorted(log.read(topic).read_all()["n"].to_pylist())


def in_a_thread(call: Callable[[], object]) -> None:
    """Run in a new thread, which has no connection to the JVM yet, and raise what it raises."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(call).result(120)


def write_stream(spark: SparkSession, path: str, topic: str, folder: Path, **named: Any) -> None:
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rates.selectExpr("value AS n").writeStream.format("txnlog").option("topic", topic)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    query = writer.start(path) if not named else writer.option("path", path).toTable(**named)
    assert query.awaitTermination(300)


@pytest.fixture
def other(classic: SparkSession) -> Iterator[SparkSession]:
    """A second session, not registered."""
    yield classic.newSession()
    companion = getattr(classic._jvm, "org.apache.spark.sql.classic.SparkSession")
    companion.setActiveSession(classic._jsparkSession)


@BOTH_SESSIONS
def test_threads_write_to_different_topics_at_the_same_time(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers
) -> None:
    together = threading.Barrier(4)

    def write(number: int) -> None:
        frame = numbers(10 * number, 10 * number + 10)
        together.wait(300)
        for times in range(3):
            writer = frame.write.format("TxnLog").mode("append").option("topic", f"t{number}")
            writer.options(txnAppId="job", txnVersion=times).save(path)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, number) for number in range(4)]:
            done.result(240)
    for number in range(4):
        assert rows(log, f"t{number}") == sorted(3 * list(range(10 * number, 10 * number + 10)))


@BOTH_SESSIONS
def test_save_takes_the_format_itself_in_a_thread(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers
) -> None:
    in_a_thread(lambda: numbers(0, 5).write.save(path, format="txnlog", mode="append", topic="t"))
    assert rows(log, "t") == list(range(5))


@BOTH_SESSIONS
def test_a_stream_is_started_in_a_thread(spark: SparkSession, log: TxnLog, path: str, tmp_path: Path) -> None:
    in_a_thread(lambda: write_stream(spark, path, "t", tmp_path))
    assert rows(log, "t") == list(range(10))


def test_registering_again_changes_nothing_but_the_source(classic: SparkSession) -> None:
    register(classic)
    before = DataFrameWriter.format, DataFrameWriter.saveAsTable, DataStreamWriter.format
    register(classic)
    assert (DataFrameWriter.format, DataFrameWriter.saveAsTable, DataStreamWriter.format) == before


def test_other_formats_of_a_thread_are_left_as_they_are(classic: SparkSession, tmp_path: Path) -> None:
    companion = getattr(classic._jvm, "org.apache.spark.sql.classic.SparkSession")

    def write() -> bool:
        classic.range(3).write.format("parquet").save(str(tmp_path / "parquet"))
        return bool(companion.getActiveSession().isDefined())

    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(write).result(60)
    assert classic.read.parquet(str(tmp_path / "parquet")).count() == 3
    classic.range(3).write.format("parquet").saveAsTable("a_table")
    try:
        assert classic.table("a_table").count() == 3
    finally:
        classic.sql("DROP TABLE a_table")


def test_a_session_made_by_newsession_is_registered_by_itself_and_writes_in_every_thread(
    other: SparkSession, log: TxnLog, path: str
) -> None:
    def write(start: int) -> None:
        frame = other.range(start, start + 5).selectExpr("id AS n")
        frame.write.format("txnlog").mode("append").option("topic", "t").save(path)

    register(other)  # though the thread's active session is the first one, which has the name
    write(0)
    in_a_thread(lambda: write(5))
    assert rows(log, "t") == list(range(10))


# --- Tables of a catalog ------------------------------------------------------------------------------------


@pytest.fixture
def no_tables(classic: SparkSession) -> Iterator[Callable[[], list[str]]]:
    """The names of the tables of the catalog; those that a test left are dropped."""

    def names() -> list[str]:
        return [row.tableName for row in classic.sql("SHOW TABLES").collect() if not row.isTemporary]

    yield names
    for name in names():
        classic.sql(f"DROP TABLE {name}")


def test_the_writers_refuse_tables_before_one_is_made(
    classic: SparkSession, log: TxnLog, path: str, tmp_path: Path, no_tables: Callable[[], list[str]]
) -> None:
    frame = classic.range(3).selectExpr("id AS n")
    options = {"topic": "t", "path": path}
    writer = frame.write.mode("append").options(**options)
    calls: list[Callable[[], object]] = [
        lambda: writer.format("txnlog").saveAsTable("husk"),
        lambda: frame.write.saveAsTable("husk", format="txnlog", **options),
        lambda: frame.write.saveAsTable("husk", "txnlog", **options),
        lambda: frame.writeTo("husk").using("txnlog").options(**options).create(),
        lambda: write_stream(classic, path, "t", tmp_path, tableName="husk"),
    ]
    for call in calls:
        with pytest.raises(
            InvalidInputError, match=r"^\[TXNLOG_UNSUPPORTED_OPERATION\] tables of a"
        ) as caught:
            call()
        assert "CREATE TEMPORARY VIEW" in str(caught.value)
    assert (no_tables(), log.topics()) == ([], [])


@BOTH_SESSIONS
def test_what_spark_lets_through_is_refused_when_it_is_used(
    spark: SparkSession, log: TxnLog, path: str, no_tables: Callable[[], list[str]]
) -> None:
    options = f"USING txnlog OPTIONS (topic 't', path '{path}')"
    spark.sql(f"CREATE TABLE husk (n bigint) {options}")
    for statement in (
        "SELECT * FROM husk",
        "INSERT INTO husk VALUES (1)",
        f"CREATE TABLE another {options} AS SELECT 1L AS n",
    ):
        with pytest.raises(PySparkException, match=r"\[TXNLOG_INVALID_OPTION\]") as caught:
            spark.sql(statement).collect()
        assert WAY_OUT in str(caught.value)
    assert (no_tables(), log.topics()) == (["husk"], [])
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_UNSUPPORTED_OPERATION\].*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE inferred {options}")
    assert no_tables() == ["husk"]


@BOTH_SESSIONS
def test_a_temporary_view_reads_and_inserts(
    spark: SparkSession, log: TxnLog, path: str, topics: None
) -> None:
    options = f"OPTIONS (topic 'numbers', path '{path}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW a_view USING txnlog {options}")
    try:
        spark.sql("INSERT INTO a_view VALUES (1), (2)")
        assert spark.sql("SELECT * FROM a_view").count() == 0  # pinned when it was made
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW a_view USING txnlog {options}")
        assert [row.n for row in spark.sql("SELECT n FROM a_view ORDER BY n").collect()] == [1, 2]
    finally:
        spark.catalog.dropTempView("a_view")


@BOTH_SESSIONS
def test_a_temporary_view_is_of_several_topics_and_in_the_order_of_commits(
    spark: SparkSession, log: TxnLog, path: str, topics: None
) -> None:
    first = Producer(log, "first", buffer="inline")
    first.init()
    first.begin()
    first.send("texts", [{"n": 1, "text": "first"}])
    first.flush()
    with Producer(log, "second") as second, second.transaction() as txn:
        txn.send("texts", [{"n": 2, "text": "second"}])
        txn.send("numbers", [{"n": 3}])
    found = {}
    for order in ("offset", "commit"):
        spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW a_view USING txnlog OPTIONS (topic 'numbers,texts', path "
            f"'{path}', "
            f"columns 'n,_topic', order '{order}')"
        )
        found[order] = {(row.n, row._topic) for row in spark.sql("SELECT * FROM a_view").collect()}
    spark.catalog.dropTempView("a_view")
    first.close()
    assert found == {"offset": {(3, "numbers")}, "commit": {(2, "texts"), (3, "numbers")}}
