"""Files and directories beneath a root, opened so that nothing there leads outside of it, hangs, or is
something else.

A path is walked component by component: the first is opened from the root, each further one from the
directory before it, none through a symbolic link (``O_NOFOLLOW``). So a link that takes the place of a
directory between a look and its use leads nowhere. A pipe or a device is opened without waiting for its other
end (``O_NONBLOCK``), found to be no regular file, and closed. The root itself, and all above it, may be
links: the user who names a root trusts the way to it.

Descriptors are numbers, which nothing gives back, and reads run where a signal handler may raise after every
step. So each number goes from the system call to a list, and from there to ``close``, inside of one call
each, which no handler can come between.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from operator import methodcaller
from typing import Any, TypeVar

from txnformat.arguments import is_utf8
from txnformat.errors import InvalidInputError, StorageError
from txnformat.keys import TEMPORARY_PREFIX

__all__ = [
    "Tree",
    "Way",
    "identity",
    "is_key_part",
    "nothing_there",
    "path_beneath",
    "read_exactly",
    "read_whole",
]

_READ_BYTES = 1 << 20
"""Bytes of one read of a file that has another size than it had."""

ENTRIES_AT_ONCE = 1_000
"""Entries of a directory that are held: of 10^7 they would be gigabytes."""

T = TypeVar("T")

Way = frozenset[tuple[int, int]]
"""The directories on the way to a place, each by its :func:`identity`; empty where no links are followed."""

_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""To go through a directory takes no right to list it, where the system can tell the two apart."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_scandir: Callable[[int], Iterable[os.DirEntry[str]]] = os.scandir  # of a descriptor: its names are text
_finish: Callable[[Iterable[None]], None] = deque[None](maxlen=0).extend
"""Runs an iterator to its end in one step."""


class Tree:
    """Directories and files beneath a root, an absolute path.

    All methods raise OSError; of a link where none may be with ELOOP.

    With ``follow_symlinks`` the owner of the root links on purpose: links are followed, wherever they lead.
    """

    def __init__(self, root: str, *, follow_symlinks: bool) -> None:
        self._start = len(root) + 1
        self._beneath = root + "/"
        self.follow_symlinks = follow_symlinks

    def read(self, path: str, use: Callable[[int, int], T]) -> T:
        """Return ``use`` of the descriptor of a regular file, which is closed afterwards, and of the bytes
        that it has.
        """
        opened: list[int] = []
        closing = map(os.close, opened)
        try:
            self._open(path, _FILE, opened)
            number = opened[-1]
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                raise _not_a_file(status.st_mode, path)
            return use(number, status.st_size)
        finally:
            _finish(closing)

    def status(self, path: str) -> os.stat_result:
        """Return the status of a regular file, which is not opened."""
        status = self._at_parent(
            path, lambda name, at: os.stat(name, dir_fd=at, follow_symlinks=self.follow_symlinks)
        )
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, "is a symbolic link", path)
        if not stat.S_ISREG(status.st_mode):
            raise _not_a_file(status.st_mode, path)
        return status

    def open_directory(self, path: str) -> int:
        """Return a descriptor of an existing directory; of the root and of those above it, too."""
        opened: list[int] = []
        closing = map(os.close, opened)
        try:
            self._open(path, _DIRECTORY, opened)
            return opened.pop()
        finally:
            _finish(closing)

    def scan(self, path: str, use: Callable[[os.DirEntry[str]], Any]) -> None:
        """Call ``use`` with each entry of a directory, while that is open."""
        opened: list[int] = []
        scans: list[Any] = []
        closing = chain(map(methodcaller("close"), scans), map(os.close, opened))
        try:
            self._open(path, _DIRECTORY, opened)
            scans.extend(map(_scandir, opened[-1:]))
            entries = chain.from_iterable(scans)
            while part := list(islice(entries, ENTRIES_AT_ONCE)):
                part.reverse()
                while part:  # an entry keeps its status
                    use(part.pop())
        finally:
            _finish(closing)

    def way(self, path: str) -> Way:
        """Return the directories from the root to a path, both inclusive, where links are followed: else
        there is no circle.
        """
        found: set[tuple[int, int]] = set()
        while self.follow_symlinks and len(path) >= self._start - 1:
            with contextlib.suppress(OSError):  # opening it says what is wrong
                found.add(identity(os.stat(path)))  # noqa: PTH116  # plain text
            path = path.rpartition("/")[0]
        return frozenset(found)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        self._at_parent(path, lambda name, at: os.unlink(name, dir_fd=at))

    def mkdir(self, path: str) -> None:
        """Make a directory; FileExistsError when the name is taken, also by a link."""
        self._at_parent(path, lambda name, at: os.mkdir(name, dir_fd=at))

    def _at_parent(self, path: str, use: Callable[[str, int | None], T]) -> T:
        """Return ``use`` of a name and the directory that it is in; of the whole path and None where links
        are followed.
        """
        parent, _, name = path.rpartition("/")
        if self.follow_symlinks or not path.startswith(self._beneath):
            return use(path, None)
        opened: list[int] = []
        closing = map(os.close, opened)
        try:
            self._open(parent, _WAY, opened)
            return use(name, opened[-1])
        finally:
            _finish(closing)

    def _open(self, path: str, flags: int, opened: list[int]) -> None:
        """Open a path; its descriptor comes last into ``opened``, behind those of its way."""
        if self.follow_symlinks or not path.startswith(self._beneath):
            opened.extend(map(os.open, (path,), (flags,)))
            return
        # The way to the root is the user's own; only the last component of what is opened first may be no
        # link.
        name, *further = path[self._start :].split("/")
        name = self._beneath + name
        for part in further:
            _open_at(name, _WAY, opened, path)
            name = part
        _open_at(name, flags, opened, path)


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return what tells a file or directory from all others, whatever its names are."""
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def nothing_there() -> Iterator[None]:
    """Pass over what is gone, and a link that leads nowhere or around a circle of links."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise


def _open_at(name: str, flags: int, opened: list[int], path: str) -> None:
    at = opened[-1] if opened else None
    open_it = os.open if at is None else partial(os.open, dir_fd=at)
    try:
        opened.extend(map(open_it, (name,), (flags | os.O_NOFOLLOW,)))
    except NotADirectoryError as error:  # what most systems say of a link where a directory must be
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, "is a symbolic link", path) from error
        raise


def _not_a_file(mode: int, path: str) -> OSError:
    """Return what to raise about something that is there and is no regular file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "is a directory", path)
    return OSError(errno.ENXIO, "is not a regular file", path)  # what the system says of a socket


