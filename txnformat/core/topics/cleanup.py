"""The cleanup policy of a topic: whether retention removes its old records, whether compaction keeps only the
latest record of each key, and which records are tombstones.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from txnformat.core.operations import TopicSetting
from txnformat.core.topics.schema import KAFKA_SCHEMA, TopicSchema
from txnformat.core.topics.settings import value_of
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["KeyPolicy", "check_cleanup", "check_keys", "deletes", "is_like_kafka", "keeps_latest"]

POLICY = "cleanup.policy"
TOMBSTONES = "tombstone.column"


def keeps_latest(settings: Sequence[TopicSetting]) -> bool:
    """Return whether compaction keeps only the latest record of each key: the policy contains ``compact``."""
    return bool(settings) and "compact" in str(value_of(settings, POLICY)).split(",")


def deletes(settings: Sequence[TopicSetting]) -> bool:
    """Return whether retention applies: the policy contains ``delete``."""
    return "delete" in str(value_of(settings, POLICY)).split(",")


class KeyPolicy(NamedTuple):
    """The settings of a topic that say how it is compacted by key. Times are in milliseconds."""

    min_lag_ms: int
    max_lag_ms: int
    """-1: no limit."""
    dirty_ratio: float
    """Maintenance compacts a partition once more than this fraction of its bytes was not compared yet."""
    delete_retention_ms: int
    tombstone_column: str | None

    @classmethod
    def of(cls, settings: Sequence[TopicSetting], schema: TopicSchema, first: Collection[str]) -> KeyPolicy:
        """Return what a topic says. ``first``: the columns that it was created with."""
        return cls(
            int(value_of(settings, "min.compaction.lag.ms")),
            int(value_of(settings, "max.compaction.lag.ms")),
            float(value_of(settings, "min.cleanable.dirty.ratio")),
            int(value_of(settings, "delete.retention.ms")),
            _tombstone_column(settings, schema, first),
        )


def _tombstone_column(
    settings: Sequence[TopicSetting], schema: TopicSchema, first: Collection[str]
) -> str | None:
    named = str(value_of(settings, TOMBSTONES))
    if named:
        return named
    return "value" if is_like_kafka(schema) and "value" in first else None


def is_like_kafka(schema: TopicSchema) -> bool:
    """Return whether a topic has the columns of the schema ``kafka``, among others perhaps, and its key."""
    kafka = KAFKA_SCHEMA.arrow_schema
    return schema.key_columns == KAFKA_SCHEMA.key_columns and all(
        name in schema.arrow_schema.names
        and schema.arrow_schema.field(name).type.equals(kafka.field(name).type)
        for name in kafka.names
    )


def tombstones(column: Any) -> Any:
    """Return a mask (pyarrow.BooleanArray without nulls) of the values of the tombstone column that make a
    record a tombstone: true in a boolean column, null in any other.
    """
    return pc.fill_null(column, False) if pt.is_boolean(column.type) else pc.is_null(column)


def check_cleanup(settings: Iterable[TopicSetting], schema: TopicSchema, first: Collection[str]) -> None:
    """Raise InvalidInputError of kind ``invalid-setting`` about a policy that a topic with this schema cannot
    have: every problem.

    ``first``: the columns that the topic was created with.
    """
    settings = tuple(settings)
    problems: list[str] = []
    if keeps_latest(settings) and not schema.key_columns:
        problems.append(
            f"{POLICY} is {value_of(settings, POLICY)}: the topic has no key columns, so no record has a "
            "later one of its key"
        )
    column = str(value_of(settings, TOMBSTONES))
    if column:
        problems += _column_problems(column, schema, first)
    least, most = (int(value_of(settings, f"{name}.compaction.lag.ms")) for name in ("min", "max"))
    if 0 <= most < least:
        problems.append(f"max.compaction.lag.ms is {most}, below min.compaction.lag.ms, {least}")
    if problems:
        raise InvalidInputError(problems, kind="invalid-setting", hint="nothing was changed")


def _column_problems(column: str, schema: TopicSchema, first: Collection[str]) -> Iterable[str]:
    if column not in schema.arrow_schema.names:
        yield f"{TOMBSTONES} is {repr_of(column, 80)}: the topic has no such column"
        return
    field = schema.arrow_schema.field(column)
    if column in schema.key_columns:
        yield f"{TOMBSTONES} is {repr_of(column, 80)}, a key column; a tombstone needs its key"
    elif not field.nullable and not pt.is_boolean(field.type):
        yield (
            f"{TOMBSTONES} is {repr_of(column, 80)}, which is NOT NULL; use a boolean column or one "
            "that may be null"
        )
    elif column not in first and not pt.is_boolean(field.type):
        yield (
            f"{TOMBSTONES} is {repr_of(column, 80)}, a column that was added: it is null in all older "
            "records, which would be tombstones; use a boolean column"
        )


def check_keys(topic: str, schema: TopicSchema, records: pa.Table, what: str = "") -> None:
    """Raise InvalidInputError of kind ``null-key``: records for a topic that keeps the latest of each key
    have none.

    A record has no key if the only key column is null; of several key columns any may be null. ``what``:
    where the records come from, for the message.
    """
    if len(schema.key_columns) != 1:
        return
    (name,) = schema.key_columns
    column = records.column(name)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InvalidInputError(
            f"the key column {repr_of(name)} is null in {column.null_count} of {len(column)} records, the "
            f"first in row {row}{what}",
            kind="null-key",
            hint="give each record a key: with cleanup.policy=compact the topic keeps the latest record "
            "of each key; nothing was written",
            topic=topic,
        )
