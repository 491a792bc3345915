"""Files that commands write: the one way in which a command line touches what a user has at a path."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from txnformat import digits
from txnformat.errors import StorageError

__all__ = ["check_output", "writing"]

LINKS_MAX = 40
"""As many links as Linux follows."""


def check_output(path: Path, *, whole: bool = True) -> None:
    """Raise StorageError of kind ``output-failed`` if the file surely cannot be written: before work is done
    for it.

    Nothing is opened or made: a FIFO would wait for its reader.
    """
    with _failing(path):
        _check(path, whole=whole)


@contextmanager
def writing(path: Path, *, whole: bool = True) -> Iterator[BinaryIO]:
    """Open a file to write it.

    ``whole``: a regular file is replaced in one step when all went well, and stays as it was otherwise. The
    new file has the mode of the old one, and its owner where that is permitted; links lead to the file that
    is replaced. All else, such as a device, a FIFO or ``/dev/stdout``, is written through, and never
    replaced.

    Raises StorageError of kind ``output-failed``: the file cannot be written.
    """
    with _failing(path):
        _check(path, whole=whole)
        own = _descriptor(path)
        if own is not None:
            with os.fdopen(os.dup(own), "wb") as file:
                yield file
        elif whole and _is_replaced(path):
            with _replacing(Path(os.path.realpath(path))) as file:
                yield file
        else:
            with path.open("wb") as file:
                yield cast(BinaryIO, file)


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has gone, which has an exit code of its own
        raise
    except OSError as error:
        raise StorageError(
            f"the file cannot be written: {error.strerror or error}", kind="output-failed", path=str(path)
        ) from error


def _check(path: Path, *, whole: bool) -> None:
    if _descriptor(path) is not None:
        return
    try:
        found = path.stat()
    except FileNotFoundError:
        _check_permission(Path(os.path.realpath(path)).parent, os.W_OK | os.X_OK)
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(None, "this is a directory")
    if not stat.S_ISSOCK(found.st_mode):
        _check_permission(path, os.W_OK)
    if whole and _is_replaced(path):
        _check_permission(Path(os.path.realpath(path)).parent, os.W_OK | os.X_OK)


def _check_permission(path: Path, needed: int) -> None:
    mode = path.stat().st_mode
    if needed & os.X_OK and not stat.S_ISDIR(mode):
        raise NotADirectoryError(None, "its directory is not a directory")
    if not os.access(path, needed):
        what = "its directory is not writable" if needed & os.X_OK else "Permission denied"
        raise PermissionError(None, what)


def _is_replaced(path: Path) -> bool:
    """Return whether a file is a regular one that has a name of its own, or is not there yet."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    # A link of /proc leads to a file that may have no name any more, or that is open elsewhere.
    return not any(str(one.parent).startswith("/proc/") for one in _links(path))


def _links(path: Path) -> list[Path]:
    """Return the path and each link that it leads over, in real directories."""
    found = []
    for _ in range(LINKS_MAX):
        path = Path(os.path.realpath(path.parent)) / path.name
        found.append(path)
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return found


def _descriptor(path: Path) -> int | None:
    """Return the number of a file of this process that a path such as ``/dev/stdout`` stands for.

    It is written where it stands: opened by its path, a regular file would be cut, and a socket cannot be
    opened.
    """
    own = {f"/proc/{os.getpid()}/fd", "/proc/self/fd", "/dev/fd"}
    for one in _links(path):
        if str(one.parent) in own and (number := digits.whole(one.name)) is not None:
            return number
    return None


@contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    # The name is its own, so commands at the same time share none, and no file of the user's has it.
    new = target.with_name(f".txnlog-{secrets.token_hex(8)}.partial")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _like(target, file.fileno())
            yield file
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def _like(old: Path, descriptor: int) -> None:
    """Give a file the mode of another one, and its owner where that is permitted."""
    try:
        found = old.stat()
    except FileNotFoundError:
        return
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
