"""The payloads of commit entries that a process has just read or written with a store: a follower has the newest rows already."""

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
    """Payloads by the numbers of their entries. Safe for use by many threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, bytes] = OrderedDict()
        self._bytes = 0
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make a new lock: another thread of the parent may hold the old one."""
        self._lock = threading.Lock()

    def keep(self, entry: int, payload: bytes) -> None:
        """Keep the payload of an entry, unless it is empty; the oldest ones make room."""
        if not payload:
            return
        with self._lock:
            self._bytes += len(payload) - len(self._known.pop(entry, b""))
            self._known[entry] = payload
            while self._bytes > BYTES_MAX:
                self._bytes -= len(self._known.popitem(last=False)[1])

    def get(self, entry: int) -> bytes | None:
        """Return the payload of an entry; None: it is not known."""
        return self._known.get(entry)


_recent: WeakKeyDictionary[ObjectStore, RecentPayloads] = WeakKeyDictionary()


def recent_payloads(store: ObjectStore) -> RecentPayloads:
    """Return the payloads that this process has seen with a store."""
    found = _recent.get(store)
    return _recent.setdefault(store, RecentPayloads()) if found is None else found
