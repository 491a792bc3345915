"""Options of writes, parsed once into plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_datasource.options.declared import (
    LATER,
    READ,
    STREAM_WRITE,
    WRITE,
    StreamWriteOptions,
    WriteOptions,
    field_values,
)
from spark_datasource.options.delegation import delegated_by
from spark_datasource.options.hadoop import HadoopSettings
from spark_datasource.options.values import OptionValues, storage_of
from txnformat.core.intents import AppRef
from txnformat.errors import TxnLogError
from txnformat.keys import check_topic_name

__all__ = [
    "BATCH_NAMESPACE",
    "ROUTED",
    "STREAM_APP_NAMESPACE",
    "STREAM_NAMESPACE",
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


def parse_write_options(
    options: Mapping[str, str],
    columns: Sequence[str] = (),
    *,
    hadoop: HadoopSettings | None = None,
    case_sensitive: bool = False,
) -> WriteOptions:
    """Return the options of a write.

    ``case_sensitive``: the session's ``spark.sql.caseSensitive``. ``columns``: the DataFrame's: one called
    ``topic`` routes the rows when the option of that name is absent. Raises InvalidInputError of kind
    ``invalid-option``: every problem.
    """
    others, delegation = delegated_by(options)
    found = OptionValues(others, WRITE, {"reads": READ, "streaming writes": STREAM_WRITE}, LATER)
    values = _write_values(found, columns, hadoop)
    app = _app(found, values["topic"])
    found.finish()
    return WriteOptions(app=app, delegation=delegation, case_sensitive=case_sensitive, **values)


def parse_stream_write_options(
    options: Mapping[str, str],
    columns: Sequence[str] = (),
    *,
    hadoop: HadoopSettings | None = None,
    case_sensitive: bool = False,
) -> StreamWriteOptions:
    """Return the options of a streaming write; otherwise as :func:`parse_write_options`."""
    found = OptionValues(options, STREAM_WRITE, {"reads": READ, "batch writes": WRITE}, LATER)
    values = _write_values(found, columns, hadoop)
    if values["topic"] is None:
        # A column may hold anything at any time, and a stream runs unwatched: a name mistyped once makes no
        # topic.
        values.setdefault("create_topics", False)
    own = field_values(found, StreamWriteOptions)
    found.finish()
    return StreamWriteOptions(write=WriteOptions(case_sensitive=case_sensitive, **values), **own)


def _write_values(
    found: OptionValues, columns: Sequence[str], hadoop: HadoopSettings | None
) -> dict[str, Any]:
    values = field_values(found, WriteOptions)
    routed = not found.has("topic") and [name.lower() for name in columns].count("topic") == 1
    values["topic"] = None if routed else _topic(found, found.text("topic"))
    values["storage"] = storage_of(found, values["path"], hadoop)
    return values


def _topic(found: OptionValues, text: str | None) -> str:
    if text is None:
        problem = "option topic is missing; set it, or name the topic of each row in a column topic"
    elif "," in text:
        problem = (
            f"option topic is {text!r:.100}; a write has one topic; to write several, leave it out "
            "and name the topic "
        )
        problem += "of each row in a column topic"
    else:
        try:
            return check_topic_name(text)
        except TxnLogError as error:
            problem = str(error)
    found.problems.append(problem)
    return ""


def topic_app_id(topic: str, app_id: str) -> str:
    """Return the id under which versions of an application are counted: by topic, ``*`` for routed writes.

    By topic as Delta Lake counts by table: a job that writes two topics under one name and version would
    otherwise find its second write "done". No topic's name has a slash or an asterisk in it.
    """
    return f"{topic}/{app_id}"


def _app(found: OptionValues, topic: str | None) -> AppRef | None:
    """Return the application version of a write."""
    app_id, version = found.text("txnAppId"), WRITE["txnVersion"].parsed(found)
    if (app_id is None) != (found.text("txnVersion") is None):
        found.problems.append("give both txnAppId and txnVersion, or neither")
    if app_id is None or version is None:
        return None
    return AppRef(BATCH_NAMESPACE, topic_app_id(ROUTED if topic is None else topic, app_id), version)
