"""The column types that a topic may have: one canonical Arrow type for each type that Spark carries.

The canonical schema of a topic is what ``pyspark.sql.pandas.types.to_arrow_schema`` makes of the same Spark
schema with everything nullable: list children are called ``element``, map entries ``key`` and ``value``,
timestamps are microseconds and either ``UTC`` or without a zone. Only times of day differ: microseconds, as
Spark means them, where its Arrow form says nanoseconds.

Near types that lose nothing are accepted and replaced (``large_string`` by ``string``); everything else is a
problem, and problems are collected, so that the user sees all of them at once.

In metadata a schema is a JSON list of ``{"name", "type"}``, where a type is a name (``"int64"``) or an object
with one member: ``{"decimal": [precision, scale]}``, ``{"list": type}``, ``{"map": [key, value]}``,
``{"struct": [fields]}``. Specification: section "Topic schemas".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.variants import VARIANT, is_variant
from txnformat.errors import CorruptDataError, InvalidInputError

__all__ = [
    "COLUMNS_MAX",
    "NESTING_MAX",
    "PARQUET_LEVELS_MAX",
    "RESERVED_COLUMNS",
    "canonical_schema",
    "check_readable",
    "fields_from_json",
    "fields_to_json",
    "json_field_count",
    "list_of",
    "map_of",
    "struct_of",
    "text_of_type",
]

NESTING_MAX = 64
"""Deepest nesting of a type: a scalar column is 1, a list of scalars is 2 (inclusive)."""

COLUMNS_MAX = 10_000
"""Most columns of a topic, with the fields of structs (inclusive)."""

PARQUET_LEVELS_MAX = 99
"""Most groups and values above each other in a Parquet schema that Arrow reads back (inclusive); it writes
more."""

COLUMN_NAME_CHARS_MAX = 249
"""Longest column name, in characters (inclusive)."""

RESERVED_COLUMNS = frozenset(
    {
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_producer_id",
        "_producer_epoch",
        "_entry",
        "_commit_entry",
    }
)
"""Metadata columns that readers add; no column of a topic may be called so (case-insensitive)."""

DECIMAL_PRECISION_MAX = 38

_SCALARS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
}
_SCALAR_NAMES = {type_: name for name, type_ in _SCALARS.items()}

_NEAR: dict[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.duration("s"): pa.duration("us"),
    pa.duration("ms"): pa.duration("us"),
}

_REFUSED: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (pt.is_uint64, "use int64, or decimal128(20, 0) for values above 2^63 - 1"),
    (pt.is_timestamp, 'use timestamp("us"): Spark has no nanoseconds'),
    (pt.is_time, 'use time64("us"): Spark has no nanoseconds'),
    (pt.is_duration, 'use duration("us"): Spark has no nanoseconds'),
    (pt.is_interval, 'use duration("us"), or int32 (months)'),
    (pt.is_union, "use a struct with one column per case"),
    (pt.is_list_view, "use list"),  # casting a view to a list gives wrong rows in pyarrow 26
    (pt.is_large_list_view, "use list"),
    (pt.is_null, "give the column the type that it will have"),
    (pt.is_decimal, "use decimal128 with a precision of 1 to 38 and a scale from 0 to the precision"),
)


def list_of(element: pa.DataType) -> pa.DataType:
    """Return the canonical list type: a nullable child called ``element``."""
    return pa.list_(pa.field("element", element))


def map_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """Return the canonical map type: ``key`` not null, ``value`` nullable."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def struct_of(names: Iterable[str], types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the canonical struct type: nullable children."""
    return pa.struct([pa.field(name, type_) for name, type_ in zip(names, types, strict=True)])


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the topic schema that holds everything that ``schema`` can hold.

    Columns become nullable and lose their metadata.

    Raises InvalidInputError: kind ``unsupported-schema``: every type that no near type can replace and every
    unusable name, each with the path of the column, what it is and what to use.
    """
    if _type_count(schema) > COLUMNS_MAX:
        raise InvalidInputError(
            f"a topic may have {COLUMNS_MAX:,} columns, with the fields of structs: this schema has more",
            kind="unsupported-schema",
            hint="put values that belong together into a list or a map",
        )
    problems: list[str] = []
    names = list(schema.names)
    if not names:
        problems.append("a topic needs at least one column")
    _check_names(names, "", problems, top=True)
    types = [_canonical(field.type, field.name, problems, 1) for field in schema]
    if problems:
        raise InvalidInputError(problems, kind="unsupported-schema", hint="change these columns")
    return pa.schema([pa.field(name, type_) for name, type_ in zip(names, types, strict=True)])


def _type_count(schema: pa.Schema) -> int:
    """Return how many columns and fields of structs a schema has; counts no further than one above the
    most.
    """
    count = 0
    types = list(schema.types)
    while types and count <= COLUMNS_MAX:
        type_ = types.pop()
        if not pt.is_nested(type_):
            count += 1
            continue
        count += pt.is_struct(type_)
        types += [type_.field(number).type for number in range(min(type_.num_fields, COLUMNS_MAX + 1))]
    return count


def check_readable(schema: pa.Schema) -> None:
    """Raise unless readers of Parquet take what is written of a canonical schema.

    Called where columns enter a log, not where they are read: a log that has such a topic stays readable
    otherwise.

    Raises InvalidInputError: kind ``unsupported-schema``: every column that is nested too deep.
    """
    problems = [
        f"column {field.name!r:.300} is nested too deep for Parquet: {levels} levels of at most "
        f"{PARQUET_LEVELS_MAX}, "
        "where a list or a map counts 2, a struct 1 and a value 1; use a flatter type"
        for field in schema
        if (levels := _parquet_levels(field.type)) > PARQUET_LEVELS_MAX
    ]
    if problems:
        raise InvalidInputError(problems, kind="unsupported-schema", hint="change these columns")


def _parquet_levels(type_: pa.DataType) -> int:
    if not pt.is_nested(type_):
        return 1
    below = max(_parquet_levels(type_.field(number).type) for number in range(type_.num_fields))
    return below + (1 if pt.is_struct(type_) or pt.is_map(type_) else 2)


def _canonical(type_: pa.DataType, path: str, problems: list[str], depth: int) -> pa.DataType:
    """Return the canonical type of ``type_``; when there is none add a problem and return any type."""
    if depth > NESTING_MAX:
        problems.append(f"nested deeper than {NESTING_MAX} levels, use a flatter type: column {path!r:.300}")
        return type_
    # Before any look into a table: the hash of a type goes through all of it, and this would at each level.
    if is_variant(type_):
        return VARIANT
    if _is_list(type_) or pt.is_map(type_) or pt.is_struct(type_):
        return _canonical_nested(type_, path, problems, depth)
    if type_ in _SCALAR_NAMES:
        return type_
    near = _NEAR.get(type_)
    if near is not None:
        return near
    if pt.is_dictionary(type_):
        return _canonical(type_.value_type, path, problems, depth)
    if pt.is_fixed_size_binary(type_):
        return pa.binary()
    if pt.is_timestamp(type_) and type_.unit != "ns":
        return _SCALARS["timestamp_ntz" if type_.tz is None else "timestamp"]
    if pt.is_decimal(type_) and _is_decimal(type_.precision, type_.scale):
        return pa.decimal128(type_.precision, type_.scale)
    advice = next((text for accepts, text in _REFUSED if accepts(type_)), f"use one of {', '.join(_SCALARS)}")
    problems.append(
        f"column {path!r:.300} has the type {str(type_)!r:.100}, which Spark cannot carry; {advice}"
    )
    return type_


def _canonical_nested(type_: pa.DataType, path: str, problems: list[str], depth: int) -> pa.DataType:
    if pt.is_map(type_):
        if _contains_map(type_.key_type, depth):
            problems.append(
                f"column {path!r:.300} is a map whose key contains a map; Spark refuses such keys"
            )
        key = _canonical(type_.key_type, f"{path}.key", problems, depth + 1)
        item = _canonical(type_.item_type, f"{path}.value", problems, depth + 1)
        return type_ if pt.is_null(key) else map_of(key, item)
    if pt.is_struct(type_):
        names = [field.name for field in type_]
        if not names:
            problems.append(f"column {path!r:.300} is a struct without fields, which Parquet cannot hold")
        _check_names(names, path, problems)
        types = [_canonical(field.type, f"{path}.{field.name}", problems, depth + 1) for field in type_]
        return struct_of(names, types)
    return list_of(_canonical(type_.value_type, f"{path}.element", problems, depth + 1))


def _contains_map(type_: pa.DataType, depth: int) -> bool:
    if pt.is_map(type_):
        return True
    if depth > NESTING_MAX or not pt.is_nested(type_):
        return False
    return any(_contains_map(type_.field(index).type, depth + 1) for index in range(type_.num_fields))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_))


def _is_decimal(precision: int, scale: int) -> bool:
    return 1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision


def _check_names(names: Sequence[str], path: str, problems: list[str], *, top: bool = False) -> None:
    """Add what is wrong with the names of one struct, or of the whole schema (``top``)."""
    seen: dict[str, str] = {}
    for name in names:
        folded = name.lower()
        is_plain = name and len(name) <= COLUMN_NAME_CHARS_MAX and name.isascii() and "\0" not in name
        if is_plain and folded not in seen and not (top and folded in RESERVED_COLUMNS):
            seen[folded] = name
            continue
        shown = _shown(path, name)
        if not name:
            problems.append(f"column {shown} has an empty name")
        elif len(name) > COLUMN_NAME_CHARS_MAX:
            problems.append(f"column {shown} has a name of more than {COLUMN_NAME_CHARS_MAX} characters")
        elif "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
            problems.append(f"column {shown} has a name with a NUL character or half a surrogate pair")
        if seen.get(folded) == name:
            problems.append(f"column {shown} appears twice")
        elif folded in seen:
            problems.append(
                f"column {shown} clashes with {_shown(path, seen[folded])}: Spark does not distinguish "
                "upper and lower case"
            )
        seen.setdefault(folded, name)
        if top and folded in RESERVED_COLUMNS:
            problems.append(f"column {shown} is the name of a metadata column; choose another")


def _shown(path: str, name: str) -> str:
    return repr(f"{path}.{name}" if path else name)[:300]


def fields_to_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return a canonical schema as plain JSON values; :func:`fields_from_json` gives back an equal schema."""
    return [{"name": field.name, "type": _type_to_json(field.type)} for field in schema]


