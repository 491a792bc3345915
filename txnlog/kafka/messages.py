"""Rows of a topic as records of Kafka. Pure."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from txnformat.columns.json_values import Binary, encoder
from txnformat.columns.pylist import column_values
from txnformat.core.records.chunks import CHUNK_HEADER
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import InvalidInputError
from txnlog.kafka.routing import Routes
from txnlog.kafka.rows import EPOCH
from writers.rows import is_kafka

__all__ = ["KafkaMessage", "message_maker"]

MILLISECOND = datetime.timedelta(milliseconds=1)


class KafkaMessage(NamedTuple):
    """A record to send."""

    topic: str
    partition: int | None
    """Partition in Kafka. If None, the key decides."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int


def message_maker(
    schema: TopicSchema, target: str, routes: Routes
) -> Callable[[Any], Iterator[KafkaMessage]]:
    """Return what makes records of a batch with the topic's columns, ``_partition``, ``_offset`` and
    ``_timestamp``.

    It raises InvalidInputError (``chunks-in-export``): a record is a part of a large value.
    """
    parts = _raw if is_kafka(schema) else _as_json(schema)

    def make(batch: Any) -> Iterator[KafkaMessage]:
        numbers, appended = column_values(batch, "_partition"), column_values(batch, "_timestamp")
        for number, at, (key, value, headers, timestamp) in zip(numbers, appended, parts(batch), strict=True):
            time = at if timestamp is None else timestamp
            yield KafkaMessage(
                target, routes.target(number), key, value, headers, (time - EPOCH) // MILLISECOND
            )

    return make


def _raw(batch: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
    columns = (column_values(batch, name) for name in ("key", "value", "headers", "timestamp"))
    for row, (key, value, headers, timestamp) in enumerate(zip(*columns, strict=True)):
        pairs = None if headers is None else [(one["key"], one["value"]) for one in headers]
        if pairs and any(name == CHUNK_HEADER for name, _ in pairs):
            raise InvalidInputError(
                "a record is a part of a large value, which Kafka's consumers cannot put together",
                kind="chunks-in-export",
                hint="copy such values by read_values, or export the topic without them",
                partition=batch.column("_partition")[row].as_py(),
                offset=batch.column("_offset")[row].as_py(),
            )
        yield key, value, pairs, timestamp


def _as_json(schema: TopicSchema) -> Callable[[Any], Iterator[tuple[Any, Any, Any, Any]]]:
    encoders = [(field.name, encoder(field.type, Binary.BASE64)) for field in schema.arrow_schema]
    keys, time = tuple(schema.key_columns or ()), schema.timestamp_column

    def parts(batch: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
        columns = [column_values(batch, name) for name, _ in encoders]
        times = column_values(batch, time) if time is not None else [None] * batch.num_rows
        for timestamp, *values in zip(times, *columns, strict=True):
            row = {name: encode(value) for (name, encode), value in zip(encoders, values, strict=True)}
            key = _json({name: row[name] for name in keys}) if keys else None
            found = timestamp if isinstance(timestamp, datetime.datetime) else None
            yield key, _json(row), None, found

    return parts


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
