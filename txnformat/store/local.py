"""An object store in a directory of a local file system.

How an object comes to be
-------------------------
1. open the directory (made, and its ancestors synced, when this instance uses it for the first time);
2. write a temporary file next to the final name, under a name that no key has and ``list`` passes over;
3. fsync the file;
4. ``link`` it to the final name: atomic, and exactly one of all that try wins (``put``: rename);
5. remove the temporary name; fsync the directory.

Descriptors are numbers, which nothing gives back: so steps that begin with opening one run where no signal
handler raises (:mod:`txnformat.shield`).

Up to 4 an error means: not created. After 4 an error means: perhaps created, perhaps not durable. A repeated
fsync may then succeed although the data is lost (Rebello et al., USENIX ATC 2020), so this instance is done
with writing (kind ``store-poisoned``), and does not show the object in question either: what it would read
comes from the page cache, and a reader would take it for a durable commit.

A process that dies leaves at most a temporary file, which nothing ever looks at; or, between 4 and the end of
5, an object that others see and that a power cut takes away. Before others answer from it they make it
durable (:meth:`LocalStore.make_durable`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from txnformat.clock import Clock, Ids, SystemClock, SystemIds
from txnformat.errors import InvalidInputError, NotFoundError, StorageError
from txnformat.file_urls import file_url
from txnformat.forking import generation
from txnformat.keys import TEMPORARY_PREFIX
from txnformat.shield import shielded
from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo, check_range, too_large
from txnformat.store.beneath import (
    Tree,
    Way,
    identity,
    is_key_part,
    nothing_there,
    path_beneath,
    read_exactly,
    read_whole,
)
from txnformat.store.directories import Directories
from txnformat.store.object_sizes import bytes_max as object_bytes_max
from txnformat.store.posix import LINK_NOT_APPLIED, Posix, storage_error
from txnformat.store.unfinished import UnfinishedUpload, temporary_files
from txnformat.store.uploads import Writer, object_exists, writer_ended

__all__ = ["TEMPORARY_PREFIX", "LocalStore"]

PATHS_KEPT = 64
"""Paths of keys that were asked for last."""

DIRECTORY_ATTEMPTS_MAX = 3
"""How often a directory is made anew when another process removes it under us."""


class _Poison(NamedTuple):
    """Why an instance no longer writes."""

    path: str
    cause: str


class LocalStore:
    """Objects as files below the directory ``root``, made by the first write when missing; safe for many
    threads and many processes.

    The constructor does no IO. The store's time is ``clock``'s wall clock; ``ids`` gives temporary names;
    ``posix`` has the system calls, of this store alone. Beneath the root there are regular files and
    directories only: what a symbolic link leads to is neither read nor written, and a listing passes over it.
    The root itself may be one. ``follow_symlinks`` is for a user who links on purpose: links are followed,
    wherever they lead; a listing follows them too, but for those that lead nowhere, or to a directory that
    they are in. On macOS ``fsync`` does not flush the drive's own cache.
    """

    def __init__(
        self,
        root: str | Path,
        clock: Clock | None = None,
        ids: Ids | None = None,
        posix: Posix | None = None,
        *,
        follow_symlinks: bool = False,
    ) -> None:
        self._root = str(Path(root).absolute())
        self._paths: dict[str, str] = {}
        self._tree = Tree(self._root, follow_symlinks=follow_symlinks)
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._posix = posix or Posix()
        self._posix.tree = self._tree
        self._directories = Directories(
            self._root, self._posix, self._clock, self._poison_writes, self._check_writable
        )
        self._has_root = False
        self._poison: _Poison | None = None
        self._doubtful_keys: set[str] = set()

    def reopening(self) -> Callable[[], LocalStore] | None:
        """Return what makes an equal store in another process; None for one with components of its own."""
        if (type(self), type(self._clock), type(self._posix)) != (LocalStore, SystemClock, Posix):
            return None
        return partial(LocalStore, self._root, follow_symlinks=self._tree.follow_symlinks)

    @property
    def url(self) -> str:
        """``file://`` and the absolute path, as :func:`~txnformat.file_urls.file_url` writes it."""
        return file_url(self._root)

    @property
    def reads_in_flight(self) -> int:
        """1: a read is a system call."""
        return 1

    @property
    def lists_by_scanning(self) -> bool:
        """True: a directory has no order."""
        return True

    def store_time_ms(self) -> int:
        return self._clock.now().wall_ms

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        path = self._readable_path(key)
        most = object_bytes_max(key) if bytes_max is None else bytes_max
        try:
            data = self._tree.read(path, lambda file, size: read_whole(file, size, most))
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return None
        except OSError as error:
            raise storage_error(error, "read", path) from error
        if isinstance(data, int):
            raise too_large(self.url, key, most, data)
        return data

    def _check_root(self) -> None:
        """Refuse a root that is there and is no directory; once it is one, it is not looked at again."""
        if self._has_root:
            return
        try:
            self._has_root = stat.S_ISDIR(os.stat(self._root).st_mode)  # noqa: PTH116  # plain text
        except FileNotFoundError as error:
            if not os.path.islink(self._root):  # noqa: PTH114  # plain text
                return
            raise StorageError(
                "the root is a symbolic link that leads nowhere",
                kind="symbolic-link",
                hint="make the directory that it names, or name another root",
                path=self._root,
            ) from error
        except OSError as error:
            raise storage_error(error, "read", self._root) from error
        if not self._has_root:
            raise storage_error(NotADirectoryError(errno.ENOTDIR, "is not a directory"), "read", self._root)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        path = self._readable_path(key)

        def read(file: int, size: int) -> bytes:
            check_range(self.url, key, start, length, size)
            return read_exactly(file, start, length, path)

        try:
            return self._tree.read(path, read)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError("no such object", store=self.url, key=key) from error
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def head(self, key: str) -> ObjectInfo | None:
        status = self._status(key)
        return None if status is None else ObjectInfo(key, status.st_size)

    def created_ms(self, key: str) -> int | None:
        """See :func:`~txnformat.store.base.created_ms`.

        The link that made the object visible has set its change time; its bytes may be older.
        """
        status = self._status(key)
        return None if status is None else max(status.st_ctime_ns, status.st_mtime_ns) // 1_000_000

    def _status(self, key: str) -> os.stat_result | None:
        path = self._readable_path(key)
        try:
            return self._tree.status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise storage_error(error, "read", path) from error

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create the object if the key is free: one attempt, atomic, durable.

        After an AMBIGUOUS answer the same key stays AMBIGUOUS for this instance, all others are REFUSED.
        """
        path = self._path(key)
        return shielded(lambda: self._create(key, path, data))

    def _create(self, key: str, path: str, data: bytes) -> CreateResult:
        if self._poison is not None:
            doubtful = key in self._doubtful_keys
            outcome = CreateOutcome.AMBIGUOUS if doubtful else CreateOutcome.REFUSED
            return CreateResult(outcome, self._poisoned(self._poison))
        if os.path.lexists(path):
            # A race that is already lost costs one stat, and not two waits for the device.
            return CreateResult(CreateOutcome.EXISTS)
        try:
            with _Upload(self, key, path) as upload:
                upload.write(data)
                return upload.publish()
        except StorageError as error:
            return CreateResult(CreateOutcome.REFUSED, error)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        self._check_writable()
        with _Upload(self, key, path) as upload:
            upload.write(data)
            upload.replace()

    def open_write(self, key: str) -> Writer:
        """Start a streamed upload: a temporary file until ``close``."""
        path = self._path(key)
        self._check_writable()
        made: list[Writer] = []  # not an answer, which could be kept longer than the upload is wanted
        shielded(lambda: made.append(_LocalWriter(_Upload(self, key, path), self.url, key)))
        return made.pop()

    def make_durable(self, keys: Sequence[str]) -> None:
        """Sync the names of objects that other processes made, where these may be young.

        Their bytes are durable since before they had a name. Nothing is synced for objects that got it an
        hour ago (:data:`~txnformat.store.directories.YOUNG_MS`).
        """
        paths = [self._readable_path(key) for key in keys]
        shielded(lambda: self._directories.confirm(paths))

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects under ``prefix`` after ``start_after`` (exclusive), sorted by key.

        One scan of the deepest directory that ``prefix`` names and of those below it; sizes are asked only of
        the files that are returned.
        """
        found: dict[str, int] = {}
        self._look_through(prefix, start_after, found.__setitem__)
        # The order of code points is the order of UTF-8 bytes.
        return [ObjectInfo(key, found.pop(key)) for key in sorted(found)]

    def list_each(self, prefix: str, take: Callable[[ObjectInfo], object]) -> None:
        """Call ``take`` with the objects under ``prefix``, in the order of the directories; a thousand are
        held at a time.
        """
        self._look_through(prefix, None, lambda key, size: take(ObjectInfo(key, size)))

    def _look_through(self, prefix: str, start_after: str | None, take: Callable[[str, int], object]) -> None:
        directory = prefix[: prefix.rfind("/") + 1]
        if directory:
            self._path(directory[:-1])
        waiting = [(directory, self._tree.way(f"{self._root}/{directory}".removesuffix("/")))]
        while waiting:
            waiting += self._scan(*waiting.pop(), prefix, start_after, take)

    def keeps_versions(self) -> bool:
        """Return False: what is deleted is gone; a file system that takes snapshots of itself does not say
        so.
        """
        return False

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error. Directories stay."""
        self._remove(self._path(key))

    def _remove(self, path: str) -> None:
        self._check_writable()
        try:
            self._posix.delete(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise storage_error(error, "delete", path) from error

    def unfinished_uploads(self, before_ms: int) -> Sequence[UnfinishedUpload]:
        """Return the temporary files that were not written to since a time: their process was killed."""
        return temporary_files(self._tree, self._root, before_ms)

    def discard_upload(self, upload: UnfinishedUpload) -> None:
        """Remove a temporary file."""
        directory, _, name = upload.key.rpartition("/")
        if not name.startswith(TEMPORARY_PREFIX):
            raise InvalidInputError(f"{upload.key!r} is not a temporary file", kind="invalid-key")
        self._remove(f"{self._path(directory)}/{name}")

    def _scan(
        self,
        directory: str,
        above: Way,
        prefix: str,
        start_after: str | None,
        take: Callable[[str, int], object],
    ) -> Sequence[tuple[str, Way]]:
        """Call ``take`` with key and size of each object of ``directory`` (empty, or ending in ``/``); return
        the directories in it.

        ``above`` is the way to it: a link to one of these would lead around a circle.
        """
        path = f"{self._root}/{directory}".removesuffix("/")
        follow = self._tree.follow_symlinks
        directories: dict[str, Way] = {}

        def look(entry: os.DirEntry[str]) -> None:
            key = directory + entry.name
            below = key + "/"
            if start_after is not None and below <= start_after and not start_after.startswith(below):
                return  # neither a file nor a directory of this name has anything to list
            if not key.startswith(prefix) or not is_key_part(entry.name):
                return
            size: int | None = None
            # Another process may delete it between the scan and the stat; then it is not there.
            with nothing_there():
                if entry.is_dir(follow_symlinks=follow):
                    itself = identity(entry.stat()) if follow else None
                    if itself not in above:
                        directories[below] = above if itself is None else above | {itself}
                elif start_after is None or key > start_after:
                    status = entry.stat(follow_symlinks=follow)
                    if stat.S_ISREG(status.st_mode):
                        size = status.st_size
            if size is not None:
                take(key, size)

        try:
            self._tree.scan(path, look)
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return ()
        except OSError as error:
            raise storage_error(error, "list", path) from error
        return list(directories.items())

    def _path(self, key: str) -> str:
        """Return the path of ``key``; a key that is none never reaches the file system."""
        path = self._paths.get(key)  # of a file its end is read first, and then parts of it
        if path is None:
            path = path_beneath(self._root, key)
            if len(self._paths) >= PATHS_KEPT:
                self._paths.clear()
            self._paths[key] = path
        return path

    def _readable_path(self, key: str) -> str:
        if self._poison is not None and key in self._doubtful_keys:
            raise self._poisoned(self._poison)
        return self._path(key)

    @staticmethod
    def _poisoned(poison: _Poison) -> StorageError:
        return StorageError(
            "this store no longer writes, since a directory could not be made durable",
            kind="store-poisoned",
            hint="check the disk, then open the log again",
            path=poison.path,
            cause=poison.cause,
        )

    def _check_writable(self) -> None:
        if self._poison is not None:
            raise self._poisoned(self._poison)

    def _confirm_created(self, key: str) -> CreateResult:
        """Return CREATED, unless another thread's sync failed meanwhile: then ours proves nothing."""
        if self._poison is None:
            return CreateResult(CreateOutcome.CREATED)
        self._doubtful_keys.add(key)
        return CreateResult(CreateOutcome.AMBIGUOUS, self._poisoned(self._poison))

    def _poison_writes(self, cause: StorageError, key: str | None = None) -> StorageError:
        """Refuse all further writes; return ``cause``. ``key``: the object that may or may not be durable."""
        if key is not None:
            self._doubtful_keys.add(key)
        self._poison = _Poison(str(cause.values["path"]), cause.kind)
        return cause

    def _open_directory(self, path: str) -> int:
        """Return a descriptor of the directory, made if missing and durable in any case."""
        attempt = 1
        while True:
            try:
                self._directories.ensure(path)
                return self._posix.open_directory(path)
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or attempt == DIRECTORY_ATTEMPTS_MAX:
                    raise storage_error(error, "open directory", path) from error
            # Removed under us: what we know of directories is void.
            self._directories.forget()
            attempt += 1


