"""An object store in the memory of this process, for tests and simulations.

The reference for what the other stores must do: every operation is one step under one lock.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import MutableSequence, Sequence

from txnformat.clock import Clock, SystemClock
from txnformat.errors import NotFoundError
from txnformat.forking import renew_after_fork
from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo, check_range, too_large
from txnformat.store.object_sizes import bytes_max as object_bytes_max
from txnformat.store.uploads import Writer, object_exists, writer_ended

__all__ = ["MemoryStore"]


class MemoryStore:
    """Objects in a dictionary; safe for many threads.

    The store's time is ``clock``'s wall clock, the machine's by default; ``url`` shows ``name``.
    """

    def __init__(self, clock: Clock | None = None, name: str = "") -> None:
        self._clock = clock or SystemClock()
        self._url = f"memory://{name}"
        self._objects: dict[str, bytes] = {}
        self._created_ms: dict[str, int] = {}
        # Sorted: the order of code points is the order of UTF-8 bytes. Made anew when an interrupt (Ctrl-C)
        # came between
        # a step on the objects, which is one assignment, and the one here.
        self._keys: list[str] = []
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the lock anew; a forked child has a copy of the objects, of which its parent hears nothing."""
        self._lock = threading.Lock()
        self._keys = sorted(self._objects)  # the parent may have been between the two

    @property
    def url(self) -> str:
        """``memory://`` and the name."""
        return self._url

    @property
    def reads_in_flight(self) -> int:
        """1: a read waits for nothing."""
        return 1

    def store_time_ms(self) -> int:
        return self._clock.now().wall_ms

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        with self._lock:
            data = self._objects.get(key)
        if data is not None and len(data) > (
            most := object_bytes_max(key) if bytes_max is None else bytes_max
        ):
            raise too_large(self._url, key, most, len(data))
        return data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._lock:
            data = self._objects.get(key)
        if data is None:
            raise NotFoundError("no such object", store=self._url, key=key)
        check_range(self._url, key, start, length, len(data))
        return data[start : start + length]

    def head(self, key: str) -> ObjectInfo | None:
        with self._lock:
            data = self._objects.get(key)
        return None if data is None else ObjectInfo(key, len(data))

    def create(self, key: str, data: bytes) -> CreateResult:
        with self._lock:
            if key in self._objects:
                return CreateResult(CreateOutcome.EXISTS)
            self._set(key, bytes(data))
            return CreateResult(CreateOutcome.CREATED)

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._set(key, bytes(data))

    def open_write(self, key: str) -> Writer:
        return _MemoryWriter(self, key)

    def make_durable(self, keys: Sequence[str]) -> None:
        """Nothing to do: what is here is as durable as it will ever be."""

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        with self._lock:
            keys = self._sorted_keys()
            first = bisect_left(keys, prefix)
            if start_after is not None:
                first = max(first, bisect_right(keys, start_after))
            found = []
            for key in keys[first:]:
                if not key.startswith(prefix):
                    break
                found.append(ObjectInfo(key, len(self._objects[key])))
            return found

    def keeps_versions(self) -> bool:
        """Return False: what is deleted is gone; a file system that takes snapshots of itself does not say
        so.
        """
        return False

    def delete(self, key: str) -> None:
        with self._lock:
            keys = self._sorted_keys()
            self._created_ms.pop(key, None)
            if self._objects.pop(key, None) is not None:
                del keys[bisect_left(keys, key)]

    def created_ms(self, key: str) -> int | None:
        """See :func:`~txnformat.store.base.created_ms`."""
        with self._lock:
            return self._created_ms.get(key)

    def _set(self, key: str, data: bytes) -> None:
        keys = self._sorted_keys()
        is_new = key not in self._objects
        self._created_ms[key] = self.store_time_ms()
        self._objects[key] = data
        if is_new:
            insort(keys, key)

    def _sorted_keys(self) -> MutableSequence[str]:
        """Return the keys in their order. The caller holds the lock."""
        if len(self._keys) != len(self._objects):
            self._keys = sorted(self._objects)
        return self._keys


class _MemoryWriter(Writer):
    def __init__(self, store: MemoryStore, key: str) -> None:
        self._store = store
        self._key = key
        self._parts: bytearray | None = bytearray()
        self._closed = False

    def write(self, data: bytes | memoryview) -> int:
        if self._parts is None:
            raise writer_ended(self._store.url, self._key)
        view = memoryview(data).cast("B")
        self._parts += view
        return view.nbytes

    def close(self) -> None:
        if self._closed:
            return
        if self._parts is None:
            raise writer_ended(self._store.url, self._key)
        data, self._parts = bytes(self._parts), None
        if self._store.create(self._key, data).outcome is CreateOutcome.EXISTS:
            raise object_exists(self._store.url, self._key)
        self._closed = True

    def abort(self) -> None:
        self._parts = None
