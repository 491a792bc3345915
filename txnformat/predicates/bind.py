"""The meaning of a comparison of a column with a literal: Spark's rules, in the units of the column.

Spark converts both sides to a common type. Here the literal moves instead, once, to the nearest values of the
column's own type that give the same answers for every row, so that rows, extents and statistics are compared
without any conversion:

* integers and decimals compare exactly with each other, whatever the number of digits;
* a literal with an exponent (``1e3``) is a double: integers and decimals are compared after rounding to
  double;
* float columns compare as doubles with every number; NaN equals itself and is larger than all others;
* dates and timestamps compare on one time line; what has no zone is taken as UTC;
* text compares by its UTF-8 bytes, binary bytewise; nothing else compares with them.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from txnformat.predicates.tree import Compare, Constant, IsIn, Node, NullTest, Op, Prefix, all_of, any_of

__all__ = ["Literal", "NotComparableError", "compare", "is_member", "like", "parse_time", "units_per_one"]

LiteralKind = str
"""One of "number", "double", "text", "binary", "boolean", "date", "timestamp", "null"."""

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that stands in a predicate."""

    kind: LiteralKind
    value: Fraction | float | str | bytes | bool | int | None
    """number: Fraction; double: float; date: days; timestamp: microseconds, both since the epoch."""
    shown: str
    """As written."""


class NotComparableError(ValueError):
    """A column and a literal do not compare; the text says why and what to do. Never leaves the core."""


NEGATED = {
    Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.GT: Op.LE, Op.LE: Op.GT,
}  # fmt: skip

_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?) "
    r"?(Z|UTC|[+-](?:0?\d|1[0-8])(?::?[0-5]\d)?)?)?",
    re.ASCII,
)


