"""What the streamed uploads of all stores share: the ``with`` statement and their errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from txnformat.errors import StorageError

__all__ = ["Writer", "object_exists", "writer_ended"]


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
