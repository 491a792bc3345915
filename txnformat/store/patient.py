"""Waiting out what passes: a store whose reads are repeated, and the pauses between attempts of an upload."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from txnformat.clock import Clock, Ids, Instant, waited_ms
from txnformat.errors import StorageError
from txnformat.store.base import ObjectStore
from txnformat.store.requests import READS, RequestKind
from txnformat.store.wrapped import WrappedStore

__all__ = ["PatientStore", "Pauses"]

logger = logging.getLogger("txnlog")

PATIENCE_MS = 60_000
"""How long an outage is waited out, ms; what then fails is passed on at once, until a read succeeds."""
UPLOAD_PATIENCE_MS = 60_000
"""How long an upload is tried again, ms from its first failure."""
FIRST_WAIT_S = 0.1
WAIT_S_MAX = 5.0

T = TypeVar("T")


class Pauses:
    """The pauses between the attempts of one upload: each up to twice as long as the one before, until a
    deadline.

    Random, so that many uploads that failed together do not come back together.
    """

    def __init__(self, clock: Clock, ids: Ids, patience_ms: int = UPLOAD_PATIENCE_MS) -> None:
        self._clock = clock
        self._ids = ids
        self._patience_ms = patience_ms
        self._since: Instant | None = None
        self._wait = FIRST_WAIT_S

    def wait_out(self, error: StorageError) -> None:
        """Wait before the next attempt; raise ``error`` if there is to be none: it stays, or time is up."""
        if not error.transient:
            raise error
        now = self._clock.now()
        self._since = self._since or now
        left_ms = self._patience_ms - waited_ms(self._since, now)
        if left_ms <= 0:
            raise error
        logger.warning("an upload failed, and is tried again: %s", error)
        self._clock.sleep(min(self._wait * (0.5 + self._ids.uniform() / 2), left_ms / 1000))
        self._wait = min(2 * self._wait, WAIT_S_MAX)


class PatientStore(WrappedStore):
    """Repeats reads of ``inner`` that fail for now (``StorageError.transient``), with growing breaks; writes
    are tried once.

    ``patience_ms`` after the first failure, with no success since, failures are passed on: callers may
    repeat, too.
    """

    def __init__(self, inner: ObjectStore, clock: Clock, patience_ms: int = PATIENCE_MS) -> None:
        super().__init__(inner)
        self._clock = clock
        self._patience_ms = patience_ms
        self._failing_since: Instant | None = None

    def store_time_ms(self) -> int:
        return self._patiently("the time", self._inner.store_time_ms)

    def _request(self, operation: RequestKind, key: str, call: Callable[[], T]) -> T:
        return self._patiently(key, call) if operation in READS else call()

    def _patiently(self, what: str, read: Callable[[], T]) -> T:
        wait = FIRST_WAIT_S
        while True:
            try:
                found = read()
            except StorageError as error:
                if not error.transient:
                    raise
                now = self._clock.now()
                self._failing_since = since = self._failing_since or now
                if waited_ms(since, now) >= self._patience_ms:
                    raise
                logger.warning("reading %s of %s failed, trying again: %s", what, self.url, error)
            else:
                self._failing_since = None
                return found
            self._clock.sleep(wait)
            wait = min(2 * wait, WAIT_S_MAX)
