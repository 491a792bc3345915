"""Every store that is shipped passes the same suite, wrappers included."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnlog_testing.stores.conformance import StoreConformance
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import FaultyStore


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


class TestLocalStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return LocalStore(tmp_path / "not yet" / "there")


class TestCountingStore(StoreConformance):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return CountingStore(MemoryStore())


class TestFaultyStoreWithoutFaults(StoreConformance):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultyStore(MemoryStore())


class TestWrappedLocalStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return CountingStore(FaultyStore(LocalStore(tmp_path)))
