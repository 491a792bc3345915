"""A store that counts the requests made of another: budgets are asserted as numbers of requests.

Counted is what a cloud store would bill and wait for: every call, whatever its outcome; a streamed upload once,
when it is closed. Bytes count in the direction in which they were sent, also when the create lost.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from txnformat.forking import renew_after_fork
from txnformat.store.base import CreateResult, ObjectInfo, ObjectStore, ObjectWriter, make_durable, place_of
from txnformat.store.requests import KeyClass, Operation, key_class
from txnformat.store.writer import Writer

__all__ = ["CountingStore", "Measurement", "RequestClass", "RequestCounts"]

_READS = frozenset({Operation.GET, Operation.GET_RANGE})
_WRITES = frozenset({Operation.CREATE, Operation.PUT, Operation.OPEN_WRITE})


class RequestClass(NamedTuple):
    """What requests are counted by."""

    operation: Operation
    key_class: KeyClass


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Requests and bytes at one moment, or between two. Classes without a request are absent."""

    requests: Mapping[RequestClass, int] = field(default_factory=dict)
    bytes: Mapping[RequestClass, int] = field(default_factory=dict)

    def count(self, operation: Operation | None = None, key_class: KeyClass | None = None) -> int:
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
    """What happens inside ``with store.measure()``: read ``counts`` at any time; after the end it stays."""

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


class CountingStore:
    """Counts what passes through to ``inner``; safe for many threads."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
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

    def record(self, operation: Operation, key: str, size: int = 0) -> None:
        """Count one request that carried ``size`` bytes."""
        request = RequestClass(operation, key_class(key))
        with self._lock:
            self._requests[request] += 1
            if size:
                self._bytes[request] += size

    @property
    def url(self) -> str:
        """That of the inner store."""
        return self._inner.url

    @property
    def place(self) -> str:
        """That of the inner store."""
        return place_of(self._inner)

    @property
    def reads_in_flight(self) -> int:
        """That of the inner store."""
        return self._inner.reads_in_flight

    def store_time_ms(self) -> int:
        """Return the inner store's time; costs no request."""
        return self._inner.store_time_ms()

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        """Return the whole object, or None."""
        data: bytes | None = None
        try:
            data = self._inner.get(key, bytes_max)
        finally:
            self.record(Operation.GET, key, len(data or b""))
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start`` (inclusive)."""
        data = b""
        try:
            data = self._inner.get_range(key, start, length)
        finally:
            self.record(Operation.GET_RANGE, key, len(data))
        return data

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size, or None."""
        self.record(Operation.HEAD, key)
        return self._inner.head(key)

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create the object if the key is free."""
        self.record(Operation.CREATE, key, len(data))
        return self._inner.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        """Create or replace the object."""
        self.record(Operation.PUT, key, len(data))
        self._inner.put(key, data)

    def open_write(self, key: str) -> Writer:
        """Start a streamed upload; it is counted when it is closed."""
        return _CountingWriter(self, key, self._inner.open_write(key))

    def make_durable(self, keys: Sequence[str]) -> None:
        """Make sure that these objects would survive a power cut, where the inner store can lose them."""
        make_durable(self._inner, keys)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects under ``prefix`` after ``start_after`` (exclusive), sorted by key."""
        self.record(Operation.LIST, prefix)
        return self._inner.list(prefix, start_after)

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error."""
        self.record(Operation.DELETE, key)
        self._inner.delete(key)


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
            self._store.record(Operation.OPEN_WRITE, self._key, self._size)
        self._inner.close()

    def abort(self) -> None:
        self._inner.abort()


def _sum(
    numbers: Mapping[RequestClass, int],
    operations: set[Operation] | frozenset[Operation] | None,
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
