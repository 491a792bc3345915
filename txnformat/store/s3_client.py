"""The connection of one process to S3: an s3fs file system whose client sends every request exactly once.

s3fs knows where credentials come from, and runs the event loop; its own calls repeat requests, so ours go to its
client directly. Three layers below would also repeat a request, and are told not to: s3fs's wrapper (not used),
botocore (one attempt), and aiohttp, which sends a PUT again when a kept connection breaks under it.

An event loop does not survive a fork: connections are made at the first use, and found by process id.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiobotocore.httpsession import AIOHTTPSession
from s3fs import S3FileSystem

from txnformat.store.s3_options import S3Options
from txnformat.store.secrets import guard_loggers, remember, remember_credentials
from txnformat.version import __version__

__all__ = ["Connection", "connection"]

T = TypeVar("T")

CONNECTIONS_MAX = 64
"""HTTP connections of one client."""

CLIENTS_MAX = 8
"""Clients kept per process: one for each set of options in use lately."""

_lock = threading.Lock()
_connections: OrderedDict[tuple[int, S3Options], Connection] = OrderedDict()


class _OnceSession(AIOHTTPSession):  # type: ignore[misc]  # untyped
    """HTTP sessions that never send a request twice."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        # aiohttp's only switch for it; tests/integration/test_s3_requests.py fails without.
        session._retry_connection = False
        return session


class Connection:
    """A client of this process. Made by :func:`connection`; no IO before the first call."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._file_system: S3FileSystem | None = None
        self._client: Any = None
        self._lock: asyncio.Lock | None = None
        self._make_lock = threading.Lock()

    def call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its answer; a body is read to its end (``Body`` is bytes).

        Raises
        ------
        Exception
            Whatever botocore or aiohttp raise.
        """
        return self.run(lambda: self.send(operation, arguments))

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the event loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work(), self._files().loop).result()

    async def send(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Send one request, on the event loop."""
        client = await self._connected()
        answer: dict[str, Any] = await getattr(client, operation)(**arguments)
        body = answer.get("Body")
        if body is not None:
            async with body:
                answer["Body"] = await body.read()
        return answer

    async def _connected(self) -> Any:
        if self._client is None:
            if self._lock is None:
                self._lock = asyncio.Lock()
            async with self._lock:
                if self._client is None:
                    guard_loggers()
                    remember((self._options.secret, self._options.token, self._options.key))
                    client = await self._files().set_session()
                    remember_credentials(
                        getattr(getattr(client, "_request_signer", None), "_credentials", None)
                    )
                    guard_loggers()  # those that came with it
                    self._client = client
        return self._client

    def _files(self) -> S3FileSystem:
        with self._make_lock:
            if self._file_system is None:
                self._file_system = _file_system(self._options)
            return self._file_system


def connection(options: S3Options) -> Connection:
    """Return this process's connection for ``options``."""
    wanted = os.getpid(), options
    with _lock:
        found = _connections.get(wanted)
        if found is None:
            found = _connections[wanted] = Connection(options)
            # What a fork copied from its parent stays: it is not ours to close.
            own = [key for key in _connections if key[0] == wanted[0]]
            for key in own[: max(0, len(own) - CLIENTS_MAX)]:
                del _connections[key]
        _connections.move_to_end(wanted)
        return found


def _forget_lock() -> None:
    """Give a forked child a lock that no thread of its parent holds."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def _file_system(options: S3Options) -> S3FileSystem:
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
            "http_session_cls": _OnceSession,
            # Our own checksum goes along as a header; trailers are not understood by every store.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
            "user_agent_extra": f"txnlog/{__version__}",
        },
        use_listings_cache=False,
        skip_instance_cache=True,
        **session,
    )
