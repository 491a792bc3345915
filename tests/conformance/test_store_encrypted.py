"""The store of an encrypted log passes the suite of all stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from txnformat.keys import FORMAT_KEY
from txnformat.store.base import ObjectInfo, ObjectStore
from txnformat.store.encrypted.documents import plain_format
from txnformat.store.encrypted.key_client import KeySource
from txnformat.store.encrypted.key_file import new_key_file
from txnformat.store.encrypted.store import EncryptedStore
from txnformat.store.memory import MemoryStore
from txnlog_testing.stores.conformance import StoreConformance


class _WithoutFormat(EncryptedStore):
    """The suite wants an empty store, and there is no key without ``format.json``."""

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        return [info for info in super().list(prefix, start_after) if info.key != FORMAT_KEY]

    def list_each(self, prefix: str, take: Callable[[ObjectInfo], object]) -> None:
        for info in self.list(prefix):
            take(info)


class TestEncrypted(StoreConformance):
    races = 3

    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        keys = tmp_path / "keys.json"
        keys.write_text(new_key_file("first"), encoding="utf-8")
        store = _WithoutFormat(MemoryStore(), KeySource(f"file:{keys}"))
        store.create(FORMAT_KEY, plain_format("8f2c7a1e-0000-4000-8000-000000000001"))
        return store
