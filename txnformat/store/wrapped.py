"""A store in front of another. Each wrapper overrides what it changes; the rest passes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from txnformat.store.base import (
    CreateResult,
    ObjectInfo,
    ObjectStore,
    ObjectWriter,
    created_ms,
    is_encrypted,
    keeps_versions,
    list_each,
    lists_by_scanning,
    make_durable,
    place_of,
    range_of,
)
from txnformat.store.requests import RequestKind
from txnformat.store.unfinished import UnfinishedUpload, discard_upload, unfinished_uploads

__all__ = ["WrappedStore"]

Answer = TypeVar("Answer")


class WrappedStore(ObjectStore):
    """Passes every call on to ``inner``, and every one that costs a request through :meth:`_request`."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        """Make one request; of a listing ``key`` is the prefix."""
        return call()

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def place(self) -> str:
        """See :func:`~txnformat.store.base.place_of`."""
        return place_of(self._inner)

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
        return self._request(RequestKind.GET, key, lambda: self._inner.get(key, bytes_max))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._request(RequestKind.GET_RANGE, key, lambda: self._inner.get_range(key, start, length))

    def get_range_of(self, key: str, start: int, length: int, size: int) -> bytes:
        """See :func:`~txnformat.store.base.range_of`."""
        if not self.is_encrypted:  # what a wrapper does with ranges, it does in ``get_range``
            return self.get_range(key, start, length)
        return self._request(
            RequestKind.GET_RANGE, key, lambda: range_of(self._inner, key, start, length, size)
        )

    @property
    def is_encrypted(self) -> bool:
        """See :func:`~txnformat.store.base.is_encrypted`."""
        return is_encrypted(self._inner)

    def head(self, key: str) -> ObjectInfo | None:
        return self._request(RequestKind.HEAD, key, lambda: self._inner.head(key))

    def created_ms(self, key: str) -> int | None:
        """See :func:`~txnformat.store.base.created_ms`."""
        return self._request(RequestKind.HEAD, key, lambda: created_ms(self._inner, key))

    def create(self, key: str, data: bytes) -> CreateResult:
        return self._request(RequestKind.CREATE, key, lambda: self._inner.create(key, data))

    def put(self, key: str, data: bytes) -> None:
        self._request(RequestKind.PUT, key, lambda: self._inner.put(key, data))

    def open_write(self, key: str) -> ObjectWriter:
        return self._request(RequestKind.OPEN_WRITE, key, lambda: self._inner.open_write(key))

    def make_durable(self, keys: Sequence[str]) -> None:
        make_durable(self._inner, keys)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        return self._request(RequestKind.LIST, prefix, lambda: self._inner.list(prefix, start_after))

    def list_each(self, prefix: str, take: Callable[[ObjectInfo], object]) -> None:
        """See :func:`~txnformat.store.base.list_each`."""
        self._request(RequestKind.LIST, prefix, lambda: list_each(self._inner, prefix, take))

    def delete(self, key: str) -> None:
        self._request(RequestKind.DELETE, key, lambda: self._inner.delete(key))

    def unfinished_uploads(self, before_ms: int) -> Sequence[UnfinishedUpload]:
        """See :func:`~txnformat.store.unfinished.unfinished_uploads`."""
        return self._request(RequestKind.LIST, "", lambda: unfinished_uploads(self._inner, before_ms))

    def keeps_versions(self) -> bool | None:
        """See :func:`~txnformat.store.base.keeps_versions`."""
        return self._request(RequestKind.HEAD, "", lambda: keeps_versions(self._inner))

    def discard_upload(self, upload: UnfinishedUpload) -> None:
        """See :func:`~txnformat.store.unfinished.discard_upload`."""
        self._request(RequestKind.DELETE, upload.key, lambda: discard_upload(self._inner, upload))
