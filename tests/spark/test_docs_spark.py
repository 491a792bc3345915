"""The documentation's Spark code runs, and its table of types is what Spark and the code make of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_datasource.spark_schema import spark_schema
from tests.meta.markdown import ROOT, blocks, codes, section, tables
from tests.spark.conftest import find_java
from txnformat.reader import METADATA_FIELDS
from txnformat.schema import as_topic_schema

SPARK = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


FILES = ("README.md", "docs/quickstart.md", "docs/spark.md")


def test_every_block_runs_also_those_with_spark(tmp_path: Path) -> None:
    """In a process of its own: what paths are relative to is settled when Spark starts.

    Nobody registers the source there: Spark has to find it.
    """
    if find_java() is None:
        pytest.fail("Spark needs Java 17 or later: `make test` finds or installs it", pytrace=False)
    done = subprocess.run(
        [sys.executable, "-m", "tests.meta.runner", *FILES],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --driver-memory 512m pyspark-shell",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = {
        name: sum(block.info == "python" for block in blocks((ROOT / name).read_text(encoding="utf-8")))
        for name in FILES
    }
    assert [line for line in done.stdout.splitlines() if line.split()[0] in FILES] == [
        f"{name} {count}" for name, count in wanted.items()
    ]


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
