"""Schemas of topics as Delta writes them: the schema string, and the table features that a reader needs for
it.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.spark_json import JSON_NAMES, to_spark_json
from txnformat.columns.variants import any_type, contains_variant, is_variant
from txnformat.errors import InvalidInputError
from txnformat.reading.stored_rows import STORED_FIELDS

__all__ = ["DeltaSchema", "delta_schema", "with_positions"]

_NTZ = pa.timestamp("us")
_SCALARS = JSON_NAMES.keys() - {pa.time64("us"), pa.duration("us")}
"""Delta has no time of day and no duration."""
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

    Raises InvalidInputError of kind ``unsupported-view-schema``: every column whose type or name Delta does
    not have.
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
    if any(any_type(field.type, lambda one: bool(one == _NTZ)) for field in schema):
        features.add("timestampNtz")
    if any(contains_variant(field.type) for field in schema):
        features.add("variantType")
    text = json.dumps(to_spark_json(schema), separators=(",", ":"))
    return DeltaSchema(text, tuple(sorted(features)))


def with_positions(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a topic, and the places of its records, which compacted files store: partition,
    offset, and the time that Kafka's clients see.
    """
    return pa.schema([*schema, *(STORED_FIELDS[name] for name in ("_partition", "_offset", "_timestamp"))])


def _problems(type_: pa.DataType, path: str, name: str) -> Iterator[str]:
    """Yield what is wrong with a column or the field of a struct, ``name``, and with what is inside it."""
    if any(character in name for character in _NOT_IN_NAMES):
        yield f"column {path!r:.300} has a name with a space or one of ,;{{}}()=, which Delta does not allow"
    if is_variant(type_) or type_ in _SCALARS or pt.is_decimal128(type_):
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
