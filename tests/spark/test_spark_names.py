"""Names of columns in options match as Spark's do; what a frame has too much is told with the call that makes
room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

import txnformat.columns.variants
from spark_datasource.datasource import TxnLogDataSource, register
from spark_datasource.options.names import matched, parse_name, parse_names
from spark_datasource.schema import arrow_code
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.log import TxnLog
from writers.producer import Producer

Read = Callable[..., DataFrame]
ODD = pa.schema([("Id", pa.int64()), ("a,b", pa.string()), ("it`s", pa.string()), (" x ", pa.int64())])


@pytest.fixture
def odd(log: TxnLog) -> None:
    """A topic whose columns have all kinds of names, and one record."""
    log.create_topic("t", ODD)
    with Producer(log) as producer:
        producer.send("t", [{"Id": 1, "a,b": "two", "it`s": "three", " x ": 4}])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        (" a , b.c ", ("a", "b.c")),
        ("`a,b`,c", ("a,b", "c")),
        ("`it``s` , `` ` ``", None),
        ("`it``s`", ("it`s",)),
        ("````", ("`",)),
        ("` x `", (" x ",)),
        ("a,", None),
        (",a", None),
        ("``", None),
        ("`a", None),
        ("a`b", None),
        ("`a`b", None),
        ("`a``,b", None),
    ],
)
def test_names_are_written_as_in_sql(text: str, names: tuple[str, ...] | None) -> None:
    if names is None:
        with pytest.raises(ValueError, match=r"empty name|backquotes"):
            parse_names(text)
    else:
        assert parse_names(text) == names


def test_one_name_needs_no_quotes_and_may_have_them() -> None:
    assert [parse_name(text) for text in ("a,b", "`a,b`", "`it``s`", "`")] == ["a,b", "a,b", "it`s", "`"]


def test_names_match_in_any_case_unless_that_is_ambiguous() -> None:
    known = ("Id", "name", "NAME")
    assert matched(["ID", "name", "Name", "x"], known, case_sensitive=False) == ("Id", "name", "Name", "x")
    assert matched(["ID", "Id"], known, case_sensitive=True) == ("ID", "Id")


@BOTH_SESSIONS
def test_option_columns_matches_and_names_as_a_select_does(read: Read, odd: None) -> None:
    everything = read("t")
    for names in (["ID"], ["id", "_OFFSET"], ["`a,b`", "id"], ["`A,B`", "`IT``S`", "` X `"]):
        if "_OFFSET" in names:
            expected = read("t", columns="Id,_offset").select(*names)
        else:
            expected = everything.select(*names)
        found = read("t", columns=", ".join(names))
        assert found.columns == expected.columns
        assert found.collect() == expected.collect()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id,ID", "asked for twice"),
        ("`id", "backquotes"),
        ("it`s", "it``s"),
        ("a,b", "there is no column 'a'"),
    ],
)
def test_what_is_no_list_of_columns_is_refused(read: Read, odd: None, columns: str, said: str) -> None:
    with pytest.raises(AnalysisException, match=said):
        read("t", columns=columns)


@BOTH_SESSIONS
def test_key_and_timestamp_columns_match_as_a_select_does(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    frame = spark.range(3).selectExpr("id AS Id", "'x' AS `a,b`", "timestamp_millis(id) AS `Mo``ment`")
    write = frame.write.format("txnlog").mode("append").option("topic", "t").option("partitions", 2)
    for key, moment in (("ID,`a,b`", "`mo``ment`"), ("id, `A,B`", "Mo`ment")):
        write.option("keyColumns", key).option("timestampColumn", moment).save(path)
    schema = log.refresh().topic("t").schema
    assert (schema.key_columns, schema.timestamp_column) == (("Id", "a,b"), "Mo`ment")
    assert log.read("t").read_all().num_rows == 6
    with pytest.raises(AnalysisException, match="keyColumns is a,b, but the topic has Id,a,b"):
        write.option("keyColumns", "`a,b`").save(path)


@pytest.fixture
def case_sensitive(spark: SparkSession) -> Iterator[None]:
    """A session that tells upper from lower case, registered as such."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    register(spark)
    yield
    spark.conf.unset("spark.sql.caseSensitive")
    register(spark)


