"""Spark against a log in a bucket: settings of s3a reach driver and tasks, and show nowhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_datasource.datasource import register
from txnlog import InvalidInputError, Producer, SparkTransaction, StorageError, TxnLog
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

NUMBERS = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


@contextlib.contextmanager
def _configured(spark: SparkSession, server: S3Server) -> Iterator[None]:
    jsc = spark._jsc
    assert jsc is not None
    hadoop = jsc.hadoopConfiguration()
    settings = {
        "fs.s3a.access.key": "nobody",
        "fs.s3a.secret.key": "nothing",
        f"fs.s3a.bucket.{server.bucket}.access.key": server.key,
        f"fs.s3a.bucket.{server.bucket}.secret.key": server.secret,
        "fs.s3a.endpoint": server.endpoint_url.removeprefix("http://"),
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
    }
    before = {name: hadoop.get(name) for name in settings}
    for name, value in settings.items():
        hadoop.set(name, value)
    register(spark)
    try:
        yield
    finally:
        for name, value in before.items():
            hadoop.unset(name) if value is None else hadoop.set(name, value)
        register(spark)


def test_a_producer_a_reader_and_spark_share_a_log_in_a_bucket(
    spark: SparkSession, server: S3Server, capfd: pytest.CaptureFixture[str]
) -> None:
    url = server.url("shared", "s3a")
    with TxnLog.create(url, storage_options=server.storage_options) as log:
        log.create_topic("t", NUMBERS, partitions=2)
        with Producer(log, "p") as producer:
            for first in (0, 100):
                producer.begin()
                producer.send("t", pa.table({"n": range(first, first + 100)}), partition=0)
                producer.abort() if first else producer.commit()
        with _configured(spark, server):
            frame = spark.read.format("txnlog").option("topic", "t").load(url)
            assert sorted(row.n for row in frame.collect()) == list(range(100))
            frame.selectExpr("n + 1000 AS n").write.format("txnlog").option("topic", "t").mode("append").save(
                url
            )
            plans = frame._jdf.queryExecution().toString()
        assert sorted(log.read("t").read_all().column("n").to_pylist()) == [*range(100), *range(1000, 1100)]
        assert log.verify(deep=True).ok

    options = {f"storage.{name}": value for name, value in server.storage_options.items()}
    frame = spark.read.format("txnlog").option("topic", "t").options(**options).load(url)
    assert frame.count() == 200
    plans += frame._jdf.queryExecution().toString() + frame._jdf.logicalPlan().toString()
    frame.explain(extended=True)
    shown = plans + "".join(capfd.readouterr())
    assert "txnlog" in shown
    assert server.secret not in shown
    assert server.key not in shown


def test_a_transaction_takes_its_credentials_along_to_its_jobs_and_shows_them_nowhere(
    spark: SparkSession, server: S3Server, capfd: pytest.CaptureFixture[str]
) -> None:
    url = server.url("transactions", "s3a")
    frame = spark.range(10).selectExpr("id AS n")
    with TxnLog.create(url, storage_options=server.storage_options) as log:
        with SparkTransaction(spark, url, "job", 1, storage_options=server.storage_options) as txn:
            txn.write(frame, "t")
            with pytest.raises(InvalidInputError) as refused:
                txn.write(frame, "t", partitons=1)
        with _configured(spark, server), SparkTransaction(spark, url, "job", 2) as configured:
            configured.write(frame.selectExpr("n + 10 AS n"), "t")
        assert sorted(log.read("t").read_all().column("n").to_pylist()) == list(range(20))

        def too_wide() -> None:
            with SparkTransaction(spark, url, "job", 3, storage_options=server.storage_options) as txn:
                txn.write(frame.selectExpr("n", "n AS more"), "t")

        with pytest.raises(InvalidInputError) as failed:
            too_wide()
    shown = "".join([*capfd.readouterr(), repr(txn), repr(configured), str(refused.value), str(failed.value)])
    assert "partitions" in shown
    assert "more" in shown
    assert server.secret not in shown
    assert server.key not in shown
    wrong = {**server.storage_options, "secret": "WRONGVALUE"}
    with pytest.raises(StorageError) as denied, SparkTransaction(spark, url, "job", 4, storage_options=wrong):
        pytest.fail("entered")
    assert denied.value.kind == "credentials-invalid"
    assert "WRONGVALUE" not in str(denied.value)


def test_missing_and_wrong_credentials_are_one_clear_error(spark: SparkSession, server: S3Server) -> None:
    url = server.url("none", "s3a")
    wrong = {
        **{f"storage.{name}": value for name, value in server.storage_options.items()},
        "storage.secret": "WRONGVALUE",
    }
    reader = spark.read.format("txnlog").option("topic", "t")
    with pytest.raises(PySparkException) as caught:
        reader.options(**wrong).load(url)
    assert "[TXNLOG_CREDENTIALS_INVALID]" in str(caught.value)
    assert "WRONGVALUE" not in str(caught.value)
