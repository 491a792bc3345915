"""Records of Kafka as rows of a topic. Pure.

A topic takes what its columns name. Of raw records: ``key``, ``value``, ``headers``, ``timestamp``. Of
decoded ones: the fields of the value. In either case, if the topic has them: ``kafka_topic``,
``kafka_partition``, ``kafka_offset``, ``kafka_timestamp``, ``kafka_key``, ``kafka_headers``.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from txnformat.arguments import other_case
from txnformat.columns.json_values import Binary, decoder
from txnformat.core.records.chunks import CHUNK_HEADER
from txnformat.core.topics.schema import KAFKA_SCHEMA
from txnformat.errors import InvalidInputError
from txnlog.kafka.decoding import Decode, Format, Undecodable

__all__ = ["DEAD_LETTERS", "KafkaRecord", "Rows", "dead_letters", "unmappable"]

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

RESERVED_HEADER = f"the header {CHUNK_HEADER} is reserved: it marks the parts of large values"
META = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key", "kafka_headers")

DEAD_LETTERS = pa.schema(
    [
        *KAFKA_SCHEMA.arrow_schema,
        pa.field("kafka_topic", pa.string()),
        pa.field("kafka_partition", pa.int32()),
        pa.field("kafka_offset", pa.int64()),
        pa.field("error", pa.string()),
    ]
)
"""Columns of a topic of dead letters: the record as it came, its place in Kafka, and what is wrong with it.
"""


class KafkaRecord(NamedTuple):
    """A record as Kafka has it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    problem: str | None = None
    """Why the client could not read it whole, such as a name of a header that is not UTF-8."""

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        found = 64 + len(self.key or b"") + len(self.value or b"")
        return found + sum(len(name) + len(value or b"") for name, value in self.headers or ())

    def timestamp(self) -> datetime.datetime | None:
        """Return its time. Raises Undecodable: Python has no such time."""
        if self.timestamp_ms is None:
            return None
        try:
            return EPOCH + datetime.timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            raise Undecodable(f"the timestamp {self.timestamp_ms} ms is out of range") from None

    def header_rows(self) -> list[dict[str, Any]] | None:
        """Return its headers as the column of a topic has them.

        Raises Undecodable: one of them means large values in a log.
        """
        if self.headers is None:
            return None
        if any(name == CHUNK_HEADER for name, _ in self.headers):
            raise Undecodable(RESERVED_HEADER)
        return [{"key": name, "value": value} for name, value in self.headers]


Get = Callable[[KafkaRecord], Any]

_GET: Mapping[str, Get] = {
    "kafka_topic": lambda one: one.topic,
    "kafka_partition": lambda one: one.partition,
    "kafka_offset": lambda one: one.offset,
    "kafka_timestamp": KafkaRecord.timestamp,
    "kafka_headers": KafkaRecord.header_rows,
}


