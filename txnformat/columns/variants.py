"""Variant columns in Arrow: a struct of two binary parts, marked as Spark marks it.

In a topic the parts are nullable, like the children of every struct, so that Parquet and Arrow treat them
alike; Spark wants them NOT NULL, and Arrow's own cast refuses that where a whole variant is null. Source of
the shape and of the mark: ``pyspark.sql.pandas.types.to_arrow_type``. The bytes are Parquet's variant
encoding; nothing here reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["VARIANT", "any_type", "as_spark_type", "contains_variant", "has_broken_variant", "is_variant"]

_MARK = {b"variant": b"true"}

VARIANT = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata=_MARK)])
"""The canonical type. Types compare without the mark: ask :func:`is_variant`, not ``==``."""


def is_variant(type_: pa.DataType) -> bool:
    """Return whether a type is a marked struct of ``value`` and ``metadata``, both binary."""
    if not pt.is_struct(type_) or [field.name for field in type_] != ["value", "metadata"]:
        return False
    return (type_.field(1).metadata or {}).get(b"variant") == b"true" and all(
        pt.is_binary(field.type) or pt.is_large_binary(field.type) for field in type_
    )


def any_type(type_: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type is wanted, or one inside it, at any depth."""
    return is_wanted(type_) or any(
        any_type(type_.field(index).type, is_wanted) for index in range(type_.num_fields)
    )


def contains_variant(type_: pa.DataType) -> bool:
    """Return whether a type is a variant or has one inside, at any depth."""
    return any_type(type_, is_variant)


def has_broken_variant(column: Any, type_: pa.DataType) -> bool:
    """Return whether a variant in ``column`` lacks one of its parts without being null as a whole.

    ``column``: of ``type_``, whose marks count: those of the array are often lost on the way.
    """
    if isinstance(column, pa.ChunkedArray):
        return any(has_broken_variant(chunk, type_) for chunk in column.chunks)
    if is_variant(type_):
        return any(part.null_count != column.null_count for part in column.flatten())
    if not contains_variant(type_):
        return False
    if pt.is_struct(type_):
        parts = zip(column.flatten(), type_, strict=True)
        return any(has_broken_variant(part, field.type) for part, field in parts)
    if pt.is_map(type_):  # its keys hold no variant: a list of the items
        items = pa.list_(type_.item_field)
        column = pa.Array.from_buffers(
            items, len(column), column.buffers()[:2], column.null_count, column.offset, [column.items]
        )
        return has_broken_variant(column.flatten(), type_.item_type)
    return has_broken_variant(column.flatten(), type_.value_type)


def as_spark_type(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return ``column`` with the type that Spark expects; what holds no variant is cast by Arrow.

    ``type_``: Spark's form of the column's canonical type.
    """
    if column.type.equals(type_):
        return column
    if is_variant(type_):
        parts = [part.fill_null(b"") for part in (column.field(0), column.field(1))]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=column.is_null())
    if not contains_variant(type_):
        return column.cast(type_)
    if pt.is_struct(type_):
        children = [as_spark_type(column.field(field.name), field.type) for field in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=column.is_null())
    if pt.is_map(type_):
        fields = [type_.key_field, type_.item_field]
        pairs = zip((column.keys, column.items), fields, strict=True)
        child = pa.StructArray.from_arrays(
            [as_spark_type(part, field.type) for part, field in pairs], fields=fields
        )
    else:
        child = as_spark_type(column.values, type_.value_type)
    # Children of lists and maps are whole, whatever slice of them the column is: buffers and offset stay.
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(
        type_, len(column), buffers, column.null_count, column.offset, children=[child]
    )
