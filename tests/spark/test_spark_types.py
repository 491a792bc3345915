"""Every type that Spark and a topic share survives the way through a log, nulls at every depth included."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import Row, StructType

from spark_datasource.spark_schema import spark_schema
from txnformat.log import TxnLog
from txnformat.schema import TopicSchema, as_topic_schema

DDL = """
    flag boolean, tiny tinyint, small smallint, medium int, big bigint, single float, double double,
    exact decimal(38, 10), short decimal(5, 2), text string, bytes binary, day date,
    moment timestamp, local timestamp_ntz,
    list array<int>, map map<string, bigint>, struct struct<a: int, b: string>,
    deep array<struct<m: map<string, array<decimal(9, 3)>>, t: timestamp, l: timestamp_ntz, s: struct<x: binary>>>
"""
ZONE = datetime.UTC
VALUES: Any = [
    (
        True, -128, 32767, -(2**31), 2**63 - 1, 1.5, float("-inf"),
        Decimal("1234567890123456789012345678.0123456789"), Decimal("-999.99"), "Zürich \N{SNOWMAN}", b"\x00\xff",
        datetime.date(1, 1, 1),
        datetime.datetime(2026, 3, 29, 1, 30, 0, 123456, ZONE), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        [1, None, 3], {"a": 1, "b": None}, Row(a=None, b="x"),
        [
            Row(
                m={"k": [Decimal("1.250"), None], "none": None, "empty": []},
                t=datetime.datetime(2000, 2, 29, tzinfo=ZONE),
                l=datetime.datetime(2000, 2, 29),
                s=Row(x=b""),
            ),
            None,
            Row(m=None, t=None, l=None, s=None),
        ],
    ),
    (None,) * 18,
    (
        False, 0, 0, 0, 0, 0.0, -0.0, Decimal("0E-10"), Decimal("0.00"), "", b"", datetime.date(9999, 12, 31),
        datetime.datetime(1970, 1, 1, tzinfo=ZONE), datetime.datetime(9999, 12, 31, 23, 59, 59), [], {}, Row(a=1, b=None),
        [],
    ),
]  # fmt: skip


def frame_schema() -> StructType:
    """Spark parses DDL only while there is a session."""
    found = StructType.fromDDL(DDL)
    assert isinstance(found, StructType)
    return found


def test_every_type_survives_a_write_and_a_read(spark: SparkSession, log: TxnLog, path: str) -> None:
    frame = spark.createDataFrame(VALUES, frame_schema()).coalesce(1)
    frame.write.format("txnlog").mode("append").option("topic", "types").save(path)
    found = spark.read.format("txnlog").option("topic", "types").load(path)
    assert found.schema == frame.schema
    assert found.collect() == frame.collect()
    # Counted and compared by Spark itself too: session zone and Python's own conversion play no part.
    assert (
        found.selectExpr("to_json(struct(*))").collect() == frame.selectExpr("to_json(struct(*))").collect()
    )


def test_timestamps_are_the_same_instants_in_python(spark: SparkSession, log: TxnLog, path: str) -> None:
    frame = spark.sql(
        "select timestamp'2026-01-01 05:30:00 Asia/Kolkata' as t, timestamp_ntz'2026-01-01 05:30:00' as l"
    )
    frame.write.format("txnlog").mode("append").option("topic", "times").save(path)
    (row,) = log.read("times").read_all().to_pylist()
    assert row["t"] == datetime.datetime(2026, 1, 1, tzinfo=ZONE)
    assert row["l"] == datetime.datetime(2026, 1, 1, 5, 30)


def test_char_and_varchar_are_strings(spark: SparkSession, log: TxnLog, path: str) -> None:
    frame = spark.createDataFrame([("a", "b")], "c string, v string")
    frame.selectExpr("cast(c as varchar(3)) as v", "cast(v as char(2)) as c").write.format("txnlog").mode(
        "append"
    ).option("topic", "chars").save(path)
    assert log.state.log_id
    assert {str(field.type) for field in log.refresh().topic("chars").schema.arrow_schema} == {"string"}


def test_the_schema_of_a_topic_and_of_spark_are_inverse(spark: SparkSession) -> None:
    frame = frame_schema()
    topic = as_topic_schema(frame)
    assert spark_schema(topic, None) == frame
    assert TopicSchema(pa.schema(list(topic.arrow_schema))) == topic
