"""Messages of Protobuf as schemas of topics, and back. Pure.

=====================================  ============================
Protobuf                               column
=====================================  ============================
bool, float, double, string, bytes     bool, float32, float64, string, binary
int32, sint32, sfixed32                int32
int64, sint64, sfixed64                int64
uint32, fixed32                        int64
uint64, fixed64                        decimal(20,0)
an enum                                string, its names
``google.protobuf.Timestamp``          timestamp
``google.protobuf.Int64Value``, …      the value
another message                        struct
repeated, map                          list, map
=====================================  ============================

These are the values that ``txnlog import kafka`` decodes. Refused: messages that contain themselves
(``google.protobuf.Struct`` is one), and messages without fields; and of topics what Protobuf has no type for,
such as decimals, dates and lists of lists. A list in a message has no nulls, and an empty one is not told
from none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.variants import is_variant
from txnlog.schemas.avro import plain_name
from txnlog.schemas.walk import Walk

__all__ = ["from_message", "to_protobuf"]

_UTC = pa.timestamp("us", tz="UTC")
_UINT64 = pa.decimal128(20, 0)
_BY_NUMBER: Mapping[int, pa.DataType] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: _UINT64,
    5: pa.int32(),
    6: _UINT64,
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    14: pa.string(),  # an enum
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
"""Types by their numbers in ``FieldDescriptorProto.Type``; 10 and 11 are messages."""
_WELL_KNOWN = {
    "google.protobuf.Timestamp": _UTC,
    "google.protobuf.BoolValue": pa.bool_(),
    "google.protobuf.BytesValue": pa.binary(),
    "google.protobuf.DoubleValue": pa.float64(),
    "google.protobuf.FloatValue": pa.float32(),
    "google.protobuf.Int32Value": pa.int32(),
    "google.protobuf.Int64Value": pa.int64(),
    "google.protobuf.StringValue": pa.string(),
    "google.protobuf.UInt32Value": pa.int64(),
    "google.protobuf.UInt64Value": _UINT64,
}


def from_message(descriptor: Any) -> pa.Schema:
    """Return the topic schema of a message.

    ``descriptor``: as the package protobuf has it. Raises InvalidInputError (``unsupported-schema``): every
    field that cannot be a column.
    """
    walk = Walk()
    return walk.schema(list(_fields(walk, descriptor, "", 1, ())))


def _fields(
    walk: Walk, message: Any, path: str, depth: int, within: tuple[str, ...]
) -> Iterator[tuple[str, pa.DataType]]:
    for field in message.fields:
        below = f"{path}.{field.name}".lstrip(".")
        yield field.name, _type(walk, field, below, depth, (*within, message.full_name))


def _type(walk: Walk, field: Any, path: str, depth: int, within: tuple[str, ...]) -> pa.DataType:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, item = (inner.fields_by_name[name] for name in ("key", "value"))
        key_type = _one(walk, key, f"{path}.key", depth + 1, within)
        return map_of(key_type, _one(walk, item, f"{path}.value", depth + 1, within))
    if field.is_repeated:
        return list_of(_one(walk, field, f"{path}.element", depth + 1, within))
    return _one(walk, field, path, depth, within)


def _one(walk: Walk, field: Any, path: str, depth: int, within: tuple[str, ...]) -> pa.DataType:
    """Return the type of one value of a field; ``within``: the messages that it is inside of."""
    if not walk.enter(path, depth):
        return pa.string()
    message = field.message_type
    if message is None:
        return _BY_NUMBER[field.type]
    if message.full_name in _WELL_KNOWN:
        return _WELL_KNOWN[message.full_name]
    if message.full_name in within:
        return walk.refuse(path, f"contains itself: {message.full_name:.200}; a column has a fixed depth")
    fields = list(_fields(walk, message, path, depth + 1, within))
    if not fields:
        return walk.refuse(
            path, f"is the message {message.full_name:.200}, which has no fields; leave it out"
        )
    return struct_of([name for name, _ in fields], [type_ for _, type_ in fields])


# --- back ---------------------------------------------------------------------------------------------------

_NAMES: Mapping[pa.DataType, str] = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    _UTC: ".google.protobuf.Timestamp",
}
_KEYS = frozenset({"bool", "int32", "int64", "string"})
"""Types that keys of maps may have."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def to_protobuf(
    schema: pa.Schema, name: str, places: Sequence[int] = (), dropped: Sequence[tuple[int, pa.Field]] = ()
) -> str:
    """Return a proto3 file with the message of a topic's columns (canonical types).

    The number of a field is the place of its column, beginning with 1, so a number keeps its meaning.
    ``places``: of the columns, from 0; empty: in their order. ``dropped``: places that are empty, with their
    columns: numbers that are reserved. Raises InvalidInputError of kind ``unsupported-schema``: every column
    whose type or name Protobuf does not have.
    """
    walk = Walk()
    lines = list(_message(walk, _message_name(name), schema, "", "", [place + 1 for place in places]))
    if dropped:
        lines.insert(1, f"  reserved {', '.join(str(place + 1) for place, _ in dropped)};")
    walk.check("Protobuf has no such columns; export as spark, ddl or arrow, which have them all")
    head = ['syntax = "proto3";', ""]
    if any(".google.protobuf.Timestamp" in line for line in lines):
        head += ['import "google/protobuf/timestamp.proto";', ""]
    return "\n".join([*head, *lines]) + "\n"


