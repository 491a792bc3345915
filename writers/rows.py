"""Single records: checked one by one when they are sent, made into Arrow many at a time.

Bringing one record to Arrow costs as much as bringing a thousand. So a record whose values are plainly of
their columns' types is kept as it is, and converted with those sent after it; every other one takes the
careful way of :func:`txnformat.core.topics.schema.conform` at once, so that whatever is wrong with it is said
by the send that brought it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from txnformat.arguments import items
from txnformat.columns.arrow_cells import without_arrow
from txnformat.columns.conform import unreadable
from txnformat.core.records.chunks import CHUNK_HEADER
from txnformat.core.topics.schema import KAFKA_SCHEMA, TopicSchema
from txnformat.errors import InvalidInputError, TxnLogError, repr_of, type_name
from writers.chunks import Value

__all__ = ["Headers", "PlainRow", "RowFormat", "kafka_record", "kafka_rows"]

Headers = Mapping[str, Any] | Sequence[tuple[str, Any]] | Sequence[Mapping[str, Any]]
"""Names and values, bytes or text or None: a mapping, pairs, or dicts of ``key`` and ``value`` as readers
return them."""

FIXED_BYTES = 8
"""Bytes that a value of fixed width counts for: near enough for a limit on memory."""

Measure = Callable[[Any], int]
"""Returns about how many bytes a value takes in Arrow, or -1 when it is not plainly of the column's type."""


class PlainRow(NamedTuple):
    """A record whose conversion cannot fail."""

    values: tuple[Any, ...]
    """In the order of the schema; immutable."""
    size: int
    """Bytes, roughly."""


def _whole(bits: int) -> Measure:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1)

    def measure(value: Any) -> int:
        return FIXED_BYTES if value is None or (type(value) is int and low <= value < high) else -1

    return measure


def _exactly(kind: type) -> Measure:
    def measure(value: Any) -> int:
        return FIXED_BYTES if value is None or type(value) is kind else -1

    return measure


def _text(value: Any) -> int:
    if value is None:
        return FIXED_BYTES
    # Only ASCII is sure to be UTF-8: others may hold half a surrogate pair.
    return FIXED_BYTES + len(value) if type(value) is str and value.isascii() else -1


def _binary(value: Any) -> int:
    return FIXED_BYTES + len(value) if type(value) is bytes else FIXED_BYTES if value is None else -1


def _instant(zone: datetime.tzinfo | None) -> Measure:
    def measure(value: Any) -> int:
        if value is None:
            return FIXED_BYTES
        return FIXED_BYTES if type(value) is datetime.datetime and value.tzinfo is zone else -1

    return measure


def _measure_of(type_: Any) -> Measure:
    if pt.is_signed_integer(type_):
        return _whole(type_.bit_width)
    if pt.is_float64(type_):
        return _exactly(float)
    if pt.is_boolean(type_):
        return _exactly(bool)
    if pt.is_string(type_):
        return _text
    if pt.is_binary(type_):
        return _binary
    if pt.is_timestamp(type_) and type_.unit == "us":
        return _instant(None if type_.tz is None else datetime.UTC)
    return _exactly(type(None))


