"""A log in a bucket: what actions cost, and what people meet when something is wrong with store, credentials
or clock."""

from __future__ import annotations

import itertools
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from txnformat.clock import Instant, SystemClock
from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, StorageError, TxnLogError
from txnformat.keys import boundary_key, entry_key
from txnformat.protocol.commit import CommitSettings
from txnformat.store.base import CreateOutcome, ObjectInfo, ObjectStore
from txnformat.store.open import open_store
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.store.s3.requests import ATTEMPTS_MAX
from txnformat.store.s3.store import S3Store
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.s3_server import S3Server, dead_endpoint, moto_server, seaweedfs_server

NUMBERS = pa.schema([("n", pa.int64())])
DATA_PUT = RequestClass(RequestKind.OPEN_WRITE, KeyClass.DATA)
ENTRY_PUT = RequestClass(RequestKind.CREATE, KeyClass.ENTRY)

T = TypeVar("T")

_roots = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    reader = {
        "name": "reader",
        "credentials": [{"accessKey": "reader-key", "secretKey": "reader-secret"}],
        "actions": ["Read", "List"],
    }
    with seaweedfs_server(identities=[reader]) as running:
        yield running


@pytest.fixture(scope="module")
def moto() -> Iterator[S3Server]:
    with moto_server() as running:
        yield running


@pytest.fixture
def url(server: S3Server) -> str:
    """A log with one topic and ten records."""
    root = server.url(f"log-{next(_roots)}")
    with TxnLog.create(root, storage_options=server.storage_options) as log:
        log.create_topic("t", NUMBERS)
        write(log, range(10))
    return root


def write(log: TxnLog, numbers: range) -> None:
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", pa.table({"n": numbers}))


def read(url: str, options: dict[str, str]) -> list[int]:
    with TxnLog.open(url, storage_options=options) as log:
        found: list[int] = log.read("t").read_all().column("n").to_pylist()
        return found


def assert_goes_on(server: S3Server, url: str) -> None:
    """The log reads as before and takes another transaction."""
    before = read(url, server.storage_options)
    assert before[:10] == list(range(10))
    with TxnLog.open(url, storage_options=server.storage_options) as log:
        write(log, range(100, 103))
        assert log.verify().ok
    assert read(url, server.storage_options) == [*before, 100, 101, 102]


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embed_bytes", [0, 65_536])
def test_a_warm_commit_is_one_entry_put_and_one_data_put_where_it_is_not_embedded(
    server: S3Server, url: str, embed_bytes: int
) -> None:
    store = CountingStore(open_store(url, storage_options=server.storage_options))
    with TxnLog.open(store) as log, Producer(log, "q", embed_bytes=embed_bytes) as producer:
        for number in range(2):
            store.reset()
            with producer.transaction() as txn:
                txn.send("t", pa.table({"n": [number]}))
            assert dict(store.counts.requests) == ({} if embed_bytes else {DATA_PUT: 1}) | {ENTRY_PUT: 1}


