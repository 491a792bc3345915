"""Spark against a log in a container of Azure: written, read and streamed on Azurite, under the name that
Hadoop's connector takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txnlog import SparkTransaction, TxnLog
from txnlog_testing.stores.azurite import AzureServer, azurite_program, azurite_server

if azurite_program() is None:
    pytest.skip("Azurite is not here: see scripts/find-azurite", allow_module_level=True)

NUMBERS = pa.schema([("n", pa.int64())])
SECONDS_MAX = 300


@pytest.fixture(scope="module")
def server() -> Iterator[AzureServer]:
    with azurite_server() as running:
        yield running


def test_spark_writes_reads_and_streams_a_log_in_a_container(
    spark: SparkSession, server: AzureServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = server.url("shared", "abfss")
    options = {f"storage.{name}": value for name, value in server.storage_options.items()}
    with TxnLog.create(url, storage_options=server.storage_options, embedding=False) as log:
        log.create_topic("t", NUMBERS, partitions=2)
        log.create_topic("copy", NUMBERS, partitions=2)

    def read(topic: str) -> list[int]:
        frame = spark.read.format("txnlog").option("topic", topic).options(**options).load(url)
        return sorted(row.n for row in frame.collect())

    frame = spark.range(100).selectExpr("id AS n").repartition(3)
    frame.write.format("txnlog").option("topic", "t").options(**options).mode("append").save(url)
    assert read("t") == list(range(100))

    reader = spark.readStream.format("txnlog").option("topic", "t").option("startingOffsets", "earliest")
    source = reader.options(**options).load(url)
    for first in (0, 100):
        if first:
            with SparkTransaction(spark, url, "job", 1, storage_options=server.storage_options) as txn:
                txn.write(spark.range(100, 150).selectExpr("id AS n"), "t")
        sink = source.select("n").writeStream.format("txnlog").option("topic", "copy").options(**options)
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start(url)
        assert query.awaitTermination(SECONDS_MAX)
    assert read("copy") == list(range(150))

    shown = "".join(capfd.readouterr())
    assert server.key not in shown
    with TxnLog.open(url, storage_options=server.storage_options) as log:
        assert log.verify(deep=True).ok


def test_wrong_credentials_are_one_clear_error(spark: SparkSession, server: AzureServer) -> None:
    options = {f"storage.{name}": value for name, value in server.storage_options.items()}
    options["storage.account_key"] = "V1JPTkdWQUxVRQ=="
    with pytest.raises(PySparkException) as caught:
        spark.read.format("txnlog").option("topic", "t").options(**options).load(server.url("none", "abfss"))
    assert "[TXNLOG_CREDENTIALS_INVALID]" in str(caught.value)
    assert "V1JPTkdWQUxVRQ" not in str(caught.value)
