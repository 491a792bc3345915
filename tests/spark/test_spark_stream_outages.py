"""Stores that fail under a running query: one clear error, nothing half written, and it goes on when the cause is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.outages import BEGUN, Bucket, Matches, Outage, answered, is_data_put, is_entry_put, is_read
from tests.spark.test_spark_stream import rows
from txnformat.testing.fault_proxy import FaultProxy, no_proxy_faults
from txnformat.testing.s3_server import S3Server, seaweedfs_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.endpoint_url) as running:
        yield running


@pytest.fixture
def bucket(spark: SparkSession, server: S3Server, proxy: FaultProxy, tmp_path: Path) -> Iterator[Bucket]:
    found = Bucket(spark, server, proxy, tmp_path)
    with found.log:
        yield found
    proxy.plan = no_proxy_faults


EXPIRED = "CREDENTIALS_EXPIRED", "renew them"
NO_WRITING = "PERMISSION_DENIED", "writing also s3:PutObject"
NO_READING = "PERMISSION_DENIED", "reading needs s3:GetObject"
FULL = "DISK_FULL", "free space or raise the quota"
NO_BUCKET = "BUCKET_MISSING", "create it, or correct its name"

REFUSALS: dict[Matches, tuple[str, list[tuple[int, str, str, str]]]] = {
    is_data_put: (
        "put_object",
        [
            (403, "ExpiredToken", *EXPIRED),
            (403, "AccessDenied", *NO_WRITING),
            (404, "NoSuchBucket", *NO_BUCKET),
            (507, "XMinioStorageFull", *FULL),
        ],
    ),
    is_entry_put: (
        "put_object",
        [
            (400, "ExpiredToken", *EXPIRED),
            (403, "AccessDenied", *NO_WRITING),
            (403, "QuotaExceeded", *FULL),
        ],
    ),
    is_read: ("get_object", [(403, "ExpiredToken", *EXPIRED), (403, "AccessDenied", *NO_READING)]),
}
"""By the requests that fail: the operation that is named, and the answers, each with the code and the way out that the user
is told."""


@pytest.mark.parametrize("matches", REFUSALS)
def test_a_store_that_refuses_ends_the_query_with_one_clear_error_and_a_restart_goes_on(
    bucket: Bucket, matches: Matches
) -> None:
    feed, log = bucket.feed, bucket.log
    feed.add(0, 1)
    feed.add(2, 3)
    operation, answers = REFUSALS[matches]
    after = 1
    for status, code, told, advice in answers:
        outage = bucket.proxy.plan = Outage(answered(status, code), matches, after)
        message = bucket.fails()
        assert outage.met
        assert message.count(f"[TXNLOG_{told}]") == 1
        assert f"{bucket.path}/" in message
        assert f"request=`{operation}`" in message
        assert advice in message
        assert bucket.server.secret not in message
        assert bucket.server.key not in message

        assert rows(log) == [0, 1]
        assert log.state.entry == 1
        assert bucket.committed() == [0]
        assert bucket.planned() == [0, 1]
        after = BEGUN  # the batch is tried again, and everything is refused from the beginning

    bucket.proxy.plan = no_proxy_faults
    feed.add(4)
    bucket.run()
    assert rows(log) == [0, 1, 2, 3, 4]
    assert bucket.committed() == [0, 1, 2]


@pytest.mark.parametrize("matches", [is_data_put, is_entry_put, is_read])
def test_a_store_that_is_busy_for_a_while_is_waited_for(bucket: Bucket, matches: Matches) -> None:
    for number in range(3):
        bucket.feed.add(number)
    outage = bucket.proxy.plan = Outage(answered(503, "SlowDown"), matches, after=1, count=3)
    bucket.run()
    assert outage.met == 3
    assert rows(bucket.log) == [0, 1, 2]


def test_a_bucket_that_does_not_exist_is_named(bucket: Bucket, spark: SparkSession) -> None:
    bucket.feed.add(0)
    bucket.feed.path = "s3://no-such-bucket/log"
    message = bucket.fails()
    assert re.search(r"\[TXNLOG_BUCKET_MISSING\] .*s3://no-such-bucket/log", message)
    bucket.feed.path = bucket.path
    bucket.run()
    assert rows(bucket.log) == [0]
