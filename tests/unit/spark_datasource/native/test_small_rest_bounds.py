"""Which rests are small: bounds of bytes and files, and types that a local relation carries."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimeType,
    VariantType,
    YearMonthIntervalType,
)

from spark_datasource.native.division import Amount, Division, Reason
from spark_datasource.native.small_rests import FILES_MAX, is_small

NUMBERS = StructType().add("n", "long")


def rest_of(*amounts: Amount) -> Division:
    """Return a division with a rest of these amounts."""
    return Division((), {}, dict(zip(Reason, amounts, strict=False)))


@pytest.mark.parametrize(
    ("amounts", "bytes_max", "expected"),
    [
        ([Amount(1, 10, 100)], 100, True),
        ([Amount(1, 10, 100)], 99, False),
        ([Amount(1, 10, 60), Amount(1, 10, 40)], 100, True),
        ([Amount(1, 10, 60), Amount(1, 10, 41)], 100, False),
        ([Amount(FILES_MAX, 10, 100)], 100, True),
        ([Amount(FILES_MAX, 10, 50), Amount(1, 10, 50)], 100, False),
        ([Amount(1, 10, 0)], 0, False),
    ],
)
def test_bounds_are_those_of_all_reasons_together(
    amounts: list[Amount], bytes_max: int, expected: bool
) -> None:
    assert is_small(rest_of(*amounts), NUMBERS, bytes_max) is expected


FINE = StructType().add("a", DecimalType(38, 18)).add("b", TimestampNTZType())


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (ArrayType(MapType(StringType(), FINE)), True),
        (DayTimeIntervalType(), True),
        (TimeType(), False),
        (VariantType(), False),
        (ArrayType(VariantType()), False),
        (MapType(TimeType(), IntegerType()), False),
        (MapType(IntegerType(), VariantType()), False),
        (StructType().add("a", "integer").add("b", StructType().add("c", TimeType())), False),
        (YearMonthIntervalType(), False),
    ],
)
def test_types_that_are_not_carried_make_no_small_rest(type_: DataType, expected: bool) -> None:
    schema = StructType().add("n", "long").add("x", type_)
    assert is_small(rest_of(Amount(1, 10, 100)), schema, 100) is expected
