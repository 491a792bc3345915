"""Streamed uploads: what those of all stores share, and those to a store behind requests.

Nothing is visible before the last request. Behind requests an upload is one conditional PUT while it is
small, and parts above that; the stores differ in how a part is sent, and in the request that makes the parts
an object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from txnformat.clock import waited_ms
from txnformat.errors import StorageError
from txnformat.forking import renew_after_fork
from txnformat.store.base import CreateOutcome, ObjectWriter
from txnformat.store.remote.store import RemoteStore

__all__ = [
    "CLOSE_ATTEMPTS_MAX",
    "PARTS_IN_FLIGHT_MAX",
    "PART_BYTES",
    "HeldWriter",
    "PartedWriter",
    "Writer",
    "object_exists",
    "writer_ended",
]

PART_BYTES = 16 * 1024 * 1024
"""Size of a part, and the largest object that goes up in one PUT (inclusive). 10,000 parts are S3's limit:
156 GiB."""

PARTS_IN_FLIGHT_MAX = 3
"""Bounds the memory of an upload: so many parts, and the one that is being filled."""

CLOSE_ATTEMPTS_MAX = 6


class Writer(ABC):
    """Base of streamed uploads (:class:`~txnformat.store.base.ObjectWriter`): leaving ``with`` ends them.

    ``close`` after ``close`` does nothing; everything else after the end raises StorageError, except
    ``abort``.
    """

    @abstractmethod
    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns their number."""

    @abstractmethod
    def close(self) -> None:
        """Make the object visible and durable."""

    @abstractmethod
    def abort(self) -> None:
        """Drop what was written; idempotent; never raises."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class HeldWriter(Writer):
    """Keeps in memory what is written.

    ``begin``: opens the upload that takes over when it is more than ``bytes_max``; by default everything is
    kept.
    """

    def __init__(self, begin: Callable[[], ObjectWriter] | None = None, bytes_max: int = 0) -> None:
        self._begin = begin
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        self._upload: ObjectWriter | None = None

    def write(self, data: bytes | memoryview) -> int:
        if self._upload is not None:
            return self._upload.write(data)
        self._parts.append(bytes(data))
        self._size += len(self._parts[-1])
        if self._begin is not None and self._size > self._bytes_max:
            self._upload = self._begin()
            self._upload.write(b"".join(self._parts))
            self._parts = []
        return len(data)

    def close(self) -> None:
        if self._upload is not None:
            self._upload.close()

    def abort(self) -> None:
        if self._upload is not None:
            self._upload.abort()

    def data(self) -> bytes | None:
        """Return all that was written; None: an upload has it."""
        return b"".join(self._parts) if self._upload is None else None


def object_exists(url: str, key: str) -> StorageError:
    """Return the error of a streamed upload whose key is taken."""
    return StorageError(
        "an object is already there and was not replaced",
        kind="object-exists",
        hint="write under a new name",
        store=url,
        key=key,
    )


def writer_ended(url: str, key: str) -> StorageError:
    """Return the error of a call on an upload that was closed, aborted, or failed before."""
    return StorageError(
        "the upload has ended", kind="upload-ended", hint="open a new writer", store=url, key=key
    )


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
        """Make the object visible and durable.

        Requests: 1 of a small one; else 1 for the last part, and those of the store's own end.
        """
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
