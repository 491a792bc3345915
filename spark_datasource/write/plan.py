"""The plan of a write, which the driver makes before any task runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructType

from spark_datasource.options.declared import WriteOptions
from spark_datasource.options.names import matched
from spark_datasource.schema import check_frame, frame_names
from spark_datasource.worker.logs import held_entry, open_log
from spark_datasource.write.routing import ByColumn, Known, Layout, OneTopic, Route, Routes, new_topic_id
from txnformat.core.operations import CreateTopic
from txnformat.core.preview import preview_identity
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.cleanup import keeps_latest
from txnformat.core.topics.creation import new_topic
from txnformat.core.topics.schema import TopicSchema, as_topic_schema, fields_to_json
from txnformat.errors import InvalidInputError
from txnformat.log import TxnLog
from txnformat.spans import here, span
from writers.job import Delegation

__all__ = ["WritePlan", "plan_write", "topic_to_create", "without_topic"]


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The plan by which tasks upload records and the driver commits them."""

    options: WriteOptions
    log_id: str
    routes: Routes
    seed: str
    """A UUID of this write, from which ids of missing topics are derived, and the first partitions of records
    without keys."""
    born: int
    """Entry that had been folded before any upload."""
    repeats: int | None
    """The entry that holds this application version already."""
    done: bool
    """The log holds the application version, or what was to be staged, already: nothing is uploaded."""
    embeds: bool = False
    """Small files may become parts of the entry: tasks hand them over."""
    trace: str | None = None
    """The span that it was made in, where that is traced."""

    @property
    def compared(self) -> bool:
        """Whether the log is to say what rows are written, so that a repetition can be compared."""
        return self.options.app is not None


def plan_write(options: WriteOptions, frame: StructType, *, newest: bool = True) -> WritePlan:
    """Check a write against the newest state and fix what it depends on.

    Nothing is written. Unless ``newest``, the state may be some entries old (:func:`open_log`).

    Raises NotFoundError of kind ``no-log``; kind ``unknown-topic`` if topics are not to be created;
    InvalidInputError: the DataFrame does not fit the topic, or no topic can have its schema: every
    difference; StaleAppVersionError: the log holds a later version of ``txnAppId``; ProducerFencedError,
    TransactionTimedOutError: the transaction that the write belongs to was ended by another client.
    """
    with span("plan") as one:
        log = open_log(options.path, options.storage, newest=newest)
        one.set(log=log.url)
        return _planned(log, options, frame)


def _planned(log: TxnLog, options: WriteOptions, frame: StructType) -> WritePlan:
    state = log.state
    repeats = held_entry(
        state,
        options.app,
        "the log holds a later version of this topic/application",
        hint="do not repeat old batches with new data; use a new txnAppId for a new history",
    )
    seed = log.committer.ids.new()
    routes: Routes
    if options.topic is None:
        routes = _by_column(state, options, frame, seed)
    else:
        routes = OneTopic(_one_topic(state, options, options.topic, frame, seed))
    done = repeats is not None or _is_staged(state, options.delegation)
    embeds = log.embeds and options.delegation is None
    born = max(state.entry, 0)
    return WritePlan(options, state.log_id, routes, seed, born, repeats, done, embeds, here())


def topic_to_create(
    options: WriteOptions, frame: StructType, seed: str, name: str
) -> tuple[CreateTopic, TopicSchema]:
    """Return the operation that creates a topic for rows like those of ``frame``, and its schema.

    Raises InvalidInputError: no topic can have these columns, or no topic this name.
    """
    keys, timestamp = _roles(options, frame.names)
    schema = as_topic_schema(frame, key_columns=keys, timestamp_column=timestamp)
    return new_topic(name, schema, new_topic_id(seed, name), partitions=options.partitions or 1), schema