def _type_to_json(type_: pa.DataType) -> Any:
    name = _SCALAR_NAMES.get(type_)
    if name is not None:
        return name
    if is_variant(type_):
        return "variant"
    if pt.is_decimal128(type_):
        return {"decimal": [type_.precision, type_.scale]}
    if pt.is_map(type_):
        return {"map": [_type_to_json(type_.key_type), _type_to_json(type_.item_type)]}
    if pt.is_struct(type_):
        return {"struct": [{"name": field.name, "type": _type_to_json(field.type)} for field in type_]}
    return {"list": _type_to_json(type_.value_type)}


def text_of_type(type_: pa.DataType) -> str:
    """Return a type as people write it: ``decimal(10,2)``, ``list<string>``, ``struct<x:float64>``;
    ``txnlog create-topic --column`` takes it.
    """
    return _text_of(_type_to_json(type_))


def _text_of(found: Any) -> str:
    if isinstance(found, str):
        return found
    ((kind, parts),) = found.items()
    if kind == "decimal":
        return f"decimal({parts[0]},{parts[1]})"
    if kind == "list":
        return f"list<{_text_of(parts)}>"
    if kind == "map":
        return f"map<{_text_of(parts[0])},{_text_of(parts[1])}>"
    members = [f"{one['name']}:{_text_of(one['type'])}" for one in parts]
    return f"struct<{','.join(members)}>"


