"""The columns of a segment file, and the names under which a reader has them. Pure.

A file has its columns under the names of its own version of the topic's schema. A reader has a version of its
own, in which the same column, which is the same place, may have another name, and the same name may stand for
another place. So readers ask for columns by their own names only, and this value says which column of the
file each of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from txnformat.errors import ConflictError

__all__ = ["FileColumns"]


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of one file for one reader."""

    stored: pa.Schema
    """All columns of the file, under the names that they have there."""
    names: Mapping[str, str]
    """The reader's name of a column to its name in the file, of those that both have; in the order of the
    file."""
    gone: frozenset[str] = frozenset()
    """The reader's names of columns that the file's records had, and that are not in the file: it was written
    after they were dropped."""

    @classmethod
    def own(cls, stored: pa.Schema) -> Self:
        """Return the columns for a reader that has each of them under its name in the file."""
        return cls(stored, {name: name for name in stored.names})

    def beside(self, fields: Iterable[pa.Field], gone: frozenset[str] = frozenset()) -> Self:
        """Return these columns with further ones behind them, which have one name.

        ``gone``: as of the class.
        """
        more = list(fields)
        names = {**self.names, **{field.name: field.name for field in more}}
        return replace(self, stored=pa.schema([*self.stored, *more]), names=names, gone=gone)

    def has(self, name: str) -> bool:
        """Return whether the file has a column of the reader.

        Raises ConflictError of kind ``column-dropped``: it had it once.
        """
        if name in self.gone:
            raise ConflictError(
                "a column that is read was dropped, and records were rewritten without it",
                kind="column-dropped",
                hint="read again without the column; a stream has to be loaded again",
                column=name,
            )
        return name in self.names

    def held(self, names: Iterable[str]) -> list[str]:
        """Return those of a reader's columns that the file has. Raises as :meth:`has`."""
        return [name for name in names if self.has(name)]

    def type_of(self, name: str) -> pa.DataType:
        """Return the type in the file of a column that the file has."""
        return self.stored.field(self.names[name]).type

    def has_own_names(self, names: Iterable[str]) -> bool:
        """Return whether a program that looks for these columns by their names finds each of them in the
        file, and nothing for one that is not there; it may or may not tell letter cases apart.
        """
        taken = {name.casefold() for name in self.stored.names}
        return all(
            self.names[name] == name if self.has(name) else name.casefold() not in taken for name in names
        )
