"""Spark's JSON form of a schema (``StructType.jsonValue()``) as Arrow, and back, without pyspark.

Delta's schema strings have the same form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from txnformat.arguments import is_utf8
from txnformat.columns.arrow_types import NESTING_MAX, canonical_schema, list_of, map_of, struct_of
from txnformat.columns.variants import VARIANT, is_variant
from txnformat.errors import InvalidInputError

__all__ = ["JSON_NAMES", "from_spark_json", "to_spark_json", "type_to_spark_json"]

_SCALARS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "variant": VARIANT,
}
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),\s*(-?[0-9]{1,2})\)")
_TEXT = re.compile(r"(?:var)?char\([0-9]+\)|string collate \w+")
_TIME = re.compile(r"time\([0-9]\)")
_DURATION = re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?")

_ADVICE = (
    (
        re.compile("interval (?:year|month).*"),
        "Spark cannot hand it to Python: write its months, cast(cast(c AS INTERVAL MONTH) AS INT)",
    ),
    (re.compile("interval"), "write its months, days and seconds as columns, or cast it to string"),
    (re.compile("void"), "cast it to the type that it will have"),
    (re.compile(r"geo(?:metry|graphy)\(.*\)"), "write st_asbinary(c), and st_srid(c) beside it"),
    (re.compile("udt"), "write its parts: arrays and structs, such as vector_to_array returns"),
)
"""The advice by Spark type: what to write instead of column ``c``."""


def from_spark_json(value: Mapping[str, Any]) -> pa.Schema:
    """Return the topic schema of a Spark schema.

    ``char(n)``, ``varchar(n)`` and collated strings become ``string``, times of any precision ``time``,
    day-time intervals of any units ``duration``; every column becomes nullable.

    Raises InvalidInputError: kind ``unsupported-schema``: every column whose type a topic cannot hold, and
    every unusable name.
    """
    if value.get("type") != "struct":
        raise InvalidInputError(
            "this is not the JSON form of a Spark StructType",
            kind="unsupported-schema",
            got=repr(value)[:100],
        )
    problems: list[str] = []
    names, types = _fields(value, "", problems, 1)
    if problems:
        raise InvalidInputError(
            problems, kind="unsupported-schema", hint="cast or rename these columns before writing"
        )
    return canonical_schema(
        pa.schema([pa.field(name, type_) for name, type_ in zip(names, types, strict=True)])
    )


def _fields(
    value: Mapping[str, Any], path: str, problems: list[str], depth: int
) -> tuple[list[str], list[pa.DataType]]:
    names: list[str] = []
    types: list[pa.DataType] = []
    fields = value.get("fields")
    for field in fields if isinstance(fields, list) else [None]:
        if not isinstance(field, Mapping) or not isinstance(field.get("name"), str):
            problems.append(f"{path or 'the schema'!r:.300} holds a field that has no name")
            continue
        name = f"{path}.{field['name']}".lstrip(".")
        if is_utf8(field["name"]):
            names.append(field["name"])
        else:
            names.append(repr(field["name"]))  # Arrow has no such name; the schema is not made of it
            problems.append(f"column {name!r:.300} has a name with half a surrogate pair")
        types.append(_type(field.get("type"), name, problems, depth))
    return names, types


def _type(value: Any, path: str, problems: list[str], depth: int) -> pa.DataType:
    if depth > NESTING_MAX:
        problems.append(f"nested deeper than {NESTING_MAX} levels, use a flatter type: column {path!r:.300}")
        return pa.null()
    if isinstance(value, str):
        if value in _SCALARS:
            return _SCALARS[value]
        if _TEXT.fullmatch(value):
            return pa.string()
        if _TIME.fullmatch(value):
            return pa.time64("us")
        if _DURATION.fullmatch(value):
            return pa.duration("us")
        found = _DECIMAL.fullmatch(value)
        if found and 1 <= int(found[1]) <= 38 and 0 <= int(found[2]) <= int(found[1]):
            return pa.decimal128(int(found[1]), int(found[2]))
    elif isinstance(value, Mapping):
        match value.get("type"):
            case "struct":
                return struct_of(*_fields(value, path, problems, depth + 1))
            case "array":
                return list_of(_type(value.get("elementType"), f"{path}.element", problems, depth + 1))
            case "map":
                key = _type(value.get("keyType"), f"{path}.key", problems, depth + 1)
                item = _type(value.get("valueType"), f"{path}.value", problems, depth + 1)
                return key if pa.types.is_null(key) else map_of(key, item)  # Arrow has no map of such keys
            case _:
                pass
    shown = str(value.get("type", value) if isinstance(value, Mapping) else value)
    advice = next(
        (text for pattern, text in _ADVICE if pattern.fullmatch(shown)),
        "cast it to a type that a topic can hold",
    )
    problems.append(
        f"column {path!r:.300} has the Spark type {shown!r:.100}, which a topic cannot hold; {advice}"
    )
    return pa.null()


JSON_NAMES: Mapping[pa.DataType, str] = {
    **{type_: name for name, type_ in _SCALARS.items() if not pt.is_decimal(type_) and not is_variant(type_)},
    pa.time64("us"): "time(6)",
    pa.duration("us"): "interval day to second",
}
"""The name of each canonical type that has no parts and no parameters."""


def to_spark_json(schema: pa.Schema | pa.StructType) -> dict[str, Any]:
    """Return the JSON form of columns of canonical types; each is nullable, as columns of topics are."""
    fields = [
        {"name": field.name, "type": type_to_spark_json(field.type), "nullable": True, "metadata": {}}
        for field in schema
    ]
    return {"type": "struct", "fields": fields}


def type_to_spark_json(type_: pa.DataType) -> Any:
    """Return the JSON form of a canonical type."""
    if is_variant(type_):
        return "variant"
    if pt.is_struct(type_):
        return to_spark_json(type_)
    if pt.is_map(type_):
        key, item = type_to_spark_json(type_.key_type), type_to_spark_json(type_.item_type)
        return {"type": "map", "keyType": key, "valueType": item, "valueContainsNull": True}
    if pt.is_list(type_):
        element = type_to_spark_json(type_.value_type)
        return {"type": "array", "elementType": element, "containsNull": True}
    if pt.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return JSON_NAMES[type_]
