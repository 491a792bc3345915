"""What the driver fixes about a batch write before any task runs."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import StructType

from spark_datasource.logs import open_log
from spark_datasource.options import WriteOptions
from spark_datasource.spark_schema import check_frame, frame_names
from txnformat.errors import InvalidInputError, StaleAppVersionError
from txnformat.intents import AppRef
from txnformat.operations import CreateTopic
from txnformat.schema import TopicSchema, as_topic_schema
from txnformat.state import LogState, TopicState

__all__ = ["WritePlan", "plan_write"]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What tasks need to upload records, and the driver to commit them."""

    path: str
    topic: str
    topic_id: str
    directory: str
    schema: TopicSchema
    partition_count: int
    names: tuple[str, ...]
    """The DataFrame's columns in the topic's letter case, in the DataFrame's order."""
    born: int
    """Entry that had been folded before any upload."""
    create: CreateTopic | None
    """The topic is missing: created in the entry that appends."""
    app: AppRef | None
    done: bool
    """The log holds this application version already: nothing is uploaded."""


def plan_write(options: WriteOptions, frame: StructType) -> WritePlan:
    """Check a write against the newest state and fix what it depends on. Nothing is written.

    Raises
    ------
    NotFoundError
        Kind ``no-log``.
    InvalidInputError
        The DataFrame does not fit the topic, or no topic can have its schema: every difference.
    StaleAppVersionError
        The log holds a later version of ``txnAppId``.
    """
    log = open_log(options.path)
    state = log.state
    done = _is_done(state, options.app)
    topic_id = state.topic_ids.get(options.topic)
    create: CreateTopic | None = None
    if topic_id is not None:
        topic = state.topics[topic_id]
        _check_existing(topic, options)
        check_frame(topic.name, topic.schema, frame)
        directory, schema, partitions = topic.directory, topic.schema, topic.partitions
    else:
        schema = as_topic_schema(
            frame, key_columns=options.key_columns, timestamp_column=options.timestamp_column
        )
        create = log.topic_operation(options.topic, schema, partitions=options.partitions or 1)
        topic_id, directory, partitions = create.topic_id, create.directory, create.partitions
    return WritePlan(
        path=options.path,
        topic=options.topic,
        topic_id=topic_id,
        directory=directory,
        schema=schema,
        partition_count=partitions,
        names=frame_names(schema, frame.names),
        born=max(state.entry, 0),
        create=create,
        app=options.app,
        done=done,
    )


def _is_done(state: LogState, app: AppRef | None) -> bool:
    known = state.app_versions.get((app.namespace, app.app_id)) if app is not None else None
    if app is None or known is None:
        return False
    if known.version > app.version:
        raise StaleAppVersionError(
            "the log holds a later version of this topic/application",
            hint="do not repeat old batches with new data; use a new txnAppId for a new history",
            app_id=app.app_id,
            version=app.version,
            newest=known.version,
        )
    return known.version == app.version


def _check_existing(topic: TopicState, options: WriteOptions) -> None:
    """Options that describe a topic to create must agree with one that exists."""
    pairs = (
        ("partitions", options.partitions, topic.partitions),
        ("keyColumns", options.key_columns, topic.schema.key_columns),
        ("timestampColumn", options.timestamp_column, topic.schema.timestamp_column),
    )
    problems = [
        f"option {name} is {_text(wanted)}, but the topic has {_text(there) or 'none'}"
        for name, wanted, there in pairs
        if wanted is not None and wanted != there
    ]
    if problems:
        raise InvalidInputError(
            problems,
            kind="topic-differs",
            hint="these options are for topics that do not exist yet",
            topic=topic.name,
        )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
