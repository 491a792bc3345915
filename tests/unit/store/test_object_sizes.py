"""Objects that are larger than any that a writer makes: refused before they are in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from txnformat import keys
from txnformat.errors import StorageError
from txnformat.log import TxnLog
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.object_sizes import OTHER_BYTES_MAX, SMALL_BYTES_MAX, SNAPSHOT_BYTES_MAX, bytes_max
from txnformat.store.open import open_store

UUID = "00000000-0000-4000-8000-000000000000"
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (keys.entry_key(7), 8 * MIB),
        (keys.bundle_key(0, 99), 16 * MIB),
        (keys.FORMAT_KEY, SMALL_BYTES_MAX),
        (keys.LATEST_KEY, SMALL_BYTES_MAX),
        (keys.boundary_key(3), SMALL_BYTES_MAX),
        (keys.probe_key(UUID), SMALL_BYTES_MAX),
        (keys.condemned_key(3, UUID), MIB),
        (keys.snapshot_key(3, UUID), SNAPSHOT_BYTES_MAX),
        (keys.table_key(3, UUID), 256 * MIB),
        (keys.sidecar_key("t-00000000", 3, UUID, "markers"), 256 * MIB),
        (keys.data_key("t-00000000", 3, UUID), OTHER_BYTES_MAX),
    ],
)
def test_every_class_of_key_has_a_maximum(key: str, expected: int) -> None:
    assert bytes_max(key) == expected


@pytest.mark.parametrize("size", [20 * 1024**3, 8 * MIB + 1])
def test_a_sparse_entry_is_refused_before_it_is_read(tmp_path: Path, size: int) -> None:
    """20 GB of nothing, in a file that takes no space."""
    TxnLog.create(str(tmp_path)).close()
    _sparse(tmp_path, keys.entry_key(0), size)
    with pytest.raises(StorageError) as caught:
        TxnLog.open(str(tmp_path))
    assert caught.value.kind == "object-too-large"
    assert not caught.value.transient
    assert caught.value.values["key"] == keys.entry_key(0)
    assert caught.value.values["expected"] == f"at most {8 * MIB} bytes"


@pytest.mark.parametrize("key", [keys.LATEST_KEY, keys.snapshot_key(0, UUID), keys.bundle_key(0, 99)])
def test_a_hint_that_is_too_large_is_passed_over(tmp_path: Path, key: str) -> None:
    TxnLog.create(str(tmp_path)).close()
    _sparse(tmp_path, key, 20 * 1024**3)
    with TxnLog.open(str(tmp_path)) as log:
        assert log.state.entry == -1


def test_a_store_never_holds_more_than_was_allowed(tmp_path: Path) -> None:
    memory, local = MemoryStore(), LocalStore(tmp_path)
    for store in (memory, local):
        store.put("a/x", b"12345")
        assert store.get("a/x", 5) == b"12345"
        with pytest.raises(StorageError) as caught:
            store.get("a/x", 4)
        assert (caught.value.kind, caught.value.values["got"]) == ("object-too-large", "5 bytes")


def test_a_file_that_grows_while_it_is_read_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put("a/x", b"1234")
    whole = os.read

    def read(file: int, count: int) -> bytes:
        with (tmp_path / "a/x").open("ab") as more:
            more.write(b"5" * 1000)
        return whole(file, count)

    monkeypatch.setattr(os, "read", read)
    with pytest.raises(StorageError) as caught:
        store.get("a/x", 5000)
    assert caught.value.kind == "object-too-large"


def test_the_shared_memory_stores_are_bounded_too() -> None:
    store = open_store("memory://bounded")
    store.put(keys.LATEST_KEY, bytes(SMALL_BYTES_MAX + 1))
    with pytest.raises(StorageError, match="larger than the format allows"):
        store.get(keys.LATEST_KEY)


def _sparse(root: Path, key: str, size: int) -> None:
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
