"""Folding what concerns topics: they are created, and they change. Pure."""

from __future__ import annotations

from txnformat.core.folding import At, corrupt
from txnformat.core.operations import AlterTopic, CreateTopic
from txnformat.core.ownership import directories, shares_directory
from txnformat.core.state import COLUMNS, LogState, TopicState
from txnformat.core.topics.evolution import next_version
from txnformat.core.topics.schema import TopicSchema
from txnformat.field_types import LOG_PARTITIONS_MAX
from txnformat.persistent import put, replace

__all__ = ["alter_topic", "create_topic"]


def create_topic(state: LogState, op: CreateTopic, at: At) -> LogState:
    """Return the state with one topic more."""
    if op.name in state.topic_ids or op.topic_id in state.topics:
        corrupt(at, "a topic is created twice", topic=op.name, topic_id=op.topic_id)

    def taken() -> set[str]:
        if at.directories is None:
            at.directories = set(directories(state).values())
        return at.directories

    if op.directory in state.deleted or shares_directory(op.directory, taken):
        corrupt(at, "a topic has the directory of another topic", topic=op.name, directory=op.directory)
    if at.directories is not None:
        at.directories.add(op.directory)
    _check_room(state, op.partitions, at)
    schema = TopicSchema.from_json(op.fields, op.key_columns, op.timestamp_column)
    topic = TopicState(op.topic_id, op.name, op.directory, op.partitions, schema, op, at.entry, op.settings)
    return replace(
        state,
        topics=put(state.topics, op.topic_id, topic),
        topic_ids=put(state.topic_ids, op.name, op.topic_id),
        partition_count=state.partition_count + op.partitions,
    )


def _check_room(state: LogState, more_partitions: int, at: At) -> None:
    if not state.may_have(more_partitions):
        corrupt(
            at,
            "a log gets more partitions than it may have",
            has=state.partition_count,
            more=more_partitions,
            maximum=LOG_PARTITIONS_MAX,
        )


def alter_topic(state: LogState, op: AlterTopic, at: At) -> LogState:
    """Return the state after a topic has changed: more partitions, another version of its schema, other
    settings.
    """
    topic = state.topics.get(op.topic_id)
    if topic is None:
        corrupt(at, "a topic is altered that does not exist", topic_id=op.topic_id)
    schema = topic.schema if op.fields is None else next_version(topic.schema, op.fields, op.places)
    if op.places and (op.fields is None or COLUMNS not in state.features.reader):
        corrupt(at, "a topic is altered in a way that is not allowed", topic_id=op.topic_id, places=op.places)
    changes = op.fields is not None or op.settings is not None
    grows = op.partitions > topic.partitions or (op.partitions == topic.partitions and changes)
    if not grows or schema is None or op.schema_id != schema.schema_id:
        corrupt(
            at,
            "a topic is altered in a way that is not allowed",
            topic_id=op.topic_id,
            partitions=op.partitions,
            schema_id=op.schema_id,
        )
    more = op.partitions - topic.partitions
    _check_room(state, more, at)
    settings = topic.settings if op.settings is None else op.settings
    altered = replace(topic, partitions=op.partitions, schema=schema, settings=settings)
    return replace(
        state,
        topics=put(state.topics, op.topic_id, altered),
        partition_count=state.partition_count + more,
    )
