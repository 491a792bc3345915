"""Making others' objects durable: which directories the local store syncs for it, when none, and what a
failure means."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from txnformat.clock import Clock, Instant, SystemClock
from txnformat.errors import StorageError
from txnformat.store.base import CreateOutcome, ObjectStore, make_durable
from txnformat.store.directories import YOUNG_MS
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.patient import PatientStore
from txnformat.store.posix import Posix
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import FaultyStore
from txnlog_testing.stores.latency import LatencyStore

KEY = "a/b/object"


class At(SystemClock):
    """A machine's clocks, moved."""

    def __init__(self, ahead_ms: int = 0, boot_ms: int | None = 10 * YOUNG_MS) -> None:
        self.ahead_ms = ahead_ms
        self.boot_ms = boot_ms

    def now(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000 + self.ahead_ms, self.boot_ms)


class Syncs(Posix):
    """Records the directories that are synced; ``fail`` is the error of the next sync, ``closed`` cannot be
    opened; ``old`` never changes."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.fail: int | None = None
        self.closed: frozenset[str] = frozenset()
        self.old: frozenset[str] = frozenset()
        self._open: dict[int, str] = {}

    def open_directory(self, path: str) -> int:
        if path in self.closed:
            raise PermissionError(errno.EACCES, "planned", path)
        descriptor = super().open_directory(path)
        self._open[descriptor] = path
        return descriptor

    def changed_ms(self, path: str) -> int:
        return 0 if path in self.old else super().changed_ms(path)

    def fsync_directory(self, directory: int) -> None:
        number, self.fail = self.fail, None
        if number is not None:
            raise OSError(number, "planned")
        super().fsync_directory(directory)
        self.synced.append(self._open[directory])


def reader(root: Path, clock: Clock | None = None) -> tuple[LocalStore, Syncs]:
    """Return a new process's store at a root where another one has written the object."""
    if not root.exists():
        assert LocalStore(root).create(KEY, b"x").outcome is CreateOutcome.CREATED
    posix = Syncs()
    return LocalStore(root, clock or At(), posix=posix), posix


def test_the_directory_and_once_the_way_to_it_are_synced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store, posix = reader(root)
    store.make_durable([KEY])
    assert posix.synced == [str(tmp_path), str(root), str(root / "a"), str(root / "a" / "b")]
    posix.synced.clear()
    store.make_durable([KEY, "a/b/other"])
    assert posix.synced == [str(root / "a" / "b")], "one sync for all that is in a directory"


def test_a_process_that_wrote_there_knows_the_way(tmp_path: Path) -> None:
    store, posix = reader(tmp_path / "root")
    store.create("a/b/own", b"")
    posix.synced.clear()
    store.make_durable([KEY])
    assert posix.synced == [str(tmp_path / "root" / "a" / "b")]


@pytest.mark.parametrize(("ahead_ms", "syncs"), [(YOUNG_MS, 0), (YOUNG_MS - 60_000, 4), (-YOUNG_MS, 4)])
def test_directories_without_a_change_for_an_hour_cost_no_sync(
    tmp_path: Path, ahead_ms: int, syncs: int
) -> None:
    store, posix = reader(tmp_path / "root", At(ahead_ms))
    store.make_durable([KEY])
    assert len(posix.synced) == syncs


def test_an_old_object_shows_that_the_way_to_it_is_older(tmp_path: Path) -> None:
    """The directories were made before the object; their later entries may still be young."""
    store, posix = reader(tmp_path / "root")
    posix.old = frozenset({str(tmp_path / "root" / KEY)})
    store.make_durable([KEY])
    assert posix.synced == []
    LocalStore(tmp_path / "root").create("a/b/c/young", b"")
    store.make_durable([KEY, "a/b/c/young"])
    assert posix.synced == [str(tmp_path / "root/a/b"), str(tmp_path / "root/a/b/c")]


