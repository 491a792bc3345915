"""``where`` texts: SQL conditions in, predicates out.

The text is parsed as Spark SQL by sqlglot. Of the parsed tree only what is listed here is accepted,
everything else is refused by name; nothing of the text is ever executed or passed on to another engine.

Errors: one InvalidInputError of kind ``invalid-where`` that lists every problem.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.types as pt
import sqlglot
from sqlglot import exp

from txnformat.arguments import is_utf8
from txnformat.errors import InvalidInputError
from txnformat.predicates.bind import (
    Literal,
    NotComparableError,
    compare,
    has_zone,
    is_member,
    like,
    parse_time,
)
from txnformat.predicates.tree import Compare, Constant, Node, NullTest, Op, Predicate, all_of, any_of

__all__ = ["WHERE_CHARS_MAX", "check_text", "compile_where"]

WHERE_CHARS_MAX = 256 * 1024
"""Longest text of a condition, in characters (inclusive)."""

WHERE_NESTING_MAX = 64
"""Deepest nesting of parentheses and NOTs (inclusive)."""

SUPPORTED = (
    "supported are =, <>, <, <=, >, >=, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE 'prefix%', IS [NOT] NULL, "
    "IS [NOT] TRUE and IS [NOT] FALSE between one column and literals, joined by AND, OR and NOT; "
    "literals are "
    "numbers, 'text', TRUE, FALSE, DATE '…', TIMESTAMP '…' and X'…'"
)

_OPS: dict[type[Any], tuple[Op, Op]] = {  # as written, and with the sides changed
    exp.EQ: (Op.EQ, Op.EQ),
    exp.NEQ: (Op.NE, Op.NE),
    exp.LT: (Op.LT, Op.GT),
    exp.LTE: (Op.LE, Op.GE),
    exp.GT: (Op.GT, Op.LT),
    exp.GTE: (Op.GE, Op.LE),
}

_NAMES: Mapping[str, str] = {
    "Anonymous": "a function", "Subquery": "a subquery", "Select": "a subquery",
    "Exists": "EXISTS (a subquery)",
    "Add": "arithmetic (+)", "Sub": "arithmetic (-)", "Mul": "arithmetic (*)", "Div": "arithmetic (/)",
    "Mod": "arithmetic (%)", "Cast": "CAST", "TryCast": "CAST", "Case": "CASE", "ILike": "ILIKE", "Concat":
    "text of several literals", "NullSafeEQ": "<=>", "NullSafeNEQ": "IS DISTINCT FROM", "RegexpLike": "RLIKE",
    "Placeholder": "a parameter", "Alias": "AS", "Star": "*", "Bracket": "an element of a column", "Dot":
    "a field of a struct", "Interval": "INTERVAL", "Any": "ANY", "Command": "a statement",
}  # fmt: skip

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_TIMESTAMPS = ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ")


def compile_where(
    text: str,
    columns: Mapping[str, pa.DataType],
    *,
    aliases: Mapping[str, str] | None = None,
    need_zone: bool = False,
) -> Predicate:
    """Return the predicate that a SQL condition means.

    ``text``: what stands after WHERE, in Spark's SQL: names in any letter case, in backquotes where they are
    not plain; text in single or double quotes. ``columns``: the columns that may be named. ``aliases``:
    columns (of ``columns``) that stand for other ones. ``need_zone``: refuse timestamps without a zone, but
    for ``TIMESTAMP_NTZ`` and columns that have none. Else they are in UTC. Raises InvalidInputError: kind
    ``invalid-where``: every problem.
    """
    check_text(text)
    compiler = _Compiler(columns, aliases or {}, need_zone=need_zone)
    try:
        root = compiler.node(_parsed(text), negated=False, depth=0)
    except InvalidInputError:
        raise
    except RecursionError:
        _refuse("where is nested too deeply", f"use at most {WHERE_NESTING_MAX} levels")
    except Exception:  # noqa: BLE001 - the parser prints trees, and says in errors of its own that one is too deep
        _refuse(f"where cannot be read, or is nested too deeply: {text!r:.200}", SUPPORTED)
    if compiler.problems:
        raise InvalidInputError(
            list(dict.fromkeys(compiler.problems)), kind="invalid-where", hint=compiler.hint
        )
    needed = sorted(_columns(root))
    return Predicate(root, tuple((name, columns[name]) for name in needed), text)


def check_text(text: object) -> None:
    """Refuse what cannot be a condition, whatever it says.

    Raises InvalidInputError: kind ``invalid-where``.
    """
    if not isinstance(text, str):
        _refuse(
            f"where is of the type {type(text).__name__}, not a text",
            "pass SQL, such as \"id > 5 AND name = 'a'\"",
        )
    if len(text) > WHERE_CHARS_MAX:
        _refuse(f"where has {len(text)} characters; at most {WHERE_CHARS_MAX} are read")
    if not is_utf8(text):
        _refuse(
            "where has half of a surrogate pair, which is not a character", "pass text that UTF-8 can encode"
        )
    if not text.strip():
        _refuse("where is empty", 'give a condition such as "id > 5"; a read without where reads everything')


def _parsed(text: str) -> Any:
    """Return sqlglot's tree of exactly one expression."""
    # A statement is a matter of its first word, and sqlglot then complains in a log of its own: with the word
    # behind a parenthesis it is an expression, or nothing.
    try:
        found = sqlglot.parse(f"({text}\n)", dialect="spark")
    except sqlglot.ParseError as error:
        first: Mapping[str, Any] = error.errors[0] if error.errors else {}
        near = str(first.get("highlight") or "")
        place = f" near {near!r:.50}" if near and near != ")" else " at the end"
        _refuse(f"where is not a condition{place}: {text!r:.200}", SUPPORTED)
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001 - whatever the parser raises, the text is the caller's
        _refuse(f"where is not SQL: {text!r:.200}", SUPPORTED)
    if len(found) != 1 or not isinstance(found[0], exp.Paren):
        _refuse(f"where is not one condition: {text!r:.200}", SUPPORTED)
    return found[0].this


