"""Avro schemas (``.avsc``) as schemas of topics, and back. Pure.

======================================  ==============================================
Avro                                    column
======================================  ==============================================
boolean, int, long, float, double       bool, int32, int64, float32, float64
int with ``connect.type`` int8, int16   int8, int16
string, enum, ``uuid``                  string
bytes, fixed                            binary
``decimal``                             decimal
``date``                                date
``time-millis``, ``time-micros``        time
``timestamp-millis``, ``-micros``       timestamp
``local-timestamp-millis``, ``-micros`` timestamp without a zone
record, array, map                      struct, list, map with keys of text
union of null and one type              that type
======================================  ==============================================

These are the values that fastavro decodes. ``connect.type`` is the mark of Kafka Connect. Logical types that
Avro does not specify are their plain types, as its specification says. Refused: other unions, types that
contain themselves, ``timestamp-nanos``, ``duration``; and of topics intervals, variants, and maps whose keys
are not text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.variants import is_variant
from txnlog.schemas.walk import Walk, invalid

__all__ = ["from_avro", "plain_name", "to_avro"]

_UTC, _NTZ, _TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.time64("us")
_PRIMITIVES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): _TIME,
    ("long", "time-micros"): _TIME,
    ("long", "timestamp-millis"): _UTC,
    ("long", "timestamp-micros"): _UTC,
    ("long", "local-timestamp-millis"): _NTZ,
    ("long", "local-timestamp-micros"): _NTZ,
    ("string", "uuid"): pa.string(),
    ("fixed", "uuid"): pa.string(),
}
_REFUSED = {
    ("long", "timestamp-nanos"): "use timestamp-micros",
    ("long", "local-timestamp-nanos"): "use local-timestamp-micros",
    ("fixed", "duration"): "use a record with months, days and milliseconds",
}
_COMPLEX = frozenset({"array", "enum", "error", "fixed", "map", "record"})
_CONNECT = {"int8": pa.int8(), "int16": pa.int16()}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def from_avro(schema: Any, named: Mapping[str, Any]) -> pa.Schema:
    """Return the topic schema of an Avro record.

    Parameters
    ----------
    schema
        As fastavro has parsed it.
    named
        Its named types, by full name.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-schema``: it is not a record; ``unsupported-schema``: every field that cannot be a
        column.
    """
    walk = Walk()
    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise invalid(
            f"the Avro schema is of the type {_shown(schema)}, not a record",
            "the columns of a topic are the fields of a record",
        )
    return walk.schema(_Reader(walk, named).fields(schema, "", 1, ()))


class _Reader:
    """Makes columns of Avro types."""

    def __init__(self, walk: Walk, named: Mapping[str, Any]) -> None:
        self._walk, self._named = walk, named

    def fields(
        self, record: Any, path: str, depth: int, within: tuple[str, ...]
    ) -> list[tuple[str, pa.DataType]]:
        within = (*within, record["name"])
        found = []
        for field in record["fields"]:
            if not self._walk.has_name(field["name"], path):
                continue
            below = f"{path}.{field['name']}".lstrip(".")
            found.append((field["name"], self.type(field["type"], below, depth, within)))
        return found

    def type(self, schema: Any, path: str, depth: int, within: tuple[str, ...]) -> pa.DataType:
        """Return the type of a field's schema; ``within``: the records that it is inside of."""
        if not self._walk.enter(path, depth):
            return self._walk.refuse(path, "is nested too deep")
        if isinstance(schema, list):
            options = [one for one in schema if one != "null" and one != {"type": "null"}]
            if len(options) == 1:
                return self.type(options[0], path, depth, within)
            shown = ", ".join(map(_shown, options)) or "null alone"
            return self._walk.refuse(
                path, f"is a union of {shown:.200}; use one type, or a record with a field for each"
            )
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if kind in self._named and kind not in _COMPLEX:  # a type may be called "record"
            return self.type(kind, path, depth, within)
        if kind in ("record", "error"):
            if schema["name"] in within:
                return self._walk.refuse(
                    path, f"contains itself: {schema['name']:.200}; a column has a fixed depth"
                )
            fields = self.fields(schema, path, depth + 1, within)
            if not fields:
                return self._walk.refuse(path, "is a record without fields; give it one, or leave it out")
            return struct_of([name for name, _ in fields], [type_ for _, type_ in fields])
        if kind == "array":
            return list_of(self.type(schema["items"], f"{path}.element", depth + 1, within))
        if kind == "map":
            return map_of(pa.string(), self.type(schema["values"], f"{path}.value", depth + 1, within))
        return self._scalar(schema, kind, path)

    def _scalar(self, schema: Any, kind: Any, path: str) -> pa.DataType:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            return self._walk.decimal(path, schema.get("precision"), schema.get("scale", 0), "")
        if isinstance(logical, str):
            if (kind, logical) in _LOGICAL:
                return _LOGICAL[kind, logical]
            if (kind, logical) in _REFUSED:
                return self._walk.refuse(
                    path,
                    f"has the logical type {logical}, which a column cannot hold; {_REFUSED[kind, logical]}",
                )
        if kind == "int" and schema.get("connect.type") in _CONNECT:
            return _CONNECT[schema["connect.type"]]
        found = _PRIMITIVES.get(kind) if isinstance(kind, str) else None
        if found is None:
            return self._walk.refuse(path, f"has the type {_shown(schema)}; give the type that it will have")
        return found


