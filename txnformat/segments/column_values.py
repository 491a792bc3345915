"""Facts about the values of a batch that say how its Parquet columns are written.

* Columns whose values repeat get dictionaries. A dictionary of values that do not repeat holds all of them,
  beside a number for each: the file is larger, and every reader decodes it in twice the time (ADR 0037).
  pyarrow gives one up only when it has 1 MiB, which the column of a small row group never reaches.
* Columns of floats that have NaN or -0.0 get no smallest and largest value. pyarrow leaves NaN out of these,
  and engines for which NaN is the largest value then pass over row groups that have it: ``x > 5`` finds no
  NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.segments.footer_shape import leaf_count, shape_of

__all__ = ["DICTIONARY_ROWS_MIN", "SAMPLE_ROWS", "columns_that_repeat", "columns_without_bounds"]

DICTIONARY_ROWS_MIN = 4096
"""Files whose first batch has fewer rows are written without dictionaries: they would save little, and cost a
third of the time of a small commit."""

SAMPLE_ROWS = 16_384
"""Rows at the beginning of a file's first batch that say which columns get dictionaries."""


def columns_that_repeat(table: pa.Table) -> list[str]:
    """Return the Parquet columns that get dictionaries, as pyarrow's writer names them.

    Parameters
    ----------
    table : pyarrow.Table
        The first batch of a file, with a canonical schema.

    Returns
    -------
    list of str
        The paths of the columns of which at most half of the values of a sample, nulls left out, are
        different ones. Values in structs, lists and maps count like others. Empty for less than
        DICTIONARY_ROWS_MIN rows.
    """
    if table.num_rows < DICTIONARY_ROWS_MIN:
        return []
    sample = table.slice(0, SAMPLE_ROWS)
    values = (leaf for column in sample.columns for leaf in _leaves(pa.concat_arrays(column.chunks)))
    return [
        b".".join(leaf.path).decode()
        for leaf, array in zip(shape_of(table.schema).leaves, values, strict=True)
        if _repeats(array)
    ]


def columns_without_bounds(table: pa.Table) -> frozenset[int]:
    """Return the Parquet columns of a batch whose smallest and largest values would mislead: floats with NaN
    or -0.0.

    Parameters
    ----------
    table : pyarrow.Table
        With a canonical schema.

    Returns
    -------
    frozenset of int
        Places of the columns among all Parquet columns of the schema, from 0. Values in structs, lists and
        maps count like others.
    """
    found = set()
    first = 0
    for column in table.columns:
        if _has_floats(
            column.type
        ):  # the shape of the schema would tell, too, but it is not at hand for each of many topics
            for chunk in column.chunks:
                for place, values in enumerate(_leaves(chunk), first):
                    if _is_float(values.type) and _misleads(values):
                        found.add(place)
        first += leaf_count(column.type)
    return frozenset(found)


def _is_float(type_: pa.DataType) -> bool:
    return bool(pa.types.is_float64(type_) or pa.types.is_float32(type_))


def _has_floats(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    return _is_float(type_) or any(_has_floats(type_.field(place).type) for place in range(type_.num_fields))


_NEGATIVE_ZERO = {4: (np.int32, -(1 << 31)), 8: (np.int64, -(1 << 63))}
"""The whole numbers of as many bytes as a float has, and the one with the bits of -0.0."""


def _misleads(values: pa.Array) -> bool:
    """Return whether floats have NaN or -0.0."""
    if not len(values):
        return False
    without_nulls = pa.Array.from_buffers(
        values.type, len(values), [None, values.buffers()[1]], offset=values.offset
    )
    numbers = without_nulls.to_numpy()
    as_bits, negative_zero = _NEGATIVE_ZERO[numbers.itemsize]
    # The smallest of values among which is NaN is NaN.
    is_nan, is_negative_zero = np.isnan(numbers.min()), (numbers.view(as_bits) == negative_zero).any()
    if not values.null_count:
        return bool(is_nan or is_negative_zero)
    # The bits of a null may be anything.
    return bool(is_nan and pc.any(pc.is_nan(values)).as_py()) or bool(
        is_negative_zero and _misleads(values.drop_null())
    )


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of the Parquet columns of a column, in their order."""
    if array.type.num_fields == 0:
        yield array
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(array.type):
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        for child in (array.keys, array.items):
            yield from _leaves(child[start:end])
    else:
        yield from _leaves(array.flatten())


def _repeats(values: pa.Array) -> bool:
    return bool(2 * pc.count_distinct(values).as_py() <= len(values) - values.null_count)
