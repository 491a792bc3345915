"""A disk whose power can be cut: what POSIX promises of names and bytes, and nothing more.

Processes work on a real directory through :class:`CutPosix`, which notes every system call of theirs that
changes something. At any moment :meth:`Disk.survivors` says which trees a machine may find that starts again
then:

* of a file, the bytes that were there when it was last synced; else none of them, half, or all;
* of a directory, the names that were there when it was last synced, and of the changes since then **any**
  subset, in their order. File systems with a journal keep beginnings only; the protocol does not ask for
  that.
* A rename is one change. Entries of a directory whose own name is lost are lost with it.

Temporary names are left out, as nothing looks at them. The calls that sync do nothing to the real disk.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from txnformat.clock import Clock
from txnformat.store.local import TEMPORARY_PREFIX
from txnformat.store.memory import MemoryStore
from txnformat.store.posix import Posix

__all__ = ["CutPosix", "Disk", "ProcessDied", "Survivor"]

ALL_SUBSETS_MAX = 7
"""Pending changes of which every subset is tried; of more: none, all, each alone, each missing, and some at
random."""
RANDOM_SUBSETS = 32
TORN_MAX = 2
"""Unsynced files of which every combination is tried; of more: all, and each alone."""


class ProcessDied(BaseException):
    """The process ended before this system call: what ``kill -9`` does.

    No ``except Exception`` may survive it.
    """


@dataclass(eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


@dataclass(eq=False)
class _Directory:
    names: dict[str, _Node] = field(default_factory=dict)
    """The names that all processes see."""
    durable: dict[str, _Node] = field(default_factory=dict)
    pending: list[_Change] = field(default_factory=list)
    """The changes of names since the last sync, in order."""


_Node = _File | _Directory
_Change = tuple[tuple[str, _Node | None], ...]
"""Names that change in one step: to what they name, or to nothing."""


class Survivor(NamedTuple):
    """The files that a machine finds when it starts again."""

    files: dict[str, bytes]
    """Files by path below the base."""
    digest: bytes

    def store(self, root: str, clock: Clock | None = None) -> MemoryStore:
        """Return the objects below a root (a path below the base) in a store of their own."""
        store = MemoryStore(clock)
        for path, data in self.files.items():
            if path.startswith(root + "/"):
                store.put(path[len(root) + 1 :], data)
        return store


class Disk:
    """The disk behind all processes of a test.

    Parameters
    ----------
    base : Path
        An empty directory whose own name is durable.
    on_call : callable, optional
        Called before every system call, with its name; the disk does not change meanwhile.
    """

    def __init__(self, base: Path, on_call: Callable[[str], None] | None = None) -> None:
        self._base = str(base.absolute())
        self._on_call = on_call or (lambda call: None)
        self._root = _Directory()
        self._pairs = random.Random(1)
        self.lock = threading.RLock()
        self.calls = 0
        """System calls so far that change something."""

    def load(self, unsynced: Collection[str] = ()) -> None:
        """Take over what is on the real disk: durable, but for the names (paths below the base) that came
        unsynced.
        """

        def node_of(path: Path) -> _Node:
            if not path.is_dir():
                data = path.read_bytes()
                return _File(bytearray(data), data)
            names = {one.name: node_of(one) for one in sorted(path.iterdir())}
            young = [
                (one, names[one.name]) for one in map(Path, unsynced) if Path(self._base, one).parent == path
            ]
            durable = {
                name: node for name, node in names.items() if name not in {one.name for one, _ in young}
            }
            return _Directory(names, durable, [((one.name, node),) for one, node in young])

        root = node_of(Path(self._base))
        assert isinstance(root, _Directory)
        self._root = root

    def begin(self, call: str) -> None:
        """Take note that a system call is about to be made."""
        self.calls += 1
        self._on_call(call)

    def directory(self, path: str) -> _Directory | None:
        """Return a directory as processes see it; None above the base, where everything is durable."""
        if path == self._base:
            return self._root
        if not path.startswith(self._base + "/"):
            return None
        node: _Node = self._root
        for part in path[len(self._base) + 1 :].split("/"):
            assert isinstance(node, _Directory)
            node = node.names[part]
        assert isinstance(node, _Directory)
        return node

    @staticmethod
    def change(directory: _Directory | None, *names: tuple[str, _Node | None]) -> None:
        """Let names change in one step."""
        if directory is None:
            return
        for name, node in names:
            if node is None:
                directory.names.pop(name, None)
            else:
                directory.names[name] = node
        directory.pending.append(names)

    @staticmethod
    def sync(node: _Node | None) -> None:
        """Make a file's bytes durable, or a directory's names."""
        if isinstance(node, _File):
            node.synced = bytes(node.data)
        elif node is not None:
            node.durable, node.pending = dict(node.names), []

    def survivors(self) -> Iterator[Survivor]:
        """Yield every tree that may be found after a power cut now, each once."""
        with self.lock:
            changes = [
                (one, change) for one in self._directories() for change in one.pending if _counts(change)
            ]
            torn = [file for file in self._visible_files() if file.synced != file.data]
            seen = set()
            for chosen in self._subsets(len(changes)):
                kept: dict[int, list[_Change]] = {}
                for number in chosen:
                    directory, change = changes[number]
                    kept.setdefault(id(directory), []).append(change)
                for parts in _tears(torn):
                    files = dict(_tree(self._root, "", kept, parts))
                    digest = _digest(files)
                    if digest not in seen:
                        seen.add(digest)
                        yield Survivor(files, digest)

    def _subsets(self, count: int) -> Iterator[Sequence[int]]:
        if count <= ALL_SUBSETS_MAX:
            for size in range(count + 1):
                yield from itertools.combinations(range(count), size)
            return
        everything = range(count)
        yield ()
        yield everything
        for one in everything:
            yield (one,)
            yield [other for other in everything if other != one]
        for _ in range(RANDOM_SUBSETS):
            yield [one for one in everything if self._pairs.random() < 0.5]

    def _directories(self) -> list[_Directory]:
        """Return all directories, those that were removed among them if that is not durable."""
        found = [self._root]
        for directory in found:
            named = [*directory.names.values(), *directory.durable.values()]
            found += [
                node for node in dict.fromkeys(named) if isinstance(node, _Directory) and node not in found
            ]
        return found

    def _visible_files(self) -> list[_File]:
        return [
            node
            for directory in self._directories()
            for name, node in directory.names.items()
            if isinstance(node, _File) and not name.startswith(TEMPORARY_PREFIX)
        ]


def _tears(torn: Sequence[_File]) -> Iterator[dict[int, int]]:
    """Yield which unsynced files are there as synced (0), half (1) or whole (2, and those not named)."""
    if len(torn) <= TORN_MAX:
        for halves in itertools.product((0, 1, 2), repeat=len(torn)):
            yield {id(file): half for file, half in zip(torn, halves, strict=True)}
        return
    yield {}
    for half in (0, 1):
        yield {id(file): half for file in torn}
        for file in torn:
            yield {id(file): half}


def _counts(change: _Change) -> bool:
    return any(not name.startswith(TEMPORARY_PREFIX) for name, _ in change)


def _tree(
    directory: _Directory, prefix: str, kept: dict[int, list[_Change]], parts: dict[int, int]
) -> Iterator[tuple[str, bytes]]:
    names = dict(directory.durable)
    for change in kept.get(id(directory), ()):
        for name, node in change:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
    for name, node in names.items():
        if name.startswith(TEMPORARY_PREFIX):
            continue
        if isinstance(node, _Directory):
            yield from _tree(node, f"{prefix}{name}/", kept, parts)
        elif parts.get(id(node), 2) == 2:
            yield prefix + name, bytes(node.data)
        else:
            half = bytes(node.data[: len(node.data) // 2])
            yield prefix + name, half if parts[id(node)] else node.synced


def _digest(files: dict[str, bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(path.encode() + b"\0" + hashlib.blake2b(files[path], digest_size=16).digest())
    return digest.digest()


class CutPosix(Posix):
    """One process's system calls on a :class:`Disk`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._left: int | None = None
        self._open: dict[int, _Node | None] = {}

    @property
    def has_died(self) -> bool:
        """Whether the process has ended."""
        return self._left == 0

    def die_before(self, calls: int | None) -> None:
        """Never make the n-th system call from now (from 1): it and every later one raise ProcessDied.

        None: live on.
        """
        self._left = calls

    def _begin(self, call: str) -> None:
        if self._left is not None:
            if self._left > 0:
                self._left -= 1
            if self._left == 0:
                raise ProcessDied(call)
        self._disk.begin(call)

    def open_directory(self, path: str) -> int:
        """Return a descriptor of an existing directory. Changes nothing: no moment of its own."""
        if self.has_died:
            raise ProcessDied("open_directory")
        with self._disk.lock:
            descriptor = super().open_directory(path)
            self._open[descriptor] = self._disk.directory(path)
            return descriptor

    def create_file(self, name: str, directory: int) -> int:
        """Return a descriptor of a new, empty file."""
        with self._disk.lock:
            self._begin("create_file")
            descriptor = super().create_file(name, directory)
            file = self._open[descriptor] = _File()
            self._disk.change(self._at(directory), (name, file))
            return descriptor

    def write(self, file: int, data: memoryview) -> int:
        """Write a part of ``data``."""
        with self._disk.lock:
            self._begin("write")
            written = super().write(file, data)
            node = self._open[file]
            assert isinstance(node, _File)
            node.data += data[:written]
            return written

    def fsync_file(self, file: int) -> None:
        """Make the file's bytes durable, in the model."""
        with self._disk.lock:
            self._begin("fsync_file")
            self._disk.sync(self._open[file])

    def fsync_directory(self, directory: int) -> None:
        """Make the directory's names durable, in the model."""
        with self._disk.lock:
            self._begin("fsync_directory")
            self._disk.sync(self._open[directory])

    def link(self, temporary: str, name: str, directory: int) -> None:
        """Give the file its final name."""
        with self._disk.lock:
            self._begin("link")
            super().link(temporary, name, directory)
            at = self._at(directory)
            self._disk.change(at, (name, at.names[temporary] if at else None))

    def replace(self, temporary: str, name: str, directory: int) -> None:
        """Move the file to its final name."""
        with self._disk.lock:
            self._begin("replace")
            super().replace(temporary, name, directory)
            at = self._at(directory)
            self._disk.change(at, (name, at.names[temporary] if at else None), (temporary, None))

    def unlink(self, name: str, directory: int) -> None:
        """Remove a name. Of a process that has died, what is dropped tidies up no more."""
        if self.has_died:
            return
        with self._disk.lock:
            self._begin("unlink")
            super().unlink(name, directory)
            self._disk.change(self._at(directory), (name, None))

    def delete(self, path: str) -> None:
        """Remove the name of an object."""
        parent, _, name = path.rpartition("/")
        with self._disk.lock:
            self._begin("delete")
            super().delete(path)
            self._disk.change(self._disk.directory(parent), (name, None))

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        parent = os.path.dirname(path)  # noqa: PTH120  # plain text
        with self._disk.lock:
            self._begin("mkdir")
            super().mkdir(path)
            self._disk.change(self._disk.directory(parent), (path[len(parent) + 1 :], _Directory()))

    def _at(self, descriptor: int) -> _Directory | None:
        node = self._open[descriptor]
        assert node is None or isinstance(node, _Directory)
        return node
