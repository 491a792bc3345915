"""Whether a store keeps old versions of objects that were replaced or deleted."""

from __future__ import annotations

from txnformat.store.base import ObjectStore

__all__ = ["keeps_versions"]


def keeps_versions(store: ObjectStore) -> bool | None:
    """Return whether a store keeps old versions of objects; None: it does not say. Requests: at most 1. Raises StorageError."""
    method = getattr(store, "keeps_versions", None)
    if method is None:
        return None
    found: bool | None = method()
    return found
