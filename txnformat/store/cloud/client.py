"""obstore's clients of one process, found by what they serve.

Two kinds serve each root. One sends every request exactly once: a conditional create that a library repeats
hides its own success. The other repeats what may be repeated. obstore is told so by ``max_retries``;
redirects it never follows.

A client's threads do not survive a fork, and a call in a forked child would wait for ever: it is refused.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txnformat.errors import StorageError
from txnformat.forking import renewed
from txnformat.store.cloud.options import CloudOptions
from txnformat.store.options import check_bundle
from txnformat.store.secrets import guard_loggers, remember
from txnformat.version import __version__

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

__all__ = ["LARGE_BYTES", "Make", "client_for"]

CLIENTS_MAX = 32
"""Clients kept per process; those of one root are at most four."""
RETRIES_MAX = 5
FIRST_WAIT_S = 0.1
WAIT_S_MAX = 5.0

LARGE_BYTES = 1 << 20
"""Requests that carry more bytes have more time."""
LARGE_S = 256
"""Seconds for 16 MiB, at 64 KiB a second."""

Make = Callable[["ClientConfig", "RetryConfig"], Any]
"""Makes a client with these settings."""

_lock = renewed(globals(), "_lock", threading.Lock)
_clients: OrderedDict[Hashable, Any] = OrderedDict()
_process: list[int] = []
"""The process that used obstore first."""


def client_for(
    root: Hashable, options: CloudOptions, make: Make, *, repeats: bool, is_large: bool, writes: bool
) -> Any:
    """Return the client of this process for a root.

    ``repeats``: whether it may send a request again. ``writes``: whether its requests make objects.

    Raises StorageError of kind ``client-forked``; ``invalid-storage-option``.
    """
    with _lock:
        if not _process:
            _process.append(os.getpid())
        elif _process[0] != os.getpid():
            raise StorageError(
                "the store's client does not survive a fork of the process that uses it",
                kind="client-forked",
                hint="start processes by spawn or forkserver (multiprocessing.set_start_method), or open "
                "the log in the child only",
            )
        headers = options.write_headers() if writes else {}
        wanted = root, options, repeats, is_large, bool(headers)
        found = _clients.get(wanted)
        if found is None:
            guard_loggers()
            remember(options.secret_values())
            client, retry = _settings(options, repeats=repeats, is_large=is_large)
            if headers:
                client["default_headers"] = headers
            found = _clients[wanted] = make(client, retry)
            while len(_clients) > CLIENTS_MAX:
                _clients.popitem(last=False)
        _clients.move_to_end(wanted)
        return found


def _settings(options: CloudOptions, *, repeats: bool, is_large: bool) -> tuple[ClientConfig, RetryConfig]:
    check_bundle(options.verify)
    whole_s = options.request_timeout_s + (LARGE_S if is_large else 0)
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=options.connect_timeout_s),
        "read_timeout": timedelta(seconds=options.read_timeout_s),
        "timeout": timedelta(seconds=whole_s),
        "user_agent": f"txnlog/{__version__}",
        "allow_http": (options.endpoint_url or "").startswith("http://"),
    }
    if options.verify is False:
        client["allow_invalid_certificates"] = True
    elif isinstance(options.verify, str):
        client["root_certificate"] = Path(options.verify).read_bytes()
    retry: RetryConfig = {
        "max_retries": RETRIES_MAX if repeats else 0,
        "retry_timeout": timedelta(seconds=options.request_timeout_s),
        "backoff": {
            "init_backoff": timedelta(seconds=FIRST_WAIT_S),
            "max_backoff": timedelta(seconds=WAIT_S_MAX),
            "base": 2,
        },
    }
    return client, retry
