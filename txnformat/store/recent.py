"""The commit entries that a process has just read or written with a store: a follower has the newest rows
already, and a writer the entries of a bundle.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakKeyDictionary

from txnformat.forking import renew_after_fork
from txnformat.store.base import ObjectStore

__all__ = ["RecentPayloads", "recent_payloads"]

BYTES_MAX = 16 * 2**20
"""Bytes that a process keeps of one store."""


class RecentPayloads:
    """Entries, as heads and payloads, by their numbers. Safe for use by many threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()
        self._bytes = 0
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make a new lock: another thread of the parent may hold the old one."""
        self._lock = threading.Lock()

    def keep(self, entry: int, payload: bytes, head: bytes = b"") -> None:
        """Keep an entry, or only its payload; the oldest ones make room."""
        with self._lock:
            self._bytes += len(payload) + len(head) - _size(self._known.pop(entry, (b"", b"")))
            self._known[entry] = head, payload
            while self._bytes > BYTES_MAX:
                self._bytes -= _size(self._known.popitem(last=False)[1])

    def get(self, entry: int) -> bytes | None:
        """Return the payload of an entry; None: it is not known, or has none."""
        return self._known.get(entry, (b"", b""))[1] or None

    def whole(self, entry: int) -> tuple[bytes, bytes] | None:
        """Return head and payload of an entry; None: its head is not known."""
        found = self._known.get(entry)
        return found if found is not None and found[0] else None


def _size(found: tuple[bytes, bytes]) -> int:
    return len(found[0]) + len(found[1])


_recent: WeakKeyDictionary[ObjectStore, RecentPayloads] = WeakKeyDictionary()


def recent_payloads(store: ObjectStore) -> RecentPayloads:
    """Return the payloads that this process has seen with a store."""
    found = _recent.get(store)
    return _recent.setdefault(store, RecentPayloads()) if found is None else found
