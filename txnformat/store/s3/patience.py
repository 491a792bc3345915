"""How long a call of S3 goes on: over its requests, and over the repeats that its callers make of it."""

from __future__ import annotations

import threading
from collections.abc import Hashable

from txnformat.clock import Clock, Instant, waited_ms
from txnformat.errors import StorageError

__all__ = ["Patience"]

REPEAT_MS = 2_000
"""A call that begins so soon after the same one failed is its repeat: the pauses of those who repeat reads
are shorter."""
CALLS_MAX = 1_000
"""Failed calls that are remembered."""
ATTEMPT_S_MIN = 1.0
"""Seconds that every request is given."""


class Patience:
    """The one deadline of a call, which may go on for ``seconds``, ``request_timeout_s``.

    Safe for threads.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._failed: dict[Hashable, tuple[Instant, Instant]] = {}
        """Times of calls that failed for now: when they began, and when they failed last."""
        self._thread = threading.local()

    def begin(self, call: Hashable) -> Instant:
        """Return when the call began, which may be a repeat."""
        now = self._clock.now()
        known = self._failed.pop(call, None)
        begun = known[0] if known is not None and waited_ms(known[1], now) <= REPEAT_MS else now
        self._thread.call = call, begun
        return begun

    def left_s(self, begun: Instant) -> float:
        """Return the seconds that a request may take now."""
        left_s = self._seconds - waited_ms(begun, self._clock.now()) / 1000
        return max(ATTEMPT_S_MIN, left_s)

    def is_over(self, begun: Instant) -> bool:
        """Return whether the call may not be repeated."""
        return waited_ms(begun, self._clock.now()) >= self._seconds * 1000

    def failed(self, error: StorageError) -> StorageError:
        """Return the error of the call that this thread began last, with a note if it is not to be
        repeated.
        """
        if not error.transient:
            return error
        call, begun = self._thread.call  # every answer that is judged came to a call of this thread
        if self.is_over(begun):
            error.patience_over = True
        else:
            if len(self._failed) >= CALLS_MAX:
                self._failed.clear()
            self._failed[call] = begun, self._clock.now()
        return error
