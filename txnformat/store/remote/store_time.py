"""A store's clock, learned from the Date headers of its answers."""

from __future__ import annotations

import threading
from email.utils import parsedate_to_datetime

from txnformat.clock import Clock, Instant
from txnformat.errors import StorageError
from txnformat.forking import renew_after_fork

__all__ = ["StoreTime"]


class StoreTime:
    """Bounds of the store's clock against the own one.

    A Date header names a second, and was written between sending and receiving. So every answer bounds the
    offset between the clocks from both sides, and the bounds of many answers together are far narrower than a
    second. An answer that contradicts them (a clock was set, or drifted) replaces them.

    Counted on the clock that neither jumps nor stops in suspend; where there is none, on the wall clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bounds: tuple[int, int] | None = None
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the lock anew."""
        self._lock = threading.Lock()

    def now(self) -> Instant:
        """Return the own clocks: to be read just before a request is sent."""
        return self._clock.now()

    def learn(self, sent: Instant, date: str | None) -> None:
        """Take the Date header of the answer, just received, to a request that was sent at ``sent``."""
        if date is None:
            return
        try:
            second_ms = int(parsedate_to_datetime(date).timestamp() * 1000)
        except (ValueError, OverflowError):
            return
        low = second_ms - _ticks(self._clock.now())
        high = second_ms + 1000 - _ticks(sent)
        with self._lock:
            if self._bounds is not None:
                narrowed = max(low, self._bounds[0]), min(high, self._bounds[1])
                if narrowed[0] <= narrowed[1]:
                    low, high = narrowed
            self._bounds = low, high

    def estimate_ms(self) -> int | None:
        """Return the store's time, ms since the epoch; None before the first answer."""
        with self._lock:
            bounds = self._bounds
        return None if bounds is None else _ticks(self._clock.now()) + (bounds[0] + bounds[1]) // 2

    def known_ms(self, store: str) -> int:
        """Return what :meth:`estimate_ms` does, after an answer of ``store``; StorageError: no answer had the
        header.
        """
        known = self.estimate_ms()
        if known is None:
            raise StorageError(
                "the store's answers have no Date header, so its time is unknown",
                kind="store-time-missing",
                hint="use a store, or a proxy in front of it, that keeps to HTTP",
                store=store,
            )
        return known


def _ticks(now: Instant) -> int:
    return now.wall_ms if now.boot_ms is None else now.boot_ms
