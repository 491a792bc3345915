"""Logs and comparisons for the tests of native tables."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame

from spark_datasource.native.table import TablePlan, plan_table

__all__ = ["EVERY_TYPE", "META", "as_bits", "block", "multiset", "native_and_rest", "plan_of", "same_rows"]


META = [
    "_partition",
    "_offset",
    "_timestamp",
    "_producer_id",
    "_producer_epoch",
    "_entry",
    "_commit_entry",
    "_topic",
]


def as_bits(column: Any) -> list[Any]:
    """Return the values of a column such that floats are equal iff all their bits are."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in as_bits(chunk)]
    if pt.is_floating(column.type):
        return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pt.is_struct(column.type):
        fields = [as_bits(column.field(number)) for number in range(column.type.num_fields)]
        return [
            tuple(field[row] for field in fields) if column[row].is_valid else None
            for row in range(len(column))
        ]
    return [repr(value) for value in column.to_pylist()]


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return the rows of a table, each as often as it is there."""
    return Counter(zip(*[as_bits(column) for column in table.columns], strict=True))


def same_rows(frame: DataFrame, expected: pa.Table) -> None:
    """Check that a DataFrame has the rows of a table, and its names."""
    found = frame.toArrow()
    assert found.schema.names == expected.schema.names
    # Spark's times have the session's zone, and its lists other names of their elements.
    assert multiset(found.cast(expected.schema)) == multiset(expected)


def native_and_rest(spark: Any, path: str, topic: str, **options: Any) -> tuple[TablePlan, int, int]:
    """Return a plan, and how many rows of it go each way; the rest goes through the DataSource."""
    plan = plan_table(spark, path, topic, native_bytes_min=0, driver_bytes_max=0, **options)
    rest: Sequence[Any] = list(plan.division.reasons.values())
    return plan, plan.division.native_amount.rows, sum(one.rows for one in rest)


def plan_of(frame: Any) -> str:
    """Return the physical plan of a frame, in either kind of session, as ``explain`` prints it."""
    with redirect_stdout(io.StringIO()) as printed:
        frame.explain()
    return printed.getvalue()


NAN = np.array(
    [0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000, 0], np.uint64
).view(np.float64)
NAN32 = np.array([0x7FC00000, 0x7F800001, 0xFFC00123, 0x80000000, 0], np.uint32).view(np.float32)
EVERY_TYPE = pa.schema(
    [
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("i", pa.int32()),
        ("s", pa.struct([("x", pa.float64()), ("t", pa.struct([("y", pa.float32())]))])),
        ("l", pa.list_(pa.float64())),
        ("d", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("b", pa.binary()),
        ("local", pa.timestamp("us")),
        ("ok", pa.bool_()),
        ("took", pa.duration("us")),
        ("a.b`c", pa.string()),
    ]
)


def block(generator: random.Random, names: pa.Schema, rows: int) -> pa.Table:
    """Return random rows: NaN of several kinds and both zeros among the floats, nulls everywhere."""

    def values(type_: pa.DataType) -> pa.Array:
        mask = np.array([generator.random() < 0.2 for _ in range(rows)])
        if pa.types.is_float64(type_):
            pool = np.concatenate([NAN, [1.5, 7.25, -3.0]])
            return pa.array(pool[[generator.randrange(len(pool)) for _ in range(rows)]], mask=mask)
        if pa.types.is_float32(type_):
            pool = np.concatenate([NAN32, np.array([1.5, 7.25], np.float32)])
            return pa.array(pool[[generator.randrange(len(pool)) for _ in range(rows)]], mask=mask)
        if pa.types.is_struct(type_):
            return pa.StructArray.from_arrays(
                [values(f.type) for f in type_], fields=list(type_), mask=pa.array(mask)
            )
        if pa.types.is_list(type_):
            return pa.array(
                [None if m else [1.0, float("nan"), -0.0][: generator.randrange(4)] for m in mask], type_
            )
        if pa.types.is_string(type_):
            return pa.array([f"t{generator.randrange(9)}" for _ in range(rows)], mask=mask)
        if pa.types.is_binary(type_):
            return pa.array([bytes([generator.randrange(256)]) for _ in range(rows)], type_, mask=mask)
        if pa.types.is_boolean(type_):
            return pa.array([generator.random() < 0.5 for _ in range(rows)], mask=mask)
        small = pa.array([generator.randrange(-100, 100) for _ in range(rows)], pa.int32(), mask=mask)
        if pa.types.is_decimal(type_):
            return small.cast(pa.decimal128(12, 2)).cast(type_)
        if pa.types.is_date(type_):
            return small.cast(type_)
        return small.cast(pa.int64()).cast(type_)

    return pa.table([values(field.type) for field in names], schema=names)
