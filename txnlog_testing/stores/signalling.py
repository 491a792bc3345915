"""A store in front of another that sends the main thread a signal in the middle of one of its requests.

The request may run in any thread. In the main thread the handler raises in it, before or after it was
applied. Else the main thread waits for it, directly or not: then the request goes on only when the main
thread has noticed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from txnformat.store.base import ObjectStore, ObjectWriter
from txnformat.store.requests import RequestKind
from txnformat.store.uploads import Writer
from txnformat.store.wrapped import WrappedStore

__all__ = ["NOTICED_SECONDS_MAX", "SignallingStore"]

Answer = TypeVar("Answer")

NOTICED_SECONDS_MAX = 0.5
"""Longest wait for the main thread: where a pool of threads reads, it comes out only when these have ended.
"""


class SignallingStore(WrappedStore):
    """Passes all requests to ``inner``, and signals at one of them.

    Parameters
    ----------
    inner : ObjectStore
        The real store.
    number : signal.Signals
        The signal; its handler raises.
    """

    def __init__(self, inner: ObjectStore, number: signal.Signals) -> None:
        super().__init__(inner)
        self._number = number
        self._lock = threading.Lock()
        self._nth: int | None = None
        self._is_after = False
        self._left = threading.Event()
        self.requests = 0
        """Requests since it was armed; of a streamed upload each step is one."""
        self.struck = False
        """Whether it has signalled."""
        self.is_unnoticed = False
        """Whether the main thread was still in its call when the request went on."""

    def arm(self, nth: int | None, *, is_after: bool) -> None:
        """Count requests from now on, and signal at the ``nth`` (from 1), before or after it is applied."""
        self.requests, self._nth, self._is_after = 0, nth, is_after

    def left(self) -> None:
        """Let a request that was signalled at go on: the main thread has left its call."""
        self._nth = None
        self._left.set()

    def _pass(self, request: Callable[[], Answer]) -> Answer:
        with self._lock:
            self.requests += 1
            is_it = self.requests == self._nth and not self.struck
            self.struck = self.struck or is_it
        if is_it and not self._is_after:
            self._signal()
        answer = request()
        if is_it and self._is_after:
            self._signal()
        return answer

    def _signal(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(self._number)
            return
        signal.pthread_kill(threading.main_thread().ident or 0, self._number)
        if not self._left.wait(NOTICED_SECONDS_MAX):
            self.is_unnoticed = True

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        return self._pass(call)

    def open_write(self, key: str) -> ObjectWriter:
        return _SignallingWriter(self._pass, super().open_write(key))

    def make_durable(self, keys: Sequence[str]) -> None:
        self._pass(lambda: self._inner.make_durable(keys))


class _SignallingWriter(Writer):
    def __init__(self, passed: Callable[[Callable[[], object]], object], inner: ObjectWriter) -> None:
        self._passed = passed
        self._inner = inner

    def write(self, data: bytes | memoryview) -> int:
        self._passed(lambda: self._inner.write(data))
        return memoryview(data).nbytes

    def close(self) -> None:
        self._passed(self._inner.close)

    def abort(self) -> None:
        self._inner.abort()
