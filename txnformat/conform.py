"""A user's data brought to the schema of a topic, without losing anything, or one error that says all.

What fits by type is cast; a value that the topic's type cannot hold exactly is an error, never rounded or cut.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from txnformat.errors import InvalidInputError
from txnformat.text import bad_texts
from txnformat.variants import contains_variant, has_broken_variant

__all__ = ["conform"]

PROBLEMS_MAX = 20
"""Most bad rows that one error lists; the rest is counted."""


def conform(
    data: Any, schema: pa.Schema, optional: Collection[str] = (), *, check_text: bool = True
) -> pa.Table:
    """Return ``data`` as a table of exactly ``schema``.

    Parameters
    ----------
    data : pyarrow.Table, pyarrow.RecordBatch, sequence of dict, pandas.DataFrame, or Arrow stream
        Columns in any order, each of them there and no others. In dicts a naive datetime is UTC. An Arrow stream
        is anything with ``__arrow_c_stream__`` (a polars DataFrame).
    schema : pyarrow.Schema
        Canonical.
    optional : collection of str
        Columns that may be missing; they are null then.
    check_text : bool
        False: the caller has seen that text is UTF-8.

    Returns
    -------
    pyarrow.Table
        Shares the memory of ``data`` where the types are equal.

    Raises
    ------
    InvalidInputError
        Kind ``schema-mismatch``: missing columns, extra ones, other types, values out of range, texts that are not UTF-8:
        all of them.
    """
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _from_rows(data, schema, frozenset(optional))
    else:
        table = _from_foreign(data)
    if not table.schema.equals(schema):
        table = _cast(table, schema, frozenset(optional))
    if check_text:
        _check_text(table)
    _check_variants(table, schema)
    return table if table.schema.metadata is None else table.replace_schema_metadata(None)


def _from_foreign(data: Any) -> pa.Table:
    try:
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _mismatch([f"the data cannot become Arrow: {error}"]) from error
    raise _mismatch(
        [f"a {type(data).__name__} is not data; pass a pyarrow Table or RecordBatch, or a list of dicts"]
    )


def _mismatch(problems: list[str]) -> InvalidInputError:
    return InvalidInputError(problems, kind="schema-mismatch", hint="nothing was sent")


def _cast(table: pa.Table, schema: pa.Schema, optional: frozenset[str]) -> pa.Table:
    names = table.schema.names
    missing = frozenset(schema.names) - frozenset(names)
    problems = [f"column {name!r:.300} is missing" for name in schema.names if name in missing - optional]
    problems += [f"column {name!r:.300} is not in the topic" for name in names if name not in schema.names]
    problems += [
        f"column {name!r:.300} is there twice" for name in sorted(set(names)) if names.count(name) > 1
    ]
    columns: list[Any] = []
    for field in schema:
        if field.name in missing:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        if names.count(field.name) != 1:
            continue
        column = table.column(field.name)
        if column.type.equals(field.type):
            columns.append(column)
        elif not _fits(column.type, field.type):
            problems.append(f"column {field.name!r:.300} has the type {column.type}, expected {field.type}")
        else:
            try:
                columns.append(column.cast(field.type))
            except (pa.ArrowException, ValueError) as error:
                problems.append(
                    f"column {field.name!r:.300} has a value that {field.type} cannot hold: {error}"
                )
    if problems:
        raise _mismatch(problems)
    return pa.Table.from_arrays(columns, schema=schema)


def _check_text(table: pa.Table) -> None:
    problems = [f"column {bad.column!r:.300}, row {bad.row}: {bad}" for bad in bad_texts(table)]
    if problems:
        raise _mismatch(_shortened(problems))


def _check_variants(table: pa.Table, schema: pa.Schema) -> None:
    problems = [
        f"column {schema.names[number]!r:.300} has a variant whose value or metadata is null"
        for number, type_ in enumerate(schema.types)
        if contains_variant(type_) and has_broken_variant(table.column(number), type_)
    ]
    if problems:
        raise _mismatch(problems)


def _fits(got: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether a checked cast from ``got`` keeps the meaning of every value that it accepts."""
    if got.equals(expected) or pt.is_null(got):
        return True
    if pt.is_dictionary(got):
        return _fits(got.value_type, expected)
    if pt.is_integer(expected):
        return bool(pt.is_integer(got))
    if pt.is_floating(expected):
        return bool(pt.is_integer(got) or (pt.is_floating(got) and got.bit_width <= expected.bit_width))
    if pt.is_decimal(expected):
        return bool(pt.is_decimal(got) or pt.is_integer(got))
    if pt.is_string(expected):
        return bool(pt.is_large_string(got) or pt.is_string_view(got))
    if pt.is_binary(expected):
        return bool(pt.is_large_binary(got) or pt.is_binary_view(got) or pt.is_fixed_size_binary(got))
    if pt.is_date(expected):
        return bool(pt.is_date(got))
    if pt.is_timestamp(expected):
        return bool(pt.is_timestamp(got) and (got.tz is None) == (expected.tz is None))
    if pt.is_time(expected):
        return bool(pt.is_time(got))
    if pt.is_duration(expected):
        return bool(pt.is_duration(got))
    return _nested_fits(got, expected)