class Made(NamedTuple):
    """Rows of records."""

    rows: Any
    """A table, or a list of dicts."""
    records: list[KafkaRecord]
    """The records that they are of, in the same order."""
    bad: list[tuple[KafkaRecord, str]]
    """The other records, each with what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes rows for a topic.

    Raises
    ------
    InvalidInputError
        Kind ``unmappable-schema``: the topic's columns cannot take such records.
    """

    schema: pa.Schema
    value_format: Format
    key_format: Format
    decode_value: Decode | None = None
    """Decoder of the value, for formats other than raw."""
    decode_key: Decode | None = None
    ignores_unknown: bool = False
    """Whether fields that the topic has no column for are left out."""

    def __post_init__(self) -> None:
        problems = unmappable(self.schema, self.value_format)
        if problems:
            raise InvalidInputError(problems, kind="unmappable-schema", hint="nothing was imported")

    def rows(self, records: Iterable[KafkaRecord]) -> Made:
        """Return the rows of records, the records that they are of, and the others with what is wrong with
        them.
        """
        good, bad = [], []
        if self.is_plain:
            for record in records:
                problem = record.problem or _unfit(record)
                bad.append((record, problem)) if problem else good.append(record)
            return Made(_table(good, self.schema), good, bad)
        row = self._raw() if self.value_format is Format.RAW else self._decoded()
        rows = []
        for record in records:
            try:
                if record.problem is not None:
                    raise Undecodable(record.problem)
                rows.append(row(record))
                good.append(record)
            except Undecodable as error:
                bad.append((record, str(error)))
        return Made(rows, good, bad)

    @property
    def is_plain(self) -> bool:
        """Whether records become columns as they are."""
        raw = self.value_format is Format.RAW and self.decode_key is None
        return raw and all(field.type == _COLUMNS.get(field.name, field.type) for field in self.schema)

    def _meta(self) -> dict[str, Get]:
        """Return how each column of Kafka's own is filled that the topic has."""
        getters = {**_GET, "kafka_key": self._key(self.schema, "kafka_key")}
        return {name: getters[name] for name in META if name in self.schema.names}

    def _key(self, schema: pa.Schema, name: str) -> Get:
        decode = self.decode_key
        if decode is None or name not in schema.names:
            return lambda one: one.key
        fit = _fitting(schema.field(name).type, self.key_format)
        return lambda one: None if one.key is None else fit(decode(one.key))

    def _raw(self) -> Callable[[KafkaRecord], dict[str, Any]]:
        getters: dict[str, Get] = {
            "key": self._key(self.schema, "key"),
            "value": lambda one: one.value,
            "headers": KafkaRecord.header_rows,
            "timestamp": KafkaRecord.timestamp,
            **self._meta(),
        }
        named: list[tuple[str, Get]] = [
            (name, getters.get(name, lambda _: None)) for name in self.schema.names
        ]
        return lambda record: {name: get(record) for name, get in named}

    def _decoded(self) -> Callable[[KafkaRecord], dict[str, Any]]:
        meta, decode = self._meta(), self.decode_value
        assert decode is not None
        fits = {
            field.name: _fitting(field.type, self.value_format)
            for field in self.schema
            if field.name not in meta
        }
        names = frozenset(fits)
        nothing = dict.fromkeys(names)

        def row(record: KafkaRecord) -> dict[str, Any]:
            found = dict(nothing)
            if record.value is not None:
                value = decode(record.value)
                if not isinstance(value, dict):
                    raise Undecodable(f"the value is a {type(value).__name__}, not an object with fields")
                more = value.keys() - names
                if more and not self.ignores_unknown:
                    name = min(more)
                    raise Undecodable(
                        f"the topic has no column for the field {name!r:.80}{other_case(name, names)}"
                    )
                for name in value.keys() & names:
                    found[name] = fits[name](value[name])
            for name, get in meta.items():
                found[name] = get(record)
            return found

        return row


_COLUMNS = {
    **dict(zip(KAFKA_SCHEMA.arrow_schema.names, KAFKA_SCHEMA.arrow_schema.types, strict=True)),
    "kafka_topic": pa.string(),
    "kafka_partition": pa.int32(),
    "kafka_offset": pa.int64(),
    "kafka_timestamp": pa.timestamp("us", tz="UTC"),
    "kafka_key": pa.binary(),
    "kafka_headers": KAFKA_SCHEMA.arrow_schema.field("headers").type,
}
"""Types of the columns that records fill as they are."""

_MS_MAX = (2**63 - 1) // 1_000
"""Largest time, in milliseconds from 1970 on, that is one in microseconds."""


def _unfit(record: KafkaRecord) -> str | None:
    """Return why a raw record is none for a log."""
    if record.timestamp_ms is not None and not -_MS_MAX <= record.timestamp_ms <= _MS_MAX:
        return f"the timestamp {record.timestamp_ms} ms is out of range"
    if record.headers is not None and any(name == CHUNK_HEADER for name, _ in record.headers):
        return RESERVED_HEADER
    return None


