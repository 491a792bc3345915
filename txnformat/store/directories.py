"""The directories of a local store: made, and the names in them durable.

A name is durable once its directory was synced after the name came into it. A process that dies between the
two leaves a name that every process sees, and that a power cut takes away. File systems write names down by
themselves after a while (ext4 after 5 s, xfs and btrfs after 30 s, laptops that spare their disk after up to
10 minutes): an object that got its name :data:`YOUNG_MS` ago, and a directory in which no name came or went
since then, need no sync.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from txnformat.clock import Clock
from txnformat.errors import StorageError
from txnformat.store.posix import Posix, storage_error

__all__ = ["YOUNG_MS", "Directories"]

YOUNG_MS = 60 * 60 * 1000
"""Age of the last change of an object or a directory from which on (inclusive) its names are durable without
a sync, ms: six times the longest that a file system keeps them back. A clock that is set back makes
directories younger; one that is set forward is set soon after the start of a machine, so in its first hour
every directory counts as young."""

_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Errors of a file system that has no sync of directories. No log was written there: it was put there."""
_CLOSED_TO_US = frozenset({errno.EACCES, errno.EPERM})


class Directories:
    """The knowledge of one instance of a store about its directories, below an absolute root.

    ``on_failed_sync`` is told the error of a sync that failed, and returns what to raise: a second sync
    proves nothing any more. ``check_no_failed_sync`` raises after one.
    """

    def __init__(
        self,
        root: str,
        posix: Posix,
        clock: Clock,
        on_failed_sync: Callable[[StorageError], StorageError],
        check_no_failed_sync: Callable[[], None],
    ) -> None:
        self._root = root
        self._posix = posix
        self._clock = clock
        self._on_failed_sync = on_failed_sync
        self._check_no_failed_sync = check_no_failed_sync
        self._durable: set[str] = set()
        """Directories that are there to stay: their own names, and those of all above them, are durable."""

    def forget(self) -> None:
        """Know nothing any more: another process removes directories under us."""
        self._durable.clear()

    def ensure(self, path: str) -> None:
        """Make ``path`` and its ancestors, and every name on the way durable.

        An ancestor that another process has just made may not be durable yet: on the first use of a directory
        its whole way from the root is synced, whichever process made it.
        """
        if path in self._durable:
            return
        parent = _parent(path)
        if path == self._root:
            self._ensure_root()
        else:
            self.ensure(parent)
            with contextlib.suppress(FileExistsError):
                self._posix.mkdir(path)
            self._sync(parent)
        self._durable.add(path)

    def confirm(self, objects: Iterable[str]) -> None:
        """Make the names of objects durable, and the ways to them from the root: those that may be young.

        Needs no right but to read; a directory that is closed to this user is left to those who write there.
        Raises StorageError when a sync fails, or has failed before.
        """
        done: set[str] = set()
        for path in objects:
            if self._is_old_object(path):
                self._know(_parent(path))
            else:
                self._confirm(_parent(path), done)

    def _know(self, path: str) -> None:
        """Take note that a directory is there to stay: it was there before an object in it, which is old."""
        while path not in self._durable:
            self._durable.add(path)
            if path == self._root:
                return
            path = _parent(path)

    def _confirm(self, path: str, done: set[str]) -> None:
        if path not in self._durable:
            if path != self._root:
                self._confirm(_parent(path), done)
            else:
                self._confirm_names(_parent(path))
            self._durable.add(path)
        if path not in done:
            self._confirm_names(path)
            done.add(path)

    def _confirm_names(self, path: str) -> None:
        if not self._is_young(path):
            return
        self._check_no_failed_sync()
        try:
            directory = self._posix.open_directory(path)
        except OSError as error:
            if error.errno in _CLOSED_TO_US:
                return
            raise storage_error(error, "open directory", path) from error
        try:
            self._posix.fsync_directory(directory)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise self._on_failed_sync(storage_error(error, "fsync directory", path)) from error
        finally:
            os.close(directory)
        self._check_no_failed_sync()  # another thread's may have failed: then this one proves nothing

    def _is_old_object(self, path: str) -> bool:
        try:
            return self._is_old(self._posix.changed_ms(path))
        except OSError:  # deleted since it was read: what was read with it may be young
            return False

    def _is_young(self, path: str) -> bool:
        try:
            return not self._is_old(self._posix.changed_ms(path))
        except OSError as error:
            raise storage_error(error, "look at", path) from error

    def _is_old(self, changed_ms: int) -> bool:
        now = self._clock.now()
        just_started = now.boot_ms is not None and now.boot_ms < YOUNG_MS
        return not just_started and now.wall_ms - changed_ms >= YOUNG_MS

    def _ensure_root(self) -> None:
        missing: list[Path] = []
        path = Path(self._root)
        while not path.exists():
            missing.append(path)
            path = path.parent
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                self._posix.mkdir(str(path))
            self._sync(str(path.parent))
        if not missing:
            # The root may have been made a moment ago. Where its parent is closed to us, it was not us.
            with contextlib.suppress(OSError):
                self._sync(str(path.parent))

    def _sync(self, path: str) -> None:
        directory = self._posix.open_directory(path)
        try:
            self._posix.fsync_directory(directory)
        except OSError as error:
            # Nothing was linked yet, but a second fsync proves nothing any more.
            raise self._on_failed_sync(storage_error(error, "fsync directory", path)) from error
        finally:
            os.close(directory)


def _parent(path: str) -> str:
    return os.path.dirname(path)  # noqa: PTH120  # plain text