def fields_from_json(fields: object) -> pa.Schema:
    """Return the schema that a JSON list of fields describes; nothing in it is taken on trust.

    Raises CorruptDataError: the value is not what :func:`fields_to_json` writes; ``problems`` names
    everything that is wrong.
    """
    problems: list[str] = []
    if json_field_count(fields) > COLUMNS_MAX:
        problems.append(f"more than {COLUMNS_MAX:,} columns")
        fields = []
    names, types = _fields_from_json(fields, "", problems, 1)
    if not problems:
        if not names:
            problems.append("there is no column")
        _check_names(names, "", problems, top=True)
    if problems:
        raise CorruptDataError(
            "a topic schema violates the format",
            kind="corrupt-schema",
            expected="a list of fields with supported types and distinct names",
            problems="; ".join(problems),
        )
    return pa.schema([pa.field(name, type_) for name, type_ in zip(names, types, strict=True)])


def json_field_count(fields: object) -> int:
    """Return how many fields the JSON of a schema has at most, with those of structs; counts no further than
    one above the most.
    """
    count = 0
    found = [fields]
    while found and count <= COLUMNS_MAX:
        value = found.pop()
        if isinstance(value, dict):
            count += "name" in value
            found += value.values()
        elif isinstance(value, list | tuple):
            found += value
    return count


