"""A Delta table as a source: a snapshot of one version, and then the versions behind it, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pa_fs

from txnformat.errors import InvalidInputError, NotFoundError, UnsupportedFeatureError, repr_of
from txnformat.file_urls import file_path
from txnlog.tables.delta_actions import READER_FEATURES, decode_commit
from txnlog.tables.steps import Change, SourceFile, Step, groups_of

__all__ = ["DeltaSource"]


class DeltaSource:
    """A Delta table.

    A position is ``version`` alone when that version is imported as a whole, and with ``files`` while its
    snapshot is: so many of its files, in the order of their paths.
    """

    def __init__(
        self,
        table: str,
        options: Mapping[str, str],
        *,
        version: int | None,
        with_changes: bool,
        step_bytes: int,
    ) -> None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError, TableNotFoundError
            from deltalake.fs import DeltaStorageHandler
        except ImportError:
            raise UnsupportedFeatureError(
                "importing from Delta needs the package deltalake",
                kind="missing-package",
                hint="pip install 'txnlog[delta]' for the Python that runs this",
            ) from None
        if version is not None and (type(version) is not int or version < 0):
            raise InvalidInputError(
                f"version is {repr_of(version, 80)}, not a whole number from 0 on", kind="invalid-argument"
            )
        self._with_changes, self._step_bytes, self._version = with_changes, step_bytes, version
        self._error = DeltaError
        self._options = dict(options) or None
        try:
            self._table = DeltaTable(table, storage_options=self._options)
            self._files = pa_fs.PyFileSystem(DeltaStorageHandler(self._table.table_uri, self._options))
            self._check()
        except TableNotFoundError:
            raise NotFoundError(
                "there is no Delta table", kind="no-table", hint="check the path of the table", table=table
            ) from None
        except (DeltaError, OSError) as error:
            raise _unreadable(error) from None
        if version is not None and version > self._table.version():
            raise NotFoundError(
                "the Delta table has no such version",
                kind="no-version",
                hint=f"its newest is {self._table.version()}",
                version=version,
            )

    @property
    def identity(self) -> Mapping[str, Any]:
        """The table's own id: one that is made anew at the same path is another table."""
        return {"kind": "delta", "table": str(self._table.metadata().id)}

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest version."""
        return pa.schema(self._table.schema().to_arrow())

    def end(self) -> Mapping[str, Any]:
        """Return the position behind the version that was asked for, or behind the newest."""
        return {"version": self._target()}

    def steps(self, position: Mapping[str, Any] | None) -> Iterator[Step]:
        """Yield the snapshot in groups of files, then each version of its own: what one commit of Delta did
        becomes visible in one commit here.
        """
        try:
            self._table.update_incremental()
            self._check()
            target = self._target()
            if position is None or "files" in position:
                version = target if position is None else int(position["version"])
                yield from self._snapshot(version, 0 if position is None else int(position["files"]), target)
                position = {"version": version}
            for version in range(int(position["version"]) + 1, target + 1):
                files = self._commit(version)
                yield Step(files, {"version": version}, target - version)
        except (self._error, OSError) as error:
            raise _unreadable(error) from None

    def open(self, file: SourceFile) -> IO[bytes]:
        """Open a data file."""
        place = self._table.table_uri
        if place.startswith("file:"):
            return Path(file_path(place), file.path).open("rb")
        return cast("IO[bytes]", self._files.open_input_file(file.path))

    def _target(self) -> int:
        return int(self._table.version()) if self._version is None else self._version

    def _snapshot(self, version: int, done: int, target: int) -> Iterator[Step]:
        from deltalake import DeltaTable

        table = DeltaTable(self._table.table_uri, version=version, storage_options=self._options)
        change = Change("insert", version)
        rows = pa.table(table.get_add_actions()).to_pylist()
        rows.sort(key=lambda row: str(row["path"]))
        files = [
            SourceFile(unquote(row["path"]), row["size_bytes"], row.get("partition") or {}, change)
            for row in rows
        ]
        groups = groups_of(files[done:], self._step_bytes) or [()]
        for group in groups:
            done += len(group)
            is_last = group is groups[-1]
            after = {"version": version} if is_last else {"version": version, "files": done}
            yield Step(group, after, len(files) - done + target - version)

    def _commit(self, version: int) -> tuple[SourceFile, ...]:
        try:
            data = self._files.open_input_file(f"_delta_log/{version:020d}.json").read()
        except FileNotFoundError:
            raise NotFoundError(
                "the Delta table has no commit of this version any more",
                kind="table-history-gone",
                hint="the table's log retention has removed it; import the table into a new topic, under "
                "another group",
                version=version,
            ) from None
        commit = decode_commit(data, version)
        if commit.only_adds:
            return commit.added
        if not self._with_changes:
            raise InvalidInputError(
                "a version of the Delta table changes or removes rows, and a log only grows",
                kind="table-changes-rows",
                hint="nothing of this version was imported; import the changes as rows: changes=True "
                "(--changes), into a topic of its own",
                version=version,
            )
        return commit.changes or (*commit.removed, *commit.added)

    def _check(self) -> None:
        """Refuse tables whose files have more or fewer rows than the table."""
        protocol = self._table.protocol()
        unknown = sorted(set(protocol.reader_features or ()) - READER_FEATURES)
        mode = self._table.metadata().configuration.get("delta.columnMapping.mode") or "none"
        if unknown or mode != "none":
            what = ", ".join(unknown) or "columnMapping"
            raise InvalidInputError(
                f"the Delta table has features that an import does not know: {what:.300}",
                kind="unsupported-table",
                hint="read the table with Spark, and write the rows with format('txnlog')",
            )


def _unreadable(error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"the Delta table cannot be read: {error!s:.500}",
        kind="invalid-table",
        hint="what was imported stays; check path, options and rights, then run the same command again to "
        "continue",
    )