def _refuse(problem: str, hint: str | None = None) -> NoReturn:
    # A parser's stack says nothing of it.
    raise InvalidInputError(problem, kind="invalid-where", hint=hint) from None


def _columns(node: Node) -> set[str]:
    found: set[str] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, Constant):
            continue
        if hasattr(each, "operands"):
            pending.extend(each.operands)
        else:
            found.add(each.column)
    return found


class _Refused(Exception):
    """One part of the condition cannot be compiled; the text is the problem."""


class _Compiler:
    def __init__(
        self, columns: Mapping[str, pa.DataType], aliases: Mapping[str, str], *, need_zone: bool
    ) -> None:
        self._need_zone = need_zone
        self._columns = columns
        self._names = {name.lower(): name for name in columns}
        self._aliases = aliases
        self.problems: list[str] = []
        self.hint: str | None = None

    def node(self, tree: Any, *, negated: bool, depth: int) -> Node:
        """Return what ``tree``, or its negation, means; problems are noted, and compiling goes on."""
        if depth > WHERE_NESTING_MAX:
            raise RecursionError
        if type(tree) in (exp.And, exp.Or):
            operands = [
                self.node(operand, negated=negated, depth=depth + 1) for operand in tree.flatten(unnest=False)
            ]
            return all_of(operands) if (type(tree) is exp.And) != negated else any_of(operands)
        if type(tree) is exp.Not:
            return self.node(tree.this, negated=not negated, depth=depth + 1)
        if type(tree) is exp.Paren:
            return self.node(tree.this, negated=negated, depth=depth + 1)
        try:
            return self._leaf(tree, negated)
        except (_Refused, NotComparableError) as error:
            self.problems.append(str(error))
            return Constant(False)

    def _leaf(self, tree: Any, negated: bool) -> Node:
        kind = type(tree)
        if kind in _OPS:
            return self._comparison(tree, negated)
        if kind is exp.Between:
            return self._between(tree, negated)
        if kind is exp.In:
            self._only(tree, "this", "expressions")
            name, type_ = self._column(tree.this)
            literals = [self._value(each, type_) for each in tree.expressions]
            return is_member(name, type_, literals, negated=negated)
        if kind is exp.Like or (kind is exp.Escape and type(tree.this) is exp.Like):
            return self._like(tree, negated)
        if kind is exp.Is:
            return self._is(tree, negated)
        if kind is exp.Boolean:
            return Constant(bool(tree.this) != negated)
        if kind is exp.Null:
            return Constant(False)
        if kind is exp.Column:
            name, type_ = self._column(tree)
            if not pt.is_boolean(type_):
                raise _Refused(
                    f"column {name!r:.300} has the type {str(type_)!r:.100} and is not a condition by "
                    "itself; "
                    "compare it with a literal"
                )
            return Compare(name, Op.EQ, int(not negated))
        raise self._unsupported(tree)

    def _comparison(self, tree: Any, negated: bool) -> Node:
        self._only(tree, "this", "expression")
        left, right = _bare(tree.this), _bare(tree.expression)
        op, turned = _OPS[type(tree)]
        if type(left) is not exp.Column and type(right) is exp.Column:
            left, right, op = right, left, turned
        if type(left) is not exp.Column and _is_literal(left) and _is_literal(right):
            raise _Refused(
                f"{_shown(tree)} compares two literals; put backquotes around a column name that is not plain"
            )
        if type(right) is exp.Column:
            for one in (right, left):
                if type(one) is exp.Column and one.name.lower() not in self._names:
                    raise _Refused(
                        f"there is no column {one.name!r:.300}; a text is written in single quotes: "
                        f"{one.name!r:.300}"
                    )
            raise _Refused(
                f"{_shown(tree)} compares two columns, which is not supported; compare a column with a "
                "literal"
            )
        name, type_ = self._column(left)
        return compare(name, type_, op, self._value(right, type_), negated=negated)

    def _between(self, tree: Any, negated: bool) -> Node:
        self._only(tree, "this", "low", "high")
        name, type_ = self._column(tree.this)
        ends = [
            compare(name, type_, Op.GE, self._value(tree.args["low"], type_), negated=negated),
            compare(name, type_, Op.LE, self._value(tree.args["high"], type_), negated=negated),
        ]
        return any_of(ends) if negated else all_of(ends)

    def _like(self, tree: Any, negated: bool) -> Node:
        escape = "\\"
        if type(tree) is exp.Escape:
            self._only(tree, "this", "expression")
            given = self._literal(tree.expression)
            if not isinstance(given.value, str) or len(given.value) != 1:
                raise _Refused(f"ESCAPE {given.shown:.100} is not one character")
            escape, tree = given.value, tree.this
        self._only(tree, "this", "expression", "negate")
        negated = negated != bool(tree.args.get("negate"))  # NOT LIKE, in newer versions of sqlglot
        name, type_ = self._column(tree.this)
        pattern = self._literal(tree.expression)
        if pattern.kind == "null":
            return Constant(False)
        if not isinstance(pattern.value, str):
            raise _Refused(f"the pattern {pattern.shown:.100} of LIKE is not a text")
        return like(name, type_, pattern.value, escape, negated=negated)

    def _is(self, tree: Any, negated: bool) -> Node:
        self._only(tree, "this", "expression")
        name, type_ = self._column(tree.this)
        asked = _bare(tree.expression)
        if type(asked) is exp.Null:
            return NullTest(name, is_null=not negated)
        if type(asked) is not exp.Boolean:
            raise self._unsupported(tree)
        if not pt.is_boolean(type_):
            raise _Refused(
                f"column {name!r:.300} has the type {str(type_)!r:.100}, and IS TRUE and IS FALSE ask of "
                "booleans"
            )
        found = Compare(name, Op.EQ, int(bool(asked.this) != negated))
        return any_of([found, NullTest(name, is_null=True)]) if negated else found

    def _column(self, tree: Any) -> tuple[str, pa.DataType]:
        tree = _bare(tree)
        if type(tree) is not exp.Column:
            raise self._unsupported(tree, "where a column is expected")
        if any(value for key, value in tree.args.items() if key != "this"):
            raise _Refused(
                f"{_shown(tree)} is not a column of the topic itself; fields of structs are not supported"
            )
        written = tree.name
        name = self._names.get(written.lower())
        if name is None:
            nearest = difflib.get_close_matches(written.lower(), self._names, n=1)
            advice = (
                f"did you mean {self._names[nearest[0]]!r:.300}?"
                if nearest
                else f"the columns are {', '.join(self._columns)}"
            )
            raise _Refused(f"there is no column {written!r:.300}; {advice}")
        name = self._aliases.get(name, name)
        return name, self._columns[name]

    def _value(self, tree: Any, type_: pa.DataType) -> Literal:
        """Return a literal that a column of ``type_`` is compared with."""
        tree = _bare(tree)
        literal = self._literal(tree)
        if self._need_zone and (text := _without_zone(tree, literal, type_)) is not None:
            if pt.is_timestamp(type_) and type_.tz is None:
                advice = f"write TIMESTAMP_NTZ '{text}': the column has no zone either"
            else:
                time = text if ":" in text else f"{text} 00:00:00"
                advice = f"write TIMESTAMP '{time}Z' for UTC, or TIMESTAMP '{time}+01:00'"
            raise _Refused(f"{literal.shown:.100} has no time zone; {advice}")
        return literal

    def _literal(self, tree: Any) -> Literal:
        tree = _bare(tree)
        shown = _shown(tree)
        kind = type(tree)
        if kind is exp.Literal:
            return Literal("text", tree.this, shown) if tree.is_string else _number(tree.this, shown)
        if kind is exp.Neg:
            number = self._literal(tree.this)
            if not isinstance(number.value, Fraction | float):
                raise self._unsupported(tree)
            return Literal(number.kind, -number.value, shown)
        if kind is exp.Boolean:
            return Literal("boolean", bool(tree.this), shown)
        if kind is exp.Null:
            return Literal("null", None, shown)
        if kind is exp.RawString:
            return Literal("text", tree.this, shown)
        if kind is exp.HexString:
            try:
                return Literal("binary", bytes.fromhex(tree.this), shown)
            except ValueError:
                raise _Refused(f"{shown} is not an even number of hexadecimal digits") from None
        if kind in (exp.Cast, exp.TryCast):
            return self._typed(tree, shown)
        if kind is exp.Column:
            raise _Refused(f"{shown} is a column where a literal is expected; text stands in single quotes")
        raise self._unsupported(tree, "where a literal is expected")

    def _typed(self, tree: Any, shown: str) -> Literal:
        """Return ``DATE '…'``, ``TIMESTAMP '…'``, or a number with a suffix (``5L``, ``1e3D``,
        ``1.50BD``).
        """
        value, wanted = tree.this, tree.to.this.name
        if type(value) is exp.Literal and value.is_string and wanted in ("DATE", *_TIMESTAMPS):
            found = parse_time(value.this)
            if found is None or (wanted == "DATE" and found.kind != "date"):
                example = "2026-01-31" if wanted == "DATE" else "2026-01-31 12:00:00Z"
                raise _Refused(f"{value.this!r:.100} is not a {wanted.lower()}; write it as {example!r}")
            return Literal(found.kind, found.value, shown)
        if type(value) is exp.Literal and wanted in (*_INTEGERS, "DECIMAL", "DOUBLE"):
            number = _number(value.this, shown) if not value.is_string or wanted == "DECIMAL" else None
            if number is not None and isinstance(number.value, Fraction):
                if wanted == "DOUBLE":
                    return Literal("double", _double(number.value, shown), shown)
                scale = next((int(each.name) for each in tree.to.expressions[1:2]), 0)
                if (number.value * 10**scale).denominator == 1:
                    return number
        raise self._unsupported(tree)

    def _only(self, tree: Any, *allowed: str) -> None:
        """Refuse a part of a construct that would otherwise be ignored."""
        for key, value in tree.args.items():
            if value not in (None, False, []) and key not in allowed:
                raise self._unsupported(value if isinstance(value, exp.Expression) else tree)

    def _unsupported(self, tree: Any, place: str = "") -> _Refused:
        self.hint = SUPPORTED
        name = type(tree).__name__
        shown = _NAMES.get(name) or (
            f"the function {tree.sql_name()}" if isinstance(tree, exp.Func) else name
        )
        return _Refused(f"{shown} is not supported{' ' + place if place else ''}: {_shown(tree)}")