def _fields_from_json(
    fields: object, path: str, problems: list[str], depth: int
) -> tuple[list[str], list[pa.DataType]]:
    names: list[str] = []
    types: list[pa.DataType] = []
    if not isinstance(fields, list | tuple):
        problems.append(f"{path or 'the schema'!r:.300} is not a list of fields")
        return names, types
    for index, field in enumerate(fields):
        if (
            not isinstance(field, dict)
            or set(field) != {"name", "type"}
            or not isinstance(field["name"], str)
        ):
            problems.append(f"field {index} of {path or 'the schema'!r:.300} is not a name and a type")
            continue
        names.append(field["name"])
        below = f"{path}.{field['name'][: COLUMN_NAME_CHARS_MAX + 1]}".lstrip(".")
        types.append(_type_from_json(field["type"], below, problems, depth))
    return names, types


def _type_from_json(value: object, path: str, problems: list[str], depth: int) -> pa.DataType:
    """Return the type that ``value`` describes; when there is none add a problem and return the null type."""
    if depth > NESTING_MAX:
        problems.append(f"nested deeper than {NESTING_MAX} levels: {path!r:.300}")
        return pa.null()
    if isinstance(value, str) and value in _SCALARS:
        return _SCALARS[value]
    match value:
        case "variant":
            return VARIANT
        case {"decimal": [precision, scale], **rest} if not rest and type(precision) is type(scale) is int:
            if _is_decimal(precision, scale):
                return pa.decimal128(precision, scale)
        case {"list": element, **rest} if not rest:
            return list_of(_type_from_json(element, f"{path}.element", problems, depth + 1))
        case {"map": [key, item], **rest} if not rest:
            key_type = _type_from_json(key, f"{path}.key", problems, depth + 1)
            item_type = _type_from_json(item, f"{path}.value", problems, depth + 1)
            if pt.is_null(key_type):  # a problem that is told already; Arrow has no map with such a key
                return pa.null()
            if not _contains_map(key_type, depth):
                return map_of(key_type, item_type)
        case {"struct": [_, *_] as fields, **rest} if not rest:
            before = len(problems)
            names, types = _fields_from_json(fields, path, problems, depth + 1)
            _check_names(names, path, problems)
            # A name that Arrow cannot hold must not reach it.
            return struct_of(names, types) if len(problems) == before else pa.null()
    problems.append(f"{path!r:.300} has the type {value!r:.100}, which the format does not know")
    return pa.null()
