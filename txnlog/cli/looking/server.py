"""The page's server: Starlette and uvicorn around a Service. It answers GET, to hosts that it knows, and
nothing else.

A page of another site could reach a server on this machine through the browser (DNS rebinding): so each
request must name a host that is allowed. Each answer forbids all that the page does not need.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from txnformat.digits import whole
from txnformat.errors import InvalidInputError, NotFoundError, TxnLogError
from txnformat.looking.page import policy
from txnlog.cli.looking.service import Service

__all__ = ["application", "serve"]

LOCAL = ("127.0.0.1", "localhost", "::1")
GRACE_S = 2
"""How long an answer that is under way may take when the server ends."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

HEADERS = {
    "content-security-policy": policy(live=True) + "; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}
"""Headers of every answer."""


class _Guard:
    """Refuses what is not a GET of an allowed host, and gives every answer its headers."""

    def __init__(self, inner: Starlette, allowed: Collection[str]) -> None:
        self._inner = inner
        self._allowed = {name.lower() for name in (*LOCAL, *allowed)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _problem(*refusal)(scope, receive, guarded)
        else:
            await self._inner(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if _host(headers.get(b"host", b"").decode("latin-1")) not in self._allowed:
            return 421, "this host name is not allowed: txnlog ui --allow-host NAME"
        is_own = headers.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin")
        if (
            not is_own and headers.get(b"sec-fetch-mode") != b"navigate"
        ):  # a link on another page may lead here
            return 403, "the page answers its own requests only"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "the page only reads"
        return None


def _host(text: str) -> str:
    """Return the name in a Host header, without its port, in lower case."""
    if text.startswith("["):
        return text[1:].partition("]")[0].lower()
    return text.partition(":")[0].lower()


def _problem(status: int, text: str) -> Response:
    return Response(json.dumps({"error": text}), status, media_type="application/json")


def _answered(question: Callable[[], str]) -> Response:
    try:
        return Response(question(), media_type="application/json")
    except TxnLogError as error:
        return _refused(error)


def _refused(error: TxnLogError) -> Response:
    if error.kind in ("log-gone", "log-replaced"):
        return _problem(503, f"{error.what}; start txnlog ui again to see the current log")
    if isinstance(error, NotFoundError):
        return _problem(404, str(error))
    return _problem(400 if isinstance(error, InvalidInputError) else 503, str(error))


def application(service: Service, allowed: Collection[str] = ()) -> _Guard:
    """Return the ASGI application."""

    def whole_page(_: Request) -> Response:
        try:
            return HTMLResponse(service.page())
        except TxnLogError as error:
            return _refused(error)

    def entry_of(request: Request) -> int:
        found = whole(request.query_params.get("entry", ""))
        if found is None:
            raise InvalidInputError("the entry is not a number", kind="invalid-version")
        return found

    def follow(request: Request) -> Response:
        return _answered(lambda: service.follow(entry_of(request)))

    def document(request: Request) -> Response:
        return _answered(lambda: service.document(entry_of(request)))

    routes = [Route("/", whole_page), Route("/api/follow", follow), Route("/api/document", document)]
    return _Guard(Starlette(routes=routes), allowed)


class _Server(uvicorn.Server):
    """A server whose signals are those of :func:`serve`: uvicorn's own would raise them again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def serve(
    service: Service, listening: socket.socket, allowed: Collection[str], seconds: float | None = None
) -> None:
    """Answer until SIGINT or SIGTERM comes, or the time is over."""
    config = uvicorn.Config(
        application(service, allowed),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config)

    def stop() -> None:
        server.should_exit = True

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        if seconds is not None:
            loop.call_later(seconds, stop)
        await server.serve(sockets=[listening])

    asyncio.run(run())
