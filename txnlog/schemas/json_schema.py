"""JSON Schemas as schemas of topics, and back. Pure.

=====================================================  =========================================
JSON Schema                                            column
=====================================================  =========================================
boolean                                                bool
integer; ``format`` int8, int16, int32, int64          int64; the type of that name
integer; ``format`` uint8, uint16, uint32, uint64      int16, int32, int64, decimal(20,0)
number; ``format`` float                               float64; float32
string, or ``enum`` of texts                           string
string, ``contentEncoding`` base64                     binary
string, ``format`` date                                date
string, ``format`` date-time, date-time-local          timestamp, timestamp without a zone
string, ``format`` time, time-local                    time
string, ``format`` decimal, ``precision``, ``scale``   decimal
object with ``properties``                             struct
object with ``additionalProperties`` alone             map with keys of text
array with ``items``                                   list
array with ``items``, ``format`` map                   map, as an array of pairs
``$ref`` to ``#/$defs/…`` or ``#/definitions/…``       what it refers to
the type and null, as types, in anyOf or in oneOf      that type
=====================================================  =========================================

Formats are those of OpenAPI's registry. The schema of a topic describes the rows that ``txnlog consume``
writes as JSON, bytes as base64. Refused: other unions, any value, tuples, types that contain themselves,
references to other documents; and of topics intervals and variants.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.variants import is_variant
from txnlog.schemas.walk import Walk, invalid

__all__ = ["from_json_schema", "to_json_schema"]

_UTC, _NTZ, _TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.time64("us")
_INTEGERS: Mapping[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
}
_TEXTS: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "date-time": _UTC,
    "date-time-local": _NTZ,
    "time": _TIME,
    "time-local": _TIME,
}
_SPECIAL_FLOATS = ("NaN", "Infinity", "-Infinity")
_REFERENCES_MAX = 64
"""Most references that lead to each other."""
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def from_json_schema(schema: Any) -> pa.Schema:
    """Return the topic schema of a JSON Schema of an object.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-schema``: it is not the schema of an object; ``unsupported-schema``: every field that
        cannot be a column.
    """
    walk = Walk()
    reader = _Reader(walk, schema)
    found = reader.root()
    return walk.schema(found)


class _Reader:
    """Makes columns of types of JSON Schema."""

    def __init__(self, walk: Walk, document: Any) -> None:
        self._walk, self._document = walk, document

    def root(self) -> list[tuple[str, pa.DataType]]:
        schema, within = self._resolved(self._document, "", ())
        self._walk.check()
        if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
            raise invalid(
                "this is not the JSON Schema of an object with properties",
                "the columns of a topic are the properties of an object",
            )
        return self._fields(schema, "", 1, within)

    def _fields(
        self, schema: Any, path: str, depth: int, within: tuple[str, ...]
    ) -> list[tuple[str, pa.DataType]]:
        return [
            (name, self._type(below, f"{path}.{name}".lstrip("."), depth, within))
            for name, below in schema["properties"].items()
            if self._walk.has_name(name, path)
        ]

    def _resolved(self, schema: Any, path: str, within: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """Return what a schema refers to, and the references that it is inside of; None when it refers to
        nothing.
        """
        for _ in range(_REFERENCES_MAX):
            if not isinstance(schema, Mapping) or "$ref" not in schema:
                return schema, within
            reference = schema["$ref"]
            if reference in within:
                self._walk.refuse(path, f"contains itself, by {reference!r:.200}; a column has a fixed depth")
                return None, within
            target = self._target(reference)
            if target is None:
                self._walk.refuse(
                    path, f"refers to {reference!r:.200}, which is not in the file; put it into $defs there"
                )
                return None, within
            schema, within = target, (*within, reference)
        self._walk.refuse(path, "is behind too many references")
        return None, within

    def _target(self, reference: Any) -> Any:
        """Return the part of the document that a JSON pointer names; None if there is none."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._document
        for part in unquote(reference[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return found

    def _type(self, schema: Any, path: str, depth: int, within: tuple[str, ...]) -> pa.DataType:
        """Return the type of a field's schema; ``within``: the references that it is inside of."""
        before = len(self._walk.problems)
        if not self._walk.enter(path, depth):
            return pa.string()
        schema, within = self._resolved(schema, path, within)
        if len(self._walk.problems) > before:
            return pa.string()
        if not isinstance(schema, Mapping):
            return self._walk.refuse(path, f"has the schema {schema!r:.80}, any value; give it a type")
        options = self._options(schema, path)
        if options is not None:
            if len(options) == 1:
                return self._type(options[0], path, depth, within)
            return self._walk.refuse(
                path, f"has {len(options)} schemas to choose from or to combine; use one"
            )
        kinds = self._kinds(schema)
        if kinds != ["array"] and kinds != ["object"] and len(kinds) == 1:
            return self._scalar(schema, kinds[0], path)
        if kinds == ["array"]:
            return self._array(schema, path, depth, within)
        if kinds == ["object"]:
            return self._object(schema, path, depth, within)
        shown = f"the types {', '.join(map(str, kinds))}" if kinds else "no type"
        return self._walk.refuse(path, f"has {shown:.200}; give it one type, or that and null")

    def _options(self, schema: Mapping[str, Any], path: str) -> list[Any] | None:
        """Return the schemas that a field may have, without null; None if it has one of its own."""
        for word in ("anyOf", "oneOf", "allOf"):
            options = schema.get(word)
            if not isinstance(options, list) or "type" in schema:
                continue
            found = [one for one in options if not _is_null(one)]
            numbers = [one for one in found if isinstance(one, Mapping) and one.get("type") == "number"]
            if len(numbers) == 1 and all(one in numbers or _is_special(one) for one in found):
                return numbers
            return found
        return None

    def _kinds(self, schema: Mapping[str, Any]) -> list[Any]:
        """Return the types of a field, without null."""
        given = schema.get("type")
        if given is None and ("enum" in schema or "const" in schema):
            values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
            return sorted({_kind_of(value) for value in values} - {"null"})
        if given is None and "properties" in schema:
            return ["object"]
        kinds = given if isinstance(given, list) else [given]
        return [one for one in kinds if one is not None and one != "null"]

    def _scalar(self, schema: Mapping[str, Any], kind: Any, path: str) -> pa.DataType:
        form = schema.get("format")
        if kind == "boolean":
            return pa.bool_()
        if form == "decimal" and kind in ("string", "number"):
            advice = '; write "precision": 10, "scale": 2 beside the format'
            return self._walk.decimal(path, schema.get("precision"), schema.get("scale", 0), advice)
        if kind == "integer":
            return _INTEGERS.get(form, pa.int64()) if isinstance(form, str) else pa.int64()
        if kind == "number":
            return pa.float32() if form == "float" else pa.float64()
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return pa.binary()
            return _TEXTS.get(form, pa.string()) if isinstance(form, str) else pa.string()
        return self._walk.refuse(path, f"has the type {kind!r:.80}, which JSON Schema does not have")

    def _array(
        self, schema: Mapping[str, Any], path: str, depth: int, within: tuple[str, ...]
    ) -> pa.DataType:
        items = schema.get("items")
        if schema.get("format") == "map":
            pair = items.get("prefixItems") if isinstance(items, Mapping) else None
            if isinstance(pair, list) and len(pair) == 2:
                key = self._type(pair[0], f"{path}.key", depth + 1, within)
                return map_of(key, self._type(pair[1], f"{path}.value", depth + 1, within))
        if "prefixItems" in schema or isinstance(items, list):
            return self._walk.refuse(path, "is a tuple; use an object with a property for each place")
        if items is None:
            return self._walk.refuse(path, "is an array of any values; give it items")
        return list_of(self._type(items, f"{path}.element", depth + 1, within))

    def _object(
        self, schema: Mapping[str, Any], path: str, depth: int, within: tuple[str, ...]
    ) -> pa.DataType:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, Mapping) and properties:
            fields = self._fields(schema, path, depth + 1, within)
            return struct_of([name for name, _ in fields], [type_ for _, type_ in fields])
        if isinstance(more, Mapping) and more:
            return map_of(pa.string(), self._type(more, f"{path}.value", depth + 1, within))
        return self._walk.refuse(
            path, "is an object of any properties; give it properties, or additionalProperties with a schema"
        )


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and (
        schema.get("type") == "null"
        or ("const" in schema and schema["const"] is None)
        or schema.get("enum") == [None]
    )


def _is_special(schema: Any) -> bool:
    """Return whether a schema has only the floats that JSON has no numbers for."""
    values = schema.get("enum") if isinstance(schema, Mapping) else None
    return isinstance(values, list) and all(one is None or one in _SPECIAL_FLOATS for one in values)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    kinds = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "object")