def read_exactly(file: int, start: int, length: int, path: str) -> bytes:
    """Return bytes ``[start, start + length)``; a single read returns at most about 2 GiB."""
    parts: list[bytes] = []
    while length:
        part = os.pread(file, length, start)
        if not part:
            raise StorageError(
                "the file became shorter while it was read",
                kind="invalid-range",
                hint="something other than txnlog changes files below the root: stop it",
                path=path,
            )
        parts.append(part)
        start += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_whole(file: int, size: int, most: int) -> bytes | int:
    """Return the bytes of an open file; of one with more than ``most`` how many it has, and nothing is read
    of it.
    """
    if size > most:
        return size
    data = os.read(file, size + 1)  # the one more tells that there is no more
    if len(data) == size:
        return data
    parts = [data]  # it grows, or is above the 2 GiB of one call
    count = len(data)
    while part := os.read(file, min(most + 1 - count, _READ_BYTES)):
        parts.append(part)
        count += len(part)
        if count > most:
            return count
    return b"".join(parts)


def path_beneath(root: str, key: str) -> str:
    """Return the path of an object. Raises InvalidInputError (``invalid-key``): the key is none."""
    if "\0" in key or not all(map(is_key_part, key.split("/"))):
        raise InvalidInputError(
            f"{key!r} is not a key",
            kind="invalid-key",
            hint=f"keys are relative, without empty parts, '.', '..' or parts beginning {TEMPORARY_PREFIX}",
        )
    return f"{root}/{key}"


def is_key_part(name: str) -> bool:
    """Return whether ``name`` can be one component of a key."""
    # Without a text there is a file name that is not UTF-8, or a lone surrogate.
    return bool(name) and name not in (".", "..") and not name.startswith(TEMPORARY_PREFIX) and is_utf8(name)
