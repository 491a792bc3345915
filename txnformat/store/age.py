"""When an object came to be, by its store's own clock."""

from __future__ import annotations

from txnformat.store.base import ObjectStore

__all__ = ["created_ms"]


def created_ms(store: ObjectStore, key: str) -> int | None:
    """Return when an object was created, in the store's time, ms since the epoch; None: it is not there, or the store cannot tell.

    A time that is too late is possible (a copy of the object is younger than the object); one that is before the object could be seen is not, but for
    the time of one request. Requests: 1 HEAD.
    """
    method = getattr(store, "created_ms", None)
    found: int | None = None if method is None else method(key)
    return found