# --- back ---------------------------------------------------------------------------------------------------

_FORMATS: Mapping[pa.DataType, str] = {
    pa.date32(): "date",
    _UTC: "date-time",
    _NTZ: "date-time-local",
    _TIME: "time-local",
}


def to_json_schema(schema: pa.Schema, name: str) -> str:
    """Return the JSON Schema of the rows of a topic's columns (canonical types).

    Raises InvalidInputError of kind ``unsupported-schema``: every column whose type JSON rows do not have.
    """
    walk = Walk()
    found = {"$schema": _DRAFT, "title": name, "type": "object", **_Writer(walk).fields(schema, "")}
    walk.check("rows of JSON have no such columns; export as spark, ddl or arrow, which have them all")
    return json.dumps(found, indent=2) + "\n"


class _Writer:
    """Makes types of JSON Schema of columns; null is in each."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def fields(self, fields: Any, path: str) -> dict[str, Any]:
        properties = {
            field.name: self._type(field.type, f"{path}.{field.name}".lstrip(".")) for field in fields
        }
        return {"properties": properties, "additionalProperties": False}

    def _type(self, type_: pa.DataType, path: str) -> Any:
        if is_variant(type_):
            return self._walk.refuse(path, "is a variant")
        if pt.is_struct(type_):
            return {"type": ["object", "null"], **self.fields(type_, path)}
        if pt.is_map(type_):
            key = self._type(type_.key_type, f"{path}.key")
            item = self._type(type_.item_type, f"{path}.value")
            if pt.is_string(type_.key_type):
                return {"type": ["object", "null"], "additionalProperties": item}
            pair = {"type": "array", "prefixItems": [key, item], "minItems": 2, "maxItems": 2}
            return {"type": ["array", "null"], "format": "map", "items": pair}
        if pt.is_list(type_):
            return {"type": ["array", "null"], "items": self._type(type_.value_type, f"{path}.element")}
        found = _scalar_schema(type_)
        return self._walk.refuse(path, f"has the type {type_}") if found is None else found


def _scalar_schema(type_: pa.DataType) -> dict[str, Any] | None:
    """Return the schema of a column without parts; None: rows of JSON have no such type."""
    if pt.is_boolean(type_):
        return {"type": ["boolean", "null"]}
    if pt.is_integer(type_):
        most = 2 ** (type_.bit_width - 1)
        bounds = {"minimum": -most, "maximum": most - 1}
        return {"type": ["integer", "null"], "format": f"int{type_.bit_width}", **bounds}
    if pt.is_floating(type_):
        number = {"type": "number", "format": "float" if pt.is_float32(type_) else "double"}
        return {"anyOf": [number, {"enum": [*_SPECIAL_FLOATS, None]}]}
    if pt.is_decimal(type_):
        digits = {"precision": type_.precision, "scale": type_.scale}
        return {"type": ["string", "null"], "format": "decimal", **digits}
    if pt.is_string(type_):
        return {"type": ["string", "null"]}
    if pt.is_binary(type_):
        return {"type": ["string", "null"], "contentEncoding": "base64"}
    if type_ in _FORMATS:
        return {"type": ["string", "null"], "format": _FORMATS[type_]}
    return None
