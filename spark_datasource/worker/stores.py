"""Stores that an executor's worker has open: the tasks after the first one find connections and directories
as they are.

A store that has just been opened trusts nothing: on a disk it syncs every directory from the root of the log
down before it writes its first file there, on S3 it makes a connection. For a task of few rows that is most
of its time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_datasource.options.storage import Storage
from txnformat.store.base import ObjectStore

__all__ = ["STORES_MAX", "kept_store"]

STORES_MAX = 16
"""Stores that a worker keeps; for one more it lets go of all of them."""

_stores: dict[tuple[str, Storage, str], ObjectStore] = {}
"""Stores by path, storage options and id of the log: the knowledge about a deleted log says nothing about the
next."""


@contextmanager
def kept_store(path: str, storage: Storage, log_id: str) -> Iterator[ObjectStore]:
    """Give a task its store; after an error the next task opens another.

    A worker runs one task at a time: no lock.
    """
    place = path, storage, log_id
    store = _stores.get(place)
    if store is None:
        if len(_stores) >= STORES_MAX:
            _stores.clear()
        store = _stores[place] = storage.open(path)
    try:
        yield store
    except Exception:
        _stores.pop(place, None)
        raise
