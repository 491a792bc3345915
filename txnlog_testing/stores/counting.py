"""A store that counts the requests made of another: budgets are asserted as numbers of requests.

Counted is what a cloud store would bill and wait for: every call, whatever its outcome; a streamed upload
once, when it is closed. Bytes count in the direction in which they were sent, also when the create lost.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from txnformat.forking import renew_after_fork
from txnformat.store.base import CreateResult, ObjectStore, ObjectWriter
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnformat.store.uploads import Writer
from txnformat.store.wrapped import WrappedStore

__all__ = ["CountingStore", "Measurement", "RequestClass", "RequestCounts"]

Answer = TypeVar("Answer")

_READS = frozenset({RequestKind.GET, RequestKind.GET_RANGE})
_WRITES = frozenset({RequestKind.CREATE, RequestKind.PUT, RequestKind.OPEN_WRITE})


class RequestClass(NamedTuple):
    """The classes by which requests are counted."""

    operation: RequestKind
    key_class: KeyClass


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests and bytes at one moment, or between two. Classes without a request are absent."""

    requests: Mapping[RequestClass, int] = field(default_factory=dict)
    bytes: Mapping[RequestClass, int] = field(default_factory=dict)

    def count(self, operation: RequestKind | None = None, key_class: KeyClass | None = None) -> int:
        """Return the number of requests; None stands for all."""
        return _sum(self.requests, None if operation is None else {operation}, key_class)

    def bytes_read(self, key_class: KeyClass | None = None) -> int:
        """Return the bytes that came from the store."""
        return _sum(self.bytes, _READS, key_class)

    def bytes_written(self, key_class: KeyClass | None = None) -> int:
        """Return the bytes that went to the store."""
        return _sum(self.bytes, _WRITES, key_class)

    def __sub__(self, earlier: RequestCounts) -> RequestCounts:
        return RequestCounts(
            _difference(self.requests, earlier.requests), _difference(self.bytes, earlier.bytes)
        )


class Measurement:
    """The requests inside ``with store.measure()``: read ``counts`` at any time; after the end it stays."""

    def __init__(self, store: CountingStore) -> None:
        self._store = store
        self._start = store.counts
        self._end: RequestCounts | None = None

    @property
    def counts(self) -> RequestCounts:
        """Requests and bytes since the beginning, up to now or the end."""
        return (self._end or self._store.counts) - self._start

    def end(self) -> None:
        """Stop measuring."""
        self._end = self._store.counts


class CountingStore(WrappedStore):
    """Counts what passes through to ``inner``; safe for many threads."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin from zero: a forked child counts its own requests."""
        self._lock = threading.Lock()
        self._requests: Counter[RequestClass] = Counter()
        self._bytes: Counter[RequestClass] = Counter()

    @property
    def counts(self) -> RequestCounts:
        """A copy of the counts since the last ``reset``."""
        with self._lock:
            return RequestCounts(dict(self._requests), dict(self._bytes))

    def reset(self) -> None:
        """Begin from zero. Not while a measurement runs."""
        with self._lock:
            self._requests.clear()
            self._bytes.clear()

    @contextmanager
    def measure(self) -> Iterator[Measurement]:
        """Measure the requests of a block, by all threads."""
        measurement = Measurement(self)
        try:
            yield measurement
        finally:
            measurement.end()

    def record(self, operation: RequestKind, key: str, size: int = 0) -> None:
        """Count one request that carried ``size`` bytes."""
        request = RequestClass(operation, key_class(key))
        with self._lock:
            self._requests[request] += 1
            if size:
                self._bytes[request] += size

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        answer: Answer | None = None
        try:
            answer = call()
            return answer
        finally:
            self.record(operation, key, len(answer) if isinstance(answer, bytes) else 0)

    def create(self, key: str, data: bytes) -> CreateResult:
        self.record(RequestKind.CREATE, key, len(data))
        return self._inner.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        self.record(RequestKind.PUT, key, len(data))
        self._inner.put(key, data)

    def open_write(self, key: str) -> Writer:
        """Start a streamed upload; it is counted when it is closed."""
        return _CountingWriter(self, key, self._inner.open_write(key))


class _CountingWriter(Writer):
    def __init__(self, store: CountingStore, key: str, inner: ObjectWriter) -> None:
        self._store = store
        self._key = key
        self._inner = inner
        self._size = 0
        self._counted = False

    def write(self, data: bytes | memoryview) -> int:
        written = self._inner.write(data)
        self._size += written
        return written

    def close(self) -> None:
        if not self._counted:
            self._counted = True
            self._store.record(RequestKind.OPEN_WRITE, self._key, self._size)
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()


def _sum(
    numbers: Mapping[RequestClass, int],
    operations: set[RequestKind] | frozenset[RequestKind] | None,
    key: KeyClass | None,
) -> int:
    return sum(
        number
        for request, number in numbers.items()
        if (operations is None or request.operation in operations) and key in (None, request.key_class)
    )


def _difference(
    later: Mapping[RequestClass, int], earlier: Mapping[RequestClass, int]
) -> dict[RequestClass, int]:
    return {
        request: number - earlier.get(request, 0)
        for request, number in later.items()
        if number != earlier.get(request, 0)
    }