def _roles(options: WriteOptions, columns: Sequence[str]) -> tuple[tuple[str, ...] | None, str | None]:
    """Return key columns and timestamp column of the options in the letter case of ``columns``."""
    keys, timestamp = options.key_columns, options.timestamp_column
    if keys is not None:
        keys = matched(keys, columns, case_sensitive=options.case_sensitive)
    if timestamp is not None:
        (timestamp,) = matched((timestamp,), columns, case_sensitive=options.case_sensitive)
    return keys, timestamp


def _one_topic(state: LogState, options: WriteOptions, name: str, frame: StructType, seed: str) -> Route:
    topic_id = state.topic_ids.get(name)
    if topic_id is not None or not options.create_topics:
        topic = state.topic(name)
        _check_existing(topic, options)
        check_frame(topic.name, topic.schema, frame)
        layout = _layout(topic.schema, frame, topic.partitions, keeps_latest(topic.settings))
        return Route(name, topic.topic_id, topic.directory, layout, None)
    create, schema = topic_to_create(options, frame, seed, name)
    layout = _layout(schema, frame, create.partitions)
    return Route(name, create.topic_id, create.directory, layout, create)


def without_topic(frame: StructType) -> tuple[StructType, int]:
    """Return the schema without column ``topic``, and its position; InvalidInputError if that is no
    string.
    """
    position = [name.lower() for name in frame.names].index("topic")
    found = frame.fields[position].dataType
    if as_topic_schema(StructType().add("topic", found)).to_json()[0] != (
        {"name": "topic", "type": "string"},
    ):
        raise InvalidInputError(
            f"column {frame.names[position]!r} names the topic of each row, so it must be a string; it is "
            f"{found.simpleString()}",
            kind="schema-mismatch",
            hint="make it a string, or set option topic to write all rows to one topic",
        )
    return StructType([field for number, field in enumerate(frame.fields) if number != position]), position


def _by_column(state: LogState, options: WriteOptions, frame: StructType, seed: str) -> ByColumn:
    frame, position = without_topic(frame)
    create, schema = topic_to_create(options, frame, seed, "new")
    layouts: dict[tuple[str, int, bool], Layout | tuple[str, ...]] = {}
    known: dict[str, Known] = {}
    for topic in state.topics.values():
        versions = [*topic.schema.to_json(), *map(fields_to_json, topic.schema.earlier), topic.schema.places]
        alike = json.dumps(versions), topic.partitions, keeps_latest(topic.settings)
        if alike not in layouts:
            layouts[alike] = _layout_or_problems(topic, options, frame)
        known[topic.name] = Known(topic.topic_id, topic.directory, layouts[alike])
    created = _layout(schema, frame, create.partitions)
    return ByColumn(position, known, create if options.create_topics else None, created, seed)


def _layout(schema: TopicSchema, frame: StructType, partition_count: int, needs_key: bool = False) -> Layout:
    return Layout(schema, frame_names(schema, frame.names), partition_count, needs_key)


def _layout_or_problems(
    topic: TopicState, options: WriteOptions, frame: StructType
) -> Layout | tuple[str, ...]:
    try:
        _check_existing(topic, options)
        check_frame(topic.name, topic.schema, frame)
    except InvalidInputError as error:
        return tuple(error.problems)
    return _layout(topic.schema, frame, topic.partitions, keeps_latest(topic.settings))


def _is_staged(state: LogState, delegation: Delegation | None) -> bool:
    """Return whether the log has what a write was to stage.

    The commit decides; this spares the tasks of a job.
    """
    if delegation is None:
        return False
    return preview_identity(state, delegation.producer).used_entry != delegation.follows


def _check_existing(topic: TopicState, options: WriteOptions) -> None:
    """Options that describe a topic to create must agree with one that exists."""
    # A job that names what the topic began with goes on when the topic has grown.
    partitions = None if options.partitions == topic.created.partitions else options.partitions
    keys, timestamp = _roles(options, topic.schema.arrow_schema.names)
    pairs = (
        ("partitions", partitions, topic.partitions),
        ("keyColumns", keys, topic.schema.key_columns),
        ("timestampColumn", timestamp, topic.schema.timestamp_column),
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
