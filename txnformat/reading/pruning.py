"""Row groups and extents that a predicate rules out without reading records: by the plan, and by Parquet's
statistics.

Pure.

All of it is one question: given bounds of the columns of some rows, can the predicate be true for any of
them? An unknown bound answers yes. Bounds need not be reached by a value, so statistics that were shortened
serve as well. Statistics of floats leave NaN out; leaves that hold for NaN therefore never rule anything out.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from txnformat.persistent import Rows
from txnformat.predicates.bind import units_per_one
from txnformat.predicates.tree import (
    And,
    Compare,
    Constant,
    IsIn,
    Leaf,
    Node,
    NullTest,
    Op,
    Or,
    Predicate,
    Prefix,
)
from txnformat.segments.footer import ChunkStatistics
from txnformat.types import NO_TIMESTAMP_MS

__all__ = ["PLAN_FIELDS", "SPAN", "Bounds", "may_match", "may_match_plan", "plan_bounds", "statistics_bounds"]

Mask = npt.NDArray[np.bool_]

INT64_MAX = 2**63 - 1

_OPERATORS: Mapping[Op, Callable[[Any, Any], Any]] = {
    Op.LT: operator.lt, Op.LE: operator.le, Op.GT: operator.gt, Op.GE: operator.ge,
}  # fmt: skip


SPAN: np.dtype[Any] = np.dtype(
    [("base_offset", "<i8"), ("records", "<i8"), ("min_timestamp_ms", "<i8"), ("max_timestamp_ms", "<i8")]
)
"""Bounds that may be known of a run of many batches."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of one column in n groups of rows; arrays of shape (n,)."""

    lower: Rows
    """No value is smaller: int64, or objects (int, float, or bytes, also of text); anything where not known.
    """
    upper: Rows
    """No value is larger."""
    known: Mask
    """Whether the two hold."""
    nulls: Mask
    """Whether there may be a null."""
    values: Mask
    """Whether there may be a value that is none."""

    @classmethod
    def of_nulls(cls, count: int, type_: pa.DataType) -> Self:
        """Return the bounds of a column of a type without any value."""
        no = np.zeros(count, np.bool_)
        nothing = np.full(count, _placeholder(type_), object)
        return cls(nothing, nothing, no, ~no, no)


BoundsOf = Callable[[str], Bounds | None]


def may_match(node: Node, bounds_of: BoundsOf, count: int) -> Mask:
    """Tell for each of ``count`` groups of rows whether the predicate may be true for one of them.

    ``bounds_of``: gives the bounds of a column by name; None where nothing is known of it.
    """
    match node:
        case Constant(value):
            return np.full(count, value)
        case And(operands):
            found = np.ones(count, np.bool_)
            for each in operands:
                found &= may_match(each, bounds_of, count)
            return found
        case Or(operands):
            found = np.zeros(count, np.bool_)
            for each in operands:
                found |= may_match(each, bounds_of, count)
            return found
        case _:
            bounds = bounds_of(node.column)
            return np.ones(count, np.bool_) if bounds is None else _leaf_may_match(node, bounds)


def _leaf_may_match(leaf: Leaf, bounds: Bounds) -> Mask:
    match leaf:
        case NullTest(_, is_null):
            return bounds.nulls if is_null else bounds.values
        case Compare(_, op, value, nan):
            return bounds.values & (nan | ~bounds.known | _compare(bounds, op, _plain(value)))
        case IsIn(_, values, negated, nan):
            return bounds.values & (nan | ~bounds.known | _member(bounds, values, negated))
        case Prefix(_, prefix, negated):
            return bounds.values & (~bounds.known | _prefix(bounds, prefix.encode(), negated))


