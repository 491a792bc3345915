"""Forms of schemas, by names of files and by their first bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePath
from typing import Any

from txnformat.errors import InvalidInputError, repr_of

__all__ = ["BY_SUFFIX", "FILES", "SchemaFormat", "as_schema_format", "format_of_file", "format_of_json"]


class SchemaFormat(StrEnum):
    """Form of a schema."""

    AVRO = "avro"
    """A record in JSON, as ``.avsc`` files have it."""
    JSON_SCHEMA = "json-schema"
    PROTOBUF = "protobuf"
    """A ``.proto`` file; when read, also a set of descriptors."""
    ARROW = "arrow"
    """Arrow's IPC, as a stream or a file."""
    PARQUET = "parquet"
    SPARK = "spark"
    """The JSON of a StructType."""
    DDL = "ddl"
    """Spark's DDL."""


BY_SUFFIX: Mapping[str, SchemaFormat | None] = {
    ".avsc": SchemaFormat.AVRO,
    ".json": None,
    ".proto": SchemaFormat.PROTOBUF,
    ".desc": SchemaFormat.PROTOBUF,
    ".pb": SchemaFormat.PROTOBUF,
    ".binpb": SchemaFormat.PROTOBUF,
    ".protoset": SchemaFormat.PROTOBUF,
    ".arrow": SchemaFormat.ARROW,
    ".arrows": SchemaFormat.ARROW,
    ".ipc": SchemaFormat.ARROW,
    ".feather": SchemaFormat.ARROW,
    ".parquet": SchemaFormat.PARQUET,
    ".ddl": SchemaFormat.DDL,
    ".sql": SchemaFormat.DDL,
}
"""Form by the suffix of a file's name; None: JSON, which says itself what it is."""
_BY_MAGIC = {b"PAR1": SchemaFormat.PARQUET, b"ARROW1": SchemaFormat.ARROW}
FILES = (
    "Avro (.avsc), JSON Schema or Spark's JSON (.json), Protobuf (.proto, or a descriptor set .desc), "
    "Arrow (.arrow), "
    "Parquet (.parquet), Spark's DDL (.ddl, .sql)"
)
"""The files that schemas are read from, for messages."""


def as_schema_format(value: object) -> SchemaFormat:
    """Return a form. Raises InvalidInputError (``invalid-argument``)."""
    try:
        return SchemaFormat(value)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidInputError(
            f"format is {repr_of(value, 80)}, not one of {', '.join(SchemaFormat)}", kind="invalid-argument"
        ) from None


def format_of_file(path: PurePath, head: bytes) -> SchemaFormat | None:
    """Return the form of a file; None: it is JSON, which says itself what it is.

    ``head``: its first bytes. Raises InvalidInputError of kind ``invalid-file``: it may be anything.
    """
    for magic, found in _BY_MAGIC.items():
        if head.startswith(magic):
            return found
    suffix = path.suffix.lower()
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix]
    raise InvalidInputError(
        "neither the name nor the first bytes of this file say which form of schema it has",
        kind="invalid-file",
        hint=f"give {FILES}, or say which with the format",
    )


def format_of_json(value: Any) -> SchemaFormat:
    """Return the form of a JSON document. Raises InvalidInputError of kind ``invalid-schema``."""
    if isinstance(value, Mapping):
        kind = value.get("type")
        if kind == "struct" and isinstance(value.get("fields"), list):
            return SchemaFormat.SPARK
        if kind == "record" and "fields" in value:
            return SchemaFormat.AVRO
        if kind == "object" or any(word in value for word in ("$schema", "$ref", "properties")):
            return SchemaFormat.JSON_SCHEMA
    raise InvalidInputError(
        "this JSON is not a schema: neither an Avro record, nor the JSON Schema of an object, nor a Spark "
        "StructType",
        kind="invalid-schema",
        hint='begin with {"type": "record", …} for Avro, {"type": "object", "properties": …} for JSON '
        "Schema, "
        '{"type": "struct", "fields": …} for Spark',
    )
