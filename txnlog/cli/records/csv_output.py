"""Records as CSV: text and numbers as pyarrow writes them, bytes as text, and formulas made harmless if asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from txnformat.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from txnformat.columns.json_values import Binary

__all__ = ["FORMULA_BEGINNINGS", "write_csv"]

FORMULA_BEGINNINGS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""First characters of text that spreadsheets compute; the last four are the wide forms of the first."""


def write_csv(
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    file: BinaryIO,
    binary: Binary,
    *,
    delimiter: str = ",",
    no_formulas: bool = False,
) -> None:
    """Write a header and the rows.

    Raises InvalidInputError of kind ``unsupported-column`` (nested) or ``not-utf8`` (``binary`` cannot show
    the bytes).
    """
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.types as pt

    from txnformat.columns.far_times import far_columns

    nested = [
        f"column {field.name!r:.300} of type {field.type}" for field in schema if pt.is_nested(field.type)
    ]
    if nested:
        raise InvalidInputError(
            [f"{what} cannot be CSV" for what in nested],
            kind="unsupported-column",
            hint="leave it out with --columns, or use json",
        )
    written = pa.schema(
        [
            (
                _harmless(field.name) if no_formulas else field.name,
                pa.string() if _is_bytes(field.type) else field.type,
            )
            for field in schema
        ]
    )
    with pc.CSVWriter(file, written, write_options=pc.WriteOptions(delimiter=delimiter)) as writer:
        for batch in batches:
            columns = [
                _column(column, field, binary, no_formulas=no_formulas)
                for column, field in zip(batch.columns, schema, strict=True)
            ]
            if far := far_columns(batch):
                _write_far(columns, far, written, file, delimiter)
            else:
                writer.write_batch(pa.record_batch(columns, schema=written))


def _write_far(columns: list[Any], far: list[int], schema: pa.Schema, file: BinaryIO, delimiter: str) -> None:
    """Write a batch with times that Python has not: pyarrow shows nonsense in their places, so these columns
    are text.
    """
    import pyarrow as pa
    import pyarrow.csv as pc

    from txnformat.columns.far_times import shown_far

    for number in far:
        columns[number] = shown_far(columns[number])
        schema = schema.set(number, pa.field(schema.names[number], pa.string()))
    with pc.CSVWriter(
        file, schema, write_options=pc.WriteOptions(include_header=False, delimiter=delimiter)
    ) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))


def _is_bytes(type_: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_binary(type_) or pt.is_large_binary(type_) or pt.is_fixed_size_binary(type_))


def _column(column: Any, field: pa.Field, binary: Binary, *, no_formulas: bool) -> Any:
    """Return a column as it is written."""
    import pyarrow as pa
    import pyarrow.types as pt

    from txnformat.columns.json_values import encoded
    from txnformat.columns.pylist import column_values

    if _is_bytes(field.type):
        column = pa.array(encoded(column.to_pylist(), field, binary), pa.string())
    if no_formulas and (pt.is_string(column.type) or pt.is_large_string(column.type)):
        texts = column_values(pa.table({field.name: column}), field.name)
        return pa.array([None if text is None else _harmless(text) for text in texts], column.type)
    return column


def _harmless(text: str) -> str:
    """Return text that no spreadsheet computes."""
    return f"'{text}" if text.startswith(tuple(FORMULA_BEGINNINGS)) else text
