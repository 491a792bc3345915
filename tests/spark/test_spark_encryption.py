"""Spark against an encrypted log: batch and stream, on executors that have the key client's name and no
key.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txnformat.store.encrypted.key_file import new_key_file
from txnlog import TxnLog
from txnlog.spark import describe

SECONDS_MAX = 300
TEXTS = pa.schema([("value", pa.string())])


def test_spark_writes_reads_and_streams_an_encrypted_log(
    classic: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spark = classic
    keys = tmp_path / "keys.json"
    keys.write_text(new_key_file("one"), encoding="utf-8")
    storage = {"key_client": f"file:{keys}"}
    options = {f"storage.{name}": value for name, value in storage.items()}
    root = str(tmp_path / "log")
    with TxnLog.create(root, storage_options=storage, embedding=False) as log:
        for name in ("t", "copy"):
            log.create_topic(name, TEXTS, partitions=2)

    frame = spark.range(100).selectExpr("concat('canary', id) AS value")
    frame.write.format("txnlog").option("topic", "t").options(**options).mode("append").save(root)
    read = spark.read.format("txnlog").option("topic", "t").options(**options).load(root)
    assert read.where("value LIKE 'canary%'").count() == 100

    source = spark.readStream.format("txnlog").option("topic", "t").option("startingOffsets", "earliest")
    query = (
        source.options(**options)
        .load(root)
        .select("value")
        .writeStream.format("txnlog")
        .option("topic", "copy")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(root)
    )
    assert query.awaitTermination(SECONDS_MAX)
    told = describe(spark, root, "t", native_bytes_min=0, storage_options=storage)
    assert "the log is encrypted" in told
    assert "natively, by Spark's Parquet reader: 0 files" in told

    with pytest.raises(PySparkException) as caught:
        spark.read.format("txnlog").option("topic", "t").load(root)
    assert "[TXNLOG_LOG_ENCRYPTED]" in str(caught.value)
    for path in (tmp_path / "log").rglob("*"):
        assert not path.is_file() or b"canary" not in path.read_bytes()
    secret = keys.read_text(encoding="utf-8").split('"')[-2]
    for path in (tmp_path / "checkpoint").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()
    assert secret not in "".join(capfd.readouterr())
    with TxnLog.open(root, storage_options=storage) as log:
        assert log.read("copy").read_all().num_rows == 100
        assert log.verify(deep=True).ok
