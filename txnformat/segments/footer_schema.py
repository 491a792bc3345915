"""The schema that a footer itself tells, for files of which nothing else says it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from txnformat.columns.arrow_types import NESTING_MAX, list_of, map_of, struct_of
from txnformat.segments.footer import NO_FOOTER, TAIL_BYTES, FooterError
from txnformat.segments.footer_shape import Physical, elements_of
from txnformat.segments.thrift_compact import ThriftError, read_field, read_value

__all__ = ["decode_schema"]

DEPTH_MAX = 3 * NESTING_MAX
"""Deepest nesting of groups: a list or a map has two besides its elements."""

_SCALARS: dict[tuple[int, str], pa.DataType] = {
    (Physical.BOOLEAN, "None"): pa.bool_(),
    (Physical.INT32, "None"): pa.int32(),
    (Physical.INT32, str({10: {1: 8, 2: True}})): pa.int8(),
    (Physical.INT32, str({10: {1: 16, 2: True}})): pa.int16(),
    (Physical.INT32, str({6: {}})): pa.date32(),
    (Physical.INT64, "None"): pa.int64(),
    (Physical.INT64, str({8: {1: True, 2: {2: {}}}})): pa.timestamp("us", tz="UTC"),
    (Physical.INT64, str({8: {1: False, 2: {2: {}}}})): pa.timestamp("us"),
    (Physical.INT64, str({7: {1: False, 2: {2: {}}}})): pa.time64("us"),
    (Physical.INT64, str({7: {1: True, 2: {2: {}}}})): pa.time64("us"),
    (Physical.FLOAT, "None"): pa.float32(),
    (Physical.DOUBLE, "None"): pa.float64(),
    (Physical.BYTE_ARRAY, "None"): pa.binary(),
    (Physical.BYTE_ARRAY, str({1: {}})): pa.string(),
}
_LIST, _MAP, _DECIMAL = 3, 2, 5


def decode_schema(data: bytes) -> pa.Schema:
    """Return the schema of a footer (metadata, its length, magic).

    Raises FooterError: it has none, or one that no topic can have.
    """
    try:
        elements = _elements(data[:-TAIL_BYTES])
        root = elements[0]
        rest = iter(elements[1:])
        fields = [_field(rest, 1) for _ in range(root[4])]
        if next(rest, None) is not None:
            raise ThriftError("schema elements that belong to no column")
        return pa.schema(fields)
    except (
        ThriftError,
        StopIteration,
        LookupError,
        TypeError,
        AttributeError,
        pa.ArrowException,
        ValueError,
    ) as error:
        if isinstance(error, FooterError):
            raise
        raise FooterError(NO_FOOTER, "Parquet", repr(error)) from error


def _elements(data: bytes) -> list[tuple[Any, ...]]:
    at = number = 0
    while True:
        number, kind, at = read_field(data, at, number)
        if not kind:
            raise ThriftError("no schema")
        value, at = read_value(data, at, kind)
        if number == 2:
            return elements_of(value)


def _field(rest: Iterator[tuple[Any, ...]], depth: int) -> pa.Field:
    name, repetition, physical, length, children, logical = next(rest)
    if depth > DEPTH_MAX:
        raise ThriftError(f"nested deeper than {DEPTH_MAX}")
    if physical is not None:
        type_ = _scalar(physical, length, logical)
    else:
        fields = [_field(rest, depth + 1) for _ in range(children)]
        type_ = _group(fields, logical)
    return pa.field(name.decode(), type_, nullable=repetition != 0)


def _scalar(physical: int, length: int, logical: Any) -> pa.DataType:
    if physical == Physical.FIXED and isinstance(logical, dict) and _DECIMAL in logical:
        decimal = pa.decimal128(logical[_DECIMAL][2], logical[_DECIMAL].get(1, 0))
        if not 1 <= length <= 16:
            raise ThriftError(f"a decimal of {length} bytes")
        return decimal
    found = _SCALARS.get((physical, str(logical)))
    if found is None:
        raise ThriftError(f"type {physical} with annotation {logical}, which no topic has")
    return found


def _group(fields: list[pa.Field], logical: Any) -> pa.DataType:
    if logical is not None and _LIST in logical:
        return list_of(fields[0].type.field(0).type)
    if logical is not None and _MAP in logical:
        entry = fields[0].type
        return map_of(entry.field(0).type, entry.field(1).type)
    return struct_of([field.name for field in fields], [field.type for field in fields])