class RowFormat:
    """Tells the plain records of a topic from others, and makes tables of plain ones."""

    def __init__(self, schema: pa.Schema) -> None:
        names = list(schema.names)
        self._schema = schema
        self._count = len(names)
        self._getter: Callable[[Any], Any] = itemgetter(*names) if names else lambda row: ()
        self._measures = [_measure_of(field.type) for field in schema]

    def pack(self, row: Any) -> PlainRow | None:
        """Return the record's values, or None when it needs the careful way."""
        if type(row) is not dict or len(row) != self._count:
            return None
        try:
            values = self._getter(row)
        except KeyError:
            return None
        if self._count == 1:
            values = (values,)
        total = 0
        for measure, value in zip(self._measures, values, strict=True):
            size = measure(value)
            if size < 0:
                return None
            total += size
        return PlainRow(values, total)

    def table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Return packed records (at least one) as a table."""
        columns = zip(*rows, strict=True)
        arrays = [
            pa.array(values, type=field.type) for values, field in zip(columns, self._schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self._schema)


def is_kafka(schema: TopicSchema) -> bool:
    """Tell whether a topic was made with the schema ``"kafka"``; columns may have been added since."""
    return bool(schema.version(0).equals(KAFKA_SCHEMA.arrow_schema))


def kafka_record(
    schema: TopicSchema,
    key: bytes | str | None,
    value: Value,
    headers: Headers | None,
    timestamp: datetime.datetime,
) -> dict[str, Any]:
    """Return one record of a topic with the schema ``"kafka"``; text is stored as UTF-8.

    Raises InvalidInputError of kind ``schema-mismatch`` (topic, text, timestamp, or a value that cannot be
    read) or ``invalid-headers``.
    """
    try:
        if not is_kafka(schema):
            raise InvalidInputError(
                'key= and value= are for topics with the schema "kafka"',
                kind="schema-mismatch",
                hint="pass a pyarrow Table or RecordBatch, or a list of dicts",
                columns=schema.arrow_schema.names,
            )
        if not isinstance(timestamp, datetime.datetime):
            raise _no_datetime(timestamp)
        return {
            "key": _encoded("key", key),
            "value": _encoded("value", value),  # or a file, which others read
            "headers": None if headers is None else _header_rows(headers),
            "timestamp": timestamp,
        }
    except (TxnLogError, MemoryError):
        raise
    except Exception as error:
        raise unreadable(value, error) from error


def kafka_rows(schema: TopicSchema, data: Any, now: Callable[[], datetime.datetime]) -> Any:
    """Return what was sent, records in dicts as :func:`kafka_record` takes them; anything else as it is.

    Of a topic with the schema ``"kafka"`` a dict may leave out key, headers and timestamp, which is now then,
    and have its headers as a mapping or as pairs. Raises InvalidInputError of kind ``invalid-headers``; kind
    ``schema-mismatch``: a value, or a dict, stands where a list of dicts should; a timestamp is a number;
    data cannot be read.
    """
    try:
        if isinstance(data, bytes | bytearray | memoryview | str | Mapping):
            shape = (
                "[{…}], a list of dicts" if isinstance(data, Mapping) else "value=…, and key=… if it has one"
            )
            raise InvalidInputError(
                f"a {type_name(data)} cannot be sent as data; nothing was sent",
                kind="schema-mismatch",
                hint=f"one record is sent as {shape}",
            )
        if not isinstance(data, list | tuple) or not data or not is_kafka(schema):
            return data
        return [_kafka_row(row, now) for row in data]
    except (TxnLogError, MemoryError):
        raise
    except Exception as error:
        raise unreadable(data, error) from error


def _kafka_row(row: Any, now: Callable[[], datetime.datetime]) -> Any:
    if not isinstance(row, dict):
        return row  # conform says what is wrong with it
    if isinstance(row.get("timestamp"), int | float):
        raise _no_datetime(row["timestamp"])
    headers = row.get("headers")
    is_plain = headers is None or (isinstance(headers, list) and all(type(one) is dict for one in headers))
    if is_plain and row.keys() >= _KAFKA_COLUMNS:
        return row
    found = {"key": None, "headers": None, **row}
    if "timestamp" not in row:
        found["timestamp"] = now()
    if not is_plain:
        found["headers"] = _header_rows(headers)
    return found


def _no_datetime(timestamp: object) -> InvalidInputError:
    """Return the error of a time that is none: Arrow would take a number, as µs, and Kafka's users mean
    ms.
    """
    return InvalidInputError(
        f"timestamp is {repr_of(timestamp, 80)}, not a datetime; nothing was sent",
        kind="schema-mismatch",
        hint="of milliseconds: datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)",
    )


_KAFKA_COLUMNS = frozenset(KAFKA_SCHEMA.arrow_schema.names)


def _encoded(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{name} is text with half a surrogate pair at {error.start}, which UTF-8 does not have; "
            "nothing was sent",
            kind="schema-mismatch",
            hint="send bytes, or mend the text",
        ) from None


def _header_rows(headers: Any) -> list[dict[str, Any]]:
    """Return headers as the column has them: a mapping's in its order, pairs, or what a reader returned."""
    rows: list[dict[str, Any]] = []
    try:
        headers = without_arrow(headers)
    except ValueError as error:
        raise InvalidInputError(f"headers cannot be read: {error}", kind="invalid-headers") from None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    if not isinstance(headers, Mapping | list | tuple):
        pairs = items(headers, "headers", kind="invalid-headers")
    for pair in pairs if isinstance(pairs, Iterable) and not isinstance(pairs, str | bytes) else (None,):
        match pair:
            case (name, value) if isinstance(pair, tuple):
                rows.append({"key": name, "value": _encoded("a header", value)})
            case {"key": name, "value": value, **others} if not others:
                rows.append({"key": name, "value": _encoded("a header", value)})
            case _:
                raise InvalidInputError(
                    f"headers is {repr_of(headers, 80)}, not a mapping or a list of (name, value) pairs",
                    kind="invalid-headers",
                )
    if any(row["key"] == CHUNK_HEADER for row in rows):
        raise InvalidInputError(
            f"the header {CHUNK_HEADER} is reserved: it marks the parts of large values",
            kind="invalid-headers",
            hint="use another name; to pass large values on, read them with read_values",
        )
    return rows
