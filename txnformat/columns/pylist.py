"""Arrow data as Python's values; text that is not UTF-8, which only another program writes, is said clearly.

Arrow takes any bytes for text, and hands them out; Python's strings cannot hold them. Times outside Python's
range are text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from txnformat.columns.far_times import as_python
from txnformat.columns.text import bad_texts
from txnformat.errors import CorruptDataError

__all__ = ["column_values", "to_pylist"]


def to_pylist(data: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return rows as dicts; a time that Python has not (the year 10000) is its text in ISO 8601.

    Raises CorruptDataError: kind ``invalid-text``: a text column has bytes that are not UTF-8; the first such
    row is named.
    """
    try:
        rows: list[dict[str, Any]] = data.to_pylist()
    except UnicodeDecodeError as error:
        raise _invalid(data, error) from None
    except (OverflowError, ValueError):
        columns = [column_values(data, name) for name in data.schema.names]
        return [dict(zip(data.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def column_values(data: pa.RecordBatch | pa.Table, name: str) -> list[Any]:
    """Return the values of one column; otherwise as :func:`to_pylist`."""
    try:
        try:
            values: list[Any] = data.column(name).to_pylist()
        except UnicodeDecodeError:
            raise
        except (OverflowError, ValueError):
            return [as_python(scalar) for scalar in data.column(name)]
    except UnicodeDecodeError as error:
        raise _invalid(data, error) from None
    return values


def _invalid(data: pa.RecordBatch | pa.Table, error: UnicodeDecodeError) -> CorruptDataError:
    bad = next(bad_texts(data), None)
    where: dict[str, Any] = {}
    if bad is not None:
        where = {"column": bad.column}
        for name in ("_partition", "_offset"):
            if name in data.schema.names:
                where[name.lstrip("_")] = data.column(name)[bad.row].as_py()
    return CorruptDataError(
        "a text column holds bytes that are not UTF-8",
        kind="invalid-text",
        hint='take the records as Arrow data and read the column as bytes, with cast("binary"); '
        "verify(deep=True) names every such row",
        **where,
        expected="UTF-8",
        got=str(error if bad is None or bad.value is None else repr(bad.value)[:80]),
    )
