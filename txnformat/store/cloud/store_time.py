"""The clock of a store whose client shows no headers: one request without credentials to its endpoint, whose
answer has a Date.

Any answer will do, also a refusal. No credentials go out with it, and no redirect is followed.
"""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from txnformat.clock import Clock, Instant, waited_ms
from txnformat.errors import StorageError
from txnformat.store.remote.store_time import StoreTime
from txnformat.version import __version__

__all__ = ["AskedTime"]

FRESH_MS = 60_000
"""How long an answer is counted on from, ms."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


class AskedTime:
    """A store's time, asked for at most once a minute, and counted on from there. Safe for threads.

    ``endpoint``: ``http(s)://host[:port]/…``. ``verify``: whether its certificate is checked, or the path of
    a CA bundle. Proxies are those of the environment.
    """

    def __init__(self, clock: Clock, endpoint: str, verify: bool | str, seconds: float) -> None:
        self._clock = clock
        self._endpoint = endpoint
        self._verify = verify
        self._seconds = seconds
        self._time = StoreTime(clock)
        self._asked: Instant | None = None

    def now_ms(self) -> int:
        """Return the store's time, ms since the epoch.

        Requests: 1 HEAD a minute at most. Raises StorageError.
        """
        known = self._time.estimate_ms()
        if known is None or self._asked is None or waited_ms(self._asked, self._clock.now()) >= FRESH_MS:
            try:
                self._ask()
            except OSError as error:
                if known is None:
                    raise StorageError(
                        "the store cannot be reached",
                        kind="endpoint-unreachable",
                        hint="check the network, the names in the URL, and the storage option endpoint_url",
                        transient=True,
                        endpoint=self._endpoint,
                        cause=str(error),
                    ) from None
        return self._time.known_ms(self._endpoint)

    def _ask(self) -> None:
        parts = urlsplit(self._endpoint)
        context = ssl.create_default_context(cafile=self._verify if isinstance(self._verify, str) else None)
        if self._verify is False:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
        request = urllib.request.Request(
            f"{parts.scheme}://{parts.netloc}/",
            method="HEAD",
            headers={"User-Agent": f"txnlog/{__version__}"},
        )
        sent = self._time.now()
        try:
            with opener.open(request, timeout=self._seconds) as answer:
                date = answer.headers.get("Date")
        except urllib.error.HTTPError as refusal:
            date = refusal.headers.get("Date")
            refusal.close()
        self._time.learn(sent, date)
        self._asked = sent
