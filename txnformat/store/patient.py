"""Waiting out what passes: a store whose reads are repeated, and the pauses between attempts of an upload."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from txnformat.clock import Clock, Ids, Instant, waited_ms
from txnformat.errors import StorageError
from txnformat.store.base import CreateResult, ObjectInfo, ObjectStore, ObjectWriter, make_durable, place_of

__all__ = ["PATIENCE_MS", "UPLOAD_PATIENCE_MS", "PatientStore", "Pauses"]

logger = logging.getLogger("txnlog")

PATIENCE_MS = 60_000
"""How long an outage is waited out, ms; what then fails is passed on at once, until a read succeeds."""
UPLOAD_PATIENCE_MS = 60_000
"""How long an upload is tried again, ms from its first failure."""
FIRST_WAIT_S = 0.1
WAIT_S_MAX = 5.0

T = TypeVar("T")


class Pauses:
    """The pauses between the attempts of one upload: each up to twice as long as the one before, until a deadline.

    Parameters
    ----------
    ids : Ids
        Spreads the pauses, so that many who failed together do not come back together.
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


class PatientStore:
    """Repeats reads of ``inner`` that fail for now (``StorageError.transient``), with growing breaks; writes are tried once.

    Parameters
    ----------
    patience_ms : int
        How long after the first failure, with no success since, failures are passed on: callers may repeat, too.
    """

    def __init__(self, inner: ObjectStore, clock: Clock, patience_ms: int = PATIENCE_MS) -> None:
        self._inner = inner
        self._clock = clock
        self._patience_ms = patience_ms
        self._failing_since: Instant | None = None

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

    @property
    def url(self) -> str:
        """That of the inner store."""
        return self._inner.url

    @property
    def place(self) -> str:
        """That of the inner store."""
        return place_of(self._inner)

    @property
    def reads_in_flight(self) -> int:
        """That of the inner store."""
        return self._inner.reads_in_flight

    def store_time_ms(self) -> int:
        """Return the inner store's time."""
        return self._patiently("the time", self._inner.store_time_ms)

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        """Return the whole object, or None."""
        return self._patiently(key, lambda: self._inner.get(key, bytes_max))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start`` (inclusive)."""
        return self._patiently(key, lambda: self._inner.get_range(key, start, length))

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size, or None."""
        return self._patiently(key, lambda: self._inner.head(key))

    def make_durable(self, keys: Sequence[str]) -> None:
        """Make sure that these objects would survive a power cut, where the inner store can lose them."""
        make_durable(self._inner, keys)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects under ``prefix`` after ``start_after`` (exclusive), sorted by key."""
        return self._patiently(prefix, lambda: self._inner.list(prefix, start_after))

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create the object if the key is free."""
        return self._inner.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        """Create or replace the object."""
        self._inner.put(key, data)

    def open_write(self, key: str) -> ObjectWriter:
        """Start a streamed upload."""
        return self._inner.open_write(key)

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error."""
        self._inner.delete(key)
