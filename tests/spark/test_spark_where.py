"""Option where: the rows that Spark's own WHERE keeps, and what is wrong with it said by load()."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.histories import NUMBERS, append, numbers
from txnformat.log import TxnLog

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = pa.schema([
    ("i", pa.int64()), ("small", pa.int8()), ("f", pa.float64()), ("g", pa.float32()), ("d", pa.decimal128(12, 2)),
    ("s", pa.string()), ("x", pa.binary()), ("b", pa.bool_()), ("day", pa.date32()), ("ts", pa.timestamp("us", "UTC")),
    ("local", pa.timestamp("us")), ("list", pa.list_(pa.int64())),
])  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"i": 0, "small": 0, "f": 0.0, "g": -0.0, "d": decimal.Decimal("0.10"), "s": "", "x": b"", "b": True,
     "day": datetime.date(2026, 1, 1), "ts": START, "local": START.replace(tzinfo=None), "list": []},
    {"i": 2**53, "small": -128, "f": math.nan, "g": math.nan, "d": decimal.Decimal("1.50"), "s": "ab_c", "x": b"\0",
     "b": False, "day": datetime.date(1969, 12, 31), "ts": START + datetime.timedelta(hours=12),
     "local": datetime.datetime(1969, 12, 31, 12), "list": [1]},
    {"i": 2**53 + 1, "small": 5, "f": 0.1, "g": 0.1, "d": decimal.Decimal(5), "s": "abc", "x": b"\xff", "b": None,
     "day": datetime.date(2026, 1, 2), "ts": START + datetime.timedelta(microseconds=1),
     "local": START.replace(tzinfo=None), "list": None},
    {"i": 5, "small": 127, "f": -math.inf, "g": 5.0, "d": decimal.Decimal("-7.01"), "s": "it's", "x": b"a\0", "b": True,
     "day": None, "ts": None, "local": None, "list": [None]},
    dict.fromkeys(SCHEMA.names),
]  # fmt: skip

CONDITIONS = [
    "i = 5", "i <> 5", "i < 5.5", "i > 9007199254740992e0", "i = 9007199254740992e0", "i <= 9007199254740993",
    ("i IN (5, 9007199254740993, "
    "NULL)"), "i NOT IN (5, NULL)", "i IN (5, 9007199254740992e0)", "i > 99999999999999999999",
    "small < 300", "small = -128", "small >= 1e2", "f > 0", "NOT f > 0", "f <> 0.1", "f = 0.1", "f < 1e300",
    "f NOT IN (0, 5)", "f BETWEEN -1 AND 1", "g = 0.1", "g > 0.1", "g <= 0.1", "g <> 0.1", "g = 0", "g >= 5",
    "d = 1.5", "d > 1.499", "d < 1e0", "d IN (0.1, 5)", "d = 0.1e0", "s LIKE 'ab%'", r"s LIKE 'ab\_%'", "s NOT LIKE 'ab%'",
    "s = 'it\\'s'", 's > "ab"', "s LIKE '%'", ("s < 'abc' OR s IS "
                                              "NULL"), "x = X'00'", "x > X'61'", "x IN (X'', X'FF')",
    "b", "NOT b", "b IS NOT TRUE", ("b = FALSE OR b IS "
                                   "NULL"), "b < TRUE", "day = DATE '2026-01-01'", "day <> DATE '2026-01-01'",
    "ts > TIMESTAMP '2026-01-01 00:00:00Z'", "ts = TIMESTAMP '2026-01-01 13:00:00+01:00'",
    "ts BETWEEN TIMESTAMP '2026-01-01T00:00:00.000001Z' AND TIMESTAMP '2026-01-02 00:00:00Z'",
    ("local = TIMESTAMP_NTZ '2026-01-01 "
    "00:00:00'"), "local < DATE '2026-01-01'", "list IS NULL", "list IS NOT NULL",
    ("NOT (i > 5 AND s < "
    "'b')"), "NOT (i > 5 OR s IS NULL) AND small > 0", "i = 5L OR d = 1.50BD OR f = 0.1D", "NULL OR i = 5",
]  # fmt: skip


def test_a_condition_keeps_what_sparks_where_keeps(spark: SparkSession, log: TxnLog, read: Any) -> None:
    log.create_topic("t", SCHEMA, partitions=2)
    for number, row in enumerate(ROWS):  # a row group each, so that statistics exclude all that they can
        append(log, "t", {number % 2: [pa.Table.from_pylist([row], schema=SCHEMA)]})
    everything = read("t").selectExpr("*", "coalesce(s, 'null') AS tag").drop("list").cache()
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        # One query for all: a row per record, a column per condition.
        kept = read("t").selectExpr(
            *(f"coalesce({text}, false) AS c{n}" for n, text in enumerate(CONDITIONS))
        )
        expected = [list(row) for row in kept.collect()]
        order = [row["tag"] for row in everything.collect()]
    finally:
        assert zone is not None
        spark.conf.set("spark.sql.session.timeZone", zone)
        everything.unpersist()
    for number, text in enumerate(CONDITIONS):
        # The same compiled condition as in a task, without a job for each of them.
        found = log.read("t", columns=["s"], where=text).read_all().column("s").to_pylist()
        wanted = [tag for tag, row in zip(order, expected, strict=True) if row[number]]
        assert (text, [name if name is not None else "null" for name in found]) == (text, wanted)


def test_the_option_filters_in_tasks_and_leaves_the_schema_alone(log: TxnLog, read: Any) -> None:
    log.create_topic("t", NUMBERS, partitions=2)
    append(log, "t", {0: [numbers(0, 50), numbers(50, 100)], 1: [numbers(100, 150)]})
    where = "n >= 48 AND _partition = 0 AND text NOT LIKE 'row 5%'"
    frame = read("t", where=where, columns="_offset,n")
    assert frame.schema == read("t", columns="_offset,n").schema
    assert sorted(tuple(row) for row in frame.collect()) == [(n, n) for n in (48, 49, *range(60, 100))]
    assert frame.where("n < 60").count() == 2
    assert read("t", where="text = 'row 7'", schema="n bigint").collect()[0].n == 7
    assert read("t", where="_offset < 0").count() == 0
    assert read("t", where="n > 1000").rdd.getNumPartitions() >= 0


@pytest.mark.parametrize("where", ["nn = 5", "n = 'five'", "abs(n) = 5", "n ="])
def test_a_bad_condition_is_refused_by_load(log: TxnLog, read: Any, where: str) -> None:
    log.create_topic("t", NUMBERS)
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_INVALID_WHERE\]"):
        read("t", where=where)