def test_in_the_first_hour_of_a_machine_every_directory_is_young(tmp_path: Path) -> None:
    """A clock that stood still while the machine was off is set soon after its start."""
    store, posix = reader(tmp_path / "root", At(10 * YOUNG_MS, boot_ms=YOUNG_MS - 1))
    store.make_durable([KEY])
    assert len(posix.synced) == 4


def test_no_tool_makes_a_directory_old(tmp_path: Path) -> None:
    """``touch -d``, ``cp -p`` and ``rsync -t`` set other times than the one that counts."""
    store, posix = reader(tmp_path / "root")
    for directory in (
        tmp_path,
        tmp_path / "root",
        tmp_path / "root/a",
        tmp_path / "root/a/b",
        tmp_path / "root" / KEY,
    ):
        os.utime(directory, (1, 1))
    store.make_durable([KEY])
    assert len(posix.synced) == 4


def test_a_failed_sync_is_an_error_and_no_later_one_makes_it_good(tmp_path: Path) -> None:
    """The page cache goes on showing the name; whether it is on the disk nobody knows any more."""
    store, posix = reader(tmp_path / "root")
    posix.fail = errno.EIO
    with pytest.raises(StorageError) as caught:
        store.make_durable([KEY])
    assert caught.value.kind == "io-error"
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            store.make_durable([KEY])
        assert caught.value.kind == "store-poisoned"
    assert posix.synced == [], "nothing is synced any more"
    refused = store.create("a/b/own", b"")
    assert refused.outcome is CreateOutcome.REFUSED
    assert store.get(KEY) == b"x", "what it knew before may still be read"


def test_a_sync_proves_nothing_if_another_threads_failed_meanwhile(tmp_path: Path) -> None:
    store, posix = reader(tmp_path / "root")
    store.make_durable([KEY])
    succeeds = posix.fsync_directory

    def other_fails_first(directory: int) -> None:
        posix.fsync_directory = succeeds  # type: ignore[method-assign]
        posix.fail = errno.EIO
        store.create("a/b/own", b"")
        succeeds(directory)

    posix.fsync_directory = other_fails_first  # type: ignore[method-assign]
    with pytest.raises(StorageError) as caught:
        store.make_durable([KEY])
    assert caught.value.kind == "store-poisoned"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_file_system_without_directory_sync_can_be_read(tmp_path: Path, number: int) -> None:
    """No log was written there (that is refused): it is an image, or was copied."""
    store, posix = reader(tmp_path / "root")
    posix.fail = number
    store.make_durable([KEY])
    assert len(posix.synced) == 3


def test_a_directory_that_is_closed_to_the_reader_is_no_error(tmp_path: Path) -> None:
    store, posix = reader(tmp_path / "root")
    posix.closed = frozenset({str(tmp_path)})
    store.make_durable([KEY])
    assert len(posix.synced) == 3


def test_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    store, _ = reader(tmp_path / "root")
    with pytest.raises(StorageError) as caught:
        store.make_durable(["nowhere/object"])
    assert caught.value.kind == "directory-missing"


class Told(MemoryStore):
    """Records what it is asked to make durable."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def make_durable(self, keys: Sequence[str]) -> None:
        self.keys += keys


@pytest.mark.parametrize(
    "wrap",
    [
        CountingStore,
        FaultyStore,
        lambda inner: PatientStore(inner, SystemClock()),
        lambda inner: LatencyStore(inner, 0),
    ],
)
def test_wrappers_pass_it_on_and_it_is_no_request(wrap: Callable[[ObjectStore], ObjectStore]) -> None:
    inner = Told()
    outer = wrap(inner)
    make_durable(outer, [KEY])
    assert inner.keys == [KEY]
    if isinstance(outer, CountingStore):
        assert outer.counts.count() == 0


def test_a_store_of_others_without_the_method_is_durable_by_itself() -> None:
    make_durable(object(), [KEY])  # type: ignore[arg-type]
