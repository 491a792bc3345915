"""The types that a column may get: in a topic, in Delta, in Iceberg."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import promote
from pyiceberg.types import DecimalType, IcebergType, PrimitiveType

from txnformat.columns.promotions import is_wider, is_wider_in_delta, is_wider_in_iceberg
from txnformat.views.iceberg_types import iceberg_schema


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int8(), pa.int16()),
        (pa.int8(), pa.int64()),
        (pa.int16(), pa.int32()),
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(8, 2), pa.decimal128(9, 2)),
        (pa.decimal128(8, 2), pa.decimal128(10, 4)),
    ],
)
def test_a_wider_type_holds_every_value_and_its_column_can_be_cast(
    old: pa.DataType, new: pa.DataType
) -> None:
    assert is_wider(new, old)
    assert not is_wider(old, new)
    assert not is_wider(old, old)
    most: Any = Decimal("999999.99") if pa.types.is_decimal(old) else 127
    values = pa.array([most, -most, most - most, None], old)
    assert values.cast(new).cast(old).equals(values)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int64(), pa.int32()),
        (pa.int32(), pa.float64()),
        (pa.int32(), pa.decimal128(20, 0)),
        (pa.float64(), pa.float32()),
        (pa.decimal128(8, 2), pa.decimal128(9, 4)),
        (pa.decimal128(8, 2), pa.decimal128(8, 1)),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.binary()),
        (pa.bool_(), pa.int8()),
        (pa.list_(pa.int32()), pa.list_(pa.int64())),
    ],
)
def test_other_types_are_not_wider(old: pa.DataType, new: pa.DataType) -> None:
    assert not is_wider(new, old)


TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(
        pa.decimal128(8, 2),
        pa.decimal128(10, 2),
        pa.decimal128(12, 4),
        pa.decimal128(10, 0),
        pa.decimal128(20, 0),
    ),
    *(pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.time64("us")),
]


def in_iceberg(type_: pa.DataType) -> IcebergType:
    (field,) = iceberg_schema(pa.schema([("a", type_)]), "t").fields
    return PrimitiveType.model_validate(field["type"])


def test_what_iceberg_promotes_is_what_its_library_does() -> None:
    for old in TYPES:
        for new in TYPES:
            before, after = in_iceberg(old), in_iceberg(new)
            if (
                isinstance(before, DecimalType)
                and isinstance(after, DecimalType)
                and before.scale != after.scale
            ):
                assert not is_wider_in_iceberg(new, old)  # pyiceberg 0.12 compares a scale with itself
                continue
            try:
                promotes = before != after and promote(before, after) == after
            except ResolveError:
                promotes = False
            assert is_wider_in_iceberg(new, old) == promotes, (old, new)


def test_what_delta_widens_is_what_its_protocol_lists() -> None:
    found = {(str(old), str(new)) for old in TYPES for new in TYPES if is_wider_in_delta(new, old)}
    integers = ["int8", "int16", "int32", "int64"]
    listed = {(old, new) for at, old in enumerate(integers) for new in integers[at + 1 :]}
    listed |= {(old, "double") for old in (*integers[:3], "float")}
    listed |= {(old, f"decimal128({digits}, 0)") for old in integers[:3] for digits in (10, 20)}
    listed |= {("int64", "decimal128(20, 0)"), ("date32[day]", "timestamp[us]")}
    decimals = ["decimal128(8, 2)", "decimal128(10, 2)", "decimal128(12, 4)"]
    listed |= {(old, new) for at, old in enumerate(decimals) for new in decimals[at + 1 :]}
    listed |= {(old, "decimal128(20, 0)") for old in ["decimal128(10, 0)"]}
    assert found == listed


def test_a_topic_takes_nothing_that_delta_does_not() -> None:
    assert not [
        (old, new) for old in TYPES for new in TYPES if is_wider(new, old) and not is_wider_in_delta(new, old)
    ]
