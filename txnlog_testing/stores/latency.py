"""Stores in front of others that are far away: they say so, or their requests take as long as those of
one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from txnformat.store.base import ObjectStore
from txnformat.store.requests import RequestKind
from txnformat.store.wrapped import WrappedStore

__all__ = ["FarStore", "LatencyStore"]

Answer = TypeVar("Answer")

READS_IN_FLIGHT = 16
"""As S3 says."""


class FarStore(WrappedStore):
    """Passes requests on at once, but says what an object store says of itself: each is a round trip, and
    several in flight are worth having.
    """

    @property
    def reads_in_flight(self) -> int:
        return 16


class LatencyStore(FarStore):
    """Passes requests to ``inner`` half a round trip after they were made, and answers half a round trip
    later.

    A streamed upload is passed on without any delay. Reads in flight at a time are those of a far store.

    Parameters
    ----------
    inner : ObjectStore
        The real store.
    round_trip_ms : float
        Real milliseconds, at least 0.
    """

    def __init__(self, inner: ObjectStore, round_trip_ms: float) -> None:
        super().__init__(inner)
        self._half_seconds = round_trip_ms / 2_000

    @property
    def reads_in_flight(self) -> int:
        return READS_IN_FLIGHT if self._half_seconds else self._inner.reads_in_flight

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        if operation is RequestKind.OPEN_WRITE:
            return call()
        time.sleep(self._half_seconds)
        answer = call()
        time.sleep(self._half_seconds)
        return answer
