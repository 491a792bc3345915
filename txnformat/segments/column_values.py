"""Which columns of a segment file get dictionaries: those whose values repeat.

A dictionary of values that do not repeat holds all of them, beside a number for each: the file is larger, and every
reader decodes it in twice the time (ADR 0037). pyarrow gives one up only when it has 1 MiB, which the column of a
small row group never reaches.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from txnformat.segments.footer_shape import shape_of

__all__ = ["DICTIONARY_ROWS_MIN", "SAMPLE_ROWS", "columns_that_repeat"]

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
        The paths of the columns of which at most half of the values of a sample, nulls left out, are different ones. Values
        in structs, lists and maps count like others. Empty for less than DICTIONARY_ROWS_MIN rows.
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
