"""A store in front of another whose requests take as long as those of a far one: for benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from txnformat.store.base import CreateResult, ObjectInfo, ObjectStore, ObjectWriter, make_durable

__all__ = ["LatencyStore"]

Answer = TypeVar("Answer")


class LatencyStore:
    """Passes requests to ``inner`` half a round trip after they were made, and answers half a round trip later.

    A streamed upload is passed on without any delay.

    Parameters
    ----------
    inner : ObjectStore
        The real store.
    round_trip_ms : float
        Real milliseconds, at least 0.
    """

    def __init__(self, inner: ObjectStore, round_trip_ms: float) -> None:
        self._inner = inner
        self._half_seconds = round_trip_ms / 2_000

    def _far(self, request: Callable[[], Answer]) -> Answer:
        time.sleep(self._half_seconds)
        answer = request()
        time.sleep(self._half_seconds)
        return answer

    @property
    def url(self) -> str:
        """That of the inner store."""
        return self._inner.url

    @property
    def reads_in_flight(self) -> int:
        """That of the inner store."""
        return self._inner.reads_in_flight

    def store_time_ms(self) -> int:
        """Return the inner store's time; costs no request."""
        return self._inner.store_time_ms()

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        """Return the whole object, or None."""
        return self._far(lambda: self._inner.get(key, bytes_max))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start`` (inclusive)."""
        return self._far(lambda: self._inner.get_range(key, start, length))

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size, or None."""
        return self._far(lambda: self._inner.head(key))

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create the object if the key is free."""
        return self._far(lambda: self._inner.create(key, data))

    def put(self, key: str, data: bytes) -> None:
        """Create or replace the object."""
        self._far(lambda: self._inner.put(key, data))

    def open_write(self, key: str) -> ObjectWriter:
        """Start a streamed upload."""
        return self._inner.open_write(key)

    def make_durable(self, keys: Sequence[str]) -> None:
        """Make sure that these objects would survive a power cut, where the inner store can lose them."""
        make_durable(self._inner, keys)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects under ``prefix`` after ``start_after`` (exclusive), sorted by key."""
        return self._far(lambda: self._inner.list(prefix, start_after))

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error."""
        self._far(lambda: self._inner.delete(key))
