"""Streamed uploads to a store behind requests: one conditional PUT while they are small, parts above that.

Nothing is visible before the last request. The stores differ in how a part is sent, and in the request that makes the parts an object.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from txnformat.clock import Clock, waited_ms
from txnformat.errors import StorageError
from txnformat.forking import renew_after_fork
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.writer import Writer, object_exists, writer_ended

__all__ = ["CLOSE_ATTEMPTS_MAX", "PARTS_IN_FLIGHT_MAX", "PART_BYTES", "PartedWriter"]

PART_BYTES = 16 * 1024 * 1024
"""Size of a part, and the largest object that goes up in one PUT (inclusive). 10,000 parts are S3's limit: 156 GiB."""

PARTS_IN_FLIGHT_MAX = 3
"""Bounds the memory of an upload: so many parts, and the one that is being filled."""

CLOSE_ATTEMPTS_MAX = 6


class RemoteStore(Protocol):
    """The calls of a store that an upload needs."""

    clock: Clock

    @property
    def url(self) -> str:
        """The root, without secrets."""
        ...

    @property
    def options(self) -> Any:
        """Its options, which have ``request_timeout_s``."""
        ...

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create an object, once."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return an object."""
        ...

    def pause(self, attempt: int) -> None:
        """Wait after a failed attempt."""
        ...

    def bad_answer(self, *, key: str) -> StorageError:
        """Return the error of a success that does not look like one."""
        ...


StoreT = TypeVar("StoreT", bound=RemoteStore)


class PartedWriter(Writer, Generic[StoreT]):
    """One upload, in the process that began it: a forked child has no part in it."""

    def __init__(self, store: StoreT, key: str) -> None:
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
        self._forget_parts()

    @abstractmethod
    def _forget_parts(self) -> None:
        """Be an upload without parts, without a request."""

    @abstractmethod
    def _has_parts(self) -> bool:
        """Return whether a part was sent."""

    @abstractmethod
    def _send_part(self, data: bytes) -> None:
        """Send the next part."""

    @abstractmethod
    def _complete(self) -> None:
        """Send what is left, and make the parts an object."""

    @abstractmethod
    def _abandon_parts(self) -> None:
        """Drop the parts, unless they were made an object; never raises."""

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns their number. Requests: 1 for each full part, and 1 before the first."""
        if self._ended:
            raise writer_ended(self._store.url, self._key)
        view = memoryview(data).cast("B")
        try:
            for start in range(0, view.nbytes, PART_BYTES):
                self._buffer += view[start : start + PART_BYTES]
                if len(self._buffer) > PART_BYTES:
                    self._send_part(bytes(self._buffer[:PART_BYTES]))
                    del self._buffer[:PART_BYTES]
        except BaseException:
            self.abort()
            raise
        return view.nbytes

    def close(self) -> None:
        """Make the object visible and durable. Requests: 1 of a small one; else 1 for the last part, and those of the store's own end."""
        if self._closed:
            return
        if self._ended:
            raise writer_ended(self._store.url, self._key)
        try:
            if self._has_parts():
                self._complete()
            else:
                self._put()
            self._closed = True
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop what was written; idempotent; never raises."""
        self._ended = True
        self._buffer = bytearray()
        self._abandon_parts()

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
            if not error.transient or error.patience_over or over or attempt == CLOSE_ATTEMPTS_MAX:
                raise error
            self._store.pause(attempt)
