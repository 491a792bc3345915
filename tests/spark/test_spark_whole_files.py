"""Parquet files that Spark wrote, sent as they are: Spark reads from the log what it reads from its own
files, in both ways."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from txnlog import Producer, TxnLog
from txnlog.spark import read_table

ROWS = 50_000
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("ratio", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
SELECTED = [
    "IF(id % 7 = 0, NULL, id) AS id",
    "IF(id % 5 = 0, NULL, concat('text ', hash(id))) AS text",
    "IF(id % 3 = 0, double('NaN'), id / 7) AS ratio",
    "IF(id % 13 = 0, NULL, timestamp_micros(id * 1000003)) AS at",
    "IF(id % 11 = 0, NULL, array(string(id), NULL)) AS tags",
]


@pytest.mark.parametrize(("kind", "is_taken"), [("TIMESTAMP_MICROS", True), ("INT96", False)])
def test_files_of_spark(spark: SparkSession, kind: str, is_taken: bool, tmp_path: Path) -> None:
    """Timestamps of 96 bits are Spark's default, and no topic has them."""
    frame = spark.range(0, ROWS, 1, 2).selectExpr(*SELECTED)
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        frame.write.parquet(str(tmp_path / "files"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    files = sorted((tmp_path / "files").glob("*.parquet"))
    assert len(files) == 2
    root = tmp_path / "log"
    with TxnLog.create(root) as log, Producer(log, "p") as producer:
        log.create_topic("t", SCHEMA)
        with producer.transaction() as txn:
            assert [txn.send_file("t", file) for file in files] == [is_taken] * 2
        assert log.verify(deep=True).ok
    if not is_taken:
        return
    wanted = spark.read.parquet(str(tmp_path / "files"))
    for found in (spark.read.format("txnlog").load(f"{root}", topic="t"), read_table(spark, root, "t")):
        for where in (
            "true",
            "id > 49900",
            "text = 'text 5'",
            "ratio > 7000",
            "at < timestamp_micros(5000000)",
        ):
            differ = found.where(where).exceptAll(wanted.where(where)).count()
            assert (differ, found.where(where).count()) == (0, wanted.where(where).count())
