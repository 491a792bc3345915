"""A directory of Parquet files as a source: the files in the order of their paths, and those that come behind
them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from txnformat.errors import InvalidInputError, NotFoundError
from txnlog.tables.steps import SourceFile, Step, groups_of

__all__ = ["ParquetSource"]

NULL = "__HIVE_DEFAULT_PARTITION__"


class ParquetSource:
    """Files whose names end with ``.parquet``; those below a name that begins with ``_`` or ``.`` are not
    looked at.

    ``name=value`` in a path is a column.

    A position is the last path, how many files there were up to it, and a digest of their paths and sizes: a
    file that appears or changes before it is an error, since its rows would be missing.
    """

    def __init__(self, place: str, *, step_bytes: int) -> None:
        self._step_bytes = step_bytes
        try:
            if "://" in place:
                self._system, self._root = pa_fs.FileSystem.from_uri(place)
            else:
                self._system, self._root = pa_fs.LocalFileSystem(), str(Path(place).resolve())
            is_there = self._system.get_file_info(self._root).type is not pa_fs.FileType.NotFound
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(error) from None
        files = self._listed() if is_there else []
        if not files:
            raise NotFoundError(
                "there is no Parquet file",
                kind="no-table",
                hint="give a file, or a directory with files whose names end with .parquet",
                path=place,
            )

    @property
    def identity(self) -> Mapping[str, Any]:
        """The directory."""
        return {"kind": "parquet", "path": self._root}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the first file, and those of its path as strings."""
        first = self._listed()[0]
        try:
            with self.open(first) as file:
                schema = pq.read_schema(file).remove_metadata()
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(error) from None
        more = [pa.field(name, pa.string()) for name in first.constants if name not in schema.names]
        return pa.schema([*schema, *more])

    def end(self) -> Mapping[str, Any]:
        """Return the position behind the last file."""
        return _after(self._listed())

    def steps(self, position: Mapping[str, Any] | None) -> Iterator[Step]:
        """Yield the files behind the position in groups."""
        files = self._listed()
        done = 0 if position is None else int(position["files"])
        if position is not None and (len(files) < done or dict(position) != _after(files[:done])):
            raise InvalidInputError(
                "files that were imported are gone or changed, or new ones have names that sort before them",
                kind="files-changed",
                hint="give new files names that sort behind the others, or import into a new topic, under "
                "another group",
                path=self._root,
                after=str(position.get("after")),
            )
        for group in groups_of(files[done:], self._step_bytes):
            done += len(group)
            yield Step(group, _after(files[:done]), len(files) - done)

    def open(self, file: SourceFile) -> IO[bytes]:
        """Open a file."""
        if isinstance(self._system, pa_fs.LocalFileSystem):
            return Path(self._path(file.path)).open("rb")
        return cast("IO[bytes]", self._system.open_input_file(self._path(file.path)))

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _listed(self) -> list[SourceFile]:
        try:
            info = self._system.get_file_info(self._root)
            if info.type is pa_fs.FileType.File:
                return [SourceFile("", info.size)]
            found = self._system.get_file_info(pa_fs.FileSelector(self._root, recursive=True))
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(error) from None
        start = len(self._root.rstrip("/")) + 1
        files = [
            SourceFile(one.path[start:], one.size, _constants(one.path[start:]))
            for one in found
            if one.type is pa_fs.FileType.File and one.path.endswith(".parquet")
        ]
        return sorted((file for file in files if not _is_hidden(file.path)), key=lambda file: file.path)


def _constants(path: str) -> dict[str, Any]:
    parts = [part.partition("=") for part in path.split("/")[:-1] if "=" in part]
    return {unquote(name): None if value == NULL else unquote(value) for name, _, value in parts}


def _is_hidden(path: str) -> bool:
    return any(part[:1] in "._" and "=" not in part for part in path.split("/"))


def _after(files: Sequence[SourceFile]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{len(file.path)}:{file.path}:{file.size}\n".encode())
    return {"after": files[-1].path if files else "", "files": len(files), "sha256": digest.hexdigest()}


def _unreadable(error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"the files cannot be read: {error!s:.500}",
        kind="invalid-table",
        hint="what was imported stays; check path and rights, then run the same command again to continue",
    )
