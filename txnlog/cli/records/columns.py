"""Columns as text: ``amount:decimal(10,2)``, ``tags:list<string>``, ``point:struct<x:double,y:double>``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txnformat.digits import whole
from txnformat.errors import CorruptDataError, InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["parse_column", "parse_columns"]

ALIASES = {
    "boolean": "bool",
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date32",
}
"""SQL's and Spark's names."""

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|[0-9]{1,9}|[<>(),:])")
HINT = (
    "write name:type, with a type such as int64, float64, bool, string, binary, date, timestamp, "
    "decimal(10,2), "
    "list<string>, map<string,int64>, struct<x:double,y:double>"
)


class _Text:
    """A type's text, token by token."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"unexpected {text[position:].strip()[:1]!r}")
            self.tokens.append(match[1])
            position = match.end()

    def next(self) -> str:
        if not self.tokens:
            raise ValueError("it ends too early")
        return self.tokens.pop(0)

    def expect(self, *tokens: str) -> str:
        token = self.next()
        if token not in tokens:
            raise ValueError(f"expected {' or '.join(map(repr, tokens))}, got {token!r}")
        return token

    def type(self) -> Any:
        """Return the metadata form of the type that comes next."""
        name = self.next().lower()
        name = ALIASES.get(name, name)
        match name:
            case "decimal":
                return {"decimal": self.decimal()}
            case "list" | "array":
                self.expect("<")
                element = self.type()
                self.expect(">")
                return {"list": element}
            case "map":
                self.expect("<")
                key = self.type()
                self.expect(",")
                item = self.type()
                self.expect(">")
                return {"map": [key, item]}
            case "struct":
                self.expect("<")
                return {"struct": self.fields()}
            case _:
                return name

    def decimal(self) -> list[int]:
        from txnformat.columns.arrow_types import DECIMAL_PRECISION_MAX

        if self.tokens[:1] != ["("]:
            raise ValueError("decimal needs a precision and a scale, as in decimal(10,2)")
        self.expect("(")
        precision = self.next()
        scale = "0"
        if self.expect(",", ")") == ",":
            scale = self.next()
            self.expect(")")
        digits, places = whole(precision), whole(scale)
        if digits is None or places is None:
            raise ValueError("decimal needs whole numbers, as in decimal(10,2)")
        if not (1 <= digits <= DECIMAL_PRECISION_MAX and 0 <= places <= digits):
            raise ValueError(
                f"decimal takes a precision from 1 to {DECIMAL_PRECISION_MAX} and a scale from 0 to the "
                "precision"
            )
        return [digits, places]

    def fields(self) -> list[dict[str, Any]]:
        found = []
        while True:
            name = self.next()
            self.expect(":")
            found.append({"name": name, "type": self.type()})
            if self.expect(",", ">") == ">":
                return found


def parse_column(text: str) -> pa.Field:
    """Return the column that ``name:type`` describes. Raises InvalidInputError of kind ``invalid-column``."""
    from txnformat.core.topics.schema import fields_from_json

    name, colon, type_ = text.partition(":")
    try:
        if not colon or not name:
            raise ValueError("there is no name:type")
        parsed = _Text(type_)
        json_type = parsed.type()
        if parsed.tokens:
            raise ValueError(f"unexpected {parsed.tokens[0]!r}")
        return fields_from_json([{"name": name, "type": json_type}]).field(0)
    except CorruptDataError as error:
        reason = str(error.values.get("problems", error))
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise InvalidInputError(
        f"{text!r:.200} is not a column: {reason}", kind="invalid-column", hint=HINT
    ) from None


def parse_columns(texts: Sequence[str]) -> pa.Schema:
    """Return the schema of columns. Raises InvalidInputError of kind ``invalid-column``: every problem."""
    import pyarrow as pa

    fields: list[Any] = []
    problems: list[str] = []
    for text in texts:
        try:
            fields.append(parse_column(text))
        except InvalidInputError as error:
            problems += error.problems
    if problems:
        raise InvalidInputError(problems, kind="invalid-column", hint=HINT)
    return pa.schema(fields)