class _Upload:
    """A file in the making.

    Leaving the ``with`` block, or dropping it, removes whatever was not published.
    """

    _file = _directory = -1
    _temporary = ""
    _generation = -1

    def __init__(self, store: LocalStore, key: str, path: str) -> None:
        self._store = store
        self._posix = store._posix  # one unit with the store
        self._key = key
        self._path = path
        self._parent, _, self._name = path.rpartition("/")
        self._file = -1
        self._generation = generation()
        self._directory = store._open_directory(self._parent)
        self._temporary = TEMPORARY_PREFIX + store._ids.new()
        try:
            self._file = self._posix.create_file(self._temporary, self._directory)
        except OSError as error:
            self.end()
            raise storage_error(error, "create", path) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __del__(self) -> None:
        with contextlib.suppress(BaseException):  # its maker was cut short, and no caller is there to be told
            self.end()

    def write(self, data: bytes | memoryview) -> int:
        """Append all of ``data``; returns the number of bytes."""
        view = memoryview(data).cast("B")
        size = view.nbytes
        try:
            while view.nbytes:
                view = view[self._posix.write(self._file, view) :]
        except OSError as error:
            raise storage_error(error, "write", self._path) from error
        return size

    def publish(self) -> CreateResult:
        """Take the final name if it is free. Raises StorageError when that is known not to have happened."""
        self._sync_file()
        try:
            self._posix.link(self._temporary, self._name, self._directory)
        except FileExistsError:
            return CreateResult(CreateOutcome.EXISTS)
        except OSError as error:
            cause = storage_error(error, "link", self._path)
            if error.errno in LINK_NOT_APPLIED:
                raise cause from error
            return CreateResult(CreateOutcome.AMBIGUOUS, self._poison(cause))
        # Before the fsync, so that one wait makes both changes of the directory durable.
        self._remove_temporary()
        try:
            self._posix.fsync_directory(self._directory)
        except OSError as error:
            cause = storage_error(error, "fsync directory", self._path)
            return CreateResult(CreateOutcome.AMBIGUOUS, self._poison(cause))
        return self._store._confirm_created(self._key)

    def replace(self) -> None:
        """Take the final name from whatever has it."""
        self._sync_file()
        try:
            self._posix.replace(self._temporary, self._name, self._directory)
        except OSError as error:
            raise storage_error(error, "rename", self._path) from error
        self._temporary = ""
        try:
            self._posix.fsync_directory(self._directory)
        except OSError as error:
            raise self._poison(storage_error(error, "fsync directory", self._path)) from error

    def end(self) -> None:
        """Remove the temporary name and close the descriptors; idempotent; never raises."""
        if self._generation == generation():  # else the file is that of the process which forked this one
            self._remove_temporary()
        # Forgotten first: closed twice, a number might be another file's by then.
        with contextlib.suppress(OSError):
            descriptor, self._file = self._file, -1
            if descriptor >= 0:
                os.close(descriptor)
        with contextlib.suppress(OSError):
            descriptor, self._directory = self._directory, -1
            if descriptor >= 0:
                os.close(descriptor)

    def _poison(self, cause: StorageError) -> StorageError:
        return self._store._poison_writes(cause, self._key)

    def _sync_file(self) -> None:
        try:
            self._posix.fsync_file(self._file)
        except OSError as error:
            raise storage_error(error, "fsync file", self._path) from error
        # Another thread's failure ends this upload too, as long as nothing of it is visible.
        self._store._check_writable()

    def _remove_temporary(self) -> None:
        if self._temporary and self._file >= 0:
            # A leftover is harmless; the verdict on the object is not its business.
            with contextlib.suppress(OSError):
                self._posix.unlink(self._temporary, self._directory)
        self._temporary = ""  # last: no other process has this name, and it may be removed twice


class _LocalWriter(Writer):
    """A streamed upload into a temporary file. One that is dropped gives back its space and descriptors."""

    _upload: _Upload | None = None

    def __init__(self, upload: _Upload, url: str, key: str) -> None:
        self._upload = upload
        self._url = url
        self._key = key
        self._closed = False

    def write(self, data: bytes | memoryview) -> int:
        if self._upload is None:
            raise writer_ended(self._url, self._key)
        try:
            return self._upload.write(data)
        except BaseException:
            self.abort()  # on a full disk the space matters now
            raise

    def close(self) -> None:
        if self._closed:
            return
        if self._upload is None:
            raise writer_ended(self._url, self._key)
        try:
            result = self._upload.publish()
        finally:
            self.abort()
        if result.outcome is CreateOutcome.EXISTS:
            raise object_exists(self._url, self._key)
        if result.error is not None:
            raise result.error
        self._closed = True

    def abort(self) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.end()

    def __del__(self) -> None:
        self.abort()