def _plain(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value  # UTF-8 sorts as its code points do


def _each(function: Callable[[Any, Any], Any], array: Rows, value: Any) -> Mask:
    if array.dtype != object:
        found: Mask = function(array, value)
        return found
    # One by one: numpy would take bytes for fixed-width text and drop zeros at their end.
    return np.fromiter((function(each, value) for each in array), np.bool_, len(array))


def _compare(bounds: Bounds, op: Op, value: Any) -> Mask:
    if op in (Op.LT, Op.LE):
        return _each(_OPERATORS[op], bounds.lower, value)
    if op in (Op.GT, Op.GE):
        return _each(_OPERATORS[op], bounds.upper, value)
    if op is Op.EQ:
        return _each(operator.le, bounds.lower, value) & _each(operator.ge, bounds.upper, value)
    return ~(_each(operator.eq, bounds.lower, value) & _each(operator.eq, bounds.upper, value))


def _member(bounds: Bounds, values: Sequence[Any], negated: bool) -> Mask:
    plain = [_plain(value) for value in values]
    if bounds.lower.dtype != object:
        first = np.searchsorted(plain, bounds.lower, "left")
        last = np.searchsorted(plain, bounds.upper, "right")
    else:
        pairs = [
            (bisect_left(plain, lower), bisect_right(plain, upper))
            for lower, upper in zip(bounds.lower, bounds.upper, strict=True)
        ]
        first, last = np.array(pairs, np.int64).reshape(-1, 2).T
    inside: Mask = first < last
    if not negated:
        return inside
    single = np.fromiter(
        (low == high for low, high in zip(bounds.lower, bounds.upper, strict=True)), np.bool_, len(inside)
    )
    return ~(single & inside)


def _prefix(bounds: Bounds, prefix: bytes, negated: bool) -> Mask:
    size = len(prefix)
    pairs = [(low[:size], high[:size]) for low, high in zip(bounds.lower, bounds.upper, strict=True)]
    if negated:
        found = (not (low == prefix == high) for low, high in pairs)
    else:
        found = (low <= prefix <= high for low, high in pairs)
    return np.fromiter(found, np.bool_, len(pairs))


# --- bounds from the plan -----------------------------------------------------------------------------------


def may_match_plan(
    where: Predicate, rows: Rows, *, topic: str, partition: int, timestamp_column: str | None
) -> Mask:
    """Tell for each of the rows of a plan whether one of its records may be kept (:func:`plan_bounds`)."""
    bounds = plan_bounds(rows, topic=topic, partition=partition, timestamp_column=timestamp_column)
    return may_match(where.root, bounds, len(rows))


def plan_bounds(rows: Rows, *, topic: str, partition: int, timestamp_column: str | None) -> BoundsOf:
    """Return what a plan knows of the columns of rows that it would read.

    ``rows``: each a run of offsets: with at least ``base_offset`` and ``records`` (or ``take``); what it has
    of ``min_timestamp_ms`` and ``max_timestamp_ms`` (or ``timestamp_ms``), ``entry``, ``producer_id``,
    ``epoch`` and ``commit_entry`` is used. ``timestamp_column``: as the topic declares it: the smallest and
    largest timestamps are of this column.
    """
    names = frozenset(rows.dtype.names or ())

    def constant(value: Any) -> Bounds:
        return _exact(np.full(len(rows), value, object if isinstance(value, bytes) else np.int64))

    def find(column: str) -> Bounds | None:
        if column == "_topic":
            return constant(topic.encode())
        if column == "_partition":
            return constant(partition)
        if column == "_offset":
            first = rows["start_offset" if "start_offset" in names else "base_offset"]
            if "stored" in names:
                end = np.where(rows["stored"] != 0, rows["end_offset"], first + rows["take"])
                return _between(first, end - 1, nulls=False)
            if "end_offset" in names:
                return _between(first, rows["end_offset"] - 1, nulls=False)
            return _between(first, first + rows["records"] - 1, nulls=False)
        if column == (timestamp_column or "_timestamp"):
            found = _time_bounds(rows, names, may_be_null=timestamp_column is not None)
            return _unless_stored(rows, names, found)
        field = PLAN_FIELDS.get(column)
        if field is None or field not in names:
            return None
        return _unless_stored(rows, names, _exact(rows[field], null=-1))

    return find


def _unless_stored(rows: Rows, names: frozenset[str], bounds: Bounds | None) -> Bounds | None:
    """Return the bounds, but none of a run of a compacted file: it has the column itself."""
    if bounds is None or "stored" not in names or not rows["stored"].any():
        return bounds
    stored = rows["stored"] != 0
    return Bounds(
        bounds.lower, bounds.upper, bounds.known & ~stored, bounds.nulls | stored, bounds.values | stored
    )


PLAN_FIELDS = {
    "_entry": "entry",
    "_producer_id": "producer_id",
    "_producer_epoch": "epoch",
    "_commit_entry": "commit_entry",
}
"""Metadata columns that are fields of the plan's rows; below 0 stands for null."""


def _exact(values: Rows, null: int | None = None) -> Bounds:
    """Return the bounds of rows that all have the same value."""
    is_null = np.zeros(len(values), np.bool_) if null is None else values == null
    return Bounds(values, values, np.ones(len(values), np.bool_), is_null, ~is_null)


def _between(lower: Rows, upper: Rows, *, nulls: bool, known: Mask | None = None) -> Bounds:
    yes = np.ones(len(lower), np.bool_)
    return Bounds(lower, upper, yes if known is None else known, yes if nulls else ~yes, yes)


def _time_bounds(rows: Rows, names: frozenset[str], *, may_be_null: bool) -> Bounds | None:
    """Return the bounds of the records' time, in microseconds: the log has milliseconds, rounded down."""
    if "min_timestamp_ms" in names and "max_timestamp_ms" in names:
        smallest, largest = rows["min_timestamp_ms"], rows["max_timestamp_ms"]
    elif "timestamp_ms" in names and not may_be_null:
        smallest = largest = rows["timestamp_ms"]
    else:
        return None
    far = INT64_MAX // 1_000 - 1  # beyond it the largest microsecond has no room
    known = (smallest != NO_TIMESTAMP_MS) & (largest != NO_TIMESTAMP_MS) & (np.abs(smallest) < far)
    upper = np.where(largest < far, np.minimum(largest, far) * 1_000 + 999, INT64_MAX)
    lower = np.where(known, smallest, 0) * 1_000
    return _between(lower, upper, nulls=may_be_null, known=known)


# --- bounds from Parquet ------------------------------------------------------------------------------------


def statistics_bounds(
    statistics: Sequence[ChunkStatistics | None],
    rows: Sequence[int],
    file_type: pa.DataType,
    type_: pa.DataType,
) -> Bounds | None:
    """Return the bounds of a column in row groups.

    ``statistics``: of each row group. ``rows``: of each row group. ``file_type``: the column's type in the
    file. ``type_``: the column's type in the topic, which a later schema may have widened.

    Anything unusual is unknown: a type that this does not know, no statistics, NaN as a bound.
    """
    if pt.is_nested(type_) or pt.is_nested(file_type):
        return None
    count = len(statistics)
    lower, upper = np.empty(count, object), np.empty(count, object)
    known, nulls, values = (np.zeros(count, np.bool_) for _ in range(3))
    nothing = _placeholder(type_)
    for index, (found, total) in enumerate(zip(statistics, rows, strict=True)):
        lower[index] = upper[index] = nothing
        null_count = None if found is None else found.null_count
        nulls[index] = null_count is None or null_count > 0
        values[index] = null_count is None or null_count < total
        if found is None or found.lower is None:
            continue
        low, high = (_bound(raw, file_type, type_) for raw in (found.lower, found.upper))
        if low is not None and high is not None and low <= high:
            lower[index], upper[index], known[index] = low, high, True
    return Bounds(lower, upper, known, nulls, values)


def _placeholder(type_: pa.DataType) -> Any:
    """Return what stands for an unknown bound: it compares with the column's values, whatever the answer."""
    return b"" if pt.is_string(type_) or pt.is_binary(type_) else 0


def _bound(raw: Any, file_type: pa.DataType, type_: pa.DataType) -> Any:
    """Return one statistic in the units of ``type_``; None when that cannot be told for sure."""
    if pt.is_string(type_) or pt.is_binary(type_):
        return raw if isinstance(raw, bytes) and file_type == type_ else None
    if pt.is_decimal(file_type) and isinstance(raw, bytes):
        raw = int.from_bytes(raw, "big", signed=True)
    if pt.is_floating(type_):
        # NaN fails every comparison, so it never passes for a bound.
        return float(raw) if isinstance(raw, float) or pt.is_integer(file_type) else None
    per_one, file_per_one = units_per_one(type_), units_per_one(file_type)
    if not isinstance(raw, int) or per_one is None or file_per_one is None:
        return None
    if pt.is_timestamp(file_type) and file_type.unit != "us":
        return None
    units = Fraction(raw * per_one, file_per_one)
    return units.numerator if units.denominator == 1 else None
