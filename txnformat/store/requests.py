"""The operations of a store and the classes of keys: what requests are counted by."""

from __future__ import annotations

from enum import StrEnum

from txnformat import keys

__all__ = ["READS", "KeyClass", "RequestKind", "key_class"]


class RequestKind(StrEnum):
    """An operation of :class:`~txnformat.store.base.ObjectStore` that costs a request."""

    GET = "get"
    GET_RANGE = "get_range"
    HEAD = "head"
    CREATE = "create"
    PUT = "put"
    OPEN_WRITE = "open_write"
    """A streamed upload, from ``open_write`` to ``close``."""
    LIST = "list"
    DELETE = "delete"


READS = frozenset({RequestKind.GET, RequestKind.GET_RANGE, RequestKind.HEAD, RequestKind.LIST})
"""Operations that change nothing."""


class KeyClass(StrEnum):
    """Classes of objects, by their key."""

    FORMAT = "format"
    ENTRY = "entry"
    BUNDLE = "bundle"
    PAYLOADS = "payloads"
    """A payload bundle."""
    SNAPSHOT = "snapshot"
    TABLE = "table"
    BOUNDARY = "boundary"
    LATEST = "latest"
    DATA = "data"
    """A segment file, or a listing of them."""
    SIDECAR = "sidecar"
    """A sidecar of a sealed segment."""
    PROBE = "probe"
    """An object that tries a store before a process's first write; no part of the log."""
    CONDEMNED = "condemned"
    """A vacuum's list of objects that it may delete later."""
    OTHER = "other"


_PREFIXES = (
    (keys.LOG_PREFIX, KeyClass.ENTRY),
    (keys.BUNDLE_PREFIX, KeyClass.BUNDLE),
    (keys.PAYLOAD_PREFIX, KeyClass.PAYLOADS),
    (keys.SNAPSHOT_PREFIX, KeyClass.SNAPSHOT),
    (keys.TABLE_PREFIX, KeyClass.TABLE),
    (keys.BOUNDARY_PREFIX, KeyClass.BOUNDARY),
    (keys.PROBE_PREFIX, KeyClass.PROBE),
    (keys.CONDEMNED_PREFIX, KeyClass.CONDEMNED),
)


def key_class(key: str) -> KeyClass:
    """Return the class of a key, or of the keys that a prefix lists."""
    if key == keys.FORMAT_KEY:
        return KeyClass.FORMAT
    if key == keys.LATEST_KEY:
        return KeyClass.LATEST
    for prefix, found in _PREFIXES:
        if key.startswith(prefix):
            return found
    if "/segments/" in key:
        return KeyClass.SIDECAR
    return KeyClass.DATA if "/data/" in key else KeyClass.OTHER
