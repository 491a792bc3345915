"""What answers at the endpoint is no S3, or nothing answers there: the error names the endpoint, and no log
is told as missing."""

from __future__ import annotations

import threading

import pytest

from tests.integration.clients.failing import Plan
from tests.integration.store.hostile_server import Answer, Got, HostileServer, answer
from txnformat.clock import SystemClock
from txnformat.errors import NotFoundError, StorageError
from txnformat.log import TxnLog
from txnformat.store.base import CreateOutcome
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.store.s3.store import S3Store
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

PAGE = b"<!DOCTYPE html><html><body>welcome</body></html>"
MISSING = b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>"
KEY = "_txnlog/format.json"


class _NoWait(SystemClock):
    """A clock that passes over the pauses between attempts."""

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        pass


def _page(status: int) -> Answer:
    return answer(status, PAGE, Content_Type="text/html; charset=utf-8")


def _options(server: HostileServer) -> dict[str, str]:
    return {"key": "the-key", "secret": "the-secret", "region": "us-east-1", "endpoint_url": server.url}


def _store(server: HostileServer) -> S3Store:
    return S3Store("s3://bucket/log", _options(server), _NoWait())


@pytest.mark.parametrize("status", [200, 400, 404, 405])
@pytest.mark.parametrize("call", ["get", "head", "list"])
def test_a_web_page_is_no_answer_of_s3(status: int, call: str) -> None:
    with HostileServer(_page(status)) as server:
        with pytest.raises(StorageError, match="does not answer like S3") as caught:
            getattr(_store(server), call)(KEY)
        assert len(server.came) == 1, "asking again would not help"
        assert caught.value.kind == "endpoint-no-store"
        assert caught.value.values["endpoint"] == server.url
        assert "check the storage option endpoint_url" in (caught.value.hint or "")


def test_no_log_is_told_as_missing_where_there_is_no_s3() -> None:
    for made in (_page(404), _page(200), answer(404, b"404 page not found\n", Content_Type="text/plain")):
        with HostileServer(made) as server, pytest.raises(StorageError) as caught:
            TxnLog.open("s3://bucket/log", storage_options=_options(server))
        assert caught.value.kind == "endpoint-no-store"


@pytest.mark.parametrize(
    "made",
    [answer(404, MISSING), answer(404, b"no", x_amz_request_id="1"), answer(404)],
    ids=["document", "header", "nothing"],
)
def test_what_is_missing_in_s3_is_missing(made: Answer) -> None:
    with HostileServer(made) as server:
        assert _store(server).get(KEY) is None
        with pytest.raises(NotFoundError):
            TxnLog.open("s3://bucket/log", storage_options=_options(server))


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, CreateOutcome.AMBIGUOUS), (404, CreateOutcome.REFUSED)]
)
def test_a_web_page_in_place_of_a_success_proves_nothing(status: int, outcome: CreateOutcome) -> None:
    with HostileServer(_page(status)) as server:
        result = _store(server).create(KEY, b"{}")
        assert len(server.came) == 1
    assert result.outcome is outcome
    assert result.error is not None
    assert result.error.kind == "endpoint-no-store"


@pytest.mark.parametrize(("status", "kind"), [(403, "permission-denied"), (503, "store-unavailable")])
def test_a_gateways_page_means_what_its_status_says(status: int, kind: str) -> None:
    with HostileServer(_page(status)) as server, pytest.raises(StorageError) as caught:
        _store(server).get(KEY)
    assert caught.value.kind == kind


def test_where_s3_has_answered_a_web_page_is_waited_for() -> None:
    answers = iter([answer(404, MISSING), _page(200), answer(200, b"here", ETag='"0"')])
    with HostileServer(lambda got: next(answers)(got)) as server:
        store = _store(server)
        assert store.get(KEY) is None
        assert store.get(KEY) == b"here"


def test_an_endpoint_that_gives_no_answer_is_named_until_it_has_given_one() -> None:
    has_answered = False

    def silent(got: Got) -> list[bytes]:
        return [] if not has_answered else list(answer(404, MISSING)(got))

    with HostileServer(silent) as server:
        store = S3Store("s3://bucket/log", {**_options(server), "request_timeout_s": "1"}, _NoWait())
        with pytest.raises(StorageError, match="takes requests and does not answer") as caught:
            store.get(KEY)
        assert (caught.value.kind, caught.value.values["endpoint"]) == ("connection-lost", server.url)
        assert "a store that speaks S3" in (caught.value.hint or "")
        has_answered = True
        assert store.get(KEY) is None
        has_answered = False
        with pytest.raises(StorageError) as caught:
            store.get(KEY)
        assert caught.value.hint == "try again"


def test_an_outage_in_search_of_entries_is_not_told_as_a_missing_log() -> None:
    plan = Plan()
    store = FaultyStore(MemoryStore(), plan)
    for key_class in KeyClass:
        plan.always(RequestKind.LIST, key_class, Fault(FaultKind.SERVER_ERROR))
    with pytest.raises(StorageError) as caught:
        TxnLog.open(store)
    assert caught.value.transient
    plan.clear()
    with pytest.raises(NotFoundError):
        TxnLog.open(store)
