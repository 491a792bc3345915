"""Google Cloud Storage: its adapter passes the suite of all stores on a server that speaks Google's XML
interface; each create is one request."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.conformance.store_races import race
from tests.rounds import rounds
from txnformat.errors import StorageError
from txnformat.store.base import CreateOutcome, ObjectInfo, ObjectStore
from txnformat.store.open import open_store
from txnformat.store.uploads import PART_BYTES
from txnlog import Producer, TxnLog
from txnlog_testing.stores.conformance import StoreConformance
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, ProxyFaultKind, Request
from txnlog_testing.stores.gcs import GcsServer, gcs_server

NUMBERS = pa.schema([("n", pa.int64())])
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[GcsServer]:
    with gcs_server() as running:
        yield running


class TestGoogle(StoreConformance):
    races = 5

    @pytest.fixture
    def store(self, server: GcsServer) -> ObjectStore:
        return open_store(server.url(f"root-{next(_numbers)}/below"), storage_options=server.storage_options)


def test_slots_have_one_winner_each_of_many_processes(server: GcsServer) -> None:
    """16 processes and 1,000 slots with all rounds."""
    store = open_store(server.url("race"), storage_options=server.storage_options)
    race(store, server.environment, racers=rounds(4, 16), slots=rounds(20, 1_000))


@pytest.mark.parametrize(
    "fault",
    [
        ProxyFault(ProxyFaultKind.APPLY_THEN_DROP),
        ProxyFault(ProxyFaultKind.DROP_BEFORE),
        ProxyFault(ProxyFaultKind.TRUNCATED),
        ProxyFault(ProxyFaultKind.CONFLICT_409, applied=True),
        ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503),
        ProxyFault(ProxyFaultKind.SERVER_ERROR, status=429, applied=True),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}",
)
def test_a_create_is_one_request_with_the_condition_and_an_unclear_answer_is_called_unclear(
    server: GcsServer, fault: ProxyFault
) -> None:
    seen: list[Request] = []

    def plan(request: Request, nth: int) -> ProxyFault | None:
        seen.append(request)
        return fault if request.method == "PUT" else None

    with FaultProxy(server.endpoint_url, plan) as proxy:
        options = {**server.storage_options, "endpoint_url": proxy.url}
        store = open_store(server.url(f"wire-{next(_numbers)}"), storage_options=options)
        assert store.create("a/b", b"ours").outcome is CreateOutcome.AMBIGUOUS
        proxy.wait_until_idle()
    assert [request.method for request in seen] == ["PUT"]
    assert seen[0].headers["x-goog-if-generation-match"] == "0"


def test_a_log_is_written_and_read(server: GcsServer) -> None:
    url = server.url(f"log-{next(_numbers)}")
    with TxnLog.create(url, storage_options=server.storage_options) as log:
        log.create_topic("t", NUMBERS)
        with Producer(log, "p") as producer:
            producer.begin()
            producer.send("t", pa.table({"n": range(10)}, schema=NUMBERS))
            producer.commit()
        assert log.read("t").read_all().num_rows == 10
        assert log.verify(deep=True).ok


def test_a_large_upload(server: GcsServer) -> None:
    store = open_store(server.url(f"wire-{next(_numbers)}"), storage_options=server.storage_options)
    with store.open_write("a/large") as writer:
        writer.write(b"x" * (PART_BYTES + 10))
        assert store.head("a/large") is None
    assert store.head("a/large") == ObjectInfo("a/large", PART_BYTES + 10)


def test_a_missing_bucket_is_named(server: GcsServer) -> None:
    with pytest.raises(StorageError) as caught:
        TxnLog.create("gs://no-such-bucket/log", storage_options=server.storage_options)
    assert caught.value.kind == "bucket-missing"
