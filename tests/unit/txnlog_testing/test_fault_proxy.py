"""The fault proxy against a real HTTP server: each fault does at the server what its name says, and is
counted."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from txnformat.errors import InvalidInputError
from txnlog_testing.stores.fault_proxy import (
    FaultProxy,
    ProxyFault,
    ProxyFaultKind,
    Request,
    no_proxy_faults,
    seeded_plan,
)

DROPPED = (http.client.HTTPException, ConnectionError)


class ObjectServer(ThreadingHTTPServer):
    """Objects by path, with If-None-Match; remembers what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.answers: list[tuple[str, int]] = []
        self.hosts: set[str] = set()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ObjectServer

    def _answer(self, status: int, body: bytes = b"", *, chunked: bool = False) -> None:
        self.server.answers.append((self.command, status))
        self.server.hosts.add(self.headers["Host"])
        self.send_response(status)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
            body = b"".join(b"%x\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            if self.headers["If-None-Match"] and self.path in self.server.objects:
                self._answer(412, b"<Error/>")
                return
            self.server.objects[self.path] = body
            self._answer(200)

    def do_GET(self) -> None:
        data = self.server.objects.get(self.path.partition("?")[0])
        self._answer(404 if data is None else 200, data or b"", chunked="chunked" in self.path)

    do_HEAD = do_GET

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: ObjectServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as running:
        yield running


def _connect(proxy: FaultProxy, timeout: float = 30) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=timeout)


def _ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read()


def _create(proxy: FaultProxy, path: str = "/slot", body: bytes = b"ours") -> int:
    connection = _connect(proxy)
    try:
        return _ask(connection, "PUT", path, body, If_None_Match="*")[0]
    finally:
        connection.close()


def _plan(proxy: FaultProxy, kind: ProxyFaultKind, *, applied: bool = False, status: int = 503) -> ProxyFault:
    fault = ProxyFault(kind, applied=applied, status=status, delay_ms=30_000)
    proxy.plan = lambda request, nth: fault if (request.method, nth) == ("PUT", 1) else None
    return fault


def test_without_faults_requests_and_answers_pass_unchanged(server: ObjectServer, proxy: FaultProxy) -> None:
    """On one connection: empty and chunked answers, HEAD, a missing object, and a body that must be asked
    for."""
    connection = _connect(proxy)
    data = bytes(range(256)) * 512
    assert _ask(connection, "PUT", "/a", data, Host="bucket.example") == (200, b"")
    assert server.hosts == {"bucket.example"}, (
        "the Host header is signed: it must arrive as the client sent it"
    )
    assert _ask(connection, "GET", "/a") == (200, data)
    assert _ask(connection, "GET", "/a?chunked") == (200, data)
    assert _ask(connection, "HEAD", "/a") == (200, b"")
    assert _ask(connection, "GET", "/b") == (404, b"")
    assert _ask(connection, "PUT", "/c", b"x", Expect="100-continue") == (200, b"")
    connection.close()
    assert server.objects == {"/a": data, "/c": b"x"}
    proxy.wait_until_idle()
    counts = proxy.counts
    assert counts.requests == {"PUT": 2, "GET": 3, "HEAD": 1}
    assert (counts.conditional_puts, counts.faults.total()) == (0, 0)


def test_creates_are_counted(proxy: FaultProxy) -> None:
    assert [_create(proxy), _create(proxy, body=b"theirs")] == [200, 412]
    assert proxy.counts.conditional_puts == 2
    assert str(proxy.counts) == "2 conditional PUTs of 2 requests; no faults"


@pytest.mark.parametrize(
    ("kind", "answers", "hidden"),
    [
        (ProxyFaultKind.DROP_BEFORE, [], 0),
        (ProxyFaultKind.APPLY_THEN_DROP, [200], 1),
        (ProxyFaultKind.TRUNCATED, [200], 1),
        (ProxyFaultKind.LATE, [200], 1),
    ],
)
def test_faults_without_an_answer(
    server: ObjectServer, proxy: FaultProxy, kind: ProxyFaultKind, answers: list[int], hidden: int
) -> None:
    fault = _plan(proxy, kind)
    with pytest.raises(DROPPED):
        _create(proxy)
    proxy.wait_until_idle()
    assert [status for _, status in server.answers] == answers
    assert proxy.counts.faults == {fault: 1}
    assert proxy.counts.hidden_successes.total() == hidden
    assert _create(proxy, body=b"again") == (412 if answers else 200)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (ProxyFaultKind.CONFLICT_409, 409),
        (ProxyFaultKind.SERVER_ERROR, 500),
        (ProxyFaultKind.SERVER_ERROR, 503),
        (ProxyFaultKind.ERROR_IN_200, 200),
    ],
)
def test_made_up_answers(
    server: ObjectServer, proxy: FaultProxy, kind: ProxyFaultKind, status: int, *, applied: bool
) -> None:
    _plan(proxy, kind, applied=applied, status=status)
    connection = _connect(proxy)
    got, body = _ask(connection, "PUT", "/slot", b"ours", If_None_Match="*")
    assert got == status
    assert b"<Error><Code>" in body
    # The connection goes on.
    assert _ask(connection, "GET", "/slot") == ((200, b"ours") if applied else (404, b""))
    connection.close()
    assert proxy.counts.kinds() == {kind: 1}
    assert proxy.counts.hidden_successes.total() == applied
    assert ("PUT" in [method for method, _ in server.answers]) == applied