def _nested_fits(got: pa.DataType, expected: pa.DataType) -> bool:
    if pt.is_map(expected):
        return (
            pt.is_map(got)
            and _fits(got.key_type, expected.key_type)
            and _fits(got.item_type, expected.item_type)
        )
    if pt.is_list(expected):
        is_list = pt.is_list(got) or pt.is_large_list(got) or pt.is_fixed_size_list(got)
        return is_list and _fits(got.value_type, expected.value_type)
    if pt.is_struct(expected) and pt.is_struct(got):
        types = {field.name: field.type for field in got}
        same_names = len(types) == got.num_fields and types.keys() == {field.name for field in expected}
        return same_names and all(_fits(types[field.name], field.type) for field in expected)
    return False


def _from_rows(rows: Sequence[Any], schema: pa.Schema, optional: frozenset[str]) -> pa.Table:
    problems = _shape_problems(rows, frozenset(schema.names), optional)
    if problems:
        raise _mismatch(problems)
    columns: list[pa.Array] = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        found = _value_problems(values, field.type)
        if not found:
            try:
                columns.append(pa.array(values, type=field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                found = _unconvertible(values, field.type) or [str(error)]
        problems += [f"column {field.name!r:.300}, {problem}" for problem in found]
    if problems:
        raise _mismatch(_shortened(problems))
    table = pa.Table.from_arrays(columns, schema=schema)
    _check_variants(table, schema)
    return table


def _shortened(problems: list[str]) -> list[str]:
    more = len(problems) - PROBLEMS_MAX
    return problems if more <= 0 else [*problems[:PROBLEMS_MAX], f"and {more} more"]


def _shape_problems(rows: Sequence[Any], names: frozenset[str], optional: frozenset[str]) -> list[str]:
    problems: list[str] = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            problems.append(f"row {number} is a {type(row).__name__}; pass a list of dicts")
        elif row.keys() != names:
            missing = sorted(names - optional - row.keys())
            extra = sorted(map(str, row.keys() - names))
            problems += [f"row {number}: column {name!r:.300} is missing" for name in missing]
            problems += [f"row {number}: column {name!r:.300} is not in the topic" for name in extra]
    return _shortened(problems)


def _value_problems(values: list[Any], type_: pa.DataType) -> list[str]:
    """Return what pyarrow would cut silently: fractions, times of dates, zones of times, unknown struct fields."""
    if not pt.is_nested(type_):
        # A set of Python types first: most columns hold one or two, and the rows need no second look.
        suspects = tuple(kind for kind in set(map(type, values)) if _loses(kind, type_))
        if not suspects:
            return []
        bad = [
            (number, value)
            for number, value in enumerate(values)
            if isinstance(value, suspects) and not _is_plain_time(value)
        ]
        return [f"row {number}: {value!r:.80} is not a value of {type_}" for number, value in bad]
    return [
        f"row {number}: {problem}"
        for number, value in enumerate(values)
        if (problem := _nested_problem(value, type_)) is not None
    ]


def _loses(kind: type, type_: pa.DataType) -> bool:
    """Return whether pyarrow may cut values of ``kind``: for times of day, only those with a zone."""
    if pt.is_integer(type_) or pt.is_time(type_) or pt.is_duration(type_):
        fractions = issubclass(kind, numbers.Number) and not issubclass(kind, numbers.Integral)
        return fractions or (pt.is_time(type_) and issubclass(kind, datetime.time))
    return pt.is_date(type_) and issubclass(kind, datetime.datetime)


def _is_plain_time(value: object) -> bool:
    return isinstance(value, datetime.time) and value.tzinfo is None


def _nested_problem(value: Any, type_: pa.DataType) -> str | None:
    if value is None:
        return None
    found: list[str | None] = []
    if pt.is_struct(type_):
        if not isinstance(value, Mapping):
            return f"{value!r:.80} is not a dict, as {str(type_)!r:.100} asks for"
        if value.keys() != {field.name for field in type_}:
            return f"the keys {sorted(map(str, value))!r:.100} are not the fields of {str(type_)!r:.100}"
        found = [_nested_problem(value[field.name], field.type) for field in type_]
    elif pt.is_map(type_):
        items = value.items() if isinstance(value, Mapping) else value
        pairs = [pair for pair in items if isinstance(pair, tuple | list) and len(pair) == 2]
        found = [_nested_problem(key, type_.key_type) for key, _ in pairs]
        found += [_nested_problem(item, type_.item_type) for _, item in pairs]
    elif pt.is_list(type_):
        if not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
            found = [_nested_problem(element, type_.value_type) for element in value]
    elif _loses(type(value), type_) and not _is_plain_time(value):
        return f"{value!r:.80} is not a value of {type_}"
    return next((problem for problem in found if problem is not None), None)


def _unconvertible(values: list[Any], type_: pa.DataType) -> list[str]:
    """Return every value that pyarrow refuses, with its row."""
    problems: list[str] = []
    for number, value in enumerate(values):
        try:
            pa.array([value], type=type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            problems.append(f"row {number}: {value!r:.80} is not a value of {type_} ({error})")
    return problems
