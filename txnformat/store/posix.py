"""The system calls of the local store, and what their errors mean to a user.

:class:`Posix` is a component, so that a test can make any single call fail, or stop a process before it.
Every call after ``open_directory`` names files relative to the open directory: the descriptor that is synced
at the end is the very directory that received the name, and running out of descriptors shows before the
object becomes visible, not after.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from txnformat.errors import StorageError, UnsupportedStoreError
from txnformat.store.beneath import Tree

__all__ = ["LINK_NOT_APPLIED", "Posix", "storage_error"]


class Posix:
    """File system calls, one each. All raise OSError."""

    tree: Tree
    """Opens what is named by a path; the store sets it."""

    def open_directory(self, path: str) -> int:
        """Return a descriptor of an existing directory."""
        return self.tree.open_directory(path)

    def create_file(self, name: str, directory: int) -> int:
        """Return a descriptor of a new, empty file; FileExistsError when the name is taken."""
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=directory)

    def write(self, file: int, data: memoryview) -> int:
        """Write a part of ``data`` (bytes); return how many bytes that was."""
        return os.write(file, data)

    def fsync_file(self, file: int) -> None:
        """Make the file's bytes durable."""
        os.fsync(file)

    def fsync_directory(self, directory: int) -> None:
        """Make the directory's names durable."""
        os.fsync(directory)

    def link(self, temporary: str, name: str, directory: int) -> None:
        """Give the file its final name, atomically; FileExistsError when the name is taken."""
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)

    def replace(self, temporary: str, name: str, directory: int) -> None:
        """Move the file to its final name, atomically replacing what has it."""
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)

    def unlink(self, name: str, directory: int) -> None:
        """Remove a name."""
        os.unlink(name, dir_fd=directory)

    def delete(self, path: str) -> None:
        """Remove the name of an object."""
        self.tree.unlink(path)

    def changed_ms(self, path: str) -> int:
        """Return when a file's names, or the names in a directory, last changed, ms since the epoch: no tool
        can set it.
        """
        return os.stat(path).st_ctime_ns // 1_000_000  # noqa: PTH116  # the same manner of call as its neighbours

    def mkdir(self, path: str) -> None:
        """Make a directory; FileExistsError when there is one."""
        self.tree.mkdir(path)


_UNSUPPORTED = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})

LINK_NOT_APPLIED = _UNSUPPORTED | {
    errno.EACCES,
    errno.EDQUOT,
    errno.EMLINK,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
    errno.EXDEV,
}
"""Errors of ``link`` that prove it was not applied. Others (EIO, ETIMEDOUT on a network mount) prove nothing.
"""

_TRANSIENT = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT}
)


class _Meaning(NamedTuple):
    kind: str
    what: str
    hint: str


_FULL = _Meaning("disk-full", "no space left", "free space or raise the quota, then try again")
_OPEN_FILES = _Meaning(
    "too-many-open-files",
    "too many open files",
    "raise the limit (ulimit -n) or close unused readers and writers",
)
_DENIED = _Meaning(
    "permission-denied", "permission denied", "give this user the right to the path, or run as its owner"
)
_MEANINGS = {
    errno.EROFS: _Meaning(
        "read-only-store", "the file system is read-only", "mount it writable; reading needs no such right"
    ),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EISDIR: _Meaning(
        "not-a-file", "a directory is where an object belongs", "move it away; txnlog makes no such directory"
    ),
    errno.ENXIO: _Meaning(
        "not-a-file",
        "something that is not a regular file (a pipe, a socket, a device) is where an object belongs",
        "remove it; txnlog makes regular files only",
    ),
    errno.ELOOP: _Meaning(
        "symbolic-link",
        "there is a symbolic link beneath the root, which txnlog did not make",
        "remove it; if you made it, open the log with the storage option follow_symlinks=true",
    ),
    errno.ENOTDIR: _Meaning(
        "not-a-directory", "a file is where a directory belongs", "move it away, or name another root"
    ),
    errno.ENOENT: _Meaning(
        "directory-missing", "the directory vanished", "check that the root is still there and mounted"
    ),
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
    errno.ENAMETOOLONG: _Meaning("name-too-long", "the path is too long", "use a shorter root or topic name"),
}
_OTHER = _Meaning(
    "io-error", "the file system failed", "check the disk and the kernel's log before you continue"
)
_CIRCLE = _Meaning(
    "symbolic-link",
    "symbolic links form a loop",
    "remove one of them, or point it at a directory",
)
_NO_LINK = "the file system has no hard links, so that a name cannot be taken exactly once"
_NO_DIRECTORY_SYNC = "the file system cannot make a directory's names durable"


def _leads_around(path: str) -> bool:
    """Return whether the system itself finds no end of links: following them does not help then."""
    try:
        os.stat(path)  # noqa: PTH116  # the same manner of call as its neighbours
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def storage_error(error: OSError, doing: str, path: str) -> StorageError:
    """Return what to raise for an OSError that a call of :class:`Posix` raised about ``path``.

    ``doing`` is the step that failed: ``link`` and ``fsync directory`` are told apart, since their refusal on
    principle makes the whole file system unfit (UnsupportedStoreError); any other text only goes into the
    message. ``transient`` where the same call may succeed later.
    """
    number = error.errno or 0
    # Own temporary file, same directory: EPERM can only mean that this file system has no hard links.
    no_link = doing == "link" and number in _UNSUPPORTED | {errno.EPERM, errno.EMLINK, errno.EXDEV}
    no_sync = doing == "fsync directory" and number in _UNSUPPORTED | {errno.EINVAL}
    if no_link or no_sync:
        return UnsupportedStoreError(
            _NO_LINK if no_link else _NO_DIRECTORY_SYNC,
            hint="put the root on a local disk (ext4, xfs, btrfs, APFS)",
            path=path,
        )
    meaning = _CIRCLE if number == errno.ELOOP and _leads_around(path) else _MEANINGS.get(number, _OTHER)
    return StorageError(
        meaning.what,
        kind=meaning.kind,
        hint=meaning.hint,
        transient=number in _TRANSIENT,
        path=path,
        step=doing,
        error=errno.errorcode.get(number, str(error)),
    )
