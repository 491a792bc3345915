"""Logs and comparisons for the tests of native tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame

from spark_datasource.native.table import TablePlan, plan_table

__all__ = ["as_bits", "multiset", "native_and_rest", "same_rows"]


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
    """Return a plan, and how many rows of it go each way."""
    plan = plan_table(spark, path, topic, native_bytes_min=0, **options)
    rest: Sequence[Any] = list(plan.division.reasons.values())
    return plan, plan.division.native_amount.rows, sum(one.rows for one in rest)