def _shown(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    kind = schema.get("type") if isinstance(schema, dict) else schema
    name = schema.get("name") if isinstance(schema, dict) else None
    return (
        f"{kind if isinstance(kind, str) else 'union'!s:.80}{f' {name:.80}' if isinstance(name, str) else ''}"
    )


# --- back ---------------------------------------------------------------------------------------------------

_NAMES: Mapping[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): {"type": "int", "connect.type": "int8"},
    pa.int16(): {"type": "int", "connect.type": "int16"},
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    _TIME: {"type": "long", "logicalType": "time-micros"},
    _UTC: {"type": "long", "logicalType": "timestamp-micros"},
    _NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def to_avro(schema: pa.Schema, name: str) -> str:
    """Return the Avro record of a topic's columns (canonical types), each of them nullable.

    Raises InvalidInputError of kind ``unsupported-schema``: every column whose type or name Avro does not
    have.
    """
    walk = Walk()
    record = _Writer(walk).record(schema, plain_name(name), "")
    walk.check("Avro has no such columns; export as spark, ddl or arrow, which have them all")
    return json.dumps(record, indent=2) + "\n"


def plain_name(name: str) -> str:
    """Return a name of letters, digits and ``_`` that does not begin with a digit."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return found if _NAME.fullmatch(found) else f"_{found}"


class _Writer:
    """Makes Avro types of columns."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._names: set[str] = set()

    def record(self, fields: Any, name: str, path: str) -> dict[str, Any]:
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        found = []
        for field in fields:
            below = f"{path}.{field.name}".lstrip(".")
            if not _NAME.fullmatch(field.name):
                self._walk.refuse(
                    below, "has a name that Avro does not allow: letters, digits and _, and no digit first"
                )
            type_ = self.type(field.type, f"{unique}_{plain_name(field.name)}", below)
            found.append({"name": field.name, "type": ["null", type_], "default": None})
        return {"type": "record", "name": unique, "fields": found}

    def type(self, type_: pa.DataType, name: str, path: str) -> Any:
        if is_variant(type_):
            return self._walk.refuse(path, "is a variant, which Avro does not have")
        if pt.is_struct(type_):
            return self.record(type_, name, path)
        if pt.is_map(type_):
            if not pt.is_string(type_.key_type):
                self._walk.refuse(
                    path, f"is a map with keys of {type_.key_type}; Avro's maps have keys of text"
                )
            return {
                "type": "map",
                "values": ["null", self.type(type_.item_type, f"{name}_value", f"{path}.value")],
            }
        if pt.is_list(type_):
            element = self.type(type_.value_type, f"{name}_element", f"{path}.element")
            return {"type": "array", "items": ["null", element]}
        if pt.is_decimal(type_):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": type_.precision,
                "scale": type_.scale,
            }
        found = _NAMES.get(type_)
        return (
            self._walk.refuse(path, f"has the type {type_}, which Avro does not have")
            if found is None
            else found
        )
