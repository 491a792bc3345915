"""The documentation's Spark code runs, and its table of types is what Spark and the code make of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_datasource.spark_schema import spark_schema
from tests.meta.markdown import ROOT, codes, section, tables
from tests.meta.runner import in_directory, run_blocks
from txnformat.reader import METADATA_FIELDS
from txnformat.schema import as_topic_schema

SPARK = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "docs/spark.md"])
def test_every_block_runs_also_those_with_spark(spark: SparkSession, name: str, tmp_path: Path) -> None:
    namespace = {"spark": spark}
    with in_directory(tmp_path):
        assert run_blocks(name, namespace, with_spark=True) > run_blocks("README.md", {}, with_spark=False)


def test_the_table_of_types_is_what_spark_and_the_code_make_of_them(spark: SparkSession) -> None:
    (table,) = tables(section(SPARK, "## Column types"))
    for row in table.rows:
        (ddl,), (arrow,) = codes(row[0]), codes(row[1])
        frame = StructType.fromDDL(f"c {ddl}")
        assert isinstance(frame, StructType)
        schema = as_topic_schema(frame)
        assert str(schema.arrow_schema.field("c").type).replace(" ('UTC')", "") == arrow
        assert spark_schema(schema, None) == frame
        assert frame["c"].dataType.simpleString() == ddl


def test_the_metadata_columns_have_the_types_of_the_table(spark: SparkSession) -> None:
    (table,) = tables(section(SPARK, "## Metadata columns"))
    frame = StructType.fromDDL("c int")
    assert isinstance(frame, StructType)
    found = spark_schema(as_topic_schema(frame), list(METADATA_FIELDS))
    assert {codes(row[0])[0]: row[1] for row in table.rows} == {
        field.name: field.dataType.simpleString() for field in found
    }
