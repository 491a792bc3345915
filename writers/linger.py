"""Flushes the records of a producer without transactions after a while, without a call."""

from __future__ import annotations

import threading
from collections.abc import Callable

from txnformat.shield import shielded

__all__ = ["Linger"]


class Linger:
    """Calls ``flush`` after ``linger_ms`` in a daemon thread that ends with the call: an idle producer has no
    thread.
    """

    def __init__(self, linger_ms: int, flush: Callable[[], None]) -> None:
        self._seconds = linger_ms / 1000
        self._flush = flush
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def arm(self) -> None:
        """Schedule a flush, unless one is due already, which takes later records along."""
        if self._timer is None:
            shielded(self._arm)

    def _arm(self) -> None:
        with self._lock:
            if self._timer is None:
                timer = threading.Timer(self._seconds, self._run)
                timer.daemon = True
                timer.start()
                self._timer = timer

    def _run(self) -> None:
        with self._lock:
            self._timer = None
        self._flush()

    def stop(self) -> None:
        """Cancel a flush that has not begun."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
