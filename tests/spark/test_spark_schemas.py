"""Spark reads DDL and the JSON of schemas as the command does, and takes what is exported."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.property.schemas import SCALARS
from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.spark_json import from_spark_json
from txnformat.errors import InvalidInputError
from txnlog.schemas import export_schema, parse_schema

TAKEN = [
    "a tinyint, b byte, c smallint, d short, e int, f integer, g bigint, h long, i float, j real, k double",
    "a decimal, b dec(5), c numeric(10, 2), d boolean, e binary, f date",
    "a string, b char(3), c varchar(9), d string collate UTF8_LCASE, e character(4)",
    (
        "a timestamp, b timestamp_ltz, c timestamp_ntz, d time, e time(3), f interval day to second, g "
        "interval hour"
    ),
    "a array<map<string, struct<x: int, y double not null comment 'z'>>>, v variant",
    "a int NOT NULL COMMENT 'it''s', b string COMMENT 'a \\' b'",
    "a: int, b: array<string>",
    "struct<a: int, b: struct<c: bigint not null>>",
    "`a b` int, `c``d` int, timestamp timestamp, table int, 1a int, interval int, comment string, not int",
    "A INT, b ARRAY < INT > , c MAP<INT,ARRAY<ARRAY<INT>>> -- end",
    "a int /* b */, c int",
]
REFUSED = [
    "a",
    "a foo",
    "a int b int",
    "a int,",
    "a array<int",
    "a map<int>",
    "a struct<x>",
    "'a' int",
    "1 int",
    "a int not",
    "a int comment",
    "a decimal(x)",
    "a decimal(10,2,3)",
    "a char",
    "a-b int",
    "a int; drop table x",
]


def by_spark(text: str) -> pa.Schema:
    return from_spark_json(json.loads(StructType.fromDDL(text).json()))


def test_ddl_means_what_it_means_in_spark(spark: SparkSession) -> None:
    for text in TAKEN:
        assert parse_schema(text, "ddl").equals(by_spark(text), check_metadata=True), text
    for text in REFUSED:
        with pytest.raises(PySparkException):
            StructType.fromDDL(text)
        with pytest.raises(InvalidInputError):
            parse_schema(text, "ddl")


def test_spark_takes_what_is_exported(spark: SparkSession) -> None:
    dice = random.Random(1)
    types = [*SCALARS]
    for _ in range(40):
        inner = dice.choices(types, k=2)
        types.append(
            dice.choice([list_of(inner[0]), struct_of(["a b", "c`d"], inner), map_of(pa.string(), inner[1])])
        )
    schema = pa.schema([(f"column {number}", type_) for number, type_ in enumerate(types)])
    assert by_spark(export_schema(schema, "ddl").decode()).equals(schema, check_metadata=True)
    read = StructType.fromJson(json.loads(export_schema(schema, "spark")))
    assert spark.createDataFrame([], read).schema == read
    assert export_schema(read, "spark") == export_schema(schema, "spark")
