"""One request, one host: what the S3 client does when an endpoint redirects, never ends, or talks
nonsense.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.integration.store.hostile_server import Answer, Got, HostileServer, answer
from txnformat.client.driver import Driver
from txnformat.clock import Clock, Instant, SystemClock, SystemIds
from txnformat.errors import StorageError, TxnLogError
from txnformat.protocol.effects import GetObject, ListObjects
from txnformat.protocol.reads import request
from txnformat.store.base import CreateOutcome
from txnformat.store.probe import ensure_fit
from txnformat.store.s3.requests import ATTEMPTS_MAX
from txnformat.store.s3.store import S3Store
from txnformat.store.uploads import PART_BYTES
from txnformat.verify.files import patiently
from txnlog_testing.stores.s3_server import moto_server

KEY = "_txnlog/log/00000000000000000000.json"
TOKEN = "the-session-token"
REDIRECTS = (301, 302, 303, 307, 308)


def _ok(got: Got) -> list[bytes]:
    """Answer as a store does that has everything and takes everything."""
    return list(answer(200, b"theirs" if got.method == "GET" else b"", ETag='"0"')(got))


class _NoWait(SystemClock):
    """A clock that passes over the pauses between attempts."""

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        pass


Call = Callable[[S3Store], object]


def _store(server: HostileServer | str, clock: Clock | None = None, **options: str) -> S3Store:
    url = server if isinstance(server, str) else server.url
    given = {
        "key": "the-key",
        "secret": "the-secret",
        "token": TOKEN,
        "region": "us-east-1",
        "endpoint_url": url,
    }
    return S3Store("s3://bucket/log", {**given, **options}, clock or _NoWait())


@contextlib.contextmanager
def _redirecting(status: int) -> Iterator[tuple[HostileServer, HostileServer]]:
    with (
        HostileServer(_ok) as other,
        HostileServer(lambda got: answer(status, Location=f"{other.url}{got.target}")(got)) as first,
    ):
        yield first, other


def _upload_large(store: S3Store) -> None:
    with store.open_write("data/large") as writer:
        writer.write(bytes(PART_BYTES + 1))


CALLS: dict[str, Call] = {
    "get": lambda store: store.get(KEY),
    "get_range": lambda store: store.get_range(KEY, 0, 5),
    "head": lambda store: store.head(KEY),
    "list": lambda store: store.list("_txnlog/"),
    "delete": lambda store: store.delete(KEY),
    "put": lambda store: store.put("_txnlog/latest", b"ours"),
    "upload": _upload_large,
}


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_create_that_is_redirected_is_sent_once_to_one_host(status: int) -> None:
    with _redirecting(status) as (first, other):
        result = _store(first).create(KEY, b"ours")
    assert other.came == []
    assert [got.method for got in first.came] == ["PUT"]
    # 303 answers a request that was carried out, so it proves nothing.
    assert result.outcome is (CreateOutcome.AMBIGUOUS if status == 303 else CreateOutcome.REFUSED)
    assert result.error is not None
    assert result.error.kind == ("region-wrong" if status == 301 else "endpoint-redirects")
    assert other.url.removeprefix("http://") in str(result.error)
    assert "endpoint_url" in str(result.error) or "region" in str(result.error)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("status", REDIRECTS)
def test_no_call_follows_a_redirect(status: int, call: Call) -> None:
    with _redirecting(status) as (first, other), pytest.raises(StorageError) as caught:
        call(_store(first))
    assert other.came == []
    assert len(first.came) == 1
    assert caught.value.kind in ("region-wrong", "endpoint-redirects")
    assert not caught.value.transient
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>"),
        (400, b"<Error><Code>IllegalLocationConstraintException</Code></Error>"),
        (400, b""),
        (403, b"<Error><Code>PermanentRedirect</Code></Error>"),
    ],
)
@pytest.mark.parametrize("method", ["create", "head"])
def test_no_answer_makes_the_client_ask_again_elsewhere(status: int, body: bytes, method: str) -> None:
    with HostileServer(answer(status, body, x_amz_bucket_region="eu-west-1")) as server:
        store = _store(server)
        if method == "create":
            assert store.create(KEY, b"ours").outcome is CreateOutcome.REFUSED
        else:
            with pytest.raises(StorageError):
                store.head(KEY)
    assert len(server.came) == 1


def test_a_redirect_names_the_region_of_the_bucket() -> None:
    body = b"<Error><Code>PermanentRedirect</Code><Endpoint>b.s3.eu-west-1.amazonaws.com</Endpoint></Error>"
    made = answer(301, body, x_amz_bucket_region="eu-west-1")
    with HostileServer(made) as server, pytest.raises(StorageError) as caught:
        _store(server).get(KEY)
    assert caught.value.kind == "region-wrong"
    assert caught.value.values["region"] == "eu-west-1"
    assert "b.s3.eu-west-1.amazonaws.com" in str(caught.value)


def test_what_a_redirect_names_reaches_no_terminal_raw() -> None:
    nasty = answer(302, Location="http://\x1b[31mevil/", x_amz_bucket_region="\x1b[2J")
    with HostileServer(nasty) as server, pytest.raises(StorageError) as caught:
        _store(server).get(KEY)
    assert "\x1b" not in str(caught.value)


# --- AWS's own redirects: a proxy stands for AWS, so that names need not be found ---------------------------

_keys = (f"key-{number}" for number in itertools.count())
"""A connection, and with it its proxy, is kept for equal options."""

VIRGINIA = "http://s3.us-east-1.amazonaws.com"


@contextlib.contextmanager
def _aws(location: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileServer]:
    def redirect(got: Got) -> list[bytes]:
        made = answer(307, Location=location) if "us-east-1" in got.headers["host"] else _ok
        return list(made(got))

    with HostileServer(redirect) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        yield proxy


@pytest.mark.parametrize(
    ("allowed", "location", "hosts"),
    [
        ("true", "http://bucket.s3.eu-west-1.amazonaws.com/log", ["us-east-1", "eu-west-1"]),
        ("true", "http://bucket.s3-eu-west-1.amazonaws.com/log", ["us-east-1", "eu-west-1"]),
        ("false", "http://bucket.s3.eu-west-1.amazonaws.com/log", ["us-east-1"]),
        ("true", "http://bucket.s3.eu-west-1.amazonaws.com.evil.example/log", ["us-east-1"]),
        ("true", "http://bucket.s3.cn-north-1.amazonaws.com.cn/log", ["us-east-1"]),
        ("true", "https://bucket.s3.eu-west-1.amazonaws.com/log", ["us-east-1"]),
        ("true", "http://evil.example/s3.eu-west-1.amazonaws.com", ["us-east-1"]),
        ("true", "http://user@bucket.s3.eu-west-1.amazonaws.com/log", ["us-east-1"]),
        ("true", "http://bucket.s3.eu-west-1.amazonaws.com:8080/log", ["us-east-1"]),
        ("true", "http://ec2.eu-west-1.amazonaws.com/log", ["us-east-1"]),
        ("true", "http://bucket.s3.us-east-1.amazonaws.com/log", ["us-east-1", "us-east-1"]),
    ],
)
def test_a_307_of_aws_is_tried_again_at_its_regional_endpoint_if_the_option_allows_it(
    allowed: str, location: str, hosts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with _aws(location, monkeypatch) as proxy:
        result = _store(VIRGINIA, region_redirect=allowed, key=next(_keys)).create(KEY, b"ours")
    assert [got.headers["host"].split(".amazonaws")[0].split(".")[-1] for got in proxy.came] == hosts
    assert (result.outcome is CreateOutcome.CREATED) == (hosts[-1] != "us-east-1")
    if result.error is not None:
        assert result.error.kind in ("region-wrong", "endpoint-redirects")


# --- bounds -------------------------------------------------------------------------------------------------

ENDLESS = b"HTTP/1.1 %d X\r\nETag: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 200 X\r\n",
        b"HTTP/1.1 200 X\r\nContent-Length: 900\r\n\r\n",
        ENDLESS % 200,
        ENDLESS % 503,
    ],
    ids=["status", "headers", "body", "chunked-body", "error"],
)
@pytest.mark.parametrize("call", ["create", "get", "list"])
def test_a_store_that_sends_a_byte_now_and_then_holds_no_call_for_ever(head: bytes, call: str) -> None:
    def drip(_: Got) -> Iterator[bytes]:
        yield head
        if b"chunked" in head:
            yield from server.drip(b"1\r\nx\r\n")
        elif head.endswith(b"\r\n\r\n"):
            yield from server.drip(b"x")
        else:
            yield from server.drip(b"A: b\r\n" if head.endswith(b"\n") else b"O")

    with HostileServer(drip) as server:
        store = _store(server, request_timeout_s="0.5")
        if call == "create":
            result = store.create(KEY, b"ours")
            assert result.outcome is CreateOutcome.AMBIGUOUS
            assert result.error is not None
            assert result.error.transient
        else:
            with pytest.raises(StorageError) as caught:
                CALLS[call](store)
            assert caught.value.transient
    assert len(server.came) == 1


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("call", ["get", "get_range", "list", "put", "error"])
def test_no_body_is_read_beyond_what_it_may_have(call: str, declared: bool) -> None:
    status = 503 if call == "error" else 200

    def endless(_: Got) -> Iterator[bytes]:
        yield (
            b"HTTP/1.1 %d X\r\nETag: x\r\nContent-Length: 30000000000\r\n\r\n" if declared else ENDLESS
        ) % status
        part = bytes(1 << 20)
        yield from server.drip(part if declared else b"100000\r\n" + part + b"\r\n", 0)

    with HostileServer(endless) as server:
        with pytest.raises(StorageError) as caught:
            CALLS["get" if call == "error" else call](_store(server))
        expected = {"get": "object-too-large", "get_range": "connection-lost"}
        assert caught.value.kind == expected.get(call, "answer-too-large")
    assert len(server.came) == 1
    assert server.sent_bytes < 40 << 20


class _Ticking(SystemClock):
    """A clock that goes on only when it is told to, and when somebody sleeps."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now(self) -> Instant:
        return Instant(self.ms, self.ms)

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        self.ms += int(seconds * 1000)