class Far(CountingStore):
    """Far away: requests that are sent together overlap, so rounds can be told from requests.

    On a busy machine one of them may be sent so late that it looks like a round of its own: never too few are
    counted.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.spans: list[tuple[float, float]] = []

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        return self._travel(lambda: super(Far, self).get(key, bytes_max))

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        return self._travel(lambda: super(Far, self).list(prefix, start_after))

    def _travel(self, request: Callable[[], T]) -> T:
        start = time.monotonic()
        time.sleep(0.2)
        answer = request()
        self.spans.append((start, time.monotonic()))
        return answer

    def rounds(self) -> int:
        """Return the most requests of which each began after the one before it had ended."""
        count, free = 0, 0.0
        for start, end in sorted(self.spans, key=lambda span: span[1]):
            if start >= free:
                count, free = count + 1, end
        return count


def test_a_cold_open_takes_at_most_four_round_trips(server: S3Server, url: str) -> None:
    far = Far(open_store(url, storage_options=server.storage_options))
    for _ in range(3):
        far.spans.clear()
        far.reset()
        with TxnLog.open(far) as log:
            assert log.state.entry > 0
        if far.rounds() <= 4:
            break
    assert 1 <= far.rounds() <= 4
    assert far.counts.count(None, KeyClass.PROBE) == 0
    assert far.counts.count(RequestKind.CREATE) + far.counts.count(RequestKind.PUT) == 0


# --- credentials --------------------------------------------------------------------------------------------


def test_wrong_credentials(server: S3Server, url: str) -> None:
    for wrong in ({"secret": "WRONGVALUE"}, {"key": "UNKNOWNVALUE"}):
        with pytest.raises(StorageError) as caught:
            TxnLog.open(url, storage_options={**server.storage_options, **wrong})
        assert caught.value.kind == "credentials-invalid"
        assert "VALUE" not in str(caught.value)
        assert "key, secret" in str(caught.value)
    assert_goes_on(server, url)


def test_no_credentials(server: S3Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    place = {"endpoint_url": server.endpoint_url, "region": "us-east-1"}
    with pytest.raises(StorageError) as caught:
        TxnLog.open(url, storage_options=place)
    assert caught.value.kind == "credentials-missing"
    assert "AWS_ACCESS_KEY_ID" in str(caught.value)
    with pytest.raises(StorageError) as caught:
        TxnLog.open(url, storage_options={**place, "profile": "nobody"})
    assert caught.value.kind == "credentials-missing"
    with pytest.raises(StorageError) as caught:
        TxnLog.open(url, storage_options={**place, "anon": "true"})
    assert caught.value.kind == "permission-denied"
    assert_goes_on(server, url)


def test_read_rights_are_enough_to_read_and_a_write_says_what_is_missing(server: S3Server, url: str) -> None:
    options = {**server.storage_options, "key": "reader-key", "secret": "reader-secret"}
    assert read(url, options) == list(range(10))
    objects = open_store(url, storage_options=options).list("")
    with TxnLog.open(url, storage_options=options) as log:
        with pytest.raises(StorageError) as caught:
            write(log, range(5))
        assert caught.value.kind == "permission-denied"
        assert "s3:PutObject" in str(caught.value)
        with pytest.raises(StorageError):
            log.create_topic("u", NUMBERS)
    assert open_store(url, storage_options=options).list("") == objects
    assert_goes_on(server, url)


# --- place --------------------------------------------------------------------------------------------------


def test_a_missing_bucket_is_named_and_not_made(server: S3Server) -> None:
    for call in (TxnLog.open, TxnLog.create, TxnLog.open_or_create):
        with pytest.raises(StorageError) as caught:
            call("s3://no-such-bucket/log", storage_options=server.storage_options)
        assert caught.value.kind == "bucket-missing"
        assert "s3://no-such-bucket/log" in str(caught.value)
    assert [bucket["Name"] for bucket in server.client().list_buckets()["Buckets"]] == [server.bucket]


def test_no_log_in_the_bucket(server: S3Server) -> None:
    with pytest.raises(NotFoundError) as caught:
        TxnLog.open(server.url("nothing"), storage_options=server.storage_options)
    assert caught.value.kind == "no-log"


def test_an_endpoint_that_does_not_answer(server: S3Server, url: str) -> None:
    with dead_endpoint() as endpoint, pytest.raises(StorageError) as caught:
        TxnLog.open(url, storage_options={**server.storage_options, "endpoint_url": endpoint})
    assert caught.value.kind == "endpoint-unreachable"
    assert caught.value.transient
    for word in ("endpoint_url", endpoint, "Connect call failed"):
        assert word in str(caught.value)


class _CountingClock(SystemClock):
    """A clock that notes how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        self.slept.append(seconds)


def test_attempts_at_an_endpoint_that_never_answered_do_not_multiply(server: S3Server) -> None:
    """The first request has all attempts; those that repeat it have one each, until something answers."""
    clock = _CountingClock()
    with dead_endpoint() as endpoint:
        gone = {**server.storage_options, "endpoint_url": endpoint}
        store = S3Store(server.url("shop"), gone, clock=clock)
        for _ in range(3):
            with pytest.raises(StorageError) as caught:
                store.get("x")
            assert caught.value.kind == "endpoint-unreachable"
    assert len(clock.slept) == ATTEMPTS_MAX - 1


def test_a_misspelt_option_is_told_before_anything_is_sent(server: S3Server, url: str) -> None:
    with pytest.raises(InvalidInputError, match="did you mean endpoint_url"):
        TxnLog.open(url, storage_options={"endpont_url": server.endpoint_url})
    with pytest.raises(InvalidInputError, match="open already"):
        TxnLog.open(open_store(url, storage_options=server.storage_options), storage_options={"key": "k"})


