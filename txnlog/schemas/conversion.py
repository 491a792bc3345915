"""Schemas of other systems as schemas of topics, and back: :func:`parse_schema`, :func:`export_schema`, and
from a file :func:`read_schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypedDict

import pyarrow as pa

from txnformat.columns.spark_json import from_spark_json
from txnformat.core.topics.schema import TopicSchema, as_topic_schema
from txnformat.errors import InvalidInputError, NotFoundError, repr_of
from txnlog.foreign_files import foreign_arrow_schema, open_foreign
from txnlog.schemas.avro import from_avro, to_avro
from txnlog.schemas.ddl import from_ddl, to_ddl, to_spark
from txnlog.schemas.formats import SchemaFormat, as_schema_format, format_of_file, format_of_json
from txnlog.schemas.json_schema import from_json_schema, to_json_schema
from txnlog.schemas.parsing import message_in, parsed_avro
from txnlog.schemas.protobuf import from_message, to_protobuf
from txnlog.schemas.protoc import compiled
from txnlog.schemas.walk import invalid, json_of

__all__ = ["Growth", "export_schema", "growth", "parse_schema", "read_schema"]

SCHEMA_BYTES_MAX = 16 * 1024 * 1024
"""Largest schema that is read as text (inclusive)."""


def read_schema(
    path: str | Path,
    format: str | None = None,
    *,
    message: str | None = None,  # the word of publish and of Spark
) -> pa.Schema:
    """Return the schema in a file as that of a topic; ``log.create_topic`` takes it.

    Parameters
    ----------
    path : str or Path
        Avro (``.avsc``), JSON Schema or Spark's JSON (``.json``), Protobuf (``.proto``, or a set of
        descriptors), Arrow IPC, Parquet, Spark's DDL (``.ddl``, ``.sql``).
    format : str, optional
        ``avro``, ``json-schema``, ``protobuf``, ``arrow``, ``parquet``, ``spark`` or ``ddl``; by default the
        name of the file says it, and JSON says it itself.
    message : str, optional
        Full name of the message, for Protobuf; by default the only one of the file.

    Returns
    -------
    pyarrow.Schema
        With the types that a topic has, all columns nullable.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-file``: it is of no known form; ``invalid-schema``: it is not sound;
        ``unsupported-schema``: every field that cannot be a column, by its path. Each has the file's name.
    NotFoundError
        Kind ``no-file``.
    UnsupportedFeatureError
        Kind ``missing-package``: Avro and Protobuf need the extra ``schemas``.
    """
    path = Path(path)
    wanted = None if format is None else as_schema_format(format)
    try:
        with path.open("rb") as file:
            return _of_file(file, path, wanted, message)
    except FileNotFoundError:
        raise NotFoundError("there is no such file", kind="no-file", file=str(path)) from None
    except InvalidInputError as error:
        raise InvalidInputError(
            error.problems or error.what,
            kind=error.kind,
            hint=error.hint,
            **{**error.values, "file": str(path)},
        ) from None
    except OSError as error:
        raise InvalidInputError(
            f"the file cannot be read: {error.strerror or error}", kind="invalid-file", file=str(path)
        ) from None


def _of_file(file: IO[bytes], path: Path, wanted: SchemaFormat | None, message: str | None) -> pa.Schema:
    head = file.read(8)
    file.seek(0)
    found = format_of_file(path, head) if wanted is None else wanted
    if found is SchemaFormat.PARQUET:
        with open_foreign(file, hint=None) as foreign:
            return _canonical(foreign.schema)
    if found is SchemaFormat.ARROW:
        return _canonical(foreign_arrow_schema(file))
    data = file.read(SCHEMA_BYTES_MAX + 1)
    if found is SchemaFormat.PROTOBUF and path.suffix.lower() == ".proto":
        return _protobuf(compiled(path), message)
    if found is None:
        found = format_of_json(json_of(_text(data, "JSON"), "a schema in JSON"))
    return parse_schema(data, found, message=message)


def parse_schema(
    data: str | bytes,
    format: str,
    *,
    message: str | None = None,
) -> pa.Schema:
    """Return the schema in a text as that of a topic.

    Parameters
    ----------
    data : str or bytes
        The text, UTF-8; of Protobuf a set of descriptors as ``protoc --include_imports
        --descriptor_set_out=FILE`` writes it: for its text, and for Arrow and Parquet, call
        :func:`read_schema`.
    format : str
        ``avro``, ``json-schema``, ``protobuf``, ``spark`` or ``ddl``.
    message : str, optional
        Full name of the message, for Protobuf; by default the only one of its last file.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-argument``, ``invalid-schema``, ``unsupported-schema``: as of :func:`read_schema`.
    UnsupportedFeatureError
        Kind ``missing-package``.
    """
    wanted = as_schema_format(format)
    if not isinstance(data, str | bytes):
        raise InvalidInputError(
            f"the schema is {repr_of(data, 80)}, neither text nor bytes", kind="invalid-argument"
        )
    if len(data) > SCHEMA_BYTES_MAX:
        raise invalid(f"the schema has more than {SCHEMA_BYTES_MAX:,} bytes")
    if wanted is SchemaFormat.PROTOBUF:
        return _protobuf(data.encode() if isinstance(data, str) else data, message)
    parse = _PARSERS.get(wanted)
    if parse is None:
        raise InvalidInputError(
            f"a schema of the form {wanted} is read from a file",
            kind="invalid-argument",
            hint="call read_schema",
        )
    return parse(_text(data, wanted))


def _text(data: str | bytes, form: str) -> str:
    try:
        return data if isinstance(data, str) else data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise invalid(f"this is not {form}, which is UTF-8 text") from None


def _avro(text: str) -> pa.Schema:
    named: dict[str, Any] = {}
    json_of(text, "an Avro schema")
    return from_avro(parsed_avro(text, named), named)


def _protobuf(data: bytes, message: str | None) -> pa.Schema:
    return from_message(message_in(data, message))


def _spark(text: str) -> pa.Schema:
    value = json_of(text, "the JSON of a Spark schema")
    return from_spark_json(value if isinstance(value, Mapping) else {"type": value})


def _canonical(schema: pa.Schema) -> pa.Schema:
    return as_topic_schema(schema).arrow_schema


_PARSERS: Mapping[SchemaFormat, Callable[[str], pa.Schema]] = {
    SchemaFormat.AVRO: _avro,
    SchemaFormat.JSON_SCHEMA: lambda text: from_json_schema(json_of(text, "a JSON Schema")),
    SchemaFormat.SPARK: _spark,
    SchemaFormat.DDL: from_ddl,
}


class Growth(TypedDict):
    """Arguments of ``log.alter_topic`` that let a topic grow."""

    add_columns: list[pa.Field] | None
    widen: dict[str, pa.DataType] | None


def growth(schema: Any, wanted: Any) -> Growth:
    """Return the changes by which a topic takes the columns of another schema;
    ``log.alter_topic(name, **growth(…))`` makes them, or says which of them cannot be.

    Parameters
    ----------
    schema, wanted : pyarrow.Schema, Spark StructType, or a topic's schema
        The topic's, and the newer one. Columns that only the topic has stay: records without them are null
        there.

    Returns
    -------
    dict
        ``add_columns`` and ``widen``; None where there is nothing to do.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-schema``, ``unsupported-schema``.
    """
    known = as_topic_schema(schema).arrow_schema
    columns = as_topic_schema(wanted).arrow_schema
    types = dict(zip(known.names, known.types, strict=True))
    add = [field for field in columns if field.name not in types]
    wider = {one.name: one.type for one in columns if not types.get(one.name, one.type).equals(one.type)}
    return {"add_columns": add or None, "widen": wider or None}


def export_schema(schema: Any, format: str, *, name: str = "Record") -> bytes:
    """Return a schema in the form of another system.

    Parameters
    ----------
    schema : pyarrow.Schema, Spark StructType, or a topic's schema
        Such as ``log.state.topic("orders").schema``.
    format : str
        ``avro``, ``json-schema``, ``protobuf`` (a proto3 file), ``arrow`` (an IPC stream without rows),
        ``parquet`` (a file without rows), ``spark`` (the JSON of a StructType) or ``ddl``.
    name : str
        Name of the record, of the message, or the title.

    Returns
    -------
    bytes
        UTF-8 for the forms that are text.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-argument``, ``invalid-schema``; ``unsupported-schema``: every column that the form
        cannot have. ``arrow``, ``parquet``, ``spark`` and ``ddl`` have them all.
    """
    wanted = as_schema_format(format)
    columns = as_topic_schema(schema).arrow_schema
    match wanted:
        case SchemaFormat.AVRO:
            return to_avro(columns, name).encode()
        case SchemaFormat.JSON_SCHEMA:
            return to_json_schema(columns, name).encode()
        case SchemaFormat.PROTOBUF:
            if isinstance(schema, TopicSchema):
                places = schema.places_of(schema.schema_id)
                return to_protobuf(columns, name, places, schema.dropped()).encode()
            return to_protobuf(columns, name).encode()
        case SchemaFormat.SPARK:
            return to_spark(columns).encode()
        case SchemaFormat.DDL:
            return to_ddl(columns).encode()
        case SchemaFormat.ARROW:
            sink = pa.BufferOutputStream()
            pa.ipc.new_stream(sink, columns).close()
            return bytes(sink.getvalue())
        case SchemaFormat.PARQUET:
            import pyarrow.parquet as pq

            sink = pa.BufferOutputStream()
            pq.write_table(columns.empty_table(), sink)
            return bytes(sink.getvalue())
