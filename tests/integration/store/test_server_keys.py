"""Keys with which stores encrypt: which requests carry them, and what a store with its own judgement says
without."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from txnformat.errors import StorageError
from txnformat.store.base import CreateOutcome, ObjectStore
from txnformat.store.open import open_store
from txnformat.store.uploads import PART_BYTES
from txnlog import Producer, TxnLog
from txnlog_testing.stores.azurite import AzureServer, azurite_program, azurite_server
from txnlog_testing.stores.fault_proxy import FaultProxy, Request
from txnlog_testing.stores.gcs import gcs_server
from txnlog_testing.stores.http_wire import without_headers
from txnlog_testing.stores.s3_server import S3Server, moto_server, seaweedfs_server

KEY = base64.b64encode(b"k" * 32).decode()
OTHER = base64.b64encode(b"o" * 32).decode()
NUMBERS = pa.schema([("n", pa.int64())])
LARGE = b"x" * (PART_BYTES + 1)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


def opened(server: S3Server, path: str, **options: str) -> ObjectStore:
    return open_store(server.url(path), storage_options={**server.storage_options, **options})


def use(store: ObjectStore) -> None:
    """Make and read objects in every way that there is."""
    assert store.create("small", b"0123").outcome is CreateOutcome.CREATED
    store.put("hint", b"4567")
    with store.open_write("large") as out:
        out.write(LARGE)
    assert (store.get("small"), store.get("hint")) == (b"0123", b"4567")
    assert store.get_range("large", PART_BYTES - 1, 2) == b"xx"
    assert store.head("large") == ("large", len(LARGE))
    assert len(store.list("")) == 3
    store.delete("hint")


def test_an_object_with_a_customer_key_is_read_with_that_key_only(server: S3Server) -> None:
    use(opened(server, "objects", sse_customer_key=KEY))
    for path in ("small", "large"):
        with pytest.raises(StorageError):
            opened(server, "objects").get(path)
        with pytest.raises(StorageError) as caught:
            opened(server, "objects", sse_customer_key=OTHER).get(path)
        assert caught.value.kind == "permission-denied"
        assert OTHER not in str(caught.value)


def test_a_log_lives_with_a_customer_key(server: S3Server) -> None:
    options = {**server.storage_options, "sse_customer_key": KEY}
    with TxnLog.create(server.url("log"), storage_options=options) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log) as producer:
            producer.send("t", pa.table({"n": [1, 2]}, schema=NUMBERS))
    with TxnLog.open(server.url("log"), storage_options=options) as log:
        assert log.read("t").read_all()["n"].to_pylist() == [1, 2]
        assert log.verify(deep=True).ok
    with pytest.raises(StorageError):
        TxnLog.open(server.url("log"), storage_options=server.storage_options)


def test_new_objects_are_asked_to_be_encrypted_by_a_key_of_kms() -> None:
    """moto stores what was asked for, and encrypts nothing."""
    with moto_server() as running:
        use(opened(running, "kms", server_side_encryption="aws:kms", sse_kms_key_id="alias/x"))
        for name in ("small", "large"):
            answer = running.client().head_object(Bucket=running.bucket, Key=f"kms/{name}")
            assert (answer["ServerSideEncryption"], answer["SSEKMSKeyId"]) == ("aws:kms", "alias/x")


class Noting(FaultProxy):
    """Notes the method of each request and the value of one header, which goes no further if so asked."""

    def __init__(self, upstream: str, name: str, *, without: Sequence[str] = ()) -> None:
        super().__init__(upstream)
        self._name = name
        self._without = without
        self.sent: list[tuple[str, str | None]] = []

    def changed(self, request: Request) -> Request:
        self.sent.append((request.method, request.headers.get(self._name)))
        return without_headers(request, *self._without)

    def values(self, *methods: str) -> set[str | None]:
        """Return the header's values in the requests of some methods."""
        return {value for method, value in self.sent if method in methods}


def test_every_request_of_google_that_makes_an_object_names_the_key() -> None:
    name = "projects/p/locations/eu/keyRings/r/cryptoKeys/k"
    with (
        gcs_server() as running,
        Noting(running.endpoint_url, "x-goog-encryption-kms-key-name") as proxy,
    ):
        options = {**running.storage_options, "endpoint_url": proxy.url, "kms_key_name": name}
        use(open_store(running.url("r"), storage_options=options))
        assert proxy.values("PUT", "POST") == {name}
        assert proxy.values("GET", "HEAD", "DELETE") == {None}


AZURE_ONLY = pytest.mark.skipif(
    azurite_program() is None, reason="Azurite is not here: see scripts/find-azurite"
)


def of_azure(running: AzureServer, proxy: FaultProxy, **options: str) -> ObjectStore:
    signed = {"account_name": running.account, "sas_token": running.sas_token()}
    options = {**signed, "endpoint_url": f"{proxy.url}/{running.account}", **options}
    return open_store(running.url("r"), storage_options=options)


@AZURE_ONLY
def test_every_request_of_azure_that_makes_a_blob_names_the_scope() -> None:
    with azurite_server() as running, Noting(running.host_url, "x-ms-encryption-scope") as proxy:
        use(of_azure(running, proxy, encryption_scope="mine"))
        assert proxy.values("PUT") == {"mine"}
        assert proxy.values("GET", "HEAD", "DELETE") == {None}


@AZURE_ONLY
def test_every_request_of_azure_for_a_blob_brings_the_key() -> None:
    """Azurite refuses such requests, so that the headers go no further than to the proxy."""
    names = [f"x-ms-encryption-{name}" for name in ("key", "key-sha256", "algorithm")]
    with azurite_server() as running, Noting(running.host_url, names[0], without=names) as proxy:
        use(of_azure(running, proxy, encryption_key=KEY))
        assert proxy.values("PUT", "HEAD") == {KEY}
        assert KEY in proxy.values("GET")  # a listing needs none
