"""Spark and a name that belongs to another column by now: old records are null under it in the DataFrame, in
conditions, in native reads and in streams."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.rounds import rounds
from txnformat.log import TxnLog
from txnlog import Producer, compact
from txnlog.spark import read_table

Read = Callable[..., DataFrame]
SCHEMA = pa.schema([("id", pa.int64()), ("note", pa.string()), ("x", pa.float64())])
AFTER: dict[str, Callable[[TxnLog], object]] = {
    "as they are": lambda log: None,
    "sealed": lambda log: log.maintain("seal"),
    "compacted": lambda log: log.compact("t", min_lag_ms=0),
}
WANTED = [(n, n / 2, None) for n in range(4)] + [(4, 2.0, "new")]


def send(log: TxnLog, rows: list[dict[str, Any]], **settings: Any) -> None:
    with Producer(log, **settings) as producer:
        producer.send("t", rows)


@pytest.fixture(params=[0, 16_384], ids=["in files", "in entries"])
def old(log: TxnLog, request: pytest.FixtureRequest) -> TxnLog:
    """A topic with two batches of old notes."""
    log.create_topic("t", SCHEMA)
    for first in (0, 2):
        rows = [{"id": n, "note": f"old {n}", "x": n / 2} for n in range(first, first + 2)]
        send(log, rows, embed_bytes=request.param)
    return log


def another_note(log: TxnLog) -> None:
    log.alter_topic("t", drop=["note"])
    log.alter_topic("t", rename={"x": "y"})
    log.alter_topic("t", add_columns=[pa.field("note", pa.string())])


def values(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: int(row[0]))


@pytest.mark.parametrize(
    ("spark", "after"),
    [
        ("classic", "as they are"),
        ("classic", "sealed"),
        ("connect", "compacted"),
        *rounds([], [("connect", "as they are"), ("connect", "sealed"), ("classic", "compacted")]),
    ],
    indirect=["spark"],
)
def test_another_column_of_a_name_is_null_in_older_records(
    spark: SparkSession, old: TxnLog, read: Read, path: str, after: str
) -> None:
    another_note(old)
    AFTER[after](old)
    send(old, [{"id": 4, "y": 2.0, "note": "new"}])
    frames = {
        "format": read("t"),
        "version": read("t", versionAsOf=str(old.state.entry)),
        "native": read_table(spark, path, "t", native_bytes_min=0),
        "not native": read_table(spark, path, "t", native=False),
    }
    for name, frame in frames.items():
        assert frame.columns == ["id", "y", "note"], name
        assert values(frame) == WANTED, name
        assert values(frame.where("note is null")) == WANTED[:4], name
        assert values(frame.where("note is not null")) == WANTED[4:], name
        assert values(frame.where("note >= 'old'")) == [], name
        assert values(frame.where("y >= 1.5").select("id", "y")) == [(3, 1.5), (4, 2.0)], name
        assert values(frame.where("note = 'new'").select("y")) == [(2.0,)], name
        assert frame.count() == 5, name
    for where, wanted in (("note IS NULL", WANTED[:4]), ("note >= 'old'", []), ("y > 1", WANTED[3:])):
        assert values(read("t", where=where)) == wanted
        assert values(read_table(spark, path, "t", where=where, native_bytes_min=0)) == wanted
    shown = read("t", columns="note,_offset,_partition").where("_offset >= 3")
    assert sorted((row["_offset"], row["note"]) for row in shown.collect()) == [(3, None), (4, "new")]
    some = read_table(spark, path, "t", columns=["note", "_offset"], native_bytes_min=0)
    assert sorted((row["_offset"], row["note"]) for row in some.collect()) == [
        (n, "new" if n == 4 else None) for n in range(5)
    ]


def test_files_of_a_whole_topic_are_read_natively_by_their_own_names(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    log.create_topic("t", SCHEMA)
    send(log, [{"id": n, "note": f"old {n}", "x": n / 2} for n in range(4)], embed_bytes=0)
    another_note(log)
    log.alter_topic("t", rename={"id": "x"})
    log.alter_topic("t", rename={"y": "id"})
    frame = read_table(spark, path, "t", native_bytes_min=0)
    assert frame.columns == ["x", "id", "note"]
    assert values(frame) == [(n, n / 2, None) for n in range(4)]
    assert values(frame.where("x > 2 and id < 2")) == [(3, 1.5, None)]
    assert (
        "Parquet" in frame._jdf.queryExecution().simpleString()
        or "parquet" in frame._jdf.queryExecution().toString()
    )


def test_spark_writes_compacted_files_by_place(
    spark: SparkSession, old: TxnLog, path: str, read: Read
) -> None:
    another_note(old)
    send(old, [{"id": 4, "y": 2.0, "note": "new"}])
    assert compact(spark, path, "t", min_lag_ms=0, target_bytes=1)
    assert values(read("t")) == WANTED
    assert values(read_table(spark, path, "t", native_bytes_min=0)) == WANTED
    assert old.verify(deep=True).ok


def test_a_dataframe_from_before_keeps_its_names_and_says_what_a_compaction_took(
    old: TxnLog, read: Read
) -> None:
    before, late, some = read("t"), read("t"), read("t", columns="id,x")
    wanted = values(before)
    another_note(old)
    assert values(before) == wanted
    assert before.columns == ["id", "note", "x"]
    old.compact("t", min_lag_ms=0)
    assert values(some) == [(n, n / 2) for n in range(4)]
    with pytest.raises(PySparkException, match="was dropped"):
        late.collect()


def test_a_job_that_writes_old_names_is_refused(
    spark: SparkSession, old: TxnLog, path: str, read: Read
) -> None:
    rows = spark.sql("SELECT CAST(9 AS BIGINT) AS id, 'old' AS note, 1.0D AS x")
    old.alter_topic("t", rename={"x": "y"})
    for frame in (rows, rows.drop("x")):
        with pytest.raises(PySparkException):
            frame.write.format("txnlog").mode("append").option("topic", "t").save(path)
    rows.withColumnRenamed("x", "y").write.format("txnlog").mode("append").option("topic", "t").save(path)
    assert values(read("t"))[-1] == (9, "old", 1.0)


def test_a_batch_job_that_is_repeated_after_a_rename_is_still_the_same(
    spark: SparkSession, old: TxnLog, path: str, read: Read
) -> None:
    rows = spark.sql("SELECT CAST(9 AS BIGINT) AS id, 'text' AS note, 1.0D AS x")
    options = {"topic": "t", "txnAppId": "job", "txnVersion": "1"}
    rows.write.format("txnlog").mode("append").options(**options).save(path)
    old.alter_topic("t", rename={"x": "y", "note": "text"})
    again = rows.toDF("id", "text", "y")
    again.write.format("txnlog").mode("append").options(**options).save(path)
    assert read("t").count() == 5
    other = spark.sql("SELECT CAST(9 AS BIGINT) AS id, 'other' AS text, 1.0D AS y")
    with pytest.raises(PySparkException):
        other.write.format("txnlog").mode("append").options(**options).save(path)


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_stream_that_is_loaded_after_the_change_reads_by_place(
    spark: SparkSession, old: TxnLog, path: str, tmp_path: Path, order: str
) -> None:
    another_note(old)
    send(old, [{"id": 4, "y": 2.0, "note": "new"}])

    def run() -> list[tuple[Any, ...]]:
        reader = spark.readStream.format("txnlog").options(topic="t", startingOffsets="earliest", order=order)
        writer = reader.load(path).writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = (
            writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(300)
        assert query.exception() is None
        return values(spark.read.parquet(str(tmp_path / "out")))

    assert run() == WANTED
    old.compact("t", min_lag_ms=0)
    send(old, [{"id": 5, "y": 2.5, "note": None}])
    assert run() == [*WANTED, (5, 2.5, None)]


def test_a_stream_that_runs_on_does_not_take_one_column_for_another(
    spark: SparkSession, old: TxnLog, path: str, tmp_path: Path
) -> None:
    reader = spark.readStream.format("txnlog").options(topic="t", startingOffsets="earliest")
    writer = reader.load(path).writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = (
        writer.option("checkpointLocation", str(tmp_path / "check"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        while not (tmp_path / "out" / "_spark_metadata" / "0").exists():
            assert not query.awaitTermination(1), query.exception()
        old.alter_topic("t", drop=["note"])
        old.alter_topic("t", add_columns=[pa.field("note", pa.string())])
        send(old, [{"id": 4, "x": 2.0, "note": "new"}])
        with pytest.raises(PySparkException, match="renamed or dropped while it ran"):
            query.awaitTermination(300)
    finally:
        query.stop()


def test_a_layout_is_shared_by_topics_with_the_same_places_only(old: TxnLog, path: str) -> None:
    """Two topics have had the same versions: in one the column is another one."""
    from pyspark.sql.types import StructType

    from spark_datasource.options.write import parse_write_options
    from spark_datasource.write.sink import plan_write

    old.create_topic("u", SCHEMA)
    for topic, change in (
        ("t", {"rename": {"x": "y"}}),
        ("u", {"drop": ["x"], "add_columns": [pa.field("y", pa.float64())]}),
    ):
        old.alter_topic(topic, **change)
    frame = StructType().add("topic", "string").add("id", "long").add("note", "string").add("y", "double")
    plan = plan_write(parse_write_options({"path": path}, frame.names), frame)
    known = pickle.loads(pickle.dumps(plan)).routes.known
    assert known["t"].layout.schema.added == frozenset()
    assert known["u"].layout.schema.added == {"y"}
