"""Schemas of topics as Iceberg has them: ids for columns, and the mapping of names to ids that readers need,
since segment files have no ids.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.variants import is_variant
from txnformat.errors import InvalidInputError
from txnformat.reading.stored_rows import STORED_FIELDS

__all__ = ["STORED_IDS", "IcebergSchema", "Path", "iceberg_schema", "ids_of", "mapping_of"]

_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.timestamp("us", tz="UTC"): "timestamptz",
    pa.timestamp("us"): "timestamp",
}

STORED_IDS = 2_000_000_000
"""The id of the first of the columns that compacted files have behind those of the topic. Iceberg's own begin
with 2,147,483,447."""
Path = tuple[str, ...]
"""Names from the outermost column inwards; the parts of lists and maps are ``element``, ``key`` and
``value``."""


class IcebergSchema(NamedTuple):
    """A topic's columns as an Iceberg table has them."""

    fields: tuple[Mapping[str, Any], ...]
    """The JSON of the columns."""
    last_id: int
    """The largest id that the table has given to a column."""
    name_mapping: tuple[Mapping[str, Any], ...]
    """The JSON of ``schema.name-mapping.default``."""


def iceberg_schema(
    schema: pa.Schema,
    topic: str,
    known: Mapping[Path, int] | None = None,
    last_id: int = 0,
    aliases: Mapping[str, Sequence[str]] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
) -> IcebergSchema:
    """Return the columns of a topic (canonical types) for Iceberg.

    ``known``: ids that the table has given already; columns keep theirs, and others get ids above
    ``last_id``. ``aliases``: further names of columns in older files. ``others``: the mapping of columns that
    only older files have. Raises InvalidInputError of kind ``unsupported-view-schema``: every column whose
    type or name Iceberg does not have.
    """
    problems = [problem for field in schema for problem in _problems(field.type, (field.name,))]
    counts = Counter(".".join(path) for field in schema for path in _paths(field.type, (field.name,)))
    problems += [
        f"two columns have the name {name!r:.300} for Iceberg, which puts dots between the names of "
        "nested ones"
        for name, count in counts.items()
        if count > 1
    ]
    if problems:
        raise InvalidInputError(
            problems,
            kind="unsupported-view-schema",
            hint="a topic with such columns cannot be published as an Iceberg table; nothing was written",
            topic=topic,
        )
    ids = _Ids(known or {}, last_id)
    fields = tuple(_field(ids, field, (field.name,)) for field in schema)
    mapping: list[Mapping[str, Any]] = []
    for one in fields:
        found = _mapped(one["id"], one["name"], one["type"])
        mapping.append({**found, "names": [one["name"], *(aliases or {}).get(one["name"], ())]})
    mapping += others
    # pyiceberg wants every column of a file to have an id, also those that the table does not have.
    mapping += [
        {"field-id": STORED_IDS + number, "names": [name]} for number, name in enumerate(STORED_FIELDS)
    ]
    return IcebergSchema(fields, ids.last, tuple(mapping))


def mapping_of(field: pa.Field, last_id: int) -> tuple[Mapping[str, Any], int]:
    """Return the mapping of a column that a table does not have, with ids above ``last_id``, and the last of
    these.
    """
    ids = _Ids({}, last_id)
    made = _field(ids, field, (field.name,))
    return _mapped(made["id"], made["name"], made["type"]), ids.last


def ids_of(fields: Any, prefix: Path = ()) -> dict[Path, int]:
    """Return the ids of columns, by path, from the JSON of a schema's fields."""
    found: dict[Path, int] = {}
    for one in fields:
        path = (*prefix, one["name"])
        found[path] = one["id"]
        found |= _inner_ids(one["type"], path)
    return found


def _inner_ids(type_: Any, path: Path) -> dict[Path, int]:
    if isinstance(type_, str):
        return {}
    if type_["type"] == "struct":
        return ids_of(type_["fields"], path)
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    found = {(*path, part): type_[f"{part}-id"] for part in parts}
    for part in parts:
        found |= _inner_ids(type_[part], (*path, part))
    return found


class _Ids:
    """Gives ids to columns."""

    def __init__(self, known: Mapping[Path, int], last: int) -> None:
        self._known = known
        self.last = last

    def of(self, path: Path) -> int:
        if path in self._known:
            return self._known[path]
        self.last += 1
        return self.last


def _problems(type_: pa.DataType, path: Path) -> Iterator[str]:
    """Yield what is wrong with a column, and with what is inside it."""
    if is_variant(type_):
        yield (
            f"column {'.'.join(path)!r:.300} has the type variant, which Iceberg has from version 3 on; "
            "tables are published in version 2"
        )
    elif type_ not in _NAMES and not pt.is_decimal128(type_):
        parts = _parts(type_)
        if parts is None:
            yield f"column {'.'.join(path)!r:.300} has the type {type_}, which Iceberg does not have"
        for name, inner in parts or ():
            yield from _problems(inner, (*path, name))


def _paths(type_: pa.DataType, path: Path) -> Iterator[Path]:
    yield path
    for name, inner in _parts(type_) or ():
        yield from _paths(inner, (*path, name))


def _parts(type_: pa.DataType) -> list[tuple[str, pa.DataType]] | None:
    """Return what a nested type consists of; None: it is not nested."""
    if pt.is_struct(type_):
        return [(field.name, field.type) for field in type_]
    if pt.is_map(type_):
        return [("key", type_.key_type), ("value", type_.item_type)]
    return [("element", type_.value_type)] if pt.is_list(type_) else None


def _field(ids: _Ids, field: pa.Field, path: Path) -> dict[str, Any]:
    return {
        "id": ids.of(path),
        "name": field.name,
        "required": False,
        "type": _type(ids, field.type, path),
    }


def _type(ids: _Ids, type_: pa.DataType, path: Path) -> Any:
    if pt.is_decimal128(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    if pt.is_struct(type_):
        return {"type": "struct", "fields": [_field(ids, one, (*path, one.name)) for one in type_]}
    if pt.is_map(type_):
        key, value = (*path, "key"), (*path, "value")
        return {
            "type": "map",
            "key-id": ids.of(key),
            "key": _type(ids, type_.key_type, key),
            "value-id": ids.of(value),
            "value": _type(ids, type_.item_type, value),
            "value-required": False,
        }
    if pt.is_list(type_):
        element = (*path, "element")
        return {
            "type": "list",
            "element-id": ids.of(element),
            "element": _type(ids, type_.value_type, element),
            "element-required": False,
        }
    return _NAMES[type_]


def _mapped(id_: int, name: str, type_: Any) -> dict[str, Any]:
    """Return the mapping of a column, and of what is inside it."""
    found: dict[str, Any] = {"field-id": id_, "names": [name]}
    if isinstance(type_, str):
        return found
    if type_["type"] == "struct":
        inner = [(one["id"], one["name"], one["type"]) for one in type_["fields"]]
    else:
        parts = ("element",) if type_["type"] == "list" else ("key", "value")
        inner = [(type_[f"{part}-id"], part, type_[part]) for part in parts]
    return found | {"fields": [_mapped(*one) for one in inner]}
