"""Object stores: the interface, the adapters, and the wrappers that count requests and inject faults."""

from __future__ import annotations

from txnformat.store.open import open_store

__all__ = ["open_store"]
