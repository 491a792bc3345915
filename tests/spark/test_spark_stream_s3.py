"""Streams into a bucket, on real Spark and a real server: what they cost, and what becomes of them when
requests go wrong.

A store that refuses ends the query with one clear error, nothing half written is visible, and a restart goes
on when the cause is gone. Answers that are lost, late or wrong end nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.feeds import entries, rows
from tests.spark.outages import BEGUN, Bucket, Matches, Outage, answered, is_data_put, is_entry_put, is_read
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, ProxyFaultKind, Request, no_proxy_faults
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

KEY_ID, SECRET, TOKEN = "SENTINELKEYID00001", "SENTINELSECRETVALUE00001", "SENTINELTOKEN00001"
SENTINEL = {
    "name": "sentinel",
    "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}],
    "actions": ["Admin", "Read", "Write", "List"],
}


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server(identities=[SENTINEL]) as running:
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
        for query in found.feed.queries:
            query.stop()
    proxy.plan = no_proxy_faults
    proxy.release()


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


# --- requests -----------------------------------------------------------------------------------------------


def test_a_batch_costs_one_upload_for_each_task_one_entry_and_reads_of_entries(bucket: Bucket) -> None:
    """Spark hands a batch to any of its idle Python workers, so that one may be many entries behind, and ends
    one that was idle for a minute.

    How many entries a worker asks for hangs on that: tests/unit/spark_datasource/stream/test_stream_costs.py counts
    them for each process.
    """
    sent: list[list[str]] = [[]]

    def record(request: Request, nth: int) -> None:
        key = request.target.partition("?")[0].partition(f"{bucket.name}/")[2]
        kind = "data" if is_data_put(request) else key.removeprefix("_txnlog/").partition("/")[0]
        sent[-1].append(f"{request.method} {kind}")
        if is_entry_put(request):
            sent.append([])

    bucket.proxy.plan = record
    for number in range(15):
        bucket.feed.add(*range(4 * number, 4 * number + 4))
    bucket.run(bucket.feed.frame().repartition(2))
    assert sorted(rows(bucket.log)) == list(range(60))
    # The first batch makes the topic and tries the store out.
    *batches, rest = sent[2:]
    assert rest == []
    assert len(batches) == 13
    for batch in batches:
        assert [one for one in batch if one.startswith("PUT")] == ["PUT data", "PUT data", "PUT log"]
        if "GET format.json" not in batch:
            # No worker opened the log: the one that plans asks for entries, and so does the one that commits.
            assert {one for one in batch if not one.startswith("PUT")} == {"GET log"}


# --- answers that are lost, late or wrong -------------------------------------------------------------------

UNCLEAR = [
    ProxyFault(ProxyFaultKind.APPLY_THEN_DROP),
    ProxyFault(ProxyFaultKind.TRUNCATED),
    ProxyFault(ProxyFaultKind.EXISTS_412),
    ProxyFault(ProxyFaultKind.DUPLICATED),
    ProxyFault(ProxyFaultKind.DROP_BEFORE),
    *(
        ProxyFault(kind, applied=applied)
        for kind in (ProxyFaultKind.CONFLICT_409, ProxyFaultKind.SERVER_ERROR, ProxyFaultKind.ERROR_IN_200)
        for applied in (True, False)
    ),
]
LATE = [
    *(ProxyFault(ProxyFaultKind.LATE, delay_ms=delay_ms) for delay_ms in (0, 500, 60_000)),
    *(ProxyFault(ProxyFaultKind.DELAY, delay_ms=delay_ms) for delay_ms in (500, 60_000)),
    ProxyFault(ProxyFaultKind.LATE, until_released=True),
]


def _writes_each_batch_once(bucket: Bucket, faults: list[ProxyFault], matches: Matches) -> None:
    """Write a batch for each fault, which the batch's request meets when it is sent for the first time."""
    bucket.feed.add(-1)
    bucket.run()
    for number in range(len(faults)):
        bucket.feed.add(number)
    left = list(faults)
    bucket.proxy.plan = lambda request, nth: left.pop(0) if nth == 1 and matches(request) and left else None
    met = bucket.proxy.counts
    bucket.run()
    bucket.proxy.release()
    assert not left
    assert bucket.proxy.counts.faults - met.faults == Counter(faults)
    assert rows(bucket.log) == list(range(-1, len(faults)))
    assert len(entries(bucket.log)) == 1 + len(faults)
    assert bucket.committed() == list(range(1 + len(faults)))


@pytest.mark.parametrize("matches", [is_entry_put, is_data_put])
def test_case_8_a_lost_or_wrong_answer_to_a_batch_does_not_write_it_twice(
    bucket: Bucket, matches: Matches
) -> None:
    _writes_each_batch_once(bucket, UNCLEAR, matches)


