"""What the S3 adapter sends, and what it makes of answers: a real server behind a proxy that spoils
requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.integration.store.wire import Wire
from txnformat.errors import NotFoundError, StorageError
from txnformat.store.base import CreateOutcome, ObjectInfo
from txnformat.store.s3.store import S3Store
from txnformat.store.uploads import PART_BYTES
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, ProxyFaultKind
from txnlog_testing.stores.s3_server import S3Server, dead_endpoint, seaweedfs_server

KEY = "_txnlog/log/00000000000000000000.json"
_numbers = itertools.count()
DROPPED = ProxyFault(ProxyFaultKind.APPLY_THEN_DROP)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


@pytest.fixture
def wire(server: S3Server, request: pytest.FixtureRequest) -> Iterator[Wire[S3Store]]:
    with FaultProxy(server.endpoint_url) as proxy:
        # Short for answers that are held back, of which there are none for a part of an upload: that may take
        # its time.
        seconds = "20" if "large" in request.node.name else "1"
        options = {**server.storage_options, "endpoint_url": proxy.url, "read_timeout_s": seconds}
        wire = Wire(proxy, S3Store(server.url(f"wire-{next(_numbers)}"), options))
        wire.store.get("warm")  # a connection is kept from here on
        wire.begin()
        yield wire


@pytest.mark.parametrize(
    ("fault", "landed"),
    [
        (DROPPED, True),
        (ProxyFault(ProxyFaultKind.DROP_BEFORE), False),
        (ProxyFault(ProxyFaultKind.TRUNCATED), True),
        (ProxyFault(ProxyFaultKind.HELD), None),
        (ProxyFault(ProxyFaultKind.CONFLICT_409), False),
        (ProxyFault(ProxyFaultKind.CONFLICT_409, applied=True), True),
        (ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503), False),
        (ProxyFault(ProxyFaultKind.SERVER_ERROR, status=500, applied=True), True),
        (ProxyFault(ProxyFaultKind.ERROR_IN_200), False),
    ],
    ids=lambda value: f"{value.kind}-{value.applied}" if isinstance(value, ProxyFault) else str(value),
)
def test_a_create_is_sent_once_and_an_unclear_answer_is_called_unclear(
    wire: Wire[S3Store], fault: ProxyFault, landed: bool | None
) -> None:
    wire.faults["PUT", 1] = fault
    answer = wire.store.create(KEY, b"ours")
    assert wire.sent == {"PUT": 1}
    assert answer.outcome is CreateOutcome.AMBIGUOUS
    assert answer.error is not None
    assert answer.error.transient
    wire.proxy.wait_until_idle()
    if landed is not None:
        assert wire.store.get(KEY) == (b"ours" if landed else None)


def test_a_create_that_meets_an_object_says_so(wire: Wire[S3Store]) -> None:
    wire.store.create(KEY, b"theirs")
    assert wire.store.create(KEY, b"ours").outcome is CreateOutcome.EXISTS
    assert wire.sent == {"PUT": 2}


@pytest.mark.parametrize(
    "fault",
    [
        DROPPED,
        ProxyFault(ProxyFaultKind.TRUNCATED),
        ProxyFault(ProxyFaultKind.HELD),
        ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503),
        ProxyFault(ProxyFaultKind.SERVER_ERROR, status=500),
    ],
    ids=lambda fault: fault.kind,
)
def test_reads_listings_and_deletions_are_repeated(wire: Wire[S3Store], fault: ProxyFault) -> None:
    wire.store.create("a/x", b"0123456789")
    wire.faults.update({("GET", n): fault for n in (1, 2, 4, 6)} | {("DELETE", 1): fault, ("HEAD", 1): fault})
    assert wire.store.get("a/x") == b"0123456789"
    assert wire.store.get_range("a/x", 2, 3) == b"234"
    assert [info.key for info in wire.store.list("a/")] == ["a/x"]
    assert wire.store.head("a/x") == ("a/x", 10)
    wire.store.delete("a/x")
    assert wire.store.get("a/x") is None
    assert wire.sent == {"PUT": 1, "GET": 8, "HEAD": 2, "DELETE": 2}


def test_a_store_that_keeps_failing_is_an_error_after_six_attempts(wire: Wire[S3Store]) -> None:
    wire.faults.update(
        {("GET", n): ProxyFault(ProxyFaultKind.SERVER_ERROR, status=503) for n in range(1, 20)}
    )
    with pytest.raises(StorageError, match="overloaded") as caught:
        wire.store.get("a/x")
    assert caught.value.kind == "store-unavailable"
    assert caught.value.transient
    assert wire.sent == {"GET": 6}


def test_a_missing_object_is_no_failure_to_repeat(wire: Wire[S3Store]) -> None:
    assert wire.store.get("nothing") is None
    with pytest.raises(NotFoundError):
        wire.store.get_range("nothing", 0, 1)
    assert wire.sent == {"GET": 2}


def test_a_small_upload_is_one_request_and_survives_lost_answers(wire: Wire[S3Store]) -> None:
    with wire.store.open_write("a/plain") as writer:
        writer.write(b"x" * 1000)
    assert wire.sent == {"PUT": 1}
    wire.faults["PUT", 2] = DROPPED
    with wire.store.open_write("a/lost") as writer:
        writer.write(b"y" * 1000)
    assert wire.store.get("a/lost") == b"y" * 1000
    assert wire.sent == {"PUT": 3, "GET": 2}


@pytest.mark.parametrize(
    "fault", [DROPPED, ProxyFault(ProxyFaultKind.SERVER_ERROR, status=500)], ids=["dropped", "500"]
)
def test_a_large_upload_survives_faults_in_every_step(wire: Wire[S3Store], fault: ProxyFault) -> None:
    data = bytes(range(251)) * (2 * PART_BYTES // 251 + 1000)
    # POST: begin, begin again, complete, complete again. PUT: three parts, one of them twice.
    wire.faults.update({("POST", 1): fault, ("PUT", 2): fault, ("POST", 3): fault})
    with wire.store.open_write("a/large") as writer:
        for start in range(0, len(data), 5_000_000):
            writer.write(memoryview(data)[start : start + 5_000_000])
        assert wire.store.head("a/large") is None
    assert wire.store.get("a/large") == data
    assert wire.store.head("a/large") == ObjectInfo("a/large", len(data))
    assert (wire.sent["POST"], wire.sent["PUT"]) == (4, 4)


def test_a_large_upload_that_is_aborted_or_late_leaves_no_parts(
    wire: Wire[S3Store], server: S3Server
) -> None:
    for key in ("a/aborted", "a/late"):
        writer = wire.store.open_write(key)
        writer.write(bytes(2 * PART_BYTES))
        if key == "a/late":
            wire.store.create(key, b"early")
            with pytest.raises(StorageError) as caught:
                writer.close()
            assert caught.value.kind == "object-exists"
            assert wire.store.get(key) == b"early"
        else:
            writer.abort()
            assert wire.store.head(key) is None
    own = wire.store.url.rpartition("/")[2]
    left = server.client().list_multipart_uploads(Bucket=server.bucket).get("Uploads", [])
    assert [upload for upload in left if upload["Key"].startswith(own)] == []


def test_the_stores_time_costs_no_request_once_there_was_an_answer(wire: Wire[S3Store]) -> None:
    assert wire.store.store_time_ms() > 1_577_836_800_000
    assert wire.sent == {}
    fresh = S3Store("s3://" + wire.store.url.removeprefix("s3://"), _options(wire))
    assert fresh.store_time_ms() > 1_577_836_800_000
    fresh.store_time_ms()
    assert wire.sent == {"HEAD": 1}


def _options(wire: Wire[S3Store]) -> dict[str, str]:
    parsed = wire.store.options
    return {
        "key": str(parsed.key),
        "secret": str(parsed.secret),
        "endpoint_url": wire.proxy.url,
        "region": "us-east-1",
    }


def test_nobody_listens(server: S3Server) -> None:
    with dead_endpoint() as endpoint:
        store = S3Store(server.url("x"), {**server.storage_options, "endpoint_url": endpoint})
        answer = store.create(KEY, b"ours")
        with pytest.raises(StorageError) as caught:
            store.get(KEY)
    assert answer.outcome is CreateOutcome.REFUSED  # no byte was sent, so nothing can land
    assert answer.error is not None
    assert (answer.error.kind, answer.error.transient) == ("endpoint-unreachable", True)
    assert "endpoint_url" in str(answer.error)
    assert caught.value.kind == "endpoint-unreachable"
