"""Bytes of Kafka's records as values: text, JSON, Avro, Protobuf, also in the wire format of a schema
registry.

Pure.

In that format a 0 byte and the schema's id, 4 bytes, big-endian, come before the data; before Protobuf's data
also the indexes of the message in its file. ``schemas`` gives the schema of an id.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from txnformat.errors import InvalidInputError
from txnlog.schemas.walk import object_of

__all__ = [
    "Decode",
    "Format",
    "Undecodable",
    "avro_decoder",
    "decode_json",
    "decode_text",
    "framed",
    "proto_value",
]

Decode = Callable[[bytes], Any]
"""Returns the value of bytes. Raises Undecodable."""

MAGIC = 0
"""First byte of the wire format."""
HEAD = 5
"""Bytes of the wire format before the data, or before Protobuf's indexes."""

INDEXES_MAX = 64
"""Most levels of messages within messages that are taken."""


class Format(StrEnum):
    """Form of keys or values."""

    RAW = "raw"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Undecodable(Exception):
    """A record is not what its topic should hold."""


class Framed(NamedTuple):
    """Data in the wire format of a registry."""

    schema_id: int
    data: bytes


def framed(data: bytes) -> Framed:
    """Return the parts of data in a registry's wire format. Raises Undecodable."""
    if len(data) < HEAD or data[0] != MAGIC:
        raise Undecodable(
            f"{data[:8]!r} does not begin as a registry's wire format: a 0 byte and the id of a schema"
        )
    return Framed(int.from_bytes(data[1:HEAD], "big"), data[HEAD:])


def decode_text(data: bytes) -> str:
    """Return UTF-8 text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"not UTF-8: {error}") from None


def decode_json(data: bytes) -> Any:
    """Return a JSON value; numbers with a point are decimals, so that none is rounded.

    A registry's head is passed over: JSON never begins with a 0 byte.
    """
    try:
        return json.loads(
            data[HEAD:] if data[:1] == b"\0" else data,
            parse_float=Decimal,
            parse_constant=_no_constant,
            object_pairs_hook=object_of,
        )
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"not JSON: {error!s:.200}") from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a value of JSON")


# --- Avro ---------------------------------------------------------------------------------------------------


def avro_decoder(schema: Any) -> Decode:
    """Return what decodes Avro data of a schema that fastavro has parsed."""
    from fastavro import schemaless_reader

    def decode(data: bytes) -> Any:
        source = io.BytesIO(data)
        try:
            value = schemaless_reader(source, schema, None)
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever its parts raise
            raise Undecodable(
                f"not Avro data of the schema: {type(error).__name__}: {error!s:.200}"
            ) from None
        if source.tell() != len(data):
            raise Undecodable(f"{len(data) - source.tell()} bytes follow the Avro data")
        return plain(value)

    return decode


def plain(value: Any) -> Any:
    """Return a decoded value with a UUID as its text."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


# --- Protobuf -----------------------------------------------------------------------------------------------


def message_indexes(data: bytes) -> tuple[list[int], bytes]:
    """Return the indexes that lead to a message in its file, and the data behind them. Raises Undecodable."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return [0], data[at:]
    if not 0 < count <= INDEXES_MAX:
        raise Undecodable(f"{count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        indexes.append(index)
    return indexes, data[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise Undecodable("the indexes of the message end in the middle")


_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)


def proto_value(message: Any) -> Any:
    """Return a message as a dict by the names of its fields.

    Enums are their names (numbers without one stay numbers), timestamps are datetimes, wrappers their values;
    a field that is a message, or marked optional, is None when it is absent.
    """
    kind = message.DESCRIPTOR.full_name
    if kind == "google.protobuf.Timestamp":
        return _instant(message)
    if kind in _WRAPPERS:
        return message.value
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _instant(message: Any) -> datetime.datetime:
    try:
        at = datetime.datetime.fromtimestamp(message.seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        raise Undecodable(f"a timestamp of {message.seconds} s is out of range") from None
    if message.nanos % 1000:
        raise Undecodable("a timestamp is finer than a microsecond")
    return at + datetime.timedelta(microseconds=message.nanos // 1000)


def _field(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    element = _element(field)
    if isinstance(value, Mapping) or (field.message_type and field.message_type.GetOptions().map_entry):
        item = _element(field.message_type.fields_by_name["value"])
        return [(name, item(value[name])) for name in value]
    if field.is_repeated:
        return [element(one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return element(value)


def _element(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return proto_value
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else number
    return lambda value: value


def as_format(name: str, value: object) -> Format:
    """Return a format. Raises InvalidInputError (``invalid-argument``)."""
    try:
        return Format(value)  # type: ignore[arg-type]
    except ValueError:
        raise InvalidInputError(
            f"{name} is {value!r:.80}, not one of {', '.join(Format)}", kind="invalid-argument"
        ) from None
