"""Batch writes: one entry, all or nothing, once for each application version, and topics made on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # as everybody calls it

from tests.jvm import spark_environment
from tests.spark.histories import NUMBERS
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.log import TxnLog

Read = Callable[..., DataFrame]
Save = Callable[..., None]


@pytest.fixture
def save(path: str) -> Save:
    def save(frame: DataFrame, topic: str = "t", *, mode: str = "append", **options: Any) -> None:
        frame.write.format("txnlog").mode(mode).option("topic", topic).options(**options).save(path)

    return save


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """100 rows in 4 tasks."""
    return spark.range(100, numPartitions=4).select(
        F.col("id").alias("n"), F.format_string("row %d", "id").alias("text")
    )


def rows(log: TxnLog, topic: str = "t") -> list[int]:
    return sorted(log.read(topic, columns=["n"]).read_all().column("n").to_pylist())


def nothing_written(log: TxnLog, entry: int) -> bool:
    return log.refresh().entry == entry and "new" not in log.topics()


@BOTH_SESSIONS
def test_an_append_is_one_entry_and_creates_the_topic(
    log: TxnLog, read: Read, save: Save, frame: DataFrame
) -> None:
    entry = log.refresh().entry
    save(frame, partitions="3", keyColumns="n")
    state = log.refresh()
    assert state.entry == max(entry, 0) + 1
    topic = state.topic("t")
    assert (topic.partitions, topic.schema.key_columns) == (3, ("n",))
    assert topic.schema.arrow_schema.equals(NUMBERS)
    assert rows(log) == list(range(100))
    assert {row.n: row.text for row in read("t").collect()} == {n: f"row {n}" for n in range(100)}
    save(frame)
    assert log.refresh().entry == state.entry + 1
    assert rows(log) == sorted([*range(100), *range(100)])


def test_equal_keys_go_to_one_partition_and_to_the_same_as_from_python(
    log: TxnLog, read: Read, save: Save, spark: SparkSession
) -> None:
    frame = spark.range(60, numPartitions=3).select(
        (F.col("id") % 7).cast("string").alias("key"), F.col("id").alias("n")
    )
    save(frame, partitions="4", keyColumns="key")
    found = {(row.key, row._partition) for row in read("t", columns="key,_partition").collect()}
    # Kafka's own: murmur2 of the digits as UTF-8, modulo 4.
    from writers.partitioner import murmur2

    assert found == {(str(key), (murmur2(str(key).encode()) & 0x7FFFFFFF) % 4) for key in range(7)}


def test_tasks_without_keys_begin_at_different_partitions(
    log: TxnLog, read: Read, save: Save, frame: DataFrame
) -> None:
    save(frame, partitions="4")
    assert [part.log_end for part in log.offsets("t")] == [25, 25, 25, 25]


def test_small_writes_without_keys_begin_at_different_partitions(
    log: TxnLog, save: Save, spark: SparkSession
) -> None:
    """Each write is one row in one task; where it begins is random, so not all ten can be expected in one
    place."""
    log.create_topic("t", NUMBERS, partitions=64)
    for number in range(10):
        save(spark.range(number, number + 1, numPartitions=1).selectExpr("id AS n", "'row' AS text"))
    assert sum(part.log_end > 0 for part in log.offsets("t")) > 1


@BOTH_SESSIONS
def test_the_order_within_a_task_and_of_the_tasks_is_kept(
    log: TxnLog, read: Read, save: Save, frame: DataFrame
) -> None:
    save(frame)
    found = log.read("t", columns=["n", "_offset"]).read_all()
    assert found.column("n").to_pylist() == list(range(100)) == found.column("_offset").to_pylist()


@BOTH_SESSIONS
def test_every_version_of_an_application_is_written_once(
    log: TxnLog, save: Save, frame: DataFrame, path: str
) -> None:
    save(frame, txnAppId="job", txnVersion="5")
    entry, files = log.refresh().entry, len(list(Path(path).glob("*/data/*")))
    save(frame, txnAppId="job", txnVersion="5")
    assert log.refresh().entry == entry
    assert len(list(Path(path).glob("*/data/*"))) == files, "what is done is not uploaded again"
    save(frame, txnAppId="other", txnVersion="5")
    save(frame.limit(1), txnAppId="job", txnVersion="6")
    assert len(rows(log)) == 201
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_STALE_APP_VERSION\].*newest=`6`"):
        save(frame, txnAppId="job", txnVersion="5")
    assert len(rows(log)) == 201


def test_versions_of_an_application_are_counted_by_topic(log: TxnLog, save: Save, frame: DataFrame) -> None:
    """One job, one version, two topics: the second write is not taken for a repeat of the first."""
    for _ in range(2):
        save(frame, "t", txnAppId="job", txnVersion="5")
        save(frame, "other", txnAppId="job", txnVersion="5")
    assert len(rows(log, "t")) == len(rows(log, "other")) == 100


@pytest.mark.parametrize(
    "options",
    [
        {"txnAppId": "a"},
        {"txnVersion": "1"},
        {"txnAppId": "a", "txnVersion": "-1"},
        {"txnAppId": "a", "txnVersion": "one"},
        {"partitions": "0"},
        {"partitons": "2"},
        {"isolation": "read_committed"},
    ],
)
def test_bad_options_write_nothing(
    log: TxnLog, save: Save, frame: DataFrame, options: dict[str, str]
) -> None:
    entry = log.refresh().entry
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_INVALID_OPTION\]"):
        save(frame, "new", **options)
    assert nothing_written(log, entry)


@BOTH_SESSIONS
def test_overwrite_is_refused_and_nothing_is_written(log: TxnLog, save: Save, frame: DataFrame) -> None:
    save(frame)
    entry = log.refresh().entry
    with pytest.raises(
        AnalysisException, match=r"\[TXNLOG_UNSUPPORTED_OPERATION\] mode overwrite is not supported"
    ):
        save(frame, mode="overwrite")
    assert nothing_written(log, entry)
    assert len(rows(log)) == 100


def test_a_missing_log_is_not_created(save: Save, frame: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_NO_LOG\]"):
        frame.write.format("txnlog").mode("append").option("topic", "t").save(str(tmp_path / "missing"))
    assert not (tmp_path / "missing").exists()


@BOTH_SESSIONS
def test_a_schema_mismatch_lists_every_difference(log: TxnLog, save: Save, frame: DataFrame) -> None:
    log.create_topic("t", pa.schema([("n", pa.int64()), ("text", pa.string()), ("more", pa.date32())]))
    entry = log.refresh().entry
    wrong = frame.select(F.col("n").cast("string").alias("n"), "text", F.lit(1).alias("extra"))
    with pytest.raises(AnalysisException) as caught:
        save(wrong)
    for text in (
        "[TXNLOG_SCHEMA_MISMATCH]",
        "'more' is missing",
        "'extra' is not in the topic",
        "'n' has the type",
    ):
        assert text in str(caught.value)
    assert nothing_written(log, entry)


@BOTH_SESSIONS
def test_column_order_and_letter_case_are_free_and_casts_lose_nothing(
    log: TxnLog, save: Save, spark: SparkSession
) -> None:
    log.create_topic("t", NUMBERS)
    save(spark.sql("select 'a' as TEXT, cast(3 as short) as N"))
    assert log.read("t").read_all().to_pylist() == [{"n": 3, "text": "a"}]
    log.create_topic("small", pa.schema([("n", pa.int8())]))
    save(spark.sql("select 127L as n"), "small")
    with pytest.raises(PySparkException, match=r"\[TXNLOG_SCHEMA_MISMATCH\].*cannot hold"):
        save(spark.sql("select 128L as n"), "small")
    assert rows(log, "small") == [127]


def test_options_of_a_new_topic_must_agree_with_one_that_exists(
    log: TxnLog, save: Save, frame: DataFrame
) -> None:
    log.create_topic("t", NUMBERS, partitions=2)
    with pytest.raises(
        AnalysisException, match=r"partitions is 3, but the topic has 2.*keyColumns is n, .* none"
    ):
        save(frame, partitions="3", keyColumns="n")
    save(frame, partitions="2")


def test_types_that_no_topic_can_have_are_listed(log: TxnLog, save: Save, spark: SparkSession) -> None:
    entry = log.refresh().entry
    with pytest.raises(AnalysisException) as caught:
        save(spark.sql("select interval 1 month as a, array(interval 1 year) as b, 1 as c, null as d"), "new")
    text = str(caught.value)
    assert "[TXNLOG_UNSUPPORTED_SCHEMA]" in text
    assert all(f"column '{name}'" in text for name in ("a", "b.element", "d"))
    assert "column 'c'" not in text
    assert nothing_written(log, entry)


def test_no_rows_need_no_entry_unless_there_is_something_to_say(
    log: TxnLog, save: Save, frame: DataFrame
) -> None:
    empty = frame.where("n < 0")
    save(empty, "new")
    assert rows(log, "new") == []
    entry = log.refresh().entry
    save(empty, "new")
    assert log.refresh().entry == entry
    save(empty, "new", txnAppId="job", txnVersion="1")
    assert log.refresh().entry == entry + 1
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_STALE_APP_VERSION\]"):
        save(frame, "new", txnAppId="job", txnVersion="0")


@BOTH_SESSIONS
def test_a_failed_job_leaves_no_topic_and_no_rows(log: TxnLog, save: Save, frame: DataFrame) -> None:
    entry = log.refresh().entry
    broken = frame.select(
        F.when(F.col("n") == 99, F.raise_error(F.lit("broken"))).otherwise(F.col("n")).cast("long").alias("n")
    )
    with pytest.raises(PySparkException, match="broken"):
        save(broken, "new")
    assert nothing_written(log, entry)


def test_a_task_that_fails_once_writes_its_rows_once(
    spark: SparkSession, tmp_path: Path, path: str, log: TxnLog
) -> None:
    """In a session of its own, since the number of tries belongs to the master's name."""
    import os
    import subprocess
    import sys

    script = tmp_path / "retry.py"
    script.write_text(RETRY)
    done = subprocess.run(
        [sys.executable, str(script), path, str(tmp_path / "failed-once")],
        env={**os.environ, **spark_environment(tmp_path)}, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "failed-once").exists()
    assert rows(log) == list(range(100))


