"""Spark's DDL and its JSON; that Spark reads the same is shown in tests/spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txnformat.columns.arrow_types import canonical_schema, list_of, map_of, struct_of
from txnformat.columns.variants import VARIANT
from txnformat.errors import InvalidInputError
from txnlog.schemas import export_schema, parse_schema

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("a tinyint, b BYTE", [pa.int8(), pa.int8()]),
        ("a smallint, b short, c int, d Integer", [pa.int16(), pa.int16(), pa.int32(), pa.int32()]),
        (
            "a bigint, b long, c float, d real, e double",
            [*[pa.int64()] * 2, *[pa.float32()] * 2, pa.float64()],
        ),
        (
            "a decimal, b dec(5), c numeric(10, 2)",
            [pa.decimal128(10), pa.decimal128(5), pa.decimal128(10, 2)],
        ),
        ("a string, b char(3), c varchar(9), d string collate UTF8_LCASE", [pa.string()] * 4),
        (
            "a timestamp, b timestamp_ltz, c timestamp_ntz, d date",
            [UTC, UTC, pa.timestamp("us"), pa.date32()],
        ),
        ("a time, b time(3), c interval day to second", [*[pa.time64("us")] * 2, pa.duration("us")]),
        ("a boolean, b binary", [pa.bool_(), pa.binary()]),
        ("a array<array<int>>", [list_of(list_of(pa.int32()))]),
        (
            "a map<string, struct<x: int, y double not null>>",
            [map_of(pa.string(), struct_of("xy", [pa.int32(), pa.float64()]))],
        ),
        ("struct<a: int, b: string>", [pa.int32(), pa.string()]),
        ("a: int NOT NULL COMMENT 'it''s', -- more\n b string;", [pa.int32(), pa.string()]),
        (
            "CREATE TABLE IF NOT EXISTS x.y (a INT, b STRING) USING delta TBLPROPERTIES ('x' = '(')",
            [pa.int32(), pa.string()],
        ),
    ],
)
def test_ddl_has_its_columns(ddl: str, expected: list[pa.DataType]) -> None:
    found = parse_schema(ddl, "ddl")
    assert found.types == expected
    assert found.names == list("abcde")[: len(expected)]


def test_names_may_be_quoted_and_may_be_words_of_the_language() -> None:
    found = parse_schema("`a b` int, `c``d` int, timestamp timestamp, table int, 1a int", "ddl")
    assert found.names == ["a b", "c`d", "timestamp", "table", "1a"]


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("", "it ends where a column's name is expected"),
        ("a", "it ends in 'a' where a type is expected"),
        ("a int,\n b foo", "line 2, column 4: 'foo' in 'b', expected a type of Spark"),
        ("a int; drop table x", "line 1, column 8: 'drop', expected the end, or a comma and a column"),
        ("a int default 3", "'default', expected the end"),
        ("a array<int", "it ends in 'a.array' where '>' is expected"),
        ("a map<int>", "in 'a.map', expected ','"),
        ("a struct<x: int, y: odd>", "'odd' in 'a.struct.y', expected a type of Spark"),
        ("a decimal(x)", "'x' in 'a', expected a number"),
        ("a char", "where a number in parentheses after char is expected"),
        ("'a' int", "expected a column's name"),
        ("1 int", "expected a column's name"),
        ("a int) x (b int", "expected the end"),
        ("create table t", "where '(' is expected"),
        ("create view v (a int)", "expected CREATE TABLE name (columns)"),
        ("a 'open", "this is not Spark's DDL"),
        ("a " + "array<" * 5000, "nested deeper than 64 levels"),
    ],
)
def test_what_is_no_ddl_is_told_with_its_place(ddl: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(ddl, "ddl")
    assert caught.value.kind == "invalid-schema"
    assert problem in str(caught.value)


def test_types_that_a_topic_does_not_have_are_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(
            "a void, b interval year to month, c struct<d: interval, e: geometry(0)>, f decimal(39,1)", "ddl"
        )
    assert caught.value.kind == "unsupported-schema"
    assert [problem.split("'")[1] for problem in caught.value.problems] == ["a", "b", "c.d", "c.e", "f"]


def test_the_json_of_a_schema_is_sparks() -> None:
    schema = pa.schema(
        [("a", list_of(pa.int8())), ("t", pa.time64("us")), ("i", pa.duration("us")), pa.field("v", VARIANT)]
    )
    text = export_schema(schema, "spark").decode()
    assert parse_schema(text, "spark").equals(schema, check_metadata=True)
    read_by_spark = StructType.fromJson(json.loads(text))
    assert json.loads(read_by_spark.json()) == json.loads(text)
    assert canonical_schema(to_arrow_schema(read_by_spark.__class__(read_by_spark.fields[:1]))).types == [
        list_of(pa.int8())
    ]
    assert export_schema(read_by_spark, "spark").decode() == text


@pytest.mark.parametrize(
    "text", ["[]", "{", '"int"', '{"type": "struct"}', '{"type": "struct", "fields": [3]}']
)
def test_json_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_schema(text, "spark")
