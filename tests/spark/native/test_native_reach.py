"""What read_table needs of Spark: a version, and a way to the files. And which files are worth it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_datasource.native.division import Reason
from spark_datasource.native.supported import check_spark
from spark_datasource.native.table import plan_table
from tests.spark.histories import append
from txnformat.errors import InvalidInputError, StorageError
from txnformat.log import TxnLog
from txnlog.spark import create_view, describe, micro_batch, read_table, read_tables
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

BYTES = pa.schema([("b", pa.binary())])


def blob(size: int) -> pa.Table:
    """Return rows whose file has about ``size`` bytes."""
    generator = np.random.default_rng(size)
    return pa.table([[generator.bytes(4096) for _ in range(size // 4096)]], schema=BYTES)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A server of S3; Spark has no connector for it."""
    with seaweedfs_server() as running:
        yield running


def test_a_bucket_that_spark_has_no_connector_for_is_one_clear_error(spark: Any, server: S3Server) -> None:
    url, storage = server.url("far"), server.storage_options
    with TxnLog.create(url, storage_options=storage) as log:
        log.create_topic("t", BYTES)
        append(log, "t", {0: [blob(4_000_000)]})
        append(log, "t", {0: [blob(4_400_000)]})
    plan = plan_table(spark, url, "t", storage_options=storage)
    assert plan.division.native_amount.files == 1
    assert plan.division.native_amount.size > 4 * 2**20  # the default bound in a bucket
    assert plan.division.reasons[Reason.SMALL].size < 4 * 2**20
    with pytest.raises(StorageError, match="S3AFileSystem") as caught:
        read_table(spark, url, "t", storage_options=storage)
    assert caught.value.kind == "spark-cannot-read"
    assert caught.value.values["path"].startswith(server.url("far/t-", "s3a"))
    assert caught.value.hint is not None
    assert "native=False" in caught.value.hint
    frame = read_table(spark, url, "t", storage_options=storage, native=False)
    assert frame.count() == 4_000_000 // 4096 + 4_400_000 // 4096


def test_files_of_half_a_megabyte_on_a_local_disk_go_natively(spark: Any, log: TxnLog, path: str) -> None:
    log.create_topic("t", BYTES)
    append(log, "t", {0: [blob(500_000)]})
    append(log, "t", {0: [blob(540_000)]})
    plan = plan_table(spark, path, "t")
    assert plan.division.native_amount.files == plan.division.reasons[Reason.SMALL].files == 1
    assert plan.division.native_amount.size > 512 * 1024


class OldSpark:
    """A session of a Spark that is too old: it can do no more than say so."""

    conf = createDataFrame = None  # Spark's names

    def __init__(self, version: str) -> None:
        self.version = version


@pytest.mark.parametrize("version", ["4.0.1", "3.5.4", "4.0.0-preview2"])
def test_a_spark_that_is_too_old_is_one_clear_error(log: TxnLog, path: str, version: str) -> None:
    spark: Any = OldSpark(version)
    for call in (
        lambda: read_table(spark, path, "t"),
        lambda: read_tables(spark, path, ["t"]),
        lambda: create_view(spark, "v", path, "t"),
        lambda: describe(spark, path, "t"),
        lambda: micro_batch(spark, "/checkpoint", 0, path, "t"),
    ):
        with pytest.raises(InvalidInputError, match=f"it is {version}, expected 4.1 or later") as caught:
            call()
        assert caught.value.kind == "unsupported-spark"
        assert caught.value.values["got"] == version
        assert "use Spark 4.1 or later" in str(caught.value.hint)


@pytest.mark.parametrize("version", ["4.1.0", "4.10.0", "5.0.0-SNAPSHOT", "of another maker"])
def test_other_versions_are_tried(version: str) -> None:
    check_spark(OldSpark(version))
