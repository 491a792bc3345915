"""A commit of a Delta table as a step. Pure.

See the Delta transaction log protocol: "Add File and Remove File", "Add CDC File", "Change Data Files".
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from urllib.parse import unquote

from txnformat.errors import InvalidInputError
from txnlog.tables.steps import Change, SourceFile

__all__ = ["READER_FEATURES", "Commit", "decode_commit"]

READER_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"})
"""Features of a table that change nothing about how a data file is read here."""


class Commit(NamedTuple):
    """The rows that a version brought, and those that it took away."""

    added: tuple[SourceFile, ...]
    removed: tuple[SourceFile, ...]
    changes: tuple[SourceFile, ...]
    """Files of the change data feed: they have all changes of the version, if there are any."""

    @property
    def only_adds(self) -> bool:
        """Whether the version took no row away and changed none."""
        return not self.removed and not self.changes


def decode_commit(data: bytes, version: int) -> Commit:
    """Return what a commit file (JSON lines) changed.

    Files that were only arranged anew (``dataChange`` false) are left out.

    Raises InvalidInputError of kind ``unsupported-table`` when a file's rows cannot be read without more.
    """
    added: list[SourceFile] = []
    removed: list[SourceFile] = []
    changes: list[SourceFile] = []
    for line in data.splitlines():
        if not line.strip():
            continue
        action = _action(line, version)
        for name, into, kind in (
            ("add", added, "insert"),
            ("remove", removed, "delete"),
            ("cdc", changes, None),
        ):
            found = action.get(name)
            if isinstance(found, dict) and (name == "cdc" or found.get("dataChange", True)):
                into.append(_file(found, Change(kind, version)))
    return Commit(tuple(added), tuple(removed), tuple(changes))


def _action(line: bytes, version: int) -> dict[str, Any]:
    try:
        action = json.loads(line)
    except ValueError:
        action = None
    if not isinstance(action, dict):
        raise InvalidInputError(
            "a commit of the Delta table cannot be read: one of its lines is not a JSON object",
            kind="invalid-table",
            hint="nothing of this version was imported; check the table with the program that wrote it",
            version=version,
        )
    return action


def _file(action: dict[str, Any], change: Change) -> SourceFile:
    path = action.get("path")
    if not isinstance(path, str) or "://" in path or path.startswith("/"):
        raise _unsupported("a file outside of the table's own directory", change.version, str(path)[:200])
    if action.get("deletionVector"):
        raise _unsupported("a file with a deletion vector", change.version, path)
    values = action.get("partitionValues") or {}
    size = action.get("size")
    return SourceFile(unquote(path), size if isinstance(size, int) else 0, dict(values), change)


def _unsupported(what: str, version: int, path: str) -> InvalidInputError:
    return InvalidInputError(
        f"the Delta table has {what}, which an import cannot read",
        kind="unsupported-table",
        hint="read the table with Spark and write the rows with format('txnlog'); nothing of this version "
        "was imported",
        version=version,
        file=path,
    )
