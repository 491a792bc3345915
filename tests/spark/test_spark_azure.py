"""Spark against a log in a container of Azure: written, read and streamed on Azurite, with the settings of Hadoop's connector."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_datasource.datasource import register
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


@contextlib.contextmanager
def _account_key(spark: SparkSession, server: AzureServer) -> Iterator[None]:
    """Give the session the account's key as users of Hadoop's connector do; the endpoint comes by the environment."""
    jsc = spark._jsc
    assert jsc is not None
    name = f"fs.azure.account.key.{server.account}.dfs.core.windows.net"
    jsc.hadoopConfiguration().set(name, server.key)
    register(spark)
    try:
        yield
    finally:
        jsc.hadoopConfiguration().unset(name)
        register(spark)


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

    source = spark.readStream.format("txnlog").option("topic", "t").options(**options).load(url)
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


def test_the_key_of_hadoops_connector_is_used_and_goes_to_no_other_endpoint(
    spark: SparkSession, server: AzureServer
) -> None:
    reader = spark.read.format("txnlog").option("topic", "t")
    url = server.url("none", "abfss")
    with _account_key(spark, server), pytest.raises(PySparkException) as caught:
        reader.option("storage.endpoint_url", server.endpoint_url).load(url)
    assert "does not send the credentials" in str(caught.value).replace("\n", " ")
    assert server.key not in str(caught.value)
