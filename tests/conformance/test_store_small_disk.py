"""A real file system that is full, or mounted read-only: refused with one clear error, nothing left
behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disk import mount, small_disk
from txnformat.errors import StorageError
from txnformat.store.base import CreateOutcome
from txnformat.store.local import TEMPORARY_PREFIX, LocalStore

DISK_BYTES = 256 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 256 KiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def _temporaries(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(TEMPORARY_PREFIX)]


def test_a_full_disk_refuses_creates_and_loses_nothing(disk: Path) -> None:
    store = LocalStore(disk / "root")
    written = 0
    while (result := store.create(f"a/{written}", b"x" * 20_000)).outcome is CreateOutcome.CREATED:
        written += 1
    assert written > 5
    assert result.outcome is CreateOutcome.REFUSED
    assert result.error is not None
    assert result.error.kind == "disk-full"
    assert "free space" in str(result.error)
    assert [store.get(info.key) for info in store.list("a/")] == [b"x" * 20_000] * written
    assert _temporaries(disk) == []

    with pytest.raises(StorageError) as caught:
        store.put("a/0", b"y" * 30_000)
    assert caught.value.kind == "disk-full"
    assert store.get("a/0") == b"x" * 20_000
    store.delete("a/0")
    assert store.create("a/0", b"z").outcome is CreateOutcome.CREATED


def test_a_stream_that_fills_the_disk_gives_the_space_back_at_once(disk: Path) -> None:
    store = LocalStore(disk)
    writer = store.open_write("a/large")
    with pytest.raises(StorageError) as caught:  # noqa: PT012  # which of the writes fails is the disk's choice
        for _ in range(DISK_BYTES // 1000 + 1):
            writer.write(b"x" * 1000)
    assert caught.value.kind == "disk-full"
    assert _temporaries(disk) == []
    assert store.create("a/other", b"x" * (DISK_BYTES // 2)).outcome is CreateOutcome.CREATED
    with pytest.raises(StorageError):
        writer.close()
    assert [info.key for info in store.list("")] == ["a/other"]


def test_a_read_only_disk_is_readable_and_refuses_writes(disk: Path) -> None:
    LocalStore(disk).create("a/object", b"x")
    assert mount("-o", "remount,ro", str(disk)).returncode == 0
    store = LocalStore(disk)
    assert store.get("a/object") == b"x"
    assert store.create("a/object", b"y").outcome is CreateOutcome.EXISTS
    for key in ("a/other", "new/other"):
        result = store.create(key, b"x")
        assert result.outcome is CreateOutcome.REFUSED
        assert result.error is not None
        assert result.error.kind == "read-only-store"
        for call in (lambda key=key: store.put(key, b"x"), lambda key=key: store.open_write(key)):
            with pytest.raises(StorageError) as caught:
                call()
            assert caught.value.kind == "read-only-store"
    with pytest.raises(StorageError) as caught:
        store.delete("a/object")
    assert caught.value.kind == "read-only-store"
    assert [info.key for info in store.list("")] == ["a/object"]