def parse_time(text: str) -> Literal | None:
    """Return the date or timestamp that ``text`` is, in ISO 8601; None when it is neither.

    A zone is ``Z``, ``UTC`` or an offset; without one the time is UTC.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        days = (datetime.date(int(year), int(month), int(day)) - datetime.date(1970, 1, 1)).days
        if hour is None:
            return Literal("date", days, text)
        datetime.time(int(hour), int(minute), int(second or 0))
    except ValueError:
        return None
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second or 0) - _zone_seconds(zone)
    micros = int((fraction or "").ljust(6, "0"))
    return Literal("timestamp", days * DAY_US + seconds * 1_000_000 + micros, text)


def has_zone(text: str) -> bool:
    """Return whether a text that :func:`parse_time` takes names its zone."""
    match = _TIME.fullmatch(text.strip())
    return match is not None and match[8] is not None


def _zone_seconds(zone: str | None) -> int:
    if zone is None or zone in ("Z", "UTC"):
        return 0
    # +2, +02, +0200, +02:00
    hours, _, minutes = zone[1:].partition(":") if ":" in zone else (zone[1:-2], "", zone[-2:])
    if not hours:
        hours, minutes = minutes, ""
    seconds = int(hours) * 3600 + int(minutes or 0) * 60
    return -seconds if zone[0] == "-" else seconds


def units_per_one(type_: pa.DataType) -> int | None:
    """Return how many units of a type make a whole one (a day, for times); None for a type without units."""
    if pt.is_integer(type_) or pt.is_boolean(type_) or pt.is_date32(type_):
        return 1
    if pt.is_decimal(type_):
        return int(10**type_.scale)
    return DAY_US if pt.is_timestamp(type_) else None


def compare(column: str, type_: pa.DataType, op: Op, literal: Literal, *, negated: bool = False) -> Node:
    """Return ``[NOT] column op literal``. Raises NotComparableError: the types do not compare."""
    op = NEGATED[op] if negated else op
    literal = _fitted(column, type_, literal)
    if literal.kind == "null":
        return Constant(False)
    if pt.is_floating(type_):
        return _compare_float(column, type_, op, _as_double(literal))
    if isinstance(literal.value, str | bytes):
        return Compare(column, op, literal.value)
    return _compare_units(column, type_, op, literal)


def is_member(column: str, type_: pa.DataType, literals: Sequence[Literal], *, negated: bool = False) -> Node:
    """Return ``[NOT] column IN (literals)``. Raises NotComparableError: the types do not compare."""
    if any(literal.kind == "double" for literal in literals):  # Spark finds one type for the whole list
        literals = [
            Literal("double", _as_double(each), each.shown) if each.kind == "number" else each
            for each in literals
        ]
    op = Op.NE if negated else Op.EQ
    found = [compare(column, type_, op, literal) for literal in literals]
    alike = [each for each in found if isinstance(each, Compare) and each.op is op]
    if len(alike) < 2:
        return all_of(found) if negated else any_of(found)
    values = sorted({each.value for each in alike})
    member = IsIn(column, tuple(values), negated, negated and pt.is_floating(type_))
    others = [each for each in found if not (isinstance(each, Compare) and each.op is op)]
    return all_of([*others, member]) if negated else any_of([*others, member])


def like(column: str, type_: pa.DataType, pattern: str, escape: str, *, negated: bool = False) -> Node:
    """Return ``[NOT] column LIKE pattern`` for a pattern that is a text, a prefix and ``%``, or ``%``.

    Raises NotComparableError: another pattern, or a column that holds no text.
    """
    if not pt.is_string(type_):
        raise NotComparableError(
            f"column {column!r:.300} has the type {type_}, and LIKE compares text; use = or IN"
        )
    text, wildcard, position = "", False, 0
    while position < len(pattern):
        character = pattern[position]
        special = character in ("_", "%")
        if character == escape:
            position, special = position + 1, False
            character = pattern[position : position + 1]
            if character not in ("_", "%", escape) or not character:
                raise NotComparableError(
                    f"the pattern {pattern!r:.100} has the escape {escape!r} before a character other "
                    f"than _, % and {escape!r}"
                )
        if (special and character == "_") or (wildcard and not special):
            raise NotComparableError(
                f"the pattern {pattern!r:.100} is more than a prefix and %; write a literal _ or % with "
                "an escape "
                f"before it ({escape}_), and filter by other patterns after reading"
            )
        wildcard = wildcard or special
        text += "" if wildcard else character
        position += 1
    if not wildcard:
        return Compare(column, Op.NE if negated else Op.EQ, text)
    if text:
        return Prefix(column, text, negated)
    return Constant(False) if negated else NullTest(column, is_null=False)


def _fitted(column: str, type_: pa.DataType, literal: Literal) -> Literal:
    """Return the literal when it compares with the type; text becomes a time where the column holds times."""
    if pt.is_nested(type_):
        raise _not_comparable(column, type_, literal, "only IS NULL and IS NOT NULL can be asked of it")
    if literal.kind == "null":
        return literal
    wanted: tuple[LiteralKind, ...]
    if pt.is_boolean(type_):
        wanted, advice = ("boolean",), "use TRUE or FALSE"
    elif pt.is_integer(type_) or pt.is_floating(type_) or pt.is_decimal(type_):
        wanted, advice = ("number", "double"), "write a number without quotes"
    elif pt.is_string(type_):
        wanted, advice = ("text",), "write a text in single quotes"
    elif pt.is_binary(type_):
        wanted, advice = ("binary",), "write bytes in hexadecimal, such as X'00FF'"
    elif pt.is_date32(type_):
        wanted, advice = ("date", "timestamp"), "write DATE '2026-01-31'"
        if literal.kind == "text" and (found := parse_time(str(literal.value))) and found.kind == "date":
            literal = found
    elif pt.is_timestamp(type_):
        wanted, advice = ("timestamp", "date"), "write TIMESTAMP '2026-01-31 12:00:00Z'"
        if literal.kind == "text":
            literal = parse_time(str(literal.value)) or literal
    else:
        wanted, advice = (), "filter by it after reading"
    if literal.kind not in wanted:
        raise _not_comparable(column, type_, literal, advice)
    return literal


def _not_comparable(column: str, type_: pa.DataType, literal: Literal, advice: str) -> NotComparableError:
    return NotComparableError(
        f"column {column!r:.300} has the type {str(type_)!r:.100}, which does not compare with the "
        f"{literal.kind} {literal.shown:.100}; {advice}"
    )


def _as_double(literal: Literal) -> float:
    if not isinstance(literal.value, Fraction | float):
        raise NotComparableError(f"{literal.shown:.100} is not a number")
    try:
        return float(literal.value)
    except OverflowError:
        raise NotComparableError(f"{literal.shown:.100} is beyond the range of a double") from None


# --- columns that count in units ----------------------------------------------------------------------------


def _limits(type_: pa.DataType) -> tuple[int, int]:
    """Return the smallest and the largest value of a type, in its units (both inclusive)."""
    if pt.is_boolean(type_):
        return 0, 1
    if pt.is_decimal(type_):
        return 1 - 10**type_.precision, 10**type_.precision - 1
    return -(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1


def _compare_units(column: str, type_: pa.DataType, op: Op, literal: Literal) -> Node:
    per_one = units_per_one(type_) or 1
    value = literal.value
    if isinstance(value, float):
        at_least, at_most = _units_around(value, per_one)
    else:
        exact = Fraction(value)  # type: ignore[arg-type]  # text and bytes do not come here
        if literal.kind == "timestamp":
            exact /= DAY_US
        at_least, at_most = math.ceil(exact * per_one), math.floor(exact * per_one)
    low, high = _limits(type_)
    match op:
        case Op.LT:
            return _up_to(column, at_least - 1, low, high)
        case Op.LE:
            return _up_to(column, at_most, low, high)
        case Op.GT:
            return _from(column, at_most + 1, low, high)
        case Op.GE:
            return _from(column, at_least, low, high)
        case Op.EQ | Op.NE if at_least == at_most and low <= at_least <= high:
            return Compare(column, op, at_least)
        case Op.EQ if at_least > at_most:  # no value equals it
            return Constant(False)
        case Op.EQ:
            return all_of([_from(column, at_least, low, high), _up_to(column, at_most, low, high)])
        case Op.NE if at_least > at_most:
            return NullTest(column, is_null=False)
        case Op.NE:
            return any_of([_up_to(column, at_least - 1, low, high), _from(column, at_most + 1, low, high)])


def _up_to(column: str, last: int, low: int, high: int) -> Node:
    if last < low:
        return Constant(False)
    return NullTest(column, is_null=False) if last >= high else Compare(column, Op.LE, last)


def _from(column: str, first: int, low: int, high: int) -> Node:
    if first > high:
        return Constant(False)
    return NullTest(column, is_null=False) if first <= low else Compare(column, Op.GE, first)


def _units_around(double: float, per_one: int) -> tuple[int, int]:
    """Return the first number of units that, rounded to double, is at least ``double``, and the last at most
    it.
    """
    exact = Fraction(double)
    if abs(double) > 1e40:  # beyond every type
        return math.ceil(exact * per_one), math.floor(exact * per_one)
    # Rounding is monotone: the values that round to ``double`` lie between the middles to its neighbours,
    # which
    # themselves go to the even one.
    below, above = (Fraction(math.nextafter(double, to)) for to in (-math.inf, math.inf))
    at_least = math.ceil((below + exact) / 2 * per_one)
    at_most = math.floor((exact + above) / 2 * per_one)
    while float(Fraction(at_least, per_one)) < double:
        at_least += 1
    while float(Fraction(at_most, per_one)) > double:
        at_most -= 1
    return at_least, at_most


# --- columns of floats --------------------------------------------------------------------------------------


def _compare_float(column: str, type_: pa.DataType, op: Op, value: float) -> Node:
    nan = op in (Op.GT, Op.GE, Op.NE)
    if not pt.is_float32(type_):
        return Compare(column, op, value, nan)
    with np.errstate(over="ignore"):
        near = np.float32(value)
    at_least = at_most = float(near)
    if at_least < value:
        at_least = float(np.nextafter(near, np.float32(np.inf)))
    elif at_most > value:
        at_most = float(np.nextafter(near, np.float32(-np.inf)))
    if op in (Op.EQ, Op.NE) and at_least != at_most:
        return NullTest(column, is_null=False) if op is Op.NE else Constant(False)
    bound = at_least if op in (Op.LT, Op.GE) else at_most
    return Compare(column, op, bound, nan)
