"""Predicates: conditions on columns, as plain data, and how rows are held against them.

A predicate is bound to column types and has no negation: ``NOT`` was pushed into its leaves. So its logic is
monotone, and "unknown" (a null on either side) needs no value of its own: a row is kept only when the
predicate is true, and with neither negation nor a way to ask for "unknown", false serves as well.

Values of a leaf are in the units of its column: an integer for integers, decimals (times 10^scale), booleans
(0 and 1), dates (days) and timestamps (microseconds); a float; text; or bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

__all__ = [
    "And",
    "Compare",
    "Constant",
    "IsIn",
    "Leaf",
    "Node",
    "NullTest",
    "Op",
    "Or",
    "Predicate",
    "Prefix",
    "all_of",
    "any_of",
]

Value = int | float | str | bytes


class Op(StrEnum):
    """A comparison; the column stands on the left."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True, slots=True)
class Constant:
    """True or false for every row."""

    value: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """``column op value``; never true for a null."""

    column: str
    op: Op
    value: Value
    nan: bool = False
    """Whether it holds for NaN, which equals itself and is larger than every other value."""


@dataclass(frozen=True, slots=True)
class IsIn:
    """``column [NOT] IN (values)``; never true for a null."""

    column: str
    values: tuple[Value, ...]
    """Ascending, distinct."""
    negated: bool = False
    nan: bool = False
    """As in :class:`Compare`."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """``column [NOT] LIKE 'prefix%'``; never true for a null."""

    column: str
    prefix: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class NullTest:
    """``column IS [NOT] NULL``."""

    column: str
    is_null: bool


@dataclass(frozen=True, slots=True)
class And:
    """All of at least two operands."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of at least two operands."""

    operands: tuple[Node, ...]


Leaf = Compare | IsIn | Prefix | NullTest
Node = Leaf | Constant | And | Or


def all_of(operands: Iterable[Node]) -> Node:
    """Return the conjunction, simplified."""
    found: list[Node] = []
    for operand in operands:
        found.extend(operand.operands if isinstance(operand, And) else [operand])
    if Constant(False) in found:
        return Constant(False)
    kept = _without_nan([operand for operand in found if operand != Constant(True)])
    return And(tuple(kept)) if len(kept) > 1 else kept[0] if kept else Constant(True)


def any_of(operands: Iterable[Node]) -> Node:
    """Return the disjunction, simplified."""
    found: list[Node] = []
    for operand in operands:
        found.extend(operand.operands if isinstance(operand, Or) else [operand])
    if Constant(True) in found:
        return Constant(True)
    kept = [operand for operand in found if operand != Constant(False)]
    return Or(tuple(kept)) if len(kept) > 1 else kept[0] if kept else Constant(False)


def _without_nan(operands: list[Node]) -> list[Node]:
    """Return a conjunction's operands in which no leaf holds for NaN where another one excludes it.

    Statistics do not tell whether there are NaNs, so ``x > 5`` alone never excludes a row group. ``x > 5 AND
    x < 9`` does: NaN fails the second, so the first need not hold for it.
    """
    excluded = {
        operand.column
        for operand in operands
        if (isinstance(operand, Compare) and not operand.nan)
        or (isinstance(operand, IsIn) and not operand.nan)
    }
    return [
        replace(operand, nan=False)
        if isinstance(operand, Compare | IsIn) and operand.nan and operand.column in excluded
        else operand
        for operand in operands
    ]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate over the columns of a topic, its own and metadata columns. Plain data: it pickles."""

    root: Node
    types: tuple[tuple[str, pa.DataType], ...]
    """Name and type of each column that is needed, sorted by name."""
    text: str = ""
    """The text it was parsed from, for people."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are needed."""
        return tuple(name for name, _ in self.types)

    @property
    def never(self) -> bool:
        """Whether no row can be kept."""
        return self.root == Constant(False)

    def mask(self, arrays: Mapping[str, Any], rows: int) -> Any:
        """Return which rows are kept (``pyarrow.BooleanArray``, nulls are not kept).

        ``arrays``: the needed columns, each of ``rows`` values.
        """
        if isinstance(self.root, Constant):
            return pa.repeat(pa.scalar(self.root.value), rows)
        return _evaluate(self.root, arrays.__getitem__, dict(self.types), False)

    def expression(self) -> Any:
        """Return the predicate as ``pyarrow.compute.Expression``, in a form that Parquet statistics can
        serve.
        """
        if isinstance(self.root, Constant):
            return pc.scalar(self.root.value)
        return _evaluate(self.root, pc.field, dict(self.types), True)


_COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


def _evaluate(
    node: Node, column: Callable[[str], Any], types: Mapping[str, pa.DataType], for_statistics: bool
) -> Any:
    """Apply pyarrow's functions: to arrays, or to expressions, whichever ``column`` gives."""
    match node:
        case And(operands):
            return _fold(pc.and_kleene, [_evaluate(each, column, types, for_statistics) for each in operands])
        case Or(operands):
            return _fold(pc.or_kleene, [_evaluate(each, column, types, for_statistics) for each in operands])
        case NullTest(name, is_null):
            return pc.is_null(column(name)) if is_null else pc.is_valid(column(name))
        case Compare(name, op, value, nan):
            found = _COMPARE[op](column(name), _scalar(value, types[name]))
            return pc.or_kleene(found, pc.is_nan(column(name))) if nan else found
        case IsIn(name, values, negated, _):
            found = pc.is_in(column(name), value_set=_value_set(values, types[name]))
            # is_in answers false for a null, and NaN is none of the values.
            return pc.and_kleene(pc.invert(found), pc.is_valid(column(name))) if negated else found
        case Prefix(name, prefix, negated):
            found = pc.starts_with(column(name), pattern=prefix)
            if negated:
                return pc.invert(found)
            if for_statistics:  # which know nothing of prefixes
                found = pc.and_kleene(pc.greater_equal(column(name), pa.scalar(prefix)), found)
                if (after := _after(prefix)) is not None:
                    found = pc.and_kleene(pc.less(column(name), pa.scalar(after)), found)
            return found
        case Constant(value):
            return pa.scalar(value)


def _fold(function: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    """Combine as a balanced tree: thousands of operands in a row would be as many levels."""
    while len(parts) > 1:
        pairs = [function(left, right) for left, right in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _after(prefix: str) -> str | None:
    """Return the smallest text that is larger than every text with this prefix; None when there is none."""
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return None
    following = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are not characters


def _scalar(value: Value, type_: pa.DataType) -> Any:
    return pa.scalar(_native(value, type_), type_)


def _value_set(values: Sequence[Value], type_: pa.DataType) -> Any:
    found = [_native(value, type_) for value in values]
    if pt.is_floating(type_) and 0.0 in found:
        found += [0.0, -0.0]  # equal, but not to a hash table
    return pa.array(found, type_)


def _native(value: Value, type_: pa.DataType) -> Any:
    """Return a leaf's value as pyarrow takes it for this type."""
    if pt.is_decimal(type_) and isinstance(value, int):
        digits = tuple(int(digit) for digit in str(abs(value)))
        return Decimal((int(value < 0), digits, -type_.scale))  # exact, whatever the decimal context
    return bool(value) if pt.is_boolean(type_) else value
