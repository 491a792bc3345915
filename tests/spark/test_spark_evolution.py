"""Topics that grow: one DataFrame of all versions, pins that keep theirs, and writers that knew an
older one.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_datasource.options.write import parse_write_options
from spark_datasource.write.messages import TaskUpload
from spark_datasource.write.sink import TxnLogBatchWriter, plan_write
from tests.spark.histories import NUMBERS, append, numbers
from txnformat.errors import ConflictError, InternalError
from txnformat.log import TxnLog
from txnformat.persistent import replace

Read = Callable[..., DataFrame]

SMALL = pa.schema([pa.field("n", pa.int32()), pa.field("text", pa.string())])


@pytest.fixture
def grown(log: TxnLog) -> TxnLog:
    """Topic "t" with one batch of each of three versions."""
    log.create_topic("t", SMALL, partitions=1)
    append(log, "t", {0: [pa.table({"n": [1, 2], "text": ["a", "b"]}, schema=SMALL)]})
    log.alter_topic("t", partitions=2, add_columns=[pa.field("price", pa.decimal128(6, 2))])
    second = log.state.topic("t").schema.arrow_schema
    append(log, "t", {1: [pa.table({"n": [3], "text": ["c"], "price": [1]}, schema=second)]})
    log.alter_topic(
        "t", widen={"n": pa.int64(), "price": pa.decimal128(12, 2)}, add_columns=[pa.field("ok", pa.bool_())]
    )
    third = log.state.topic("t").schema.arrow_schema
    append(
        log, "t", {0: [pa.table({"n": [2**40], "text": ["d"], "price": [10**9], "ok": [True]}, schema=third)]}
    )
    return log


def values(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: row[0])


def test_three_versions_are_one_dataframe(grown: TxnLog, read: Read) -> None:
    frame = read("t", minPartitions="3")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("n", "bigint"),
        ("text", "string"),
        ("price", "decimal(12,2)"),
        ("ok", "boolean"),
    ]
    shown = [(n, text, price and int(price), ok) for n, text, price, ok in values(frame)]
    assert shown == [(1, "a", None, None), (2, "b", None, None), (3, "c", 1, None), (2**40, "d", 10**9, True)]
    assert values(frame.selectExpr("n", "n + 1").where("price is null")) == [(1, 2), (2, 3)]
    only = read("t", columns="ok,_partition,_offset").orderBy("_partition", "_offset")
    assert [tuple(row) for row in only.collect()] == [(None, 0, 0), (None, 0, 1), (True, 0, 2), (None, 1, 0)]
    assert frame.count() == 4
    expected = grown.read("t").read_all().to_pylist()
    assert values(frame) == sorted((tuple(row.values()) for row in expected), key=lambda row: row[0])


def test_a_dataframe_keeps_the_version_and_the_partitions_that_it_was_loaded_with(
    log: TxnLog, read: Read
) -> None:
    log.create_topic("t", SMALL, partitions=1)
    append(log, "t", {0: [pa.table({"n": [1], "text": ["a"]}, schema=SMALL)]})
    before = read("t")
    log.alter_topic("t", partitions=3, widen={"n": pa.int64()}, add_columns=[pa.field("ok", pa.bool_())])
    now = log.state.topic("t").schema.arrow_schema
    append(
        log,
        "t",
        {number: [pa.table({"n": [number], "text": ["x"], "ok": [None]}, schema=now)] for number in range(3)},
    )
    assert [tuple(row) for row in before.collect()] == [(1, "a")]
    assert before.schema.simpleString() == "struct<n:int,text:string>"
    assert read("t").count() == 4


def test_a_job_that_does_not_know_the_added_columns_goes_on(
    grown: TxnLog, spark: SparkSession, path: str
) -> None:
    """Neither does one that names the partition count that the topic began with stop."""
    frame = spark.sql("SELECT 7 AS n, 'job' AS text")
    frame.write.format("txnlog").mode("append").options(topic="t", partitions=1).save(path)
    frame.write.format("txnlog").mode("append").options(topic="t", partitions=2).save(path)
    found = grown.read("t").read_all().to_pylist()
    assert [row for row in found if row["n"] == 7] == 2 * [{"n": 7, "text": "job", "price": None, "ok": None}]
    for wrong, options in (
        (frame.drop("text"), {}),
        (frame.withColumnRenamed("text", "txet"), {}),
        (frame, {"partitions": 3}),
    ):
        with pytest.raises(PySparkException):
            wrong.write.format("txnlog").mode("append").options(topic="t", **options).save(path)
    assert grown.refresh().entry == grown.state.entry
    assert len(grown.read("t").read_all()) == len(found)


# --- races, without a session -------------------------------------------------------------------------------


def planned(path: str) -> tuple[TxnLogBatchWriter, TaskUpload]:
    """Return a writer whose only task has uploaded: what follows is the driver's commit."""
    frame = StructType().add("n", "long").add("text", "string")
    sink = TxnLogBatchWriter(plan_write(parse_write_options({"path": path, "topic": "t"}), frame))
    message = pickle.loads(pickle.dumps(sink.write(iter(numbers(0, 5).to_batches()))))
    message.partition_id = 0
    return sink, message


def test_a_write_that_meets_a_newer_schema_commits_under_its_own(log: TxnLog, path: str) -> None:
    log.create_topic("t", NUMBERS)
    sink, message = planned(path)
    log.alter_topic("t", add_columns=[pa.field("ok", pa.bool_())])
    sink.commit([message])
    assert log.read("t").read_all().to_pylist()[4] == {"n": 4, "text": "row 4", "ok": None}
    assert log.state.files[0].schema_id == 0


def test_a_write_that_meets_more_partitions_fails_and_nothing_is_written(log: TxnLog, path: str) -> None:
    log.create_topic("t", NUMBERS)
    sink, message = planned(path)
    log.alter_topic("t", partitions=2)
    before = log.state.entry
    with pytest.raises(ConflictError) as caught:
        sink.commit([message])
    assert caught.value.kind == "partition-count-changed"
    assert log.refresh().entry == before


def test_a_message_of_another_schema_is_not_believed(log: TxnLog, path: str) -> None:
    log.create_topic("t", NUMBERS)
    log.alter_topic("t", add_columns=[pa.field("ok", pa.bool_())])
    sink, message = planned(path)
    assert [file.schema_id for file in message.uploads["t"].files] == [1]
    upload = message.uploads["t"]
    object.__setattr__(upload, "files", (replace(upload.files[0], schema_id=0), *upload.files[1:]))
    with pytest.raises(InternalError, match="another schema"):
        sink.commit([message])
    assert len(log.read("t").read_all()) == 0
