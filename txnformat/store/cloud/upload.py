"""Streamed uploads to a cloud: one conditional PUT while they are small, parts above that.

Nothing is visible before the last request. That of an upload in parts has no condition, since obstore knows none for it: a HEAD before it says
whether the name is taken. Names of data files are drawn at random and used once (docs/internals/spec.md), so nothing else ever makes an object of such a name.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from txnformat.clock import waited_ms
from txnformat.forking import renew_after_fork
from txnformat.store.base import CreateOutcome
from txnformat.store.cloud.errors import RequestFailedError
from txnformat.store.writer import Writer, object_exists, writer_ended

if TYPE_CHECKING:
    from txnformat.store.cloud.store import CloudStore

__all__ = ["PART_BYTES", "CloudWriter"]

PART_BYTES = 16 * 1024 * 1024
"""Size of a part, and the largest object that goes up in one PUT (inclusive)."""
PARTS_IN_FLIGHT_MAX = 3
CLOSE_ATTEMPTS_MAX = 6


class CloudWriter(Writer):
    """One upload. Dropped without ``close`` it may leave parts, which are invisible: see docs/storage.md."""

    def __init__(self, store: CloudStore, key: str) -> None:
        self._store = store
        self._key = key
        self._closed = False
        self._forget(ended=False)
        renew_after_fork(self)

    def renew(self) -> None:
        """End in a forked child, without a request: the upload is the parent's."""
        self._forget(ended=True)

    def _forget(self, *, ended: bool) -> None:
        self._ended = ended
        self._buffer = bytearray()
        self._parts: Any = None
        self._size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns their number. Requests: 1 for each full part, and 1 before the first."""
        if self._ended:
            raise writer_ended(self._store.url, self._key)
        view = memoryview(data).cast("B")
        try:
            for start in range(0, view.nbytes, PART_BYTES):
                self._buffer += view[start : start + PART_BYTES]
                if len(self._buffer) > PART_BYTES:
                    self._send_part()
        except BaseException:
            self.abort()
            raise
        return view.nbytes

    def close(self) -> None:
        """Make the object visible and durable. Requests: 1; of a large upload 3."""
        if self._closed:
            return
        if self._ended:
            raise writer_ended(self._store.url, self._key)
        try:
            if self._parts is None:
                self._put()
            else:
                self._complete()
            self._closed = True
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop what was written; idempotent; never raises. Parts that went up stay invisible, until the store removes them."""
        self._ended = True
        self._buffer = bytearray()
        self._parts = None  # obstore's file is never closed: that would publish it

    def _put(self) -> None:
        """Create the object; whether an unclear attempt was applied is read back, as for a slot."""
        data = bytes(self._buffer)
        begun = self._store.clock.now()
        for attempt in range(1, CLOSE_ATTEMPTS_MAX + 1):
            result = self._store.create(self._key, data)
            if result.outcome is CreateOutcome.CREATED:
                return
            if result.outcome is CreateOutcome.EXISTS:
                if attempt > 1 and self._store.get(self._key) == data:
                    return  # an earlier attempt, whose answer was lost
                raise object_exists(self._store.url, self._key)
            error = result.error or self._store.bad_answer(key=self._key)
            over = waited_ms(begun, self._store.clock.now()) >= self._store.options.request_timeout_s * 1000
            if not error.transient or over or attempt == CLOSE_ATTEMPTS_MAX:
                raise error
            self._store.pause(attempt)

    def _send_part(self) -> None:
        data = bytes(self._buffer[:PART_BYTES])
        del self._buffer[:PART_BYTES]

        def send(obstore: Any, client: Any) -> None:
            if self._parts is None:
                self._parts = obstore.open_writer(
                    client,
                    self._key,
                    buffer_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT_MAX,
                )
            self._parts.write(data)

        self._call("upload part", send)
        self._size += len(data)

    def _complete(self) -> None:
        total = self._size + len(self._buffer)
        if self._store.head(self._key) is not None:
            raise object_exists(self._store.url, self._key)
        while self._buffer:
            self._send_part()
        try:
            self._call("complete upload", lambda _, client: self._parts.close())
        except Exception:
            # The last answer may have been lost. Nothing but this upload makes an object of this name.
            with contextlib.suppress(RequestFailedError):
                found = self._store.head(self._key)
                if found is not None and found.size == total:
                    return
            raise

    def _call(self, doing: str, send: Any) -> None:
        try:
            self._store.request(doing, self._key, send, size=PART_BYTES)
        except RequestFailedError as error:
            raise error.failure.error from None