RETRY = """
import os, sys
from pyspark.sql import SparkSession
from pyspark.errors import PySparkException

path, marker = sys.argv[1:]
spark = (SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
         .config("spark.python.unix.domain.socket.enabled", "true").config("spark.log.level", "OFF").getOrCreate())

def fail_once(batches):
    from pyspark import TaskContext
    for batch in batches:
        yield batch
    if TaskContext.get().partitionId() == 2:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        raise RuntimeError("fails once")

# No registration: the installed module pyspark_txnlog is found, from any directory.
frame = spark.range(100, numPartitions=4).withColumnRenamed("id", "n").mapInArrow(fail_once, "n long")
frame.write.format("txnlog").mode("append").option("topic", "t").save(path)
assert spark.read.format("TxnLog").option("topic", "t").load(path).count() == 100
"""


def test_text_that_is_not_utf8_is_refused_in_the_task_with_its_row_and_column(
    log: TxnLog, save: Save, spark: SparkSession
) -> None:
    entry = log.refresh().entry
    frame = spark.range(20_000, numPartitions=1).selectExpr(
        "id AS n", "IF(id = 15000, cast(unhex('FF') AS STRING), 'ok') AS text"
    )
    with pytest.raises(PySparkException) as caught:
        save(frame)
    message = str(caught.value)
    assert r"column 'text', row 15000 of task 0: b'\xff' is not UTF-8" in message
    assert "make_valid_utf8" in message
    assert log.refresh().entry == entry
    save(frame.selectExpr("n", "make_valid_utf8(text) AS text"))
    assert "\N{REPLACEMENT CHARACTER}" in log.read("t", columns=["text"]).read_all()["text"].to_pylist()


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("topic", "IF(id = 1, cast(unhex('FF') AS STRING), 't') AS topic"),
        ("tags", "array(cast(unhex('FF') AS STRING)) AS tags"),
        ("named", "map(cast(unhex('FF') AS STRING), 1) AS named"),
        ("inner", "struct(cast(unhex('EDA080') AS STRING) AS s) AS inner"),
    ],
)
def test_no_column_takes_text_that_is_not_utf8(
    log: TxnLog, save: Save, spark: SparkSession, path: str, column: str, text: str
) -> None:
    entry = log.refresh().entry
    frame = spark.range(2, numPartitions=1).selectExpr("id AS n", text)
    options = {"path": path, "createTopics": "true"} | ({} if column == "topic" else {"topic": "t"})
    with pytest.raises(PySparkException, match=f"column '{column}', row .* is not UTF-8"):
        frame.write.format("txnlog").mode("append").options(**options).save()
    assert log.refresh().entry == entry
