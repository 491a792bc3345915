"""Where a worker ends itself: named points between its calls, and around every request to the store that
writes.

A point is ``after-poll`` and the like, or ``<call>/before-<object>`` and ``<call>/after-<object>`` for a
request that the call makes, where the object is a class of :class:`txnformat.store.requests.KeyClass`:
``commit/after-entry`` is where the commit's entry is in the log, and its answer has not arrived.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from txnformat.store.base import (
    CreateResult,
    ObjectInfo,
    ObjectStore,
    ObjectWriter,
    lists_by_scanning,
    make_durable,
)
from txnformat.store.requests import key_class
from txnformat.store.uploads import Writer

Answer = TypeVar("Answer")

ANY = "any"
"""Every point counts."""


class Points:
    """Counts the points that are reached, and ends or stops the process at one of them.

    Parameters
    ----------
    at : str or None
        A point, or ANY; None: never.
    nth : int
        At which time that it is reached, from 1.
    sign : signal.Signals
        SIGKILL, or SIGSTOP: the process then stands still until somebody continues it.
    note : str or None
        The file that is to say at which point it was.
    """

    def __init__(self, at: str | None, nth: int, sign: signal.Signals, note: str | None = None) -> None:
        self.call = "open"
        self._at = at
        self._left = nth
        self._sign = sign
        self._note = note
        self._lock = threading.Lock()

    def reached(self, point: str) -> None:
        with self._lock:
            if self._at not in (ANY, point):
                return
            self._left -= 1
            if self._left == 0:
                if self._note is not None:
                    Path(self._note).write_text(point)
                # To this thread: stopped by a signal to the process, it would go on until another thread has
                # taken it.
                signal.pthread_kill(threading.get_ident(), self._sign)


class Reached(Protocol):
    """Is told of points as they are reached."""

    @property
    def call(self) -> str:
        """What is being called."""
        ...

    def reached(self, point: str) -> None: ...


class KillingStore:
    """Passes everything on to a real store, and lets the process end before or after any request that
    writes.
    """

    def __init__(self, inner: ObjectStore, points: Reached) -> None:
        self._inner = inner
        self._points = points

    def around(self, key: str, request: Callable[[], Answer]) -> Answer:
        call, what = self._points.call, key_class(key)
        self._points.reached(f"{call}/before-{what}")
        answer = request()
        self._points.reached(f"{call}/after-{what}")
        return answer

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def reads_in_flight(self) -> int:
        return self._inner.reads_in_flight

    @property
    def lists_by_scanning(self) -> bool:
        """See :func:`~txnformat.store.base.lists_by_scanning`."""
        return lists_by_scanning(self._inner)

    def store_time_ms(self) -> int:
        return self._inner.store_time_ms()

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        return self._inner.get(key, bytes_max)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo | None:
        return self._inner.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        return self._inner.list(prefix, start_after)

    def make_durable(self, keys: Sequence[str]) -> None:
        make_durable(self._inner, keys)

    def create(self, key: str, data: bytes) -> CreateResult:
        return self.around(key, lambda: self._inner.create(key, data))

    def put(self, key: str, data: bytes) -> None:
        self.around(key, lambda: self._inner.put(key, data))

    def delete(self, key: str) -> None:
        self.around(key, lambda: self._inner.delete(key))

    def open_write(self, key: str) -> Writer:
        return _KillingWriter(self, key, self._inner.open_write(key))


class _KillingWriter(Writer):
    def __init__(self, store: KillingStore, key: str, inner: ObjectWriter) -> None:
        self._store = store
        self._key = key
        self._inner = inner
        self._is_closed = False

    def write(self, data: bytes | memoryview) -> int:
        return self._inner.write(data)

    def close(self) -> None:
        if self._is_closed:
            self._inner.close()
        else:
            self._is_closed = True
            self._store.around(self._key, self._inner.close)

    def abort(self) -> None:
        self._inner.abort()
