"""Spark's schemas as text: its DDL and its JSON form as schemas of topics, and back. Pure.

DDL is a list of columns as ``id BIGINT NOT NULL COMMENT 'x', tags ARRAY<STRING>``, such a list in
``STRUCT<…>``, or a statement ``CREATE TABLE name (…)``; what stands behind its columns is not looked at.
Every type that a topic has is a type of Spark, so that the way back loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from txnformat.columns.arrow_types import NESTING_MAX
from txnformat.columns.spark_json import JSON_NAMES, from_spark_json, to_spark_json
from txnformat.columns.variants import is_variant
from txnformat.digits import whole
from txnlog.schemas.walk import invalid

__all__ = ["from_ddl", "to_ddl", "to_spark"]

_HINT = (
    "write columns as Spark does: id BIGINT, price DECIMAL(10,2), tags ARRAY<STRING>, place STRUCT<x: "
    "DOUBLE, y: DOUBLE>"
)
_NAMES: Mapping[str, str] = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "variant": "variant",
    "void": "void",
}
"""Names of types in DDL, each with its name in the JSON form."""
_LENGTHS = {"char": "char", "character": "char", "varchar": "varchar"}
_UNITS = ("year", "month", "day", "hour", "minute", "second")


class _Unfit(ValueError):
    """The text is not Spark's DDL."""


def from_ddl(text: str) -> pa.Schema:
    """Return the topic schema that DDL describes.

    Raises InvalidInputError: kinds ``invalid-schema``: it is none, with the place and what is expected there;
    ``unsupported-schema``: every column whose type a topic cannot hold.
    """
    try:
        tokens = Spark().tokenize(text)
    except SqlglotError as error:
        raise invalid(f"this is not Spark's DDL: {error!s:.200}", _HINT) from None
    ddl = _Ddl(text, tokens)
    try:
        fields = ddl.whole()
    except _Unfit as error:
        raise invalid(f"this is not Spark's DDL: {error}", _HINT) from None
    return from_spark_json({"type": "struct", "fields": fields})


