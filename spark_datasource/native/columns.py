"""Columns of a Parquet file as the topic has them now, and conditions, as columns of Spark.

Spark's Parquet reader leaves row groups out by their statistics. Those of writers other than Spark say
nothing of NaN, and do not tell -0.0 from 0.0: with ``x > 5`` Spark leaves out a row group that holds NaN,
which it takes for larger than all numbers. So each float column passes through ``-(-x)``: no condition on it
reaches the reader, and every bit stays, those of a signalling NaN, too, which ``x * 1.0`` would change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StructType

from txnformat.columns.file_columns import FileColumns
from txnformat.columns.variants import any_type, is_variant
from txnformat.predicates.tree import And, Compare, Constant, IsIn, Node, NullTest, Op, Or, Predicate, Prefix

__all__ = ["as_now", "condition", "contains_time", "guarded", "is_translated", "named", "spark_types"]

_COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: lambda left, right: left == right,
    Op.NE: lambda left, right: left != right,
    Op.LT: lambda left, right: left < right,
    Op.LE: lambda left, right: left <= right,
    Op.GT: lambda left, right: left > right,
    Op.GE: lambda left, right: left >= right,
}


def named(name: str) -> Column:
    """Return a column by its name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")


def spark_types(schema: pa.Schema) -> StructType:
    """Return Spark's schema of columns."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def contains_time(type_: pa.DataType) -> bool:
    """Return whether a type is a time of day, or has one inside."""
    return any_type(type_, pt.is_time)


def guarded(column: Column, type_: pa.DataType) -> Column:
    """Return a column such that no condition on a float of it reaches the Parquet reader; every bit stays.

    Spark pushes conditions on fields of structs, too, at any depth, but none on what lists and maps hold.
    """
    if pt.is_floating(type_):
        return -(-column)  # noqa: B002  # twice negated, which is what is meant
    if not _has_open_floats(type_):
        return column
    fields = [guarded(column.getField(field.name), field.type).alias(field.name) for field in type_]
    return F.when(column.isNotNull(), F.struct(*fields))


def _has_open_floats(type_: pa.DataType) -> bool:
    if pt.is_floating(type_):
        return True
    return (
        pt.is_struct(type_) and not is_variant(type_) and any(_has_open_floats(field.type) for field in type_)
    )


def as_now(name: str, stored: FileColumns, type_: pa.DataType, wanted: DataType) -> Column:
    """Return a column of the topic, of a file that may lack it, hold a narrower type, or have it under
    another name.

    ``stored``: the file's columns. ``type_``: the topic's type of now, ``wanted`` Spark's. The guard comes
    before the cast: a cast float would be pushed down no less.
    """
    if not stored.has(name):
        return F.lit(None).cast(wanted)
    in_file = stored.type_of(name)
    found = guarded(named(stored.names[name]), in_file)
    return found if in_file.equals(type_) else found.cast(wanted)


def is_translated(where: Predicate) -> bool:
    """Return whether :func:`condition` knows all types of a condition."""
    return all(
        pt.is_integer(type_)
        or pt.is_floating(type_)
        or pt.is_boolean(type_)
        or pt.is_string(type_)
        or pt.is_binary(type_)
        or pt.is_decimal(type_)
        or pt.is_date(type_)
        or (pt.is_timestamp(type_) and type_.tz is not None)
        for _, type_ in where.types
    ) or not _values(where.root)


def _values(node: Node) -> bool:
    """Return whether a condition has values."""
    match node:
        case And(operands) | Or(operands):
            return any(map(_values, operands))
        case NullTest() | Constant():
            return False
        case _:
            return True


def condition(where: Predicate) -> Column:
    """Return a condition on columns that have the topic's names and types; rows for which it is null are not
    kept.
    """
    types = dict(where.types)
    spark = {field.name: field.dataType for field in spark_types(pa.schema(list(where.types))).fields}
    return _condition(where.root, types, spark)


def _condition(node: Node, types: dict[str, pa.DataType], spark: dict[str, DataType]) -> Column:
    match node:
        case And(operands):
            return _fold(
                lambda left, right: left & right, [_condition(one, types, spark) for one in operands]
            )
        case Or(operands):
            return _fold(
                lambda left, right: left | right, [_condition(one, types, spark) for one in operands]
            )
        case NullTest(name, is_null):
            return named(name).isNull() if is_null else named(name).isNotNull()
        case Constant(value):
            return F.lit(value)
        case Compare(name, op, value, nan):
            found = _COMPARE[op](named(name), _literal(value, types[name], spark[name]))
            return _with_nan(found, name, types[name], nan=nan)
        case IsIn(name, values, negated, nan):
            found = named(name).isin(*[_literal(value, types[name], spark[name]) for value in values])
            return _with_nan(~found if negated else found, name, types[name], nan=nan)
        case Prefix(name, prefix, negated):
            found = named(name).startswith(F.lit(prefix))
            return ~found if negated else found
    raise TypeError(f"no condition is a {type(node).__name__}")


def _with_nan(found: Column, name: str, type_: pa.DataType, *, nan: bool) -> Column:
    if not pt.is_floating(type_):
        return found
    return found | F.isnan(named(name)) if nan else found & ~F.isnan(named(name))


def _fold(function: Callable[[Column, Column], Column], parts: Sequence[Column]) -> Column:
    """Combine as a balanced tree: thousands of operands in a row would be as many levels."""
    parts = list(parts)
    while len(parts) > 1:
        pairs = [function(left, right) for left, right in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _literal(value: Any, type_: pa.DataType, wanted: DataType) -> Column:
    """Return a leaf's value, which is in the units of its column, as Spark has it."""
    if pt.is_date(type_):
        return F.date_from_unix_date(F.lit(value))
    if pt.is_timestamp(type_):
        return F.timestamp_micros(F.lit(value).cast("bigint"))
    if pt.is_boolean(type_):
        return F.lit(bool(value))
    if pt.is_binary(type_):
        return F.lit(bytearray(value))
    if pt.is_decimal(type_):
        digits = tuple(int(digit) for digit in str(abs(value)))
        value = Decimal((int(value < 0), digits, -type_.scale))
    return F.lit(value).cast(wanted)