def test_a_success_that_is_reported_as_412(server: ObjectServer, proxy: FaultProxy) -> None:
    _plan(proxy, ProxyFaultKind.EXISTS_412)
    assert _create(proxy) == 412
    assert server.answers == [("PUT", 200), ("PUT", 412)]
    assert server.objects == {"/slot": b"ours"}
    assert proxy.counts.hidden_successes == {ProxyFaultKind.EXISTS_412: 1}


def test_a_duplicate_is_delivered_before_the_answer(server: ObjectServer, proxy: FaultProxy) -> None:
    _plan(proxy, ProxyFaultKind.DUPLICATED)
    assert _create(proxy) == 200
    assert server.answers == [("PUT", 200), ("PUT", 412)]
    assert proxy.counts.kinds() == {ProxyFaultKind.DUPLICATED: 1}
    assert not proxy.counts.hidden_successes


def test_a_delayed_answer_comes_on_the_scaled_clock(proxy: FaultProxy) -> None:
    """30 s at a thousandth: the client, which waits 30 s at most, gets its answer."""
    _plan(proxy, ProxyFaultKind.DELAY)
    assert _create(proxy) == 200
    assert proxy.counts.kinds() == {ProxyFaultKind.DELAY: 1}


def test_a_held_request_is_delivered_once_its_client_has_given_up(
    server: ObjectServer, proxy: FaultProxy
) -> None:
    taken = threading.Event()

    def hold(_request: Request, _nth: int) -> ProxyFault:
        taken.set()
        return ProxyFault(ProxyFaultKind.HELD)

    proxy.plan = hold
    connection = _connect(proxy, timeout=0.05)
    with pytest.raises(TimeoutError):
        _ask(connection, "PUT", "/slot", b"ours", If_None_Match="*")
    assert taken.wait(300)  # the client may have given up before the proxy came to its request
    assert not server.answers
    connection.close()
    proxy.wait_until_idle()
    assert server.answers == [("PUT", 200)]
    assert proxy.counts.hidden_successes == {ProxyFaultKind.HELD: 1}


def test_a_late_request_may_wait_until_it_is_released(server: ObjectServer, proxy: FaultProxy) -> None:
    late = ProxyFault(ProxyFaultKind.LATE, until_released=True)
    proxy.plan = lambda request, nth: late if nth == 1 else None
    with pytest.raises(DROPPED):
        _create(proxy)
    assert _create(proxy, body=b"again") == 200
    proxy.release()
    assert server.answers == [("PUT", 200), ("PUT", 412)]
    assert proxy.counts.faults == {late: 1}
    assert server.objects == {"/slot": b"again"}


def test_an_error_may_have_any_status_and_code(server: ObjectServer, proxy: FaultProxy) -> None:
    proxy.plan = lambda _request, _nth: ProxyFault(
        ProxyFaultKind.SERVER_ERROR, status=403, code="ExpiredToken"
    )
    connection = _connect(proxy)
    status, body = _ask(connection, "GET", "/a")
    connection.close()
    assert (status, server.answers) == (403, [])
    assert b"<Code>ExpiredToken</Code>" in body


def test_a_truncated_body_is_shorter_than_its_length_says(server: ObjectServer, proxy: FaultProxy) -> None:
    server.objects["/a"] = b"x" * 1_000
    proxy.plan = lambda _request, _nth: ProxyFault(ProxyFaultKind.TRUNCATED)
    connection = _connect(proxy)
    with pytest.raises(http.client.IncompleteRead) as caught:
        _ask(connection, "GET", "/a")
    connection.close()
    assert len(caught.value.partial) == 500


def test_a_server_that_is_gone_closes_the_clients_connection() -> None:
    with ObjectServer() as gone:
        url = gone.url
    with FaultProxy(url) as proxy, pytest.raises(DROPPED):
        _create(proxy)


def test_only_an_http_address_with_a_port_can_be_passed_on_to() -> None:
    for address in ("https://127.0.0.1:1", "http://127.0.0.1", "s3://bucket"):
        with pytest.raises(InvalidInputError):
            FaultProxy(address)


def test_a_seeded_plan_depends_on_the_request_alone() -> None:
    faults = [ProxyFault(ProxyFaultKind.DROP_BEFORE), ProxyFault(ProxyFaultKind.CONFLICT_409)]
    create = Request("PUT", "/slot", {"if-none-match": "*"}, b"")
    read = Request("GET", "/slot", {}, b"")

    def drawn(seed: int) -> list[ProxyFault | None]:
        plan = seeded_plan(seed, 0.5, faults)
        return [plan(create, nth) for nth in range(200)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {fault.kind for fault in drawn(1) if fault} == {fault.kind for fault in faults}
    assert 60 < sum(fault is not None for fault in drawn(1)) < 140
    assert seeded_plan(1, 1.0, faults)(read, 1) is None
    assert no_proxy_faults(create, 1) is None
