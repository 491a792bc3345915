"""Topics that are to be created: checked, and held against one that is there already. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txnformat import keys
from txnformat.columns.arrow_types import check_readable
from txnformat.core.operations import CreateTopic
from txnformat.core.state import TopicState
from txnformat.core.topics.cleanup import check_cleanup
from txnformat.core.topics.filters import check_filters
from txnformat.core.topics.schema import as_topic_schema
from txnformat.core.topics.settings import as_settings
from txnformat.errors import ConflictError, InvalidInputError, repr_of
from txnformat.field_types import PARTITIONS_MAX
from txnformat.persistent import replace

__all__ = ["check_same_topic", "new_topic"]


def new_topic(
    name: str,
    schema: Any,
    topic_id: str,
    *,
    partitions: int = 1,
    key_columns: Sequence[str] | None = None,
    timestamp_column: str | None = None,
    settings: Mapping[str, int | str] | None = None,
) -> CreateTopic:
    """Return the operation that creates a topic; see :meth:`txnformat.log.TxnLog.create_topic`.

    Raises InvalidInputError about name, schema, columns and partition count: every problem found.
    """
    keys.check_new_topic_name(name)
    if type(partitions) is not int or not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidInputError(
            f"{repr_of(partitions)} is not a valid number of partitions", hint=f"use 1 to {PARTITIONS_MAX}"
        )
    topic_schema = as_topic_schema(schema, key_columns=key_columns, timestamp_column=timestamp_column)
    check_readable(topic_schema.arrow_schema)
    fields, key_names, timestamp = topic_schema.to_json()
    wanted = as_settings({} if settings is None else settings)
    check_cleanup(wanted, topic_schema, topic_schema.arrow_schema.names)
    check_filters(wanted, topic_schema)
    return CreateTopic(
        topic_id,
        name,
        keys.topic_directory(name, topic_id),
        partitions,
        fields,
        key_names,
        timestamp,
        settings=wanted,
    )


def check_same_topic(wanted: CreateTopic, found: TopicState) -> None:
    """Raise ConflictError of kind ``topic-exists`` unless a topic is, or began as, the wanted one."""
    same = replace(wanted, topic_id=found.topic_id, directory=found.directory, settings=())
    fields, key_columns, time = found.schema.to_json()
    created = replace(
        found.created, settings=()
    )  # they may be others by now, and are what alter_topic is for
    now = replace(
        created,
        partitions=found.partitions,
        fields=fields,
        key_columns=key_columns,
        timestamp_column=time,
    )
    if same not in (created, now):
        raise ConflictError(
            "the topic exists already, and differs",
            kind="topic-exists",
            hint="compare schema, columns and partition count, or choose another name",
            topic=wanted.name,
            partitions=found.partitions,
            columns=found.schema.arrow_schema.names,
        ) from None
