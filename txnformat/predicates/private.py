"""Conditions with personal data: errors about them show ``…`` in place of each literal."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa
import sqlglot

from txnformat.errors import InvalidInputError
from txnformat.predicates.bind import parse_time
from txnformat.predicates.sql import check_text, compile_where
from txnformat.predicates.tree import Predicate

__all__ = ["compile_private"]

HIDDEN = "…"
_TEXTS = ("STRING", "RAW_STRING", "NATIONAL_STRING", "HEREDOC_STRING", "UNICODE_STRING")
_BYTES = ("HEX_STRING", "BIT_STRING", "BYTE_STRING")
_KEPT = (
    *("AND", "OR", "NOT", "IN", "LIKE", "RLIKE", "ILIKE", "BETWEEN", "IS", "ESCAPE"),
    *("NULL", "TRUE", "FALSE", "DATE", "TIMESTAMP", "SELECT", "FROM", "CASE", "CAST"),
)
"""Words of the language that may be shown; another word may be a text without its quotes."""
_NOT_WILD = re.compile("[^%_]+")
HINT = (
    f"each {HIDDEN} stands for a part of the condition that is not shown, for it may be personal, and so "
    "does each 0; "
    "a text needs single quotes, as in name = 'ann'"
)


def compile_private(text: str, columns: Mapping[str, pa.DataType]) -> Predicate:
    """Return the predicate that a SQL condition means, as :func:`~txnformat.predicates.sql.compile_where`
    does.

    Raises InvalidInputError: kind ``invalid-where``: the problems of the condition with every literal, and
    every name that is no column's, replaced.
    """
    check_text(text)
    try:
        return compile_where(text, columns)
    except InvalidInputError:
        pass  # it shows literals, and an error that names it as its cause would, too
    try:
        compile_where(_hidden(text, columns), columns)
    except InvalidInputError as error:
        problems, hint = error.problems, "" if error.hint is None else f"{error.hint}; "
    except Exception:  # noqa: BLE001 - whatever the parser raises, the text is the caller's
        problems, hint = ["where is not SQL: a quote or a comment does not end"], ""
    else:
        problems, hint = ["a literal of the condition does not fit its column"], ""
    raise InvalidInputError(problems, kind="invalid-where", hint=hint + HINT)


def _hidden(text: str, columns: Mapping[str, pa.DataType]) -> str:
    """Return a condition with other literals. Raises an error of the parser: it has no words."""
    names = {name.lower(): name for name in columns}
    found = []
    for token in sqlglot.tokenize(text, dialect="spark"):
        kind, word = token.token_type.name, token.text
        if kind in _TEXTS:
            found.append("'2026-01-31'" if parse_time(word) else f"'{_NOT_WILD.sub(HIDDEN, word)}'")
        elif kind in _BYTES:
            found.append("X'00'")
        elif kind == "NUMBER":
            found.append("0")
        elif word.upper() in _KEPT or not any(map(str.isalnum, word)):
            found.append(word)
        else:
            found.append("`" + names.get(word.lower(), HIDDEN).replace("`", "``") + "`")
    return " ".join(found)
