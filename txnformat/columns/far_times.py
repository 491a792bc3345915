"""Times outside Python's range: dates and instants outside of the years 1 to 9999.

Arrow holds them; its conversions to Python's values fail. So they are refused where rows enter, and those
that are stored already are shown as text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from txnformat.columns.arrow_sizes import OfSchema
from txnformat.columns.variants import any_type
from txnformat.moments import iso_date, iso_time

__all__ = [
    "DATE_MAX",
    "DATE_MIN",
    "INSTANT_US_MAX",
    "INSTANT_US_MIN",
    "FarTime",
    "as_python",
    "far_columns",
    "far_times",
    "has_near_times",
    "shown_far",
]

INSTANT_US_MIN, INSTANT_US_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
"""First and last moment of the years 1 to 9999 (inclusive), in microseconds since 1970: Python has no others.
"""

DATE_MIN, DATE_MAX = -719_162, 2_932_896
"""First and last day of the years 1 to 9999 (inclusive), in days since 1970."""


class _Bounds(NamedTuple):
    """The values of a type that Python has."""

    dtype: Any
    width: int
    unpack: Any
    low: int
    high: int
    """Inclusive, as ``low``."""


_BOUNDS = {
    pa.date32().id: _Bounds(np.int32, 4, struct.Struct("=i").unpack_from, DATE_MIN, DATE_MAX),
    pa.timestamp("us").id: _Bounds(
        np.int64, 8, struct.Struct("=q").unpack_from, INSTANT_US_MIN, INSTANT_US_MAX
    ),
}
"""Bounds, by the number of a type in a topic's schema."""


class FarTime(NamedTuple):
    """A value that Python has not, or that has one inside."""

    column: str
    row: int
    """Number of the row, from 0, in the rows that were looked at."""
    text: str

    def __str__(self) -> str:
        """Return what is wrong, without column and row."""
        return f"{self.text} lies outside of the years 1 to 9999"


def far_times(table: pa.Table, schema: pa.Schema) -> Iterator[FarTime]:
    """Yield every value of a table that Python has not, column by column, by row.

    ``schema`` is canonical, and that of the table; best always the same object, for what is known of it is
    kept. Costs a pass over the numbers of each column of times; which row it is is looked up only when there
    is one.
    """
    for number, type_, _ in _timed_columns(schema):
        first = 0
        for chunk in table.column(number).iterchunks():
            if not _is_near(chunk, type_):
                for row in _far_rows(chunk, type_):
                    yield FarTime(schema.names[number], first + row, f"{as_python(chunk[row])!s:.80}")
            first += len(chunk)


def has_near_times(table: pa.Table, schema: pa.Schema) -> bool:
    """Return whether Python has all times of a table, in one quick look; False may be a false alarm, as
    :func:`far_times` tells.
    """
    for number, type_, bounds in _timed_columns(schema):
        for chunk in table.column(number).chunks:
            if len(chunk) == 1 and bounds is not None:  # sends of single records pay for nothing else
                if (
                    not bounds.low
                    <= bounds.unpack(chunk.buffers()[1], chunk.offset * bounds.width)[0]
                    <= bounds.high
                ):
                    return False
            elif not _is_near(chunk, type_):
                return False
    return True


def far_columns(batch: pa.RecordBatch) -> list[int]:
    """Return the numbers of the columns without fields that have such values."""
    return [
        number
        for number, type_, bounds in _timed_columns(batch.schema)
        if bounds is not None and not _is_near(batch.column(number), type_)
    ]


def shown_far(array: Any) -> Any:
    """Return a column of times as text: those that Python has as Arrow writes them, the others as ISO
    8601.
    """
    far = _far_mask(array, array.type)
    near = pc.if_else(far, pa.scalar(None, array.type), array).cast(pa.string())
    texts = pa.array(
        [str(as_python(one)) if is_far else None for one, is_far in zip(array, far.to_pylist(), strict=True)],
        pa.string(),
    )
    return pc.if_else(far, texts, near)


def as_python(scalar: Any) -> Any:
    """Return a value of Python for a value of Arrow; text in place of each time that Python has not."""
    type_ = scalar.type
    if not scalar.is_valid:
        return None
    if pt.is_map(type_):
        return [(as_python(pair["key"]), as_python(pair["value"])) for pair in scalar.values]
    if pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_):
        return [as_python(one) for one in scalar.values]
    if pt.is_struct(type_):
        return {field.name: as_python(scalar[number]) for number, field in enumerate(type_)}
    bounds = _BOUNDS.get(type_.id)
    if bounds is None or bounds.low <= scalar.value <= bounds.high:
        return scalar.as_py()
    if pt.is_date(type_):
        return iso_date(scalar.value)
    return iso_time(scalar.value, 1_000_000, 6) + ("" if type_.tz is None else "Z")


def _timed(schema: pa.Schema) -> tuple[tuple[int, pa.DataType, _Bounds | None], ...]:
    """Return number and type of each column with times; with its bounds unless the times are inside."""
    return tuple(
        (number, type_, _BOUNDS.get(type_.id))
        for number, type_ in enumerate(schema.types)
        if _holds_times(type_)
    )


_timed_columns = OfSchema(_timed)


def _holds_times(type_: pa.DataType) -> bool:
    return any_type(type_, lambda one: one.id in _BOUNDS)


def _is_near(array: Any, type_: pa.DataType) -> bool:
    """Return whether Python has all values; False may be a false alarm: what lies behind a null, or outside
    of a slice.
    """
    if not len(array):
        return True
    bounds = _BOUNDS.get(type_.id)
    if bounds is not None:
        # By count: a buffer's length need not be a multiple of the width.
        values: npt.NDArray[Any] = np.frombuffer(
            array.buffers()[1], bounds.dtype, len(array), array.offset * bounds.width
        )
        return bool(bounds.low <= np.minimum.reduce(values) and np.maximum.reduce(values) <= bounds.high)
    if pt.is_map(type_):
        parts = [array.keys, array.items]
    elif pt.is_struct(type_):
        parts = [array.field(number) for number in range(type_.num_fields)]
    else:
        parts = [array.values]
    return all(_is_near(part, part.type) for part in parts if _holds_times(part.type))


def _far_mask(array: Any, type_: pa.DataType) -> Any:
    """Return where a column of times has values that Python has not; false at nulls."""
    bounds = _BOUNDS[type_.id]
    numbers = array.view(pa.from_numpy_dtype(bounds.dtype))
    is_far = pc.or_(pc.less(numbers, bounds.low), pc.greater(numbers, bounds.high))
    return pc.fill_null(is_far, False)


def _far_rows(array: Any, type_: pa.DataType) -> Iterator[int]:
    if type_.id in _BOUNDS:
        yield from np.flatnonzero(_far_mask(array, type_).to_numpy(zero_copy_only=False)).tolist()
        return
    yield from (row for row, scalar in enumerate(array) if _has_far(scalar))


def _has_far(scalar: Any) -> bool:
    type_ = scalar.type
    if not scalar.is_valid or not _holds_times(type_):
        return False
    bounds = _BOUNDS.get(type_.id)
    if bounds is not None:
        return not bounds.low <= scalar.value <= bounds.high
    if pt.is_struct(type_):
        return any(_has_far(scalar[number]) for number in range(type_.num_fields))
    return any(map(_has_far, scalar.values))