class _Ddl:
    """Tokens of DDL; taken one by one."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._whole, self._tokens = text, tokens
        self._at = 0
        self._path: list[str] = []

    def whole(self) -> list[dict[str, Any]]:
        if self._is("create"):
            self._to_columns()
            fields = self._fields(")", with_colon=False)
            self._take(")")
            return fields  # of the statement's other clauses none is about columns' types
        if self._is("struct") and self._text(1) == "<":
            fields = self._type()["fields"]
        else:
            fields = self._fields("", with_colon=True)
        if self._is(";"):
            self._at += 1
        if self._at < len(self._tokens):
            raise self._unfit("the end, or a comma and a column")
        return fields

    def _to_columns(self) -> None:
        """Go behind the parenthesis that opens the columns of a table."""
        words = [one.text.lower() for one in self._tokens[self._at : self._at + 8]]
        if "table" not in words:
            raise self._unfit("CREATE TABLE name (columns)")
        while self._at < len(self._tokens) and not self._is("("):
            self._at += 1
        self._take("(")

    def _fields(self, end: str, *, with_colon: bool) -> list[dict[str, Any]]:
        """Return the columns up to a closing token, which stays."""
        found: list[dict[str, Any]] = []
        while True:
            name = self._name()
            self._path.append(name)
            if with_colon and self._is(":"):
                self._at += 1
            found.append({"name": name, "type": self._type(), "nullable": True, "metadata": {}})
            self._clauses()
            self._path.pop()
            if not self._is(","):
                if end and not self._is(end):
                    raise self._unfit(f"a comma or {end!r}")
                return found
            self._at += 1

    def _clauses(self) -> None:
        """Pass over what says nothing about the type: NOT NULL, COMMENT."""
        while True:
            is_not_null = self._is("not") and self._text(1).lower() == "null"
            if not is_not_null and not (self._is("comment") and self._kind(1) is TokenType.STRING):
                return
            self._at += 2
            while self._kind(0) is TokenType.STRING:  # 'it''s' comes as two
                self._at += 1

    def _type(self) -> Any:
        if len(self._path) > 4 * NESTING_MAX:
            raise _Unfit(f"it is nested deeper than {NESTING_MAX} levels")
        token = self._next("a type")
        word = token.text.lower() if token.token_type is not TokenType.STRING else ""
        if word in ("array", "map", "struct"):
            return self._nested(word)
        if word in ("decimal", "dec", "numeric"):
            precision, scale = self._numbers(2) or (10, 0)
            return f"decimal({precision},{scale})"
        if word in _LENGTHS:
            return f"{_LENGTHS[word]}({self._needed_number(word)})"
        if word == "time":
            (precision,) = self._numbers(1) or (6,)
            return f"time({precision})"
        if word == "interval":
            return self._interval()
        if word == "string" and self._is("collate"):
            self._at += 1
            return f"string collate {self._name()}"
        if word in ("geometry", "geography"):
            return f"{word}({self._needed_number(word)})"
        if word in _NAMES:
            return _NAMES[word]
        self._at -= 1
        raise self._unfit("a type of Spark")

    def _nested(self, word: str) -> Any:
        self._path.append(word)
        self._take("<")
        found: Any
        if word == "struct":
            fields = [] if self._is(">") else self._fields(">", with_colon=True)
            found = {"type": "struct", "fields": fields}
        elif word == "array":
            found = {"type": "array", "elementType": self._type(), "containsNull": True}
        else:
            key = self._type()
            self._take(",")
            found = {"type": "map", "keyType": key, "valueType": self._type(), "valueContainsNull": True}
        self._take(">")
        self._path.pop()
        return found

    def _interval(self) -> str:
        units = []
        if self._text(0).lower() in _UNITS:
            units.append(self._next("a unit").text.lower())
            if self._is("to"):
                self._at += 1
                units.append(self._next("a unit").text.lower())
        return " ".join(["interval", " to ".join(units)]).strip()

    def _numbers(self, most: int) -> tuple[int, ...] | None:
        """Return the numbers in parentheses that come next; as many as a type takes at most, missing
        ones 0.
        """
        if not self._is("("):
            return None
        self._at += 1
        found = [self._number()]
        while self._is(",") and len(found) < most:
            self._at += 1
            found.append(self._number())
        self._take(")")
        return (*found, *([0] * (most - len(found))))

    def _needed_number(self, word: str) -> int:
        found = self._numbers(1)
        if found is None:
            raise self._unfit(f"a number in parentheses after {word}")
        return found[0]

    def _number(self) -> int:
        number = whole(self._text(0), digits_max=9)
        if number is None:
            raise self._unfit("a number")
        self._at += 1
        return number

    def _name(self) -> str:
        token = self._next("a column's name")
        word = token.text.replace("_", "a")
        is_name = word.isalnum() and token.token_type not in (TokenType.STRING, TokenType.NUMBER)
        if not is_name and token.token_type is not TokenType.IDENTIFIER:
            self._at -= 1
            raise self._unfit("a column's name")
        return token.text

    def _next(self, wanted: str) -> Token:
        if self._at >= len(self._tokens):
            raise self._unfit(wanted)
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, text: str) -> None:
        if not self._is(text):
            raise self._unfit(repr(text))
        self._at += 1

    def _is(self, text: str) -> bool:
        return self._text(0).lower() == text and self._kind(0) not in (TokenType.STRING, TokenType.IDENTIFIER)

    def _text(self, ahead: int) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _kind(self, ahead: int) -> TokenType | None:
        at = self._at + ahead
        return self._tokens[at].token_type if at < len(self._tokens) else None

    def _unfit(self, wanted: str) -> _Unfit:
        path = f" in {'.'.join(self._path)!r:.300}" if self._path else ""
        if self._at >= len(self._tokens):
            return _Unfit(f"it ends{path} where {wanted} is expected")
        token = self._tokens[self._at]
        before = self._whole[: token.start]
        place = f"line {before.count(chr(10)) + 1}, column {token.start - before.rfind(chr(10))}"
        return _Unfit(f"{place}: {token.text!r:.80}{path}, expected {wanted}")


# --- back ---------------------------------------------------------------------------------------------------

_DDL = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
}


def to_spark(schema: pa.Schema) -> str:
    """Return the JSON of the Spark schema of a topic's columns (canonical types), as ``StructType.fromJson``
    takes it.
    """
    return json.dumps(to_spark_json(schema), indent=2) + "\n"


def to_ddl(schema: pa.Schema) -> str:
    """Return the DDL of a topic's columns (canonical types), a column in each line."""
    return ",\n".join(f"{_quoted(field.name)} {_ddl_type(field.type)}" for field in schema) + "\n"


def _ddl_type(type_: pa.DataType) -> str:
    if is_variant(type_):
        return "VARIANT"
    if pt.is_struct(type_):
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {_ddl_type(field.type)}' for field in type_)}>"
    if pt.is_map(type_):
        return f"MAP<{_ddl_type(type_.key_type)}, {_ddl_type(type_.item_type)}>"
    if pt.is_list(type_):
        return f"ARRAY<{_ddl_type(type_.value_type)}>"
    if pt.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    name = JSON_NAMES[type_]
    return _DDL.get(name, name.upper())


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
