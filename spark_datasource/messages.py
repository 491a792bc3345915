"""Commit messages: what a task reports to the driver, and what the driver believes of it.

A message comes from another machine. It is plain data, and everything in it that ends up in the log is checked
again: a defective executor must not make the log name objects outside the topic, or records that do not add up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, cast

from pyspark.sql.datasource import WriterCommitMessage

from spark_datasource.routing import Route
from spark_datasource.write_plan import WritePlan
from txnformat.errors import InternalError, InvalidInputError
from txnformat.keys import data_key, parse_data_key
from txnformat.types import BatchRecord, FileRecord
from writers.upload import Uploaded

__all__ = ["TaskUpload", "check_messages"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass
class TaskUpload(WriterCommitMessage):
    """What one task uploaded."""

    partition_id: int
    """The task's number: decides the order of records in the log."""
    uploads: dict[str, Uploaded]
    """By topic."""


def check_messages(
    messages: Sequence[WriterCommitMessage | None], plan: WritePlan
) -> list[tuple[Route, list[Uploaded]]]:
    """Return what the tasks uploaded of each topic, checked: topics by name, uploads in the order of the tasks.

    Raises
    ------
    InternalError
        Kind ``invalid-commit-message``: a message is missing, or says what no task of this write can say.
    """
    by_task: dict[int, dict[str, Uploaded]] = {}
    for message in messages:
        if not isinstance(message, TaskUpload) or type(message.partition_id) is not int:
            raise _invalid("not a message of this writer", got=type(message).__name__)
        if message.partition_id in by_task:
            raise _invalid("two tasks with one number", task=message.partition_id)
        if not isinstance(message.uploads, dict):
            raise _invalid("not uploads by topic", task=message.partition_id)
        by_task[message.partition_id] = message.uploads
    found: dict[str, tuple[Route, list[Uploaded]]] = {}
    keys: set[str] = set()
    for task, uploads in sorted(by_task.items()):
        for topic, upload in cast("dict[Any, Any]", uploads).items():
            if not isinstance(topic, str) or not isinstance(upload, Uploaded):
                raise _invalid("not an upload of a topic", task=task)
            if topic not in found:
                found[topic] = _route(topic, plan), []
            route, of_topic = found[topic]
            for file in upload.files:
                _check_file(file, plan, route)
                if file.key in keys:
                    raise _invalid("an object is named twice", object=file.key)
                keys.add(file.key)
            _check_batches(upload, route)
            of_topic.append(upload)
    return [found[topic] for topic in sorted(found)]


def _route(topic: str, plan: WritePlan) -> Route:
    try:
        return plan.routes.route(topic)
    except InvalidInputError:
        raise _invalid("a topic that is not one of this write", topic=topic) from None


def _check_file(file: Any, plan: WritePlan, route: Route) -> None:
    name = parse_data_key(file.key) if isinstance(file, FileRecord) and isinstance(file.key, str) else None
    if name is None or name.born < plan.born or file.key != data_key(route.directory, name.born, name.uuid):
        raise _invalid("an object that is not one of this write", got=repr(file)[:200])
    if file.schema_id != route.layout.schema.schema_id:
        raise _invalid("a file of another schema", object=file.key, got=file.schema_id)
    sizes = (file.size, file.footer_bytes, file.rows)
    if any(type(value) is not int or value < 1 for value in sizes) or file.footer_bytes > file.size:
        raise _invalid("impossible sizes", object=file.key, got=sizes)
    if not _SHA256.fullmatch(str(file.sha256)) or not _SHA256.fullmatch(str(file.footer_sha256)):
        raise _invalid("not a hash", object=file.key)


def _check_batches(upload: Uploaded, route: Route) -> None:
    """Check that batches lie one after another in their files and account for every record."""
    next_group = [0] * len(upload.files)
    rows = [0] * len(upload.files)
    for batch in cast(
        "tuple[Any, ...]", upload.batches
    ):  # what a type says of another machine's data is a wish
        if not isinstance(batch, BatchRecord) or any(type(value) is not int for value in astuple(batch)):
            raise _invalid("not a batch", got=repr(batch)[:200])
        if not 0 <= batch.partition < route.layout.partition_count or not 0 <= batch.file < len(upload.files):
            raise _invalid("a batch of no partition or file", got=batch)
        if (
            batch.row_group != next_group[batch.file]
            or min(batch.row_group_count, batch.records, batch.size) < 1
        ):
            raise _invalid("a batch out of place", got=batch)
        next_group[batch.file] += batch.row_group_count
        rows[batch.file] += batch.records
    if rows != [file.rows for file in upload.files]:
        raise _invalid("batches do not account for the records of their files", got=rows)


def _invalid(what: str, **values: object) -> InternalError:
    return InternalError(
        f"a task reported {what}",
        kind="invalid-commit-message",
        hint="nothing was written; do all executors have the driver's version of txnlog?",
        **values,
    )
