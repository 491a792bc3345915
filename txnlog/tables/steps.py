"""Steps of files, as a source gives them, and the position behind each. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, Protocol

import pyarrow as pa

from txnformat.errors import InvalidInputError, repr_of

__all__ = [
    "Change",
    "Source",
    "SourceFile",
    "Step",
    "decode_position",
    "encode_position",
    "groups_of",
    "place_of",
]


class Change(NamedTuple):
    """The change that a row is part of."""

    kind: str | None
    """"insert" or "delete"; None: the file says it of each row, in ``_change_type``."""
    version: int
    """The version of the table that made it."""


class SourceFile(NamedTuple):
    """A Parquet file of a source."""

    path: str
    """Below the source's own place."""
    size: int
    """Bytes."""
    constants: Mapping[str, Any] = {}
    """Values of columns that the file does not have: texts, or of the column's own type."""
    change: Change | None = None
    """The change that its rows are part of; None: of a source without changes."""


class Step(NamedTuple):
    """Files whose rows go into one transaction."""

    files: tuple[SourceFile, ...]
    after: Mapping[str, Any]
    """The position behind the step."""
    left: int
    """Files behind it, as known now."""


class Source(Protocol):
    """Where rows come from."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """The part of each position that must be the same when an import goes on."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are now."""
        ...

    def end(self) -> Mapping[str, Any]:
        """Return the position behind everything that is there now."""
        ...

    def steps(self, position: Mapping[str, Any] | None) -> Iterator[Step]:
        """Yield what is behind a position (None: from the beginning), up to the end as of the call."""
        ...

    def open(self, file: SourceFile) -> IO[bytes]:
        """Open a file. Raises FileNotFoundError."""
        ...


def place_of(name: str, value: object) -> str:
    """Return the path or URL of a source.

    Raises InvalidInputError (``invalid-argument``), also about an empty one: it would stand for the current
    directory.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInputError(
            f"{name} is {repr_of(value, 80)}, not a path or a URL",
            kind="invalid-argument",
            hint="nothing was done",
        )
    return text


def encode_position(source: Source, position: Mapping[str, Any]) -> str:
    """Return the text that is committed as a foreign position of the group."""
    return json.dumps({**source.identity, **position}, sort_keys=True)


def decode_position(source: Source, text: str) -> dict[str, Any]:
    """Return a position that was committed.

    Raises InvalidInputError (``other-table``) if it is of another source.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    identity = dict(source.identity)
    if not isinstance(found, dict) or {name: found.get(name) for name in identity} != identity:
        raise InvalidInputError(
            "the group's position belongs to another table",
            kind="other-table",
            hint="give this import a group of its own; a table that was created again counts as a "
            "different table",
            expected=json.dumps(identity, sort_keys=True),
            got=text[:200],
        )
    return {name: value for name, value in found.items() if name not in identity}


def groups_of(files: Sequence[SourceFile], bytes_max: int) -> list[tuple[SourceFile, ...]]:
    """Return the files in their order, cut into groups of at most ``bytes_max`` bytes (a larger file
    alone).
    """
    groups: list[list[SourceFile]] = []
    size = 0
    for file in files:
        if not groups or size + file.size > bytes_max:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [tuple(group) for group in groups]
