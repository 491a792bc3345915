"""Shared parts of the streamed uploads of all stores: the ``with`` statement and their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

from txnformat.errors import StorageError
from txnformat.store.base import ObjectWriter

__all__ = ["HeldWriter", "Writer", "object_exists", "writer_ended"]


class Writer(ABC):
    """Base of streamed uploads (:class:`~txnformat.store.base.ObjectWriter`): leaving ``with`` ends them.

    ``close`` after ``close`` does nothing; everything else after the end raises StorageError, except ``abort``.
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

    ``begin``: opens the upload that takes over when it is more than ``bytes_max``; by default everything is kept.
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
