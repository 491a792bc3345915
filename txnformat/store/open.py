"""From what a user writes to the store that serves it."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from urllib.parse import unquote
from weakref import WeakValueDictionary

from txnformat.clock import Clock
from txnformat.errors import InvalidInputError, UnsupportedStoreError
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore

__all__ = ["open_store"]

# Hadoop writes one slash (file:/tmp/log, dbfs:/log), everybody else two.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")

_memory_lock = threading.Lock()
_memory_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()


def open_store(location: str | Path, clock: Clock | None = None) -> ObjectStore:
    """Return the store at ``location``. No IO: whether anything is there shows at the first request.

    Parameters
    ----------
    location : str or Path
        A path (relative ones count from the current directory), ``file:///path``, ``file:/path``, or, for tests
        within one process, ``memory://name``: the same store for the same name while anybody holds it.
    clock : Clock, optional
        Where the store's time comes from, for a store without a clock of its own.

    Raises
    ------
    UnsupportedStoreError
        No adapter for this scheme.
    InvalidInputError
        No location at all.
    """
    text = str(location)
    match = None if isinstance(location, Path) else _SCHEME.match(text)
    if match is None:
        return _local_store(text, clock)
    scheme = match[1].lower()
    if scheme == "file":
        return _local_store(_file_path(text), clock)
    if scheme == "memory":
        return _memory_store(text[match.end() :].lstrip("/"), clock)
    raise UnsupportedStoreError(
        f"there is no adapter for {scheme}:// yet",
        hint="use a path on a local disk or file:///path",
        scheme=scheme,
    )


def _file_path(text: str) -> str:
    """Return the absolute path of a ``file:`` URL; one that names another machine is refused."""
    rest = text[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise InvalidInputError(
                "a file URL names another machine, or no path",
                kind="invalid-location",
                hint="write three slashes before an absolute path: file:///data/log",
                location=text,
            )
        rest = slash + path
    return unquote(rest)


def _local_store(path: str, clock: Clock | None) -> LocalStore:
    if not path or "\0" in path:
        raise InvalidInputError(
            f"{path!r} is not a location",
            kind="invalid-location",
            hint="name a directory, such as /data/log or file:///data/log",
        )
    return LocalStore(path, clock)


def _memory_store(name: str, clock: Clock | None) -> MemoryStore:
    with _memory_lock:
        store = _memory_stores.get(name)
        if store is None:
            store = _memory_stores[name] = MemoryStore(clock, name)
        return store