def _message_name(name: str) -> str:
    found = plain_name(name)
    return found if _NAME.fullmatch(found) else f"Record{found}"


def _message(
    walk: Walk, name: str, fields: Any, path: str, indent: str, numbers: Sequence[int] = ()
) -> Iterator[str]:
    """Yield the lines of a message. ``numbers``: of its fields; empty: from 1 on."""
    fields = list(fields)
    taken = {field.name for field in fields}
    _check_names(walk, fields, path)
    yield f"{indent}message {name} {{"
    for number, field in zip(numbers or range(1, len(fields) + 1), fields, strict=True):
        below = f"{path}.{field.name}".lstrip(".")
        struct = _struct_in(field.type)
        message = ""
        if struct is not None:
            message = _unique(field.name, taken)
            yield from _message(walk, message, struct, below, f"{indent}  ")
        yield f"{indent}  {_declared(walk, field.type, message, below)} {field.name} = {number};"
    yield f"{indent}}}"


def _unique(field: str, taken: set[str]) -> str:
    """Return a name for the message of a field; fields and messages within a message share their names."""
    base = "".join(part[:1].upper() + part[1:] for part in field.split("_"))
    name, number = f"{base}Fields", 1
    while name in taken:
        number += 1
        name = f"{base}Fields{number}"
    taken.add(name)
    return name


def _check_names(walk: Walk, fields: list[Any], path: str) -> None:
    """Refuse names that Protobuf does not have, and those that it cannot tell apart."""
    seen: dict[str, str] = {}
    entries = {f"{_camel(field.name)}Entry": field.name for field in fields if pt.is_map(field.type)}
    for field in fields:
        below = f"{path}.{field.name}".lstrip(".")
        if not _NAME.fullmatch(field.name):
            walk.refuse(
                below, "has a name that Protobuf does not allow: letters, digits and _, and a letter first"
            )
        folded = field.name.replace("_", "").lower()
        if folded in seen:
            walk.refuse(below, f"has a name that Protobuf does not distinguish from {seen[folded]!r:.200}")
        elif field.name in entries:
            walk.refuse(
                below,
                f"has the name that Protobuf gives to the entries of the map {entries[field.name]!r:.200}",
            )
        seen.setdefault(folded, field.name)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _struct_in(type_: pa.DataType) -> pa.DataType | None:
    """Return the struct that a field needs a message for: itself, or what it is a list or a map of."""
    if is_variant(type_):
        return None
    if pt.is_struct(type_):
        return type_
    inner = type_.item_type if pt.is_map(type_) else type_.value_type if pt.is_list(type_) else None
    return inner if inner is not None and pt.is_struct(inner) and not is_variant(inner) else None


def _declared(walk: Walk, type_: pa.DataType, message: str, path: str) -> str:
    if pt.is_map(type_):
        key = _NAMES.get(type_.key_type, "")
        if key not in _KEYS:
            walk.refuse(
                path,
                f"is a map with keys of {type_.key_type}; Protobuf has keys of texts, integers and booleans",
            )
        return f"map<{key}, {_plain(walk, type_.item_type, message, f'{path}.value')}>"
    if pt.is_list(type_):
        return f"repeated {_plain(walk, type_.value_type, message, f'{path}.element')}"
    return f"optional {_plain(walk, type_, message, path)}"


def _plain(walk: Walk, type_: pa.DataType, message: str, path: str) -> str:
    if is_variant(type_):
        walk.refuse(path, "is a variant, which Protobuf does not have")
        return ""
    if pt.is_struct(type_):
        return message
    found = None if pt.is_nested(type_) else _NAMES.get(type_)
    if found is None:
        walk.refuse(path, f"has the type {type_}, which Protobuf does not have there")
    return found or ""
