"""A store's objects as pyarrow's file systems show files: read only, by ranges."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs as pafs

from txnformat.errors import NotFoundError
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore

__all__ = ["arrow_file_system"]


def arrow_file_system(store: ObjectStore, sizes: Mapping[str, int]) -> Any:
    """Return a ``pyarrow.fs.FileSystem`` whose paths are the store's keys. No request, but on a local disk one ``head`` for each object.

    ``sizes`` has the bytes of each object that may be read, by key: so nothing has to be asked before a read.
    """
    if isinstance(store, LocalStore):  # pyarrow's own readers need no lock of Python's
        for key in sizes:
            store.head(key)  # they open whatever is there: a link to anywhere, or a pipe for which they wait
        return pafs.SubTreeFileSystem(store.url.removeprefix("file://"), pafs.LocalFileSystem())
    return pafs.PyFileSystem(_Handler(store, sizes))


class _Object:
    """An object as ``pyarrow.PythonFile`` reads it; each read is one ranged GET."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._position = 0
        self.closed = False

    def read(self, nbytes: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        count = left if nbytes < 0 else min(nbytes, left)
        try:
            data = self._store.get_range(self._key, self._position, count) if count else b""
        except NotFoundError as error:
            raise NotFoundError(
                "a segment file that the log names is gone",
                kind="segment-file-missing",
                hint="it was deleted outside txnlog, or by a vacuum after the dataset was made: make it again",
                store=self._store.url,
                object=self._key,
            ) from error
        self._position += count
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class _Handler(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """What pyarrow asks of a file system; only reading known files is there."""

    def __init__(self, store: ObjectStore, sizes: Mapping[str, int]) -> None:
        self._store = store
        self._sizes = sizes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other._store is self._store and other._sizes == self._sizes

    def __hash__(self) -> int:
        return hash(id(self._store))

    def get_type_name(self) -> str:
        return "txnlog"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        return [
            pafs.FileInfo(path, pafs.FileType.File, size=self._sizes[path])
            if path in self._sizes
            else pafs.FileInfo(path, pafs.FileType.NotFound)
            for path in paths
        ]

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(_Object(self._store, path, self._sizes[path]), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("files of a log are read by key, and nothing else")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = (
        _refuse
    )
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
