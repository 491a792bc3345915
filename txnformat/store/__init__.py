"""Object stores: the interface, the adapters, and what they share."""

from __future__ import annotations

from txnformat.store.open import open_store

__all__ = ["open_store"]
