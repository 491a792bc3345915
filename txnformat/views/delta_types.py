"""Schemas of topics as Delta writes them: the schema string, and the table features that a reader needs for it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.variants import contains_variant, is_variant
from txnformat.errors import InvalidInputError
from txnformat.reading.stored_rows import STORED_FIELDS

__all__ = ["DeltaSchema", "delta_schema", "with_positions"]

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_NTZ = pa.timestamp("us")
_NOT_IN_NAMES = " ,;{}()\n\t="
"""Characters that Delta does not allow in column names, unless a table maps its columns."""


class DeltaSchema(NamedTuple):
    """A topic's columns as a Delta table has them."""

    text: str
    """The JSON of the schema, ``metaData.schemaString``."""
    features: tuple[str, ...]
    """Table features that readers must have, ascending; with none of them every reader of Delta will do."""


def delta_schema(schema: pa.Schema, topic: str) -> DeltaSchema:
    """Return the columns of a topic (canonical types) for Delta.

    Raises InvalidInputError of kind ``unsupported-view-schema``: every column whose type or name Delta does not have.
    """
    problems = [problem for field in schema for problem in _problems(field.type, field.name, field.name)]
    if problems:
        raise InvalidInputError(
            problems,
            kind="unsupported-view-schema",
            hint="a topic with such columns cannot be published as a Delta table; nothing was written",
            topic=topic,
        )
    features = set()
    if any(_has(field.type, _NTZ) for field in schema):
        features.add("timestampNtz")
    if any(contains_variant(field.type) for field in schema):
        features.add("variantType")
    fields = [_field(field) for field in schema]
    text = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    return DeltaSchema(text, tuple(sorted(features)))


def with_positions(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a topic, and the places of its records, which compacted files store: partition, offset, and the time that Kafka's clients see."""
    return pa.schema([*schema, *(STORED_FIELDS[name] for name in ("_partition", "_offset", "_timestamp"))])


def _problems(type_: pa.DataType, path: str, name: str) -> Iterator[str]:
    """Yield what is wrong with a column or the field of a struct, ``name``, and with what is inside it."""
    if any(character in name for character in _NOT_IN_NAMES):
        yield f"column {path!r:.300} has a name with a space or one of ,;{{}}()=, which Delta does not allow"
    if is_variant(type_) or type_ in _NAMES or pt.is_decimal128(type_):
        return
    if pt.is_struct(type_):
        for field in type_:
            yield from _problems(field.type, f"{path}.{field.name}", field.name)
    elif pt.is_map(type_):
        yield from _problems(type_.key_type, f"{path}.key", "key")
        yield from _problems(type_.item_type, f"{path}.value", "value")
    elif pt.is_list(type_):
        yield from _problems(type_.value_type, f"{path}.element", "element")
    else:
        yield f"column {path!r:.300} has the type {type_}, which Delta does not have"


def _has(type_: pa.DataType, wanted: pa.DataType) -> bool:
    if not pt.is_nested(type_):
        return bool(type_ == wanted)
    return any(_has(type_.field(index).type, wanted) for index in range(type_.num_fields))


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": True, "metadata": {}}


def _type(type_: pa.DataType) -> Any:
    if is_variant(type_):
        return "variant"
    if pt.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pt.is_struct(type_):
        return {"type": "struct", "fields": [_field(field) for field in type_]}
    if pt.is_map(type_):
        key, value = _type(type_.key_type), _type(type_.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pt.is_list(type_):
        return {"type": "array", "elementType": _type(type_.value_type), "containsNull": True}
    return _NAMES[type_]
