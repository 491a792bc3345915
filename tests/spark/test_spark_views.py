"""Temporary views over a topic: each sentence of docs/spark-read.md, "SQL", once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_datasource.write.sessions import is_classic
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.log import TxnLog
from writers.producer import Producer

Append = Callable[..., None]
Count = Callable[..., int]
Make = Callable[..., None]

NUMBERS = pa.schema([("n", pa.int64())])


@pytest.fixture
def append(log: TxnLog) -> Append:
    """Appends numbers to topic ``t``, which has one record, as another program does."""
    log.create_topic("t", NUMBERS)

    def append(*numbers: int) -> None:
        with Producer(log) as producer:
            producer.send("t", [{"n": number} for number in numbers])

    append(0)
    return append


@pytest.fixture
def count(spark: SparkSession) -> Count:
    def count(view: str = "v") -> int:
        row = spark.sql(f"SELECT count(*) AS n FROM {view}").first()
        assert row is not None
        return int(row["n"])

    return count


@pytest.fixture
def make(spark: SparkSession, path: str) -> Make:
    """Makes a view of the topic, or makes it anew."""

    def make(view: str = "v", kind: str = "TEMPORARY VIEW") -> None:
        spark.sql(f"CREATE OR REPLACE {kind} {view} USING txnlog OPTIONS (topic 't', path '{path}')")

    return make


def stored(log: TxnLog) -> list[int]:
    return sorted(log.read("t").read_all().column("n").to_pylist())


@BOTH_SESSIONS
def test_a_view_shows_what_was_there_when_it_was_made_until_it_is_made_anew(
    append: Append, count: Count, make: Make
) -> None:
    make()
    append(1, 2)
    assert count() == 1
    make()
    assert count() == 3


@BOTH_SESSIONS
def test_refresh_does_not_move_it(spark: SparkSession, append: Append, count: Count, make: Make) -> None:
    make()
    append(1)
    spark.sql("REFRESH TABLE v")
    spark.catalog.refreshTable("v")
    assert count() == 1


@BOTH_SESSIONS
def test_an_insert_appends_and_the_view_does_not_show_it(
    spark: SparkSession, log: TxnLog, append: Append, count: Count, make: Make
) -> None:
    make()
    spark.sql("INSERT INTO v VALUES (1)")
    assert (stored(log), count()) == ([0, 1], 1)


@BOTH_SESSIONS
def test_an_insert_from_the_view_itself_reads_what_the_view_shows(
    spark: SparkSession, log: TxnLog, append: Append, count: Count, make: Make
) -> None:
    make()
    append(1, 2)
    spark.sql("INSERT INTO v SELECT n + 10 FROM v")
    assert stored(log) == [0, 1, 2, 10]
    make()
    spark.sql("INSERT INTO v SELECT n + 100 FROM v")
    assert stored(log) == [0, 1, 2, 10, 100, 101, 102, 110]


@BOTH_SESSIONS
def test_a_view_of_a_frame_is_as_old_as_the_frame(
    spark: SparkSession, append: Append, count: Count, path: str
) -> None:
    frame = spark.read.format("txnlog").option("topic", "t").load(path)
    append(1)
    frame.createOrReplaceTempView("v")
    # A classic session asks the log in load(), one of Connect when something is made of the frame.
    shown = 1 if is_classic(spark) else 2
    append(2)
    assert count() == shown
    spark.read.format("txnlog").option("topic", "t").load(path).createOrReplaceTempView("v")
    assert count() == 3


@BOTH_SESSIONS
def test_a_view_of_a_view_shows_what_that_one_shows_now(
    spark: SparkSession, append: Append, count: Count, make: Make
) -> None:
    make()
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW outer_v AS SELECT * FROM v WHERE n > 0")
    append(1, 2)
    assert count("outer_v") == 0
    make()
    assert count("outer_v") == 2


@BOTH_SESSIONS
def test_a_global_view_is_like_another_one(append: Append, count: Count, make: Make) -> None:
    make("g", "GLOBAL TEMPORARY VIEW")
    append(1)
    assert count("global_temp.g") == 1
    make("g", "GLOBAL TEMPORARY VIEW")
    assert count("global_temp.g") == 2


@BOTH_SESSIONS
def test_cache_keeps_the_rows_in_spark_and_moves_nothing(
    spark: SparkSession, append: Append, count: Count, make: Make
) -> None:
    make()
    spark.sql("CACHE TABLE v")
    append(1)
    assert count() == 1
    spark.sql("REFRESH TABLE v")
    spark.sql("INSERT INTO v VALUES (2)")
    assert count() == 1
    spark.sql("UNCACHE TABLE v")
    assert count() == 1
    spark.sql("CACHE TABLE v")
    make()
    assert count() == 3
    assert not spark.catalog.isCached("v"), "a view that is made anew is not cached"


@BOTH_SESSIONS
def test_what_is_cached_is_not_given_to_others(
    spark: SparkSession, append: Append, count: Count, make: Make, path: str
) -> None:
    make()
    spark.sql("CACHE TABLE v")
    append(1)
    make("other")
    assert count("other") == 2
    assert spark.read.format("txnlog").option("topic", "t").load(path).count() == 2
    spark.sql("UNCACHE TABLE v")


@BOTH_SESSIONS
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE v SELECT 1L",
        "DELETE FROM v WHERE n = 0",
        "UPDATE v SET n = 1",
        "MERGE INTO v USING (SELECT 1L AS n) AS w ON v.n = w.n WHEN NOT MATCHED THEN INSERT *",
        "TRUNCATE TABLE v",
    ],
)
def test_whatever_would_change_records_is_refused(
    spark: SparkSession, log: TxnLog, append: Append, make: Make, statement: str
) -> None:
    make()
    with pytest.raises(
        Exception, match=r"mode overwrite is not supported|not support|expects a table"
    ) as caught:
        spark.sql(statement).collect()
    assert isinstance(caught.value, AnalysisException) or "UNSUPPORTED" in str(caught.value)
    assert stored(log) == [0]
