"""The documentation's Spark code runs, and its table of types is what Spark and the code make of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_datasource.schema import spark_schema
from tests.jvm import spark_environment
from tests.meta.markdown import ROOT, blocks, codes, section, tables
from tests.meta.pages import SPARK_PAGES, page
from tests.meta.runner import NOT_RUN
from tests.spark.conftest import find_java
from txnformat.core.topics.schema import as_topic_schema, from_spark_json
from txnformat.errors import InvalidInputError
from txnformat.reading.rows import METADATA_FIELDS

READ, WRITE = page("docs/spark-read.md"), page("docs/spark-write.md")

SECONDS_MAX = 900
"""Blocks that run longer hang."""


@pytest.mark.timeout(SECONDS_MAX + 10)
def test_every_block_runs_also_those_with_spark(tmp_path: Path) -> None:
    """Pasted into one prompt with one session: what paths are relative to is settled when Spark starts.

    No code registers the source there before the pages do: Spark has to find it.
    """
    if find_java() is None:
        pytest.fail("Spark needs Java 17 or later: `make test` finds or installs it", pytrace=False)
    done = subprocess.run(
        [sys.executable, "-m", "tests.meta.prompt", *SPARK_PAGES],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **spark_environment(tmp_path, "--conf spark.ui.enabled=false --driver-memory 512m"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = {
        name: sum(
            block.info == "python" and not NOT_RUN.fullmatch(block.before)
            for block in blocks((ROOT / name).read_text(encoding="utf-8"))
        )
        for name in SPARK_PAGES
    }
    assert [line for line in done.stdout.splitlines() if line.split(" ")[0] in SPARK_PAGES] == [
        f"{name} {count}" for name, count in wanted.items()
    ]


def test_the_table_of_types_is_what_spark_and_the_code_make_of_them(spark: SparkSession) -> None:
    table, _ = tables(section(WRITE, "## Column types"))
    assert {codes(row[0])[0].split("<")[0].split("(")[0] for row in table.rows} == {
        *(
            "boolean",
            "tinyint",
            "smallint",
            "int",
            "bigint",
            "float",
            "double",
            "decimal",
            "string",
            "binary",
        ),
        *("date", "timestamp", "timestamp_ntz", "time", "interval day to second", "variant"),
        *("array", "map", "struct"),
    }
    for row in table.rows:
        (ddl,), (arrow,) = codes(row[0]), codes(row[1])
        frame = StructType.fromDDL(f"c {ddl}")
        assert isinstance(frame, StructType)
        schema = as_topic_schema(frame)
        assert str(schema.arrow_schema.field("c").type).replace(" ('UTC')", "") == arrow
        assert spark_schema(schema, None) == frame
        assert frame["c"].dataType.simpleString() == ddl


def test_the_table_of_refused_types_is_what_the_code_refuses_and_advises(spark: SparkSession) -> None:
    _, table = tables(section(WRITE, "## Column types"))
    seen = set()
    for row in table.rows:
        for ddl in codes(row[0]):
            value = {"type": "struct", "fields": [{"name": "c", "type": ddl}]}
            if ddl != "interval":  # Spark's parser has no name for it
                frame = StructType.fromDDL(f"c {ddl}")
                assert isinstance(frame, StructType)
                value = frame.jsonValue()
            with pytest.raises(InvalidInputError, match="which a topic cannot hold") as caught:
                from_spark_json(value)
            assert [code for code in codes(row[2]) if code not in str(caught.value)] == []
            seen.add(ddl.split("(")[0])
    assert seen == {"interval year to month", "interval", "void", "geometry", "geography"}


def test_the_metadata_columns_have_the_types_of_the_table(spark: SparkSession) -> None:
    (table,) = tables(section(READ, "## Metadata columns"))
    frame = StructType.fromDDL("c int")
    assert isinstance(frame, StructType)
    found = spark_schema(as_topic_schema(frame), list(METADATA_FIELDS))
    assert {codes(row[0])[0]: row[1] for row in table.rows} == {
        field.name: field.dataType.simpleString() for field in found
    }