# --- time ---------------------------------------------------------------------------------------------------


class Off(SystemClock):
    """A machine whose wall clock is wrong."""

    def __init__(self, seconds: int) -> None:
        self._off_ms = seconds * 1000

    def now(self) -> Instant:
        right = super().now()
        return right._replace(wall_ms=right.wall_ms + self._off_ms)


@pytest.mark.parametrize("seconds", [60, -60])
def test_a_clock_that_is_off_may_read_and_not_write(server: S3Server, url: str, seconds: int) -> None:
    with TxnLog.open(url, storage_options=server.storage_options, clock=Off(seconds)) as log:
        assert log.read("t").read_all().num_rows == 10
        entry = log.state.entry
        with pytest.raises(StorageError) as caught:
            write(log, range(5))
        assert caught.value.kind == "clock-skew"
        assert abs(caught.value.values["skew_ms"] - seconds * 1000) < 2_000
        assert log.refresh().entry == entry
    assert_goes_on(server, url)


# --- while a transaction is open ----------------------------------------------------------------------------


def _ask_for_credentials(moto: S3Server, after: str) -> None:
    """From now on moto checks who asks, after so many requests; nobody is known to it."""
    request = urllib.request.Request(
        f"{moto.endpoint_url}/moto-api/reset-auth", after.encode(), {"Content-Type": "text/plain"}
    )
    urllib.request.urlopen(request, timeout=20).close()


def test_credentials_that_end_in_mid_transaction_lose_nothing_and_commit_nothing(moto: S3Server) -> None:
    """The store begins to refuse the key between two requests of a transaction."""
    root = moto.url("ending")
    TxnLog.create(root, storage_options=moto.storage_options).create_topic("t", NUMBERS)
    log = TxnLog.open(root, storage_options=moto.storage_options, settings=CommitSettings(deadline_ms=2_000))
    producer = Producer(log, "p", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", pa.table({"n": range(5)}))
    producer.flush()
    _ask_for_credentials(moto, "0")
    try:
        with pytest.raises(TxnLogError) as caught:
            producer.commit()
        assert caught.value.kind == "credentials-invalid"
    finally:
        _ask_for_credentials(moto, "inf")
    assert read(root, moto.storage_options) == []
    # The same transactional id goes on with credentials that hold: it ends what was left open.
    with TxnLog.open(root, storage_options=moto.storage_options) as fresh:
        write(fresh, range(3))
        assert fresh.verify().ok
    assert read(root, moto.storage_options) == [0, 1, 2]


# --- versioned buckets --------------------------------------------------------------------------------------


def test_a_delete_marker_is_a_free_key_and_the_boundary_decides(moto: S3Server) -> None:
    client = moto.client()
    client.put_bucket_versioning(Bucket=moto.bucket, VersioningConfiguration={"Status": "Enabled"})
    root = moto.url("versioned")
    options = moto.storage_options
    with TxnLog.create(root, storage_options=options) as log:
        log.create_topic("t", NUMBERS)
        write(log, range(10))
    store = open_store(root, storage_options=options)
    sleeper = TxnLog.open(root, storage_options=options)  # a writer that sleeps from here on
    slot = sleeper.state.entry + 1
    with TxnLog.open(root, storage_options=options) as log:
        write(log, range(10, 13))
    lost = store.get(entry_key(slot))
    assert lost is not None

    store.delete(entry_key(slot))
    assert store.get(entry_key(slot)) is None
    assert store.create(entry_key(slot), b"again").outcome is CreateOutcome.CREATED  # as after any deletion
    store.delete(entry_key(slot))

    # Deleted by hand, without a boundary: a hole is damage that is named, for readers and writers.
    with pytest.raises(CorruptDataError):
        TxnLog.open(root, storage_options=options)
    # Restored (here by undeleting the version), the log is whole.
    store.put(entry_key(slot), lost)
    assert read(root, options) == list(range(13))
    write(sleeper, range(20, 22))
    assert read(root, options) == [*range(13), 20, 21]
    assert boundary_key(1) not in [info.key for info in store.list("_txnlog/boundary/")]
