"""A store in front of another whose requests take as long as those of a far one: for benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from txnformat.store.base import ObjectStore
from txnformat.store.requests import Operation
from txnformat.store.wrapped import WrappedStore

__all__ = ["LatencyStore"]

Answer = TypeVar("Answer")


class LatencyStore(WrappedStore):
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
        super().__init__(inner)
        self._half_seconds = round_trip_ms / 2_000

    def _request(self, operation: Operation, key: str, call: Callable[[], Answer]) -> Answer:
        if operation is Operation.OPEN_WRITE:
            return call()
        time.sleep(self._half_seconds)
        answer = call()
        time.sleep(self._half_seconds)
        return answer
