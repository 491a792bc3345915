"""The local store: the order of its system calls, what each failure means, and what it refuses."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.store.descriptors import descriptors_below
from txnformat.clock import Instant, SystemClock
from txnformat.errors import InvalidInputError, StorageError, UnsupportedStoreError
from txnformat.store import beneath
from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo, list_each
from txnformat.store.local import TEMPORARY_PREFIX, LocalStore
from txnformat.store.posix import Posix

KEY = "a/b/object"
CREATE = ["open_directory", "create_file", "write", "fsync_file", "link", "unlink", "fsync_directory"]


class RecordingPosix(Posix):
    """The real calls, recorded; ``fail`` names the error of the next call of a name."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail: dict[str, int] = {}
        self.partial = False

    def open_directory(self, path: str) -> int:
        return int(self._call("open_directory", super().open_directory, path))

    def create_file(self, name: str, directory: int) -> int:
        return int(self._call("create_file", super().create_file, name, directory))

    def write(self, file: int, data: memoryview) -> int:
        part = data[: max(1, data.nbytes // 2)] if self.partial else data
        return int(self._call("write", super().write, file, part))

    def fsync_file(self, file: int) -> None:
        self._call("fsync_file", super().fsync_file, file)

    def fsync_directory(self, directory: int) -> None:
        self._call("fsync_directory", super().fsync_directory, directory)

    def link(self, temporary: str, name: str, directory: int) -> None:
        self._call("link", super().link, temporary, name, directory)

    def replace(self, temporary: str, name: str, directory: int) -> None:
        self._call("replace", super().replace, temporary, name, directory)

    def unlink(self, name: str, directory: int) -> None:
        self._call("unlink", super().unlink, name, directory)

    def mkdir(self, path: str) -> None:
        self._call("mkdir", super().mkdir, path)

    def _call(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append(name)
        if name in self.fail:
            raise OSError(self.fail.pop(name), "planned")
        return call(*arguments)


@pytest.fixture
def posix() -> RecordingPosix:
    return RecordingPosix()


@pytest.fixture
def store(tmp_path: Path, posix: RecordingPosix) -> LocalStore:
    """A store whose directory ``a/b`` is known, with a fresh record."""
    store = LocalStore(tmp_path, posix=posix)
    assert store.create("a/b/first", b"").outcome is CreateOutcome.CREATED
    posix.calls.clear()
    return store


def _temporaries(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(TEMPORARY_PREFIX)]


def _refused(result: CreateResult) -> StorageError:
    assert result.outcome is CreateOutcome.REFUSED
    assert result.error is not None
    return result.error


# -- the order of the system calls ---------------------------------------------------------------------------


def test_a_create_syncs_the_file_before_the_link_and_the_directory_after_it(
    store: LocalStore, posix: RecordingPosix
) -> None:
    store.create(KEY, b"x")
    assert posix.calls == CREATE


def test_the_first_use_of_a_directory_syncs_its_way_from_the_root_whoever_made_it(
    tmp_path: Path, posix: RecordingPosix
) -> None:
    root = tmp_path / "new" / "root"
    LocalStore(root, posix=posix).create(KEY, b"x")
    made = ["mkdir", "open_directory", "fsync_directory"]  # the parent, after its new name
    assert posix.calls == made * 4 + CREATE

    other = RecordingPosix()
    LocalStore(root, posix=other).create("a/b/other", b"x")
    known = ["open_directory", "fsync_directory"]
    assert other.calls == known + made * 2 + CREATE


def test_a_lost_race_costs_no_write(store: LocalStore, posix: RecordingPosix) -> None:
    store.create(KEY, b"x")
    posix.calls.clear()
    assert store.create(KEY, b"y").outcome is CreateOutcome.EXISTS
    assert posix.calls == []


def test_a_race_lost_at_the_link_keeps_the_winner(
    store: LocalStore, posix: RecordingPosix, tmp_path: Path
) -> None:
    """The name appears after the first look: the link decides."""
    rival = LocalStore(tmp_path)

    def rival_first(file: int) -> None:
        rival.create(KEY, b"rival")
        Posix.fsync_file(posix, file)

    posix.fsync_file = rival_first  # type: ignore[method-assign]
    assert store.create(KEY, b"late") == (CreateOutcome.EXISTS, None)
    assert store.get(KEY) == b"rival"
    assert _temporaries(tmp_path) == []


def test_a_put_syncs_the_file_before_the_rename_and_the_directory_after_it(
    store: LocalStore, posix: RecordingPosix
) -> None:
    store.put(KEY, b"x")
    assert posix.calls == [
        "open_directory",
        "create_file",
        "write",
        "fsync_file",
        "replace",
        "fsync_directory",
    ]


def test_short_writes_are_continued(store: LocalStore, posix: RecordingPosix) -> None:
    posix.partial = True
    store.create(KEY, bytes(range(100)))
    with store.open_write("a/b/stream") as writer:
        assert writer.write(bytes(range(100))) == 100
    assert store.get(KEY) == store.get("a/b/stream") == bytes(range(100))


def test_a_directory_that_vanishes_is_made_again(store: LocalStore, tmp_path: Path) -> None:
    store.delete("a/b/first")
    (tmp_path / "a" / "b").rmdir()
    (tmp_path / "a").rmdir()
    assert store.create(KEY, b"x").outcome is CreateOutcome.CREATED


def test_the_constructor_does_no_io(tmp_path: Path) -> None:
    root = tmp_path / "none"
    store = LocalStore(root)
    assert store.list("") == []
    assert store.get("a") is None
    assert not root.exists()


def test_a_relative_root_is_fixed_when_the_store_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore("log")
    monkeypatch.chdir("/")
    assert store.url == f"file://{tmp_path}/log"


def test_store_time_is_the_clocks(tmp_path: Path) -> None:
    class At(SystemClock):
        def now(self) -> Instant:
            return Instant(1234, None)

    assert LocalStore(tmp_path, At()).store_time_ms() == 1234


# -- failures before the link: nothing happened --------------------------------------------------------------

BEFORE = [
    ("create_file", errno.EROFS, "read-only-store", False),
    ("create_file", errno.EACCES, "permission-denied", False),
    ("create_file", errno.ENOSPC, "disk-full", False),
    ("open_directory", errno.EMFILE, "too-many-open-files", True),
    ("write", errno.ENOSPC, "disk-full", False),
    ("write", errno.EDQUOT, "disk-full", False),
    ("write", errno.EIO, "io-error", False),
    ("fsync_file", errno.EIO, "io-error", False),
    ("fsync_file", errno.ENOSPC, "disk-full", False),
    ("link", errno.ENOSPC, "disk-full", False),
    ("link", errno.EACCES, "permission-denied", False),
    ("link", errno.EPERM, "unsupported-store", False),
    ("link", errno.EOPNOTSUPP, "unsupported-store", False),
    ("link", errno.ENOSYS, "unsupported-store", False),
]


@pytest.mark.parametrize(("call", "number", "kind", "transient"), BEFORE)
def test_a_failure_up_to_the_link_refuses_and_leaves_nothing(
    store: LocalStore,
    posix: RecordingPosix,
    tmp_path: Path,
    call: str,
    number: int,
    kind: str,
    transient: bool,
) -> None:
    """One clear error with the path and what to do; no file, no descriptor, and the store goes on."""
    descriptors = descriptors_below(tmp_path)
    posix.fail = {call: number}
    error = _refused(store.create(KEY, b"x"))
    assert (error.kind, error.transient) == (kind, transient)
    assert error.hint
    assert str(tmp_path / "a" / "b") in error.values["path"]

    posix.fail = {call: number}
    with pytest.raises(StorageError) as caught, store.open_write(KEY) as writer:
        writer.write(b"x")
    assert caught.value.kind == kind

    assert store.get(KEY) is None
    assert _temporaries(tmp_path) == []
    assert descriptors_below(tmp_path) == descriptors
    assert store.create(KEY, b"x").outcome is CreateOutcome.CREATED


@pytest.mark.parametrize("call", ["create_file", "write", "fsync_file", "replace"])
def test_a_failed_put_keeps_the_old_object(
    store: LocalStore, posix: RecordingPosix, tmp_path: Path, call: str
) -> None:
    store.put(KEY, b"old")
    posix.fail = {call: errno.ENOSPC}
    with pytest.raises(StorageError) as caught:
        store.put(KEY, b"new")
    assert caught.value.kind == "disk-full"
    assert store.get(KEY) == b"old"
    assert _temporaries(tmp_path) == []
    store.put(KEY, b"newer")


def test_no_hard_links_is_an_unsupported_store(store: LocalStore, posix: RecordingPosix) -> None:
    posix.fail = {"link": errno.EPERM}
    error = _refused(store.create(KEY, b"x"))
    assert isinstance(error, UnsupportedStoreError)
    assert "hard links" in str(error)
    assert "EPERM" not in str(error)


def test_a_failed_removal_of_the_temporary_name_does_not_matter(
    store: LocalStore, posix: RecordingPosix
) -> None:
    posix.fail = {"unlink": errno.EIO}
    assert store.create(KEY, b"x").outcome is CreateOutcome.CREATED
    assert [info.key for info in store.list("a/b/o")] == [KEY]


# -- failures from the link on: nobody can know --------------------------------------------------------------


def _is_poisoned(store: LocalStore) -> None:
    assert _refused(store.create("a/b/other", b"x")).kind == "store-poisoned"
    calls: list[Callable[[], object]] = [
        lambda: store.put("a/b/other", b"x"),
        lambda: store.open_write("a/b/other"),
        lambda: store.delete("a/b/first"),
    ]
    for call in calls:
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.kind == "store-poisoned"
        assert "open the log again" in str(caught.value)
    assert store.get("a/b/first") == b""  # reading goes on


@pytest.mark.parametrize("call", ["fsync_directory", "link"])
def test_a_failure_after_the_link_is_ambiguous_and_ends_all_writing(
    store: LocalStore, posix: RecordingPosix, tmp_path: Path, call: str
) -> None:
    """The object in doubt stays so: a read would take it from the page cache, a second fsync proves
    nothing.
    """
    posix.fail = {call: errno.EIO}
    result = store.create(KEY, b"x")
    assert result.outcome is CreateOutcome.AMBIGUOUS
    assert result.error is not None
    assert result.error.kind == "io-error"
    _is_poisoned(store)
    assert store.create(KEY, b"x").outcome is CreateOutcome.AMBIGUOUS
    for read in (store.get, store.head, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(StorageError) as caught:
            read(KEY)
        assert caught.value.kind == "store-poisoned"
    assert LocalStore(tmp_path).create("a/b/other", b"x").outcome is CreateOutcome.CREATED
    assert _temporaries(tmp_path) == []


@pytest.mark.parametrize("action", ["stream", "put"])
def test_other_writes_that_cannot_be_made_durable_end_all_writing(
    store: LocalStore, posix: RecordingPosix, action: str
) -> None:
    posix.fail = {"fsync_directory": errno.EIO}
    write = store.open_write(KEY).close if action == "stream" else lambda: store.put(KEY, b"x")
    with pytest.raises(StorageError) as caught:
        write()
    assert caught.value.kind == "io-error"
    _is_poisoned(store)


def test_a_writer_opened_before_the_poison_does_not_publish_after_it(
    store: LocalStore, posix: RecordingPosix, tmp_path: Path
) -> None:
    writer = store.open_write("a/b/stream")
    posix.fail = {"fsync_directory": errno.EIO}
    store.create(KEY, b"x")
    with pytest.raises(StorageError) as caught:
        writer.close()
    assert caught.value.kind == "store-poisoned"
    assert not (tmp_path / "a/b/stream").exists()
    assert _temporaries(tmp_path) == []


def test_a_sync_that_another_thread_saw_fail_meanwhile_proves_nothing(
    store: LocalStore, posix: RecordingPosix
) -> None:
    def other_fails_first(directory: int) -> None:
        posix.fsync_directory = lambda directory: RecordingPosix.fsync_directory(posix, directory)  # type: ignore[method-assign]
        posix.fail = {"fsync_directory": errno.EIO}
        store.create("a/b/other", b"x")
        Posix.fsync_directory(posix, directory)

    posix.fsync_directory = other_fails_first  # type: ignore[method-assign]
    assert store.create(KEY, b"x").outcome is CreateOutcome.AMBIGUOUS
    assert store.create(KEY, b"x").outcome is CreateOutcome.AMBIGUOUS


def test_a_new_directory_that_cannot_be_made_durable_refuses_and_ends_all_writing(
    store: LocalStore, posix: RecordingPosix
) -> None:
    posix.fail = {"fsync_directory": errno.EIO}
    assert _refused(store.create("new/object", b"x")).kind == "io-error"
    _is_poisoned(store)
    assert store.get("new/object") is None


def test_a_file_system_without_directory_sync_is_unsupported(
    store: LocalStore, posix: RecordingPosix
) -> None:
    posix.fail = {"fsync_directory": errno.EINVAL}
    assert isinstance(_refused(store.create("new/object", b"x")), UnsupportedStoreError)


# -- what lies in the way ------------------------------------------------------------------------------------


def test_a_directory_where_an_object_belongs_is_a_clear_error(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "a" / "object").mkdir(parents=True)
    calls: list[Callable[[], object]] = [
        lambda: store.get("a/object"),
        lambda: store.head("a/object"),
        lambda: store.get_range("a/object", 0, 1),
        lambda: store.put("a/object", b"x"),
        lambda: store.delete("a/object"),
    ]
    for call in calls:
        with pytest.raises(StorageError) as caught:
            call()
        assert caught.value.kind == "not-a-file", call
        assert str(tmp_path / "a" / "object") in str(caught.value)
    assert store.create("a/object", b"x").outcome is CreateOutcome.EXISTS


def test_a_file_where_a_directory_belongs_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert _refused(LocalStore(tmp_path).create(KEY, b"x")).kind == "not-a-directory"
    assert _refused(LocalStore(tmp_path / "a").create(KEY, b"x")).kind == "not-a-directory"
    assert _refused(LocalStore(tmp_path / "a" / "b").create(KEY, b"x")).kind == "not-a-directory"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/../b",
        "a/..",
        ".",
        "a/./b",
        "a\0b",
        "\ud800",
        ".tmp-1",
        "a/.tmp-1/b",
    ],
)
def test_what_is_no_key_never_reaches_the_file_system(
    tmp_path: Path, posix: RecordingPosix, key: str
) -> None:
    store = LocalStore(tmp_path / "root", posix=posix)
    calls: list[Callable[[], object]] = [
        lambda: store.create(key, b"x"),
        lambda: store.get(key),
        lambda: store.delete(key),
        lambda: store.list(key + "/"),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert caught.value.kind == "invalid-key"
    assert posix.calls == []


def test_leftover_temporary_files_are_never_seen(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create(KEY, b"x")
    (tmp_path / f"{TEMPORARY_PREFIX}1").write_bytes(b"")
    (tmp_path / "a" / "b" / f"{TEMPORARY_PREFIX}2").write_bytes(b"")
    writer = store.open_write("a/b/stream")
    for prefix in ("", "a/", "a/b/", "a/b/."):
        assert [info.key for info in store.list(prefix)] == ([] if prefix == "a/b/." else [KEY])
    writer.abort()


def test_file_names_that_are_not_utf8_are_not_listed(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff", "wb"):  # noqa: PTH123  # Path has no bytes
        pass
    assert LocalStore(tmp_path).list("") == []


def test_links_to_directories_are_not_followed_by_a_listing(tmp_path: Path) -> None:
    """A link back to the root would have no end; neither is it an object itself."""
    store = LocalStore(tmp_path)
    for key in ("a/x", "b/x"):
        store.create(key, b"")
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert [info.key for info in store.list("")] == ["a/x", "b/x"]


def test_a_large_directory_is_listed_in_parts_and_each_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the taker raises in the middle: the directory is closed."""
    monkeypatch.setattr(beneath, "ENTRIES_AT_ONCE", 3)
    store = LocalStore(tmp_path)
    names = {f"a/b/{number}" for number in range(10)}
    for name in names:
        store.create(name, b"xy")
    found: list[ObjectInfo] = []
    list_each(store, "a/", found.append)
    assert {info.key for info in found} == names
    assert len(found) == 10
    assert {info.size for info in found} == {2}
    gc.collect()
    descriptors = descriptors_below(tmp_path)
    for error in (StorageError("no more"), KeyboardInterrupt()):

        def fail(info: ObjectInfo, error: BaseException = error) -> None:
            raise error

        with pytest.raises((StorageError, KeyboardInterrupt)):
            list_each(store, "", fail)
    assert descriptors_below(tmp_path) == descriptors


def test_a_dropped_writer_gives_back_file_and_descriptors(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/first", b"")
    gc.collect()
    descriptors = descriptors_below(tmp_path)
    store.open_write("a/object").write(b"x" * 1000)
    gc.collect()
    assert _temporaries(tmp_path) == []
    assert descriptors_below(tmp_path) == descriptors
