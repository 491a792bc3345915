"""Flushing what was held back long enough: a thread of a producer without transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable

from txnformat.errors import TxnLogError

__all__ = ["Linger"]


class Linger:
    """Calls ``flush`` a while after it was armed; the thread lives only while something is held.

    An error of the flush is kept for the producer's next call.
    """

    def __init__(self, linger_ms: int, flush: Callable[[], None]) -> None:
        self._seconds = linger_ms / 1000
        self._flush = flush
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._failure: TxnLogError | None = None

    def arm(self) -> None:
        """Have what is held now flushed within the linger time; later rows go along."""
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(self._seconds, self._run)
                self._timer.daemon = True
                self._timer.start()

    def _run(self) -> None:
        with self._lock:
            self._timer = None
        try:
            self._flush()
        except TxnLogError as error:
            self._failure = error

    def raise_failure(self) -> None:
        """Raise the error of a flush that nobody has seen yet."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure.with_traceback(None)

    def stop(self) -> None:
        """Flush no more; what is held stays held."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
