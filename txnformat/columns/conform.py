"""A user's data brought to the schema of a topic, without losing anything, or one error that says all.

Values that fit by type are cast; a value that the topic's type cannot hold exactly is an error, never rounded
or cut.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from txnformat.arguments import other_case
from txnformat.columns.arrow_cells import without_arrow
from txnformat.columns.far_times import far_times, has_near_times
from txnformat.columns.row_values import checked_values, shown, uninferable
from txnformat.columns.sound import has_text_names, is_plain_and_sound, unsound_columns
from txnformat.columns.text import bad_texts, without_hidden_texts
from txnformat.columns.variants import contains_variant, has_broken_variant
from txnformat.errors import InvalidInputError, TxnLogError, text_of, type_name

__all__ = ["conform", "unreadable"]

PROBLEMS_MAX = 20
"""Most bad rows that one error lists; the rest is counted."""


def conform(
    data: Any, schema: pa.Schema, optional: Collection[str] = (), *, check_text: bool = True
) -> pa.Table:
    """Return ``data`` as a table of exactly ``schema``.

    ``data``: columns in any order, each of them there and no others. In dicts a naive datetime is UTC. An
    Arrow stream is anything with ``__arrow_c_stream__`` (a polars DataFrame). ``schema``: canonical.
    ``optional``: columns that may be missing; they are null then. ``check_text``: False: the caller has seen
    that text is UTF-8. Returns pyarrow.Table: shares the memory of ``data`` where the types are equal. Raises
    InvalidInputError: kind ``schema-mismatch``: missing columns, extra ones, other types, values out of
    range, texts that are not UTF-8: all of them.
    """
    try:
        return _conformed(data, schema, optional, check_text)
    except (TxnLogError, MemoryError):
        raise
    except Exception as error:
        raise unreadable(data, error) from error


def unreadable(data: object, error: Exception) -> InvalidInputError:
    """Return the error of data whose own methods, or whose class, fail."""
    return _mismatch([f"a {type_name(data)} cannot be read: {type_name(error)}: {text_of(error):.300}"])


def _conformed(data: Any, schema: pa.Schema, optional: Collection[str], check_text: bool) -> pa.Table:
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _from_rows(data, schema, frozenset(optional))
    else:
        table = _from_foreign(data)
    is_same = table.schema.equals(schema)
    if is_same and check_text and is_plain_and_sound(table, schema):
        _check_times(table, schema)
        return _unmarked(table)
    if not is_same and not has_text_names(table.schema):
        raise _mismatch(["a column or a field has a name that is not UTF-8"])
    unsound = [f"column {name!r:.300} is not sound: {problem}" for name, problem in unsound_columns(table)]
    if unsound:
        raise _mismatch(_shortened(unsound))
    if not is_same:
        table = _cast(table, schema, frozenset(optional))
    if check_text:
        _check_text(table)
        table = without_hidden_texts(table)
    _check_variants(table, schema)
    _check_times(table, schema)
    return _unmarked(table)


def _unmarked(table: pa.Table) -> pa.Table:
    return table if table.schema.metadata is None else table.replace_schema_metadata(None)


def _from_foreign(data: Any) -> pa.Table:
    library = type(data).__module__.partition(".")[0]
    try:
        if library == "pandas" and hasattr(data, "columns"):
            _check_objects(data)
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            if library == "polars":
                _refuse_addresses(data)
            return pa.table(data)
    except InvalidInputError:
        raise
    except Exception as error:
        raise _mismatch([f"the data cannot become Arrow: {text_of(error):.300}"]) from error
    raise _mismatch(
        [f"a {type_name(data)} is not data; pass a pyarrow Table or RecordBatch, or a list of dicts"]
    )


def _check_objects(frame: Any) -> None:
    """Refuse what ends the process where Arrow looks for the type of a pandas column of objects."""
    problems = []
    for number, name in enumerate(frame.columns):
        column = frame.iloc[:, number]
        values = column.cat.categories if hasattr(column, "cat") else column
        if values.dtype == object and (problem := uninferable(list(values))) is not None:
            problems.append(f"column {shown(name)}, {problem}")
    if problems:
        raise _mismatch(problems)


def _refuse_addresses(frame: Any) -> None:
    """Refuse columns of Python objects in polars: it hands out their addresses in memory as bytes."""
    names = [name for name, type_ in getattr(frame, "schema", {}).items() if _has_addresses(type_)]
    if names:
        raise _mismatch(
            [f"column {name!r:.300} holds Python objects, which cannot be stored" for name in names]
        )


def _has_addresses(type_: Any) -> bool:
    inner = [field.dtype for field in getattr(type_, "fields", ())] + [getattr(type_, "inner", None)]
    return type(type_).__name__ == "Object" or any(_has_addresses(one) for one in inner if one is not None)


def _mismatch(problems: list[str]) -> InvalidInputError:
    return InvalidInputError(problems, kind="schema-mismatch", hint="nothing was sent")


def _cast(table: pa.Table, schema: pa.Schema, optional: frozenset[str]) -> pa.Table:
    names = table.schema.names
    missing = frozenset(schema.names) - frozenset(names)
    problems = [f"column {name!r:.300} is missing" for name in schema.names if name in missing - optional]
    problems += [
        f"column {name!r:.300} is not in the topic{other_case(name, schema.names)}"
        for name in names
        if name not in schema.names
    ]
    problems += [
        f"column {name!r:.300} appears twice" for name in sorted(set(names)) if names.count(name) > 1
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


def _check_times(table: pa.Table, schema: pa.Schema) -> None:
    if has_near_times(table, schema):
        return
    found = islice(far_times(table, schema), PROBLEMS_MAX + 1)
    problems = [f"column {far.column!r:.300}, row {far.row}: {far}" for far in found]
    if problems:
        raise _mismatch([*problems[:PROBLEMS_MAX], *["and more"] * (len(problems) > PROBLEMS_MAX)])


def _check_variants(table: pa.Table, schema: pa.Schema) -> None:
    problems = [
        f"column {schema.names[number]!r:.300} has a variant whose value or metadata is null"
        for number, type_ in enumerate(schema.types)
        if type_.num_fields and contains_variant(type_) and has_broken_variant(table.column(number), type_)
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
    rows = _taken(rows)
    problems = _shape_problems(rows, frozenset(schema.names), optional)
    if problems:
        raise _mismatch(problems)
    columns: list[pa.Array] = []
    for field in schema:
        values, found = checked_values([row.get(field.name) for row in rows], field.type)
        if not found:
            try:
                columns.append(pa.array(values, type=field.type))
            except Exception as error:  # noqa: BLE001 - methods of the values run, too
                found = _unconvertible(values, field.type) or [f"{text_of(error):.300}"]
        problems += [f"column {field.name!r:.300}, {problem}" for problem in found]
    if problems:
        raise _mismatch(_shortened(problems))
    table = pa.Table.from_arrays(columns, schema=schema)
    _check_variants(table, schema)
    return table


def _taken(rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows in a list of dicts: other classes may tell another length, or other columns when asked
    again.
    """
    if type(rows) is list and set(map(type, rows)) == {dict}:
        return rows
    try:
        taken: list[Any] = []
        others = 0
        rows = without_arrow(rows)
        for given in islice(rows, len(rows) + 1):
            row = given if type(given) is dict else without_arrow(given)
            taken.append(row)
            others += not isinstance(row, Mapping)
            if others > PROBLEMS_MAX:  # a range, say, may have more of them than fit into memory
                return taken
        if len(taken) != len(rows):
            raise _mismatch(
                [f"a {type_name(rows)}: its len(), {len(rows)}, differs from its number of elements"]
            )
        return [dict(islice(row.items(), len(row) + 1)) if isinstance(row, Mapping) else row for row in taken]
    except InvalidInputError:
        raise
    except Exception as error:
        raise _mismatch([f"a {type_name(rows)} cannot be read as rows: {shown(error)}"]) from error


def _shortened(problems: list[str]) -> list[str]:
    more = len(problems) - PROBLEMS_MAX
    return problems if more <= 0 else [*problems[:PROBLEMS_MAX], f"and {more} more"]


def _shape_problems(rows: Sequence[Any], names: frozenset[str], optional: frozenset[str]) -> list[str]:
    problems: list[str] = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            problems.append(f"row {number} is of the type {type_name(row)}; pass a list of dicts")
        elif row.keys() != names:
            missing = sorted(names - optional - row.keys())
            extra = sorted((shown(name), other_case(name, names)) for name in row.keys() - names)
            problems += [f"row {number}: column {name!r:.300} is missing" for name in missing]
            problems += [f"row {number}: column {name} is not in the topic{advice}" for name, advice in extra]
    return _shortened(problems)


def _unconvertible(values: list[Any], type_: pa.DataType) -> list[str]:
    """Return every value that pyarrow refuses, with its row."""
    problems: list[str] = []
    for number, value in enumerate(values):
        try:
            pa.array([value], type=type_)
        except Exception as error:  # noqa: BLE001 - methods of the value run, too
            problems.append(f"row {number}: {shown(value)} is not a value of {type_} ({text_of(error):.300})")
    return problems