@pytest.mark.parametrize("matches", [is_entry_put, is_data_put])
def test_case_9_a_batch_that_lands_late_is_there_once(bucket: Bucket, matches: Matches) -> None:
    _writes_each_batch_once(bucket, LATE, matches)


@pytest.mark.parametrize("is_first", [True, False], ids=["lands-first", "lands-last"])
def test_case_9_an_entry_that_lands_when_its_query_has_ended_and_another_run_repeats_it(
    bucket: Bucket, *, is_first: bool
) -> None:
    """The entry is on its way, the store denies access from then on, and the query ends."""
    bucket.feed.add(0)
    bucket.feed.add(1)
    on_its_way = ProxyFault(ProxyFaultKind.LATE, until_released=True)
    sent = Outage(on_its_way, is_entry_put, after=1, count=1)
    denied = Outage(answered(403, "AccessDenied"), lambda request: True, after=2)
    bucket.proxy.plan = lambda request, nth: denied(request, nth) or sent(request, nth)
    before = bucket.proxy.counts.faults
    message = bucket.fails()
    assert "[TXNLOG_COMMIT_STATE_UNKNOWN]" in message
    assert "start the query again" in message
    assert (sent.met, denied.met > 1) == (1, True)
    assert (rows(bucket.log), bucket.committed()) == ([0], [0])

    bucket.proxy.plan = no_proxy_faults
    if is_first:
        bucket.proxy.release()
        assert rows(bucket.log) == [0, 1]
    bucket.feed.add(2)
    bucket.run()
    bucket.proxy.release()
    assert rows(bucket.log) == [0, 1, 2]
    assert len(entries(bucket.log)) == 3
    assert (bucket.proxy.counts.faults - before)[on_its_way] == 1


# --- secrets ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _event_log(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Write what happens meanwhile to an event log, as ``spark.eventLog.enabled`` does."""
    folder.mkdir()
    jvm, context = spark._jvm, spark.sparkContext._jsc
    assert jvm is not None
    assert context is not None
    configuration = context.sc().getConf().clone().set("spark.eventLog.compress", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "events",
        jvm.scala.Option.empty(),
        jvm.java.net.URI(folder.as_uri()),
        configuration,
        context.hadoopConfiguration(),
    )
    listener.start()
    context.sc().addSparkListener(listener)
    try:
        yield
    finally:
        context.sc().listenerBus().waitUntilEmpty()
        context.sc().removeSparkListener(listener)
        listener.stop()


def _everything(bucket: Bucket) -> bytes:
    """Return all objects of the server."""
    client = bucket.server.client()
    try:
        listed = client.list_objects_v2(Bucket=bucket.server.bucket)["Contents"]
        bodies = [
            client.get_object(Bucket=bucket.server.bucket, Key=one["Key"])["Body"].read() for one in listed
        ]
        return b"".join(bodies) + json.dumps([one["Key"] for one in listed]).encode()
    finally:
        client.close()


def test_credentials_show_nowhere(
    spark: SparkSession, bucket: Bucket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = {"storage.key": KEY_ID, "storage.secret": SECRET}
    feed, told = bucket.feed, []
    with _event_log(spark, tmp_path / "events"):
        feed.add(0)
        query = feed.query(**{**bucket.options, **given})
        assert query.awaitTermination(300)
        assert query.exception() is None
        told += [json.dumps(query.lastProgress, default=str), str(query.status)]
        query.explain(True)
        feed.add(1)
        for matches in (is_read, is_data_put, is_entry_put):
            bucket.proxy.plan = Outage(answered(403, f"AccessDenied {SECRET}"), matches, BEGUN)
            told.append(bucket.fails(**given))
        bucket.proxy.plan = Outage(answered(403, f"AccessDenied {TOKEN}"), lambda _: True, BEGUN)
        told.append(bucket.fails(**given, **{"storage.token": TOKEN}))
        bucket.proxy.plan = no_proxy_faults
    shown = "".join([*told, *capfd.readouterr()])
    assert shown.count("[TXNLOG_PERMISSION_DENIED]") == 4
    assert "== Physical Plan ==" in shown
    events = b"".join(file.read_bytes() for file in (tmp_path / "events").rglob("*") if file.is_file())
    assert b"QueryProgressEvent" in events
    checkpoint = b"".join(file.read_bytes() for file in feed.checkpoint.rglob("*") if file.is_file())
    assert b"batchWatermarkMs" in checkpoint
    stored = _everything(bucket)
    assert b"spark-stream" in stored
    for secret in (KEY_ID, SECRET, TOKEN):
        for place, found in {"shown": shown.encode(), "events": events, "checkpoint": checkpoint}.items():
            assert secret.encode() not in found, place
        assert secret.encode() not in stored
