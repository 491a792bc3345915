"""Every type that Spark and a topic share survives the way through a log, nulls at every depth included."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import Row, StructType, VariantVal

from spark_datasource.schema import spark_schema
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.core.topics.schema import TopicSchema, as_topic_schema
from txnformat.log import TxnLog
from txnlog import Producer

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


@BOTH_SESSIONS
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


NEWER = """
select * from values
    (1, parse_json('{"a": [1, null, 1.25, "x"], "b": {}}'),
     interval '-106751991 04:00:54.775808' day to second, time'23:59:59.999999',
     struct(parse_json('"in"') as v, interval '1 02' day to hour as d, time'01:02:03' as t),
     array(parse_json('null'), null, parse_json('12345678901234567890')),
     map('k', parse_json('true'), 'none', null),
     array(struct(parse_json('1') as v, timestamp'2026-01-01 00:00:00 UTC' as at, 1.5 as d), null,
           struct(null as v, null as at, null as d)),
     map(time'00:00:00', array(interval 1 second))),
    (2, null, null, null, null, null, null, null, null),
    (3, parse_json('null'), interval '106751991 04:00:54.775807' day to second, time'00:00:00',
     struct(null as v, null as d, null as t), array(), map(), array(), map(time'23:59:59', array(null)))
as t (id, v, d, t, s, list, map, deep, times)
"""


@pytest.fixture
def time_type(spark: SparkSession) -> Iterator[None]:
    """Spark keeps its time of day behind a switch."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


@pytest.mark.usefixtures("time_type")
@BOTH_SESSIONS
def test_variants_intervals_and_times_survive_at_every_depth(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    frame = spark.sql(NEWER).coalesce(1)
    frame.write.format("txnlog").mode("append").option("topic", "newer").save(path)
    found = spark.read.format("txnlog").option("topic", "newer").load(path)
    kinds = [field.dataType.simpleString() for field in found.schema.fields[1:5]]
    assert kinds == [
        "variant",
        "interval day to second",
        "time(6)",
        "struct<v:variant,d:interval day to second,t:time(6)>",
    ]
    # A variant equals itself only; its text is made of its bytes.
    assert [repr(row) for row in found.collect()] == [repr(row) for row in frame.collect()]
    columns = [
        "v:a[2]::double",
        "schema_of_variant(v)",
        "try_element_at(deep, 1).v::int",
        "s.d",
        "map.k::string",
    ]
    columns += ["try_element_at(list, 3)::decimal(20)", "v is null", "try_element_at(deep, 2) is null"]
    assert found.selectExpr(*columns).collect() == frame.selectExpr(*columns).collect()
    assert found.where("t > time'12:00:00' and d < interval 0 second").count() == 1


@pytest.mark.usefixtures("time_type")
def test_python_and_spark_exchange_variants_intervals_and_times(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    spark.sql(NEWER).coalesce(1).write.format("txnlog").mode("append").option("topic", "newer").save(path)
    found = log.read("newer", columns=["v", "d", "t", "list"]).read_all()
    first, empty, last = found.to_pylist()
    assert VariantVal(**first["v"]).toPython() == {"a": [1, None, Decimal("1.25"), "x"], "b": {}}
    assert first["list"][1] is None
    assert (last["d"], last["t"]) == (datetime.timedelta(microseconds=2**63 - 1), datetime.time())
    assert set(empty.values()) == {None}
    log.create_topic("copy", found.schema)
    with Producer(log) as producer:
        producer.send("copy", found.slice(0, 1))  # pyarrow makes no such interval of a timedelta
        producer.send("copy", [empty, last])
    copy = spark.read.format("txnlog").option("topic", "copy").load(path)
    original = spark.sql(NEWER).select("v", "d", "t", "list")
    assert [repr(row) for row in copy.collect()] == [repr(row) for row in original.coalesce(1).collect()]


@pytest.mark.parametrize(
    ("column", "kind", "instead"),
    [
        ("interval '1-2' year to month", "interval year to month", "cast(cast(c as interval month) as int)"),
        ("interval 3 month", "interval month", "cast(cast(c as interval month) as int)"),
        ("null", "void", "cast(c as string)"),
        (
            "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')",
            "geometry(SRID:0)",
            "st_asbinary(c)",
        ),
    ],
)
@BOTH_SESSIONS
def test_what_cannot_be_carried_is_refused_and_the_way_out_works(
    spark: SparkSession, log: TxnLog, path: str, column: str, kind: str, instead: str
) -> None:
    frame = spark.sql(f"select array({column}) as list, {column} as c")
    with pytest.raises(AnalysisException) as caught:
        frame.write.format("txnlog").mode("append").option("topic", "new").save(path)
    for place in ("list.element", "c"):
        assert f"column '{place}' has the Spark type {kind!r}, which a topic cannot hold" in str(caught.value)
    if kind != "void":
        assert instead in str(caught.value).lower()
    assert log.refresh().topics == {}
    other = frame.selectExpr(f"{instead} as c")
    other.write.format("txnlog").mode("append").option("topic", "new").save(path)
    assert spark.read.format("txnlog").option("topic", "new").load(path).collect() == other.collect()