NONSENSE = {
    "lost": answer(500, b"<Error><Code>InternalError</Code></Error>"),
    "a listing without names": answer(
        200, b"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>"
    ),
    "a date that is none": answer(200, b"x", Last_Modified="yesterday"),
    "another length": answer(206, b"x", Content_Range="bytes 0-0/100"),
}


@pytest.mark.parametrize("made", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("takes_ms", [30, 450, 900, 3_900])
@pytest.mark.parametrize("call", ["get", "get_range", "list"])
def test_slow_nonsense_is_asked_for_again_until_one_deadline(call: str, takes_ms: int, made: Answer) -> None:
    """The adapter repeats, the steps of the protocol do, or both."""
    clock = _Ticking()
    begun: list[int] = []

    def slowly(got: Got) -> list[bytes]:
        begun.append(clock.ms)
        clock.ms += takes_ms
        return list(made(got))

    with HostileServer(slowly) as server:
        store = _store(server, clock, request_timeout_s="4")
        driver = Driver(store, clock, SystemIds())
        ways: dict[str, Callable[[], object]] = {
            "get": lambda: driver.run(request(GetObject(KEY))),
            "list": lambda: driver.run(request(ListObjects("_txnlog/"))),
            "get_range": lambda: patiently(clock, lambda: store.get_range(KEY, 0, 5)),
        }
        with contextlib.suppress(StorageError):
            ways[call]()
            return  # this answer makes sense to this call
    assert begun[-1] - begun[0] < 4_000 + 2_000
    assert len(begun) > (takes_ms < 3_900)


def test_a_call_that_fails_later_has_all_its_time_again() -> None:
    clock = _Ticking()
    with HostileServer(answer(500)) as server:
        store = _store(server, clock, request_timeout_s="4")
        for _ in range(3):
            server.came.clear()
            with pytest.raises(StorageError) as caught:
                store.get(KEY)
            assert len(server.came) == ATTEMPTS_MAX
            assert not caught.value.patience_over
            clock.ms += 3_000


def test_what_is_not_there_is_no_failure_that_goes_on() -> None:
    clock = _Ticking()
    answers = iter([answer(404)] * 8 + [answer(500)] * 100)
    with HostileServer(lambda got: next(answers)(got)) as server:
        store = _store(server, clock, request_timeout_s="4")
        for _ in range(8):
            assert store.get(KEY) is None
            clock.ms += 500
        server.came.clear()
        with pytest.raises(StorageError):
            store.get(KEY)
        assert len(server.came) == ATTEMPTS_MAX


def test_a_repeat_gets_what_is_left_of_the_deadline() -> None:
    """A request of an hour, of which nothing is left, ends after a second."""
    clock = _Ticking()

    def hang(_: Got) -> Iterator[bytes]:
        if len(server.came) == 1:
            clock.ms += 3_599_000
            yield from answer(500)(server.came[0])
        else:
            yield b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n"
            yield from server.drip(b"x")

    with HostileServer(hang) as server:
        store = _store(server, clock, request_timeout_s="3600", read_timeout_s="3600")
        with pytest.raises(StorageError):
            store.get(KEY)
        assert len(server.came) >= 2


def test_a_body_that_comes_fast_enough_has_all_the_time_it_needs() -> None:
    """Each 64 KiB moves the deadline by a second: what takes longer than request_timeout_s is read."""
    size = 2 << 20

    def slow(_: Got) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % size
        yield from itertools.islice(server.drip(bytes(size // 8), 0.45), 8)

    with HostileServer(slow) as server:
        assert _store(server, request_timeout_s="3").get("data/x") == bytes(size)


def test_a_listing_that_never_ends_is_an_error() -> None:
    page = b"<ListBucketResult><IsTruncated>true</IsTruncated>%s</ListBucketResult>"
    for token in (b"", b"<NextContinuationToken>same</NextContinuationToken>"):
        with HostileServer(answer(200, page % token)) as server, pytest.raises(StorageError) as caught:
            _store(server).list("a/")
        assert caught.value.kind == ("answer-too-large" if token else "connection-lost")
        assert len(server.came) == (2 if token else 1)


@pytest.mark.parametrize(
    "made",
    [
        answer(200, b"x", Last_Modified="yesterday"),
        answer(200, b"x", Last_Modified="99999999999999999999"),
        answer(200, b"x", x_amz_missing_meta="many"),
        answer(200, b"x", Date="\xff\xfe"),
        answer(200, b"x", x_amz_object_lock_retain_until_date="9"),
        answer(200, b"<a><b></a>"),
        answer(200, b"<ListBucketResult><Contents></Contents></ListBucketResult>"),
        answer(200, b"<ListBucketResult><Contents><Key>a</Key><Size>z</Size></Contents></ListBucketResult>"),
        lambda _: [b"HTTP/1.1 200 X\r\nContent-Length: -1\r\n\r\n"],
        lambda _: [b"HTTP/1.1 204 X\r\n\r\n"],
        lambda _: [b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n"],
    ],
)
@pytest.mark.parametrize("call", [*CALLS, "create"])
def test_nonsense_raises_no_error_but_our_own(made: Answer, call: str) -> None:
    with HostileServer(made) as server, contextlib.suppress(TxnLogError):
        store = _store(server)
        store.create(KEY, b"ours") if call == "create" else CALLS[call](store)


def _listing(inside: str, root: str = "ListBucketResult", before: str = "") -> str:
    return f"{before}<{root}><IsTruncated>false</IsTruncated>{inside}</{root}>"


def _listed(key: str = "log/a", size: str = "1") -> str:
    return f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>"


_ENTITY = '<!DOCTYPE x [<!ENTITY e "aaaaaaaaaa">]>'

BAD_LISTINGS = {
    "entities": _listing(_listed("&e;"), before=_ENTITY).encode(),
    "entities, small letters": _listing(_listed(), before="<!doctype x>").encode(),
    "entities behind a mark": b"\xef\xbb\xbf" + _listing(_listed("&e;"), before=_ENTITY).encode(),
    "UTF-16 with entities": _listing(_listed("&e;"), before=_ENTITY).encode("utf-16"),
    "another encoding": _listing(_listed(), before='<?xml version="1.0" encoding="cp037"?>').encode(),
    "nesting": _listing("<a>" * 100_000 + "</a>" * 100_000).encode(),
    "a long key": _listing(_listed("log/" + "a" * 1_100)).encode(),
    "a size below zero": _listing(_listed(size="-5")).encode(),
    "a large size": _listing(_listed(size="9" * 4_000)).encode(),
    "another root": _listing("", root="html").encode(),
}


@pytest.mark.parametrize("body", BAD_LISTINGS.values(), ids=BAD_LISTINGS)
def test_a_listing_that_is_none_is_refused(body: bytes) -> None:
    with HostileServer(answer(200, body)) as server, pytest.raises(StorageError) as caught:
        _store(server).list("")
    assert caught.value.kind == "connection-lost"


def test_listings_of_other_forms_are_read() -> None:
    long = _listing(
        "<EncodingType>url</EncodingType>"
        + "".join(_listed(f"log/{number:04}" + "%22" * 1_016) for number in range(1_000))
    )
    for text in ("\ufeff" + _listing(_listed(), before='<?xml version="1.0" encoding="UTF-8"?>'), long):
        with HostileServer(answer(200, text.encode())) as server:
            assert _store(server).list("")


def test_an_error_with_a_document_type_means_what_its_status_says() -> None:
    page = answer(403, b"<!DOCTYPE html><html></html>")
    with HostileServer(page) as server, pytest.raises(StorageError) as caught:
        _store(server).list("")
    assert caught.value.kind == "permission-denied"


@pytest.mark.parametrize("made", [answer(500), answer(200)], ids=["lost", "unclear"])
@pytest.mark.parametrize("large", [False, True])
def test_closing_an_upload_has_one_deadline(large: bool, made: Answer) -> None:
    clock = _Ticking()
    begun: list[int] = []

    def slowly(got: Got) -> list[bytes]:
        if "uploads" in got.target:
            upload = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
            return list(answer(200, upload)(got))
        if "partNumber" in got.target or got.method == "DELETE":
            return list(answer(200, ETag='"0"')(got))
        begun.append(clock.ms)
        clock.ms += 3_000
        return list(made(got))

    with HostileServer(slowly) as server:
        writer = _store(server, clock, request_timeout_s="4").open_write("data/x")
        writer.write(bytes(PART_BYTES + 1 if large else 1))
        with pytest.raises(StorageError):
            writer.close()
    assert len(begun) == 2


# --- endpoints ----------------------------------------------------------------------------------------------


def test_credentials_of_the_environment_go_to_its_own_endpoint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "env-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    with HostileServer(_ok) as named, HostileServer(_ok) as own:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", own.url)
        store = S3Store("s3://bucket/log", {"endpoint_url": named.url, "region": "us-east-1"})
        with pytest.raises(StorageError) as caught:
            store.get(KEY)
        result = store.create(KEY, b"ours")
        same = S3Store("s3://bucket/log", {"endpoint_url": own.url, "region": "us-east-1"})
        assert same.get(KEY) == b"theirs"
        assert _store(named).get(KEY) == b"theirs"
    assert caught.value.kind == "credentials-missing"
    assert result.outcome is CreateOutcome.REFUSED
    assert [got.method for got in named.came] == ["GET"]
    assert "env-key" not in named.came[0].headers["authorization"]


def test_a_probe_of_one_endpoint_says_nothing_of_another() -> None:
    with moto_server(bucket="bucket") as fit, HostileServer(_ok) as unfit:
        options = {**fit.storage_options, "endpoint_url": fit.endpoint_url}
        good = S3Store("s3://bucket/log", options)
        ensure_fit(good, SystemIds())
        with pytest.raises(TxnLogError) as caught:
            ensure_fit(S3Store("s3://bucket/log", {**options, "endpoint_url": unfit.url}), SystemIds())
    assert caught.value.kind == "unsupported-store"
    assert unfit.came