def _table(records: Sequence[KafkaRecord], schema: pa.Schema) -> pa.Table:
    """Return raw records as a table with the columns of a topic."""
    made: dict[str, Callable[[pa.DataType], Any]] = {
        "topic": lambda type_: pa.array([one.topic for one in records], type_),
        "partition": lambda type_: pa.array([one.partition for one in records], type_),
        "offset": lambda type_: pa.array([one.offset for one in records], type_),
        "timestamp": lambda type_: pa.array(
            [None if one.timestamp_ms is None else one.timestamp_ms * 1_000 for one in records], pa.int64()
        ).cast(type_),
        "key": lambda type_: pa.array([one.key for one in records], type_),
        "value": lambda type_: pa.array([one.value for one in records], type_),
        "headers": lambda type_: _headers(records, type_),
    }
    arrays = [
        made[field.name.removeprefix("kafka_")](field.type)
        if field.name in _COLUMNS
        else pa.nulls(len(records), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _headers(records: Sequence[KafkaRecord], type_: pa.DataType) -> Any:
    """Return the headers of records as a column: built flat, for one by one costs more than all the rest."""
    names: list[str] = []
    values: list[bytes | None] = []
    offsets: list[int | None] = []
    for one in records:
        offsets.append(None if one.headers is None else len(names))
        for name, value in one.headers or ():
            names.append(name)
            values.append(value)
    struct = type_.value_type
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, struct.field(0).type), pa.array(values, struct.field(1).type)], fields=list(struct)
    )
    return pa.ListArray.from_arrays(pa.array([*offsets, len(names)], pa.int32()), pairs, type=type_)


def unmappable(schema: pa.Schema, value_format: Format) -> list[str]:
    """Return why a topic with these columns cannot take records of a format; nothing if it can."""
    if value_format is not Format.RAW:
        if set(schema.names) - set(META):
            return []
        return ["the topic has no column for a field of the value"]
    problems = []
    if "value" not in schema.names:
        problems.append(
            'the topic has no column "value": raw records need key, value, headers and timestamp, as the '
            'schema "kafka" has them'
        )
    for name, type_ in zip(KAFKA_SCHEMA.arrow_schema.names, KAFKA_SCHEMA.arrow_schema.types, strict=True):
        if name in schema.names and schema.field(name).type != type_ and name != "key":
            problems.append(
                f"the topic's column {name!r} is of the type {schema.field(name).type}, not {type_}"
            )
    return problems


def _fitting(type_: pa.DataType, format_: Format) -> Callable[[Any], Any]:
    """Return what makes a column's value of a decoded one; Arrow checks what it leaves as it is."""
    if format_ is Format.JSON:
        convert = decoder(type_, Binary.BASE64)

        def from_json(value: Any) -> Any:
            try:
                return convert(value)
            except ValueError as error:
                raise Undecodable(str(error)) from None

        return from_json
    return _shaped(type_)


def _shaped(type_: pa.DataType) -> Callable[[Any], Any]:
    """Return what brings decoded Avro or Protobuf to a column's type: maps as pairs, and a struct with the
    fields that it has.
    """
    if pt.is_map(type_):
        item = _shaped(type_.item_type)
        return lambda value: None if value is None else [(name, item(one)) for name, one in _pairs(value)]
    if pt.is_struct(type_):
        fields = {field.name: _shaped(field.type) for field in type_}
        return lambda value: value if not isinstance(value, dict) else _struct(value, fields)
    if pt.is_list(type_):
        element = _shaped(type_.value_type)
        return lambda value: value if not isinstance(value, list) else [element(one) for one in value]
    return lambda value: value


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):
        return value
    raise Undecodable(f"{value!r:.80} is not a map")


def _struct(value: dict[str, Any], fields: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    more = value.keys() - fields.keys()
    if more:
        raise Undecodable(f"the column has no field {min(more)!r:.80}")
    return {name: fit(value.get(name)) for name, fit in fields.items()}


def dead_letters(bad: Sequence[tuple[KafkaRecord, str]]) -> pa.Table:
    """Return records that cannot be imported as rows of a topic of dead letters."""
    rows = [
        {
            "key": one.key,
            "value": one.value,
            "headers": [{"key": name, "value": value} for name, value in one.headers or ()]
            if one.headers is not None
            else None,
            "timestamp": _instant_us(one.timestamp_ms),
            "kafka_topic": one.topic,
            "kafka_partition": one.partition,
            "kafka_offset": one.offset,
            "error": problem.encode("utf-8", "backslashreplace").decode(),
        }
        for one, problem in bad
    ]
    return pa.Table.from_pylist(rows, schema=DEAD_LETTERS)


def _instant_us(timestamp_ms: int | None) -> datetime.datetime | None:
    """Return a time, None for one that Python has not: the place in Kafka stands for it."""
    try:
        return None if timestamp_ms is None else EPOCH + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None