def _without_zone(tree: Any, literal: Literal, type_: pa.DataType) -> str | None:
    """Return the text of a timestamp that lacks a zone, where a zone matters; else None."""
    is_local = pt.is_timestamp(type_) and type_.tz is None
    if type(tree) in (exp.Cast, exp.TryCast):
        text, wanted = tree.this.name, tree.to.this.name
        if wanted not in _TIMESTAMPS or (wanted == "TIMESTAMPNTZ" and (is_local or pt.is_date(type_))):
            return None
    elif literal.kind == "text" and pt.is_timestamp(type_) and not is_local:
        text = str(literal.value)
        if parse_time(text) is None:
            return None
    else:
        return None
    return None if has_zone(text) else text.strip()


def _bare(tree: Any) -> Any:
    while type(tree) is exp.Paren:
        tree = tree.this
    return tree


def _is_literal(tree: Any) -> bool:
    if isinstance(tree, exp.Cast | exp.Neg):
        return isinstance(tree.this, exp.Literal)
    return isinstance(tree, exp.Literal | exp.Boolean | exp.Null | exp.HexString)


def _shown(tree: Any) -> str:
    text: str = tree.sql(dialect="spark")
    return text if len(text) <= 100 else text[:99] + "…"


def _number(text: str, shown: str) -> Literal:
    try:
        if "e" in text.lower():  # an exponent makes a double; as a fraction it could be of any size
            return Literal("double", _double(float(text), shown), shown)
        return Literal("number", Fraction(text), shown)
    except ValueError:
        raise _Refused(f"{shown} is not a number") from None


def _double(value: float | Fraction, shown: str) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found):
        raise _Refused(f"{shown} is beyond the range of a double")
    return found
