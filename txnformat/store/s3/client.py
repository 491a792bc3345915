"""The connection of one process to S3: an s3fs file system whose client sends every request exactly once.

s3fs knows where credentials come from, and runs the event loop; its own calls repeat requests, so ours go to
its client directly. Four layers below would also repeat a request, and are told not to: s3fs's wrapper (not
used), botocore's retries (one attempt), its redirector of regions, and aiohttp, which sends a PUT again when
a kept connection breaks under it, and follows redirects (:mod:`txnformat.store.s3.session`).

A request has a deadline, and an answer a maximum, whatever the store sends and however slowly.

An event loop does not survive a fork: connections are made at the first use, and found by process id.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError
from s3fs import S3FileSystem

from txnformat.forking import renewed
from txnformat.store.options import check_bundle
from txnformat.store.remote.answers import AnswerTooLargeError
from txnformat.store.s3.options import S3Options, check_credentials
from txnformat.store.s3.session import (
    BadAnswerError,
    OnceSession,
    RedirectedError,
    regional_endpoint,
)
from txnformat.store.secrets import guard_loggers, remember, remember_credentials
from txnformat.version import __version__

__all__ = ["Connection", "connection"]

T = TypeVar("T")

CONNECTIONS_MAX = 64
"""HTTP connections of one client."""

CLIENTS_MAX = 8
"""Clients kept per process: one for each set of options in use lately."""

BYTES_PER_SECOND_MIN = 64 * 1024
"""Slowest rate: on top of ``request_timeout_s`` a request gets a second for so many bytes, sent or received.
"""

_PARSING = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError)
_AT_ONCE_BYTES = 1024 * 1024
"""A body of no more bytes is read in one piece: its share of the deadline is too small to count."""
_READ_BYTES = 256 * 1024

_lock = renewed(globals(), "_lock", threading.Lock)
_connections: OrderedDict[tuple[int, S3Options], Connection] = OrderedDict()


class Connection:
    """A client of this process. Made by :func:`connection`; no IO before the first call."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._file_system: S3FileSystem | None = None
        self._client: Any = None
        self._lock: asyncio.Lock | None = None
        self._make_lock = threading.Lock()

    def call(
        self,
        operation: str,
        arguments: dict[str, Any],
        bytes_max: int | None = None,
        patience_s: float | None = None,
    ) -> dict[str, Any]:
        """Send one request and return its answer; a body is read to its end (``Body`` is bytes), at most
        ``bytes_max`` bytes (inclusive).

        It may take ``patience_s``, by default ``request_timeout_s``; what it sends and receives adds to them.
        Raises what botocore or aiohttp raise; RedirectedError; AnswerTooLargeError; BadAnswerError.
        """
        try:
            return self.run(lambda: self.send(operation, arguments, bytes_max, patience_s))
        except RedirectedError as error:
            found = regional_endpoint(error) if self._options.region_redirect else None
            if found is None:
                raise
            endpoint, region = found
        there = replace(self._options, endpoint_url=endpoint, region=region, region_redirect=False)
        return connection(there).call(operation, arguments, bytes_max, patience_s)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the event loop and wait for it."""
        loop = self._files().loop
        return asyncio.run_coroutine_threadsafe(work(), loop).result()

    async def send(
        self,
        operation: str,
        arguments: dict[str, Any],
        bytes_max: int | None = None,
        patience_s: float | None = None,
    ) -> dict[str, Any]:
        """Send one request, on the event loop."""
        patience = self._options.request_timeout_s if patience_s is None else patience_s
        out = len(arguments.get("Body", b"")) / BYTES_PER_SECOND_MIN
        client = await self._connected()  # reads descriptions of the service, and sends nothing
        async with asyncio.timeout(patience + out) as deadline:
            try:
                answer: dict[str, Any] = await getattr(client, operation)(**arguments)
            except _PARSING as error:  # botocore's parsers at a date that is none, a number that is none …
                if isinstance(error, BotoCoreError):
                    raise
                raise BadAnswerError(repr(error)) from error
            body = answer.get("Body")
            if body is not None:
                async with body:
                    answer["Body"] = await _read(body, answer.get("ContentLength"), bytes_max, deadline)
        return answer

    async def _connected(self) -> Any:
        if self._client is None:
            if self._lock is None:
                self._lock = asyncio.Lock()
            async with self._lock:
                if self._client is None:
                    guard_loggers()
                    remember(self._options.secret_values())
                    client = await self._files().set_session()
                    remember_credentials(
                        getattr(getattr(client, "_request_signer", None), "_credentials", None)
                    )
                    guard_loggers()  # those that came with it
                    # Told so, botocore's own redirector leaves answers alone: it would send the request
                    # again, to an
                    # endpoint that the answer chose.
                    client.meta.events.register_last("before-call.s3", _no_redirector)
                    self._client = client
        return self._client

    def _files(self) -> S3FileSystem:
        with self._make_lock:
            if self._file_system is None:
                self._file_system = _file_system(self._options)
            return self._file_system


async def _read(body: Any, declared: int | None, bytes_max: int | None, deadline: asyncio.Timeout) -> bytes:
    """Return the body of an object; each part that came moves the deadline by what it may take."""
    if bytes_max is not None and declared is not None and declared > bytes_max:
        raise AnswerTooLargeError(bytes_max, declared, of_object=True)
    if declared is not None and declared <= _AT_ONCE_BYTES:
        whole: bytes = await body.read()
        return whole
    parts: list[bytes] = []
    count = 0
    while part := await body.read(_READ_BYTES):
        count += len(part)
        if bytes_max is not None and count > bytes_max:
            raise AnswerTooLargeError(bytes_max, None, of_object=True)
        parts.append(part)
        when = deadline.when()
        assert when is not None
        deadline.reschedule(when + len(part) / BYTES_PER_SECOND_MIN)
    return b"".join(parts)


def _no_redirector(context: dict[str, Any], **_: Any) -> None:
    context.setdefault("s3_redirect", {})["redirected"] = True


def connection(options: S3Options) -> Connection:
    """Return this process's connection for ``options``."""
    wanted = os.getpid(), options
    with _lock:
        found = _connections.get(wanted)
        if found is None:
            found = _connections[wanted] = Connection(options)
            # A session that a fork copied from the parent stays: it is not ours to close.
            own = [key for key in _connections if key[0] == wanted[0]]
            for key in own[: max(0, len(own) - CLIENTS_MAX)]:
                del _connections[key]
        _connections.move_to_end(wanted)
        return found


def _file_system(options: S3Options) -> S3FileSystem:
    check_credentials(options, os.environ)
    check_bundle(options.verify)
    session = {} if options.profile is None else {"profile": options.profile}
    client: dict[str, Any] = {"verify": options.verify}
    if options.region is not None:
        client["region_name"] = options.region
    return S3FileSystem(
        anon=options.anon,
        key=options.key,
        secret=options.secret,
        token=options.token,
        endpoint_url=options.endpoint_url,
        requester_pays=options.requester_pays,
        client_kwargs=client,
        config_kwargs={
            "retries": {"total_max_attempts": 1, "mode": "standard"},
            "connect_timeout": options.connect_timeout_s,
            "read_timeout": options.read_timeout_s,
            "max_pool_connections": CONNECTIONS_MAX,
            "s3": {"addressing_style": options.addressing_style},
            "http_session_cls": OnceSession,
            # Our own checksum goes along as a header; trailers are not understood by every store.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
            "user_agent_extra": f"txnlog/{__version__}",
        },
        use_listings_cache=False,
        skip_instance_cache=True,
        **session,
    )
