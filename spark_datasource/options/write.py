"""Options of writes, parsed once into plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_datasource.options.delegation import delegated_by
from spark_datasource.options.names import parse_name
from spark_datasource.options.storage import NO_STORAGE, S3aSettings, Storage
from spark_datasource.options.values import READ, STREAM_WRITE, WRITE, OptionValues, path_of, storage_of
from txnformat.core.intents import AppRef
from txnformat.errors import TxnLogError
from txnformat.field_types import PARTITIONS_MAX
from txnformat.keys import check_topic_name
from writers.job import Delegation

__all__ = [
    "BATCH_NAMESPACE",
    "ROUTED",
    "STREAM_APP_NAMESPACE",
    "STREAM_NAMESPACE",
    "VERSION_MAX",
    "StreamWriteOptions",
    "WriteOptions",
    "parse_stream_write_options",
    "parse_write_options",
    "topic_app_id",
]

BATCH_NAMESPACE = "spark-batch"
"""Namespace of the application ids of batch writes."""

STREAM_NAMESPACE = "spark-stream"
"""Namespace of the ids of streaming queries; their versions are the numbers of batches."""

STREAM_APP_NAMESPACE = "spark-stream-app"
"""Namespace of the application ids that streams may be given besides."""

ROUTED = "*"
"""In application ids in place of a topic: a write whose rows name their topics."""

VERSION_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write asks for."""

    path: str
    topic: str | None
    """None: column ``topic`` of the DataFrame names the topic of each row."""
    app: AppRef | None = None
    """The application version that the write stands for: it is applied once, to this topic or as a routed write."""
    partitions: int | None = None
    """Of the topic, when it is created (then 1 by default); an existing topic must have as many."""
    key_columns: tuple[str, ...] | None = None
    timestamp_column: str | None = None
    case_sensitive: bool = False
    """Whether names of columns have to be written in the letter case of the columns."""
    create_topics: bool = True
    """Whether topics that do not exist are created."""
    allow_different: bool = False
    """Whether to go on when the log holds the version, or the batch, with other rows."""
    storage: Storage = NO_STORAGE
    delegation: Delegation | None = None
    """The write stages in the open transaction of a producer, in place of an append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriteOptions:
    """What a streaming write asks for."""

    write: WriteOptions
    app_id: str | None = None
    """Its batches are counted under this name besides, whatever query writes them."""
    allow_missing_batches: bool = False
    """Whether the log may lack batches that came before."""


def parse_write_options(
    options: Mapping[str, str],
    columns: Sequence[str] = (),
    *,
    s3a: S3aSettings | None = None,
    case_sensitive: bool = False,
) -> WriteOptions:
    """Return the options of a write.

    Parameters
    ----------
    case_sensitive : bool
        The session's ``spark.sql.caseSensitive``.
    columns : sequence of str
        The DataFrame's: one called ``topic`` routes the rows when the option of that name is absent.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-option``: every problem.
    """
    others, delegation = delegated_by(options)
    found = OptionValues(others, WRITE, {"reads": READ, "streaming writes": STREAM_WRITE})
    parsed = _write_options(found, columns, s3a, creates_routed=True)
    app = _app(found, parsed.topic)
    parsed = replace(parsed, app=app, delegation=delegation, case_sensitive=case_sensitive)
    found.finish()
    return parsed


def parse_stream_write_options(
    options: Mapping[str, str],
    columns: Sequence[str] = (),
    *,
    s3a: S3aSettings | None = None,
    case_sensitive: bool = False,
) -> StreamWriteOptions:
    """Return the options of a streaming write; otherwise as :func:`parse_write_options`."""
    found = OptionValues(options, STREAM_WRITE, {"reads": READ, "batch writes": WRITE})
    # A column may hold anything at any time, and nobody watches a stream: a name mistyped once makes no topic.
    write = _write_options(found, columns, s3a, creates_routed=False)
    parsed = StreamWriteOptions(
        write=replace(write, case_sensitive=case_sensitive),
        app_id=found.text("txnAppId"),
        allow_missing_batches=found.boolean("allowMissingBatches", default=False),
    )
    found.finish()
    return parsed


def _write_options(
    found: OptionValues, columns: Sequence[str], s3a: S3aSettings | None, *, creates_routed: bool
) -> WriteOptions:
    partitions = found.integer("partitions", 1)
    if partitions is not None and partitions > PARTITIONS_MAX:
        found.problems.append(f"option partitions is {partitions}; a topic has at most {PARTITIONS_MAX}")
    routed = not found.has("topic") and [name.lower() for name in columns].count("topic") == 1
    path = path_of(found)
    timestamp = found.text("timestampColumn")
    return WriteOptions(
        path=path,
        storage=storage_of(found, path, s3a),
        topic=None if routed else _topic(found, found.text("topic"), _OR_ROUTE),
        partitions=partitions,
        key_columns=found.names("keyColumns"),
        timestamp_column=None if timestamp is None else parse_name(timestamp),
        create_topics=found.boolean("createTopics", default=creates_routed or not routed),
        allow_different=found.boolean("allowDifferentRepeat", default=False),
    )


_OR_ROUTE = "; give it, or leave it out and name the topic of each row in a column topic"


def _topic(found: OptionValues, text: str | None, advice: str = "") -> str:
    if text is None:
        found.problems.append(f"option topic is missing{advice}")
        return ""
    if "," in text:
        found.problems.append(
            f"option topic is {text!r:.100}; a write has one topic; to write several, leave it out and name the topic of each row in a column topic"
        )
        return ""
    try:
        return check_topic_name(text)
    except TxnLogError as error:
        found.problems.append(str(error))
        return ""


def topic_app_id(topic: str, app_id: str) -> str:
    """Return the id under which versions of an application are counted: by topic, ``*`` for routed writes.

    By topic as Delta Lake counts by table: a job that writes two topics under one name and version would otherwise
    find its second write "done". No topic's name has a slash or an asterisk in it.
    """
    return f"{topic}/{app_id}"


def _app(found: OptionValues, topic: str | None) -> AppRef | None:
    """Return the application version of a write."""
    app_id, version = found.text("txnAppId"), found.integer("txnVersion", 0)
    if (app_id is None) != (found.text("txnVersion") is None):
        found.problems.append("give txnAppId and txnVersion both, or neither")
    if version is not None and version > VERSION_MAX:
        found.problems.append(f"option txnVersion is {version}; use at most 2^63 - 1")
    if app_id is None or version is None:
        return None
    return AppRef(BATCH_NAMESPACE, topic_app_id(ROUTED if topic is None else topic, app_id), version)
