"""A walk over a schema of another system: the problems that it finds, and the bounds of what it follows.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from txnformat.arguments import is_utf8
from txnformat.columns.arrow_types import COLUMNS_MAX, DECIMAL_PRECISION_MAX, NESTING_MAX, canonical_schema
from txnformat.errors import InvalidInputError

__all__ = ["PROBLEMS_MAX", "Walk", "invalid", "json_of", "object_of"]

PROBLEMS_MAX = 20
"""Most problems that one error names (inclusive)."""

ANY = pa.string()
"""Stands for a type that is refused; no schema is made of it."""


class Walk:
    """The problems of one schema.

    Named types may refer to each other, so that a few bytes stand for very many fields: the walk ends at
    :data:`COLUMNS_MAX` of them.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._count = 0

    def refuse(self, path: str, what: str) -> pa.DataType:
        """Note that the type of a field cannot be mapped; return a type that stands for it."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"field {path!r:.300} {what}")
        return ANY

    def enter(self, path: str, depth: int) -> bool:
        """Count one more type; return whether it may be walked.

        Raises InvalidInputError: there are too many.
        """
        self._count += 1
        if self._count > 2 * COLUMNS_MAX:
            raise InvalidInputError(
                f"the schema has more than {COLUMNS_MAX:,} fields, with those of nested types",
                kind="unsupported-schema",
                hint="put values that belong together into a list or a map",
            )
        if depth > NESTING_MAX:
            self.refuse(path, f"is nested deeper than {NESTING_MAX} levels; use a flatter type")
            return False
        return True

    def has_name(self, name: object, path: str) -> bool:
        """Return whether a field's name is a text that Arrow can hold."""
        if isinstance(name, str) and is_utf8(name):
            return True
        self.refuse(path, f"has a field whose name is not text: {name!r:.80}")
        return False

    def decimal(self, path: str, precision: object, scale: object, advice: str) -> pa.DataType:
        """Return a decimal type; ``advice``: what to write in place of one that there is not."""
        if (
            type(precision) is int
            and type(scale) is int
            and 0 <= scale <= precision <= DECIMAL_PRECISION_MAX
            and precision
        ):
            return pa.decimal128(precision, scale)
        return self.refuse(
            path,
            f"is a decimal of precision {precision!r:.20} and scale {scale!r:.20}; a column has a "
            "precision from 1 to "
            f"{DECIMAL_PRECISION_MAX} and a scale from 0 to the precision{advice}",
        )

    def schema(self, fields: Sequence[tuple[str, pa.DataType]]) -> pa.Schema:
        """Return the topic schema of the fields that were found.

        Raises InvalidInputError (``unsupported-schema``): every problem.
        """
        self.check()
        return canonical_schema(pa.schema([pa.field(name, type_) for name, type_ in fields]))

    def check(self, hint: str = "change these fields, or give the columns with --column NAME:TYPE") -> None:
        """Raise InvalidInputError (``unsupported-schema``) if there are problems."""
        if self.problems:
            raise InvalidInputError(self.problems, kind="unsupported-schema", hint=hint)


def invalid(what: str, hint: str | None = None) -> InvalidInputError:
    """Return the error about text that is no schema of its form."""
    return InvalidInputError(what, kind="invalid-schema", hint=hint)


def object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of names and values. Raises ValueError if it has a name twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


def json_of(text: str, form: str) -> Any:
    """Return a JSON value; no object has a name twice. Raises InvalidInputError (``invalid-schema``)."""
    try:
        return json.loads(text, object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        raise invalid(f"this is not {form}, which is JSON: {error!s:.200}") from None