@BOTH_SESSIONS
def test_a_session_that_tells_upper_from_lower_case_finds_only_what_is_written_so(
    spark: SparkSession, read: Read, odd: None, path: str, case_sensitive: None
) -> None:
    assert read("t", columns="Id").columns == ["Id"]
    with pytest.raises(AnalysisException, match="there is no column 'ID'"):
        read("t", columns="ID")
    write = spark.range(1).write.format("txnlog").mode("append").option("topic", "new")
    with pytest.raises(AnalysisException, match="key column 'ID' is not a column"):
        write.option("keyColumns", "ID").save(path)
    assert not TxnLogDataSource.case_sensitive, "the class itself is as it was"


def test_an_extra_column_is_told_with_the_call_that_adds_it(
    spark: SparkSession, log: TxnLog, path: str
) -> None:
    log.create_topic("t", pa.schema([("id", pa.int64())]))
    frame = spark.range(1).selectExpr(
        "id", "1.50BD AS `the "
              "price`", "array(named_struct('a', 1, 'it''s', map('k', current_timestamp()))) AS deep",
        "parse_json('1') AS "
        "anything", "current_date() AS day", "localtimestamp() AS at", "true AS ok", "1.5F AS single",
        "1D AS double", "interval '1' day AS took", "X'00' AS bytes", "1Y AS tiny",
    )  # fmt: skip
    write = frame.write.format("txnlog").mode("append").option("topic", "t")
    with pytest.raises(AnalysisException) as caught:
        write.save(path)
    message = str(caught.value)
    start = message.index("log.alter_topic('t', add_columns=[")
    call = message[start : message.rindex("])") + 2]
    eval(call, {"log": log, "pa": pa, "txnformat": txnformat})
    write.save(path)
    assert log.read("t").read_all().num_rows == 1


def test_a_missing_column_is_told_without_a_call(spark: SparkSession, log: TxnLog, path: str) -> None:
    log.create_topic("t", pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    with pytest.raises(AnalysisException, match="column 'n' is missing") as caught:
        spark.range(1).write.format("txnlog").mode("append").option("topic", "t").save(path)
    assert "alter_topic" not in str(caught.value)


@pytest.mark.parametrize(
    "type_", [pa.int16(), pa.time64("us"), pa.duration("us"), pa.decimal128(38, 0), pa.map_(pa.string(), pa.date32())]
)  # fmt: skip
def test_the_code_of_a_type_makes_it(type_: Any) -> None:
    assert eval(arrow_code(type_), {"pa": pa}).equals(type_)


@BOTH_SESSIONS
@pytest.mark.parametrize("column", ["at", "_timestamp"])
def test_a_time_without_a_zone_is_refused_in_a_condition(read: Read, log: TxnLog, column: str) -> None:
    log.create_topic("t", pa.schema([("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))]))
    for text in ("TIMESTAMP '2026-01-31 12:00:00'", "'2026-01-31 12:00:00'"):
        with pytest.raises(PySparkException) as caught:
            read("t", where=f"{column} > {text}").collect()
        message = str(caught.value)
        assert "TXNLOG_INVALID_WHERE" in message
        assert "has no time zone; write TIMESTAMP '2026-01-31 12:00:00Z' for UTC" in message
    with pytest.raises(PySparkException, match="write TIMESTAMP_NTZ '2026-01-31 12:00:00'"):
        read("t", where="local > TIMESTAMP '2026-01-31 12:00:00'").collect()
    for text in (
        f"{column} > TIMESTAMP '2026-01-31 12:00:00Z'",
        "local > TIMESTAMP_NTZ '2026-01-31 12:00:00'",
        f"{column} > DATE '2026-01-31'",
    ):
        assert read("t", where=text).count() == 0
