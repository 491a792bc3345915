"""Commit messages: what a task reports to the driver, and what the driver believes of it.

A message comes from another machine. It is plain data, and everything in it that ends up in the log is checked
again: a defective executor must not make the log name objects outside the topic, or records that do not add up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from msgspec import structs
from pyspark.sql.datasource import WriterCommitMessage

from spark_datasource.write.plan import WritePlan
from spark_datasource.write.routing import Route
from txnformat.columns.multiset import Multiset
from txnformat.errors import InternalError, InvalidInputError
from txnformat.keys import data_key, parse_data_key
from txnformat.types import BatchRecord, FileRecord
from writers.upload import Uploaded

__all__ = ["Destination", "TaskUpload", "check_messages", "check_uploads", "invalid_message", "of_tasks"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass
class TaskUpload(WriterCommitMessage):
    """What one task uploaded."""

    partition_id: int
    """The task's number: decides the order of records in the log."""
    uploads: dict[str, Uploaded]
    """By topic."""
    contents: dict[str, Multiset] | None
    """Its rows, by topic, if they have to be comparable; also those that were not uploaded, because the log holds the
    version. None: the log does, and some of the rows fit no topic."""


M = TypeVar("M", bound=TaskUpload)


@dataclass(frozen=True, slots=True)
class Destination:
    """What uploads of one topic must look like."""

    directory: str
    schema_id: int
    partition_count: int


def check_messages(
    messages: Sequence[WriterCommitMessage | None], plan: WritePlan
) -> list[tuple[Route, list[Uploaded]]]:
    """Return what the tasks uploaded of each topic, checked: topics by name, uploads in the order of the tasks.

    Raises
    ------
    InternalError
        Kind ``invalid-commit-message``: a message is missing, or says what no task of this write can say.
    """
    routes: dict[str, Route] = {}

    def destination(topic: str) -> Destination:
        route = routes[topic] = _route(topic, plan)
        return Destination(route.directory, route.layout.schema.schema_id, route.layout.partition_count)

    found = check_uploads(of_tasks(messages, TaskUpload), plan.born, destination, compared=plan.compared)
    return [(routes[topic], uploads) for topic, uploads in found]


def of_tasks(messages: Sequence[object], kind: type[M]) -> list[M]:
    """Return the messages in the order of the tasks' numbers.

    Raises
    ------
    InternalError
        Kind ``invalid-commit-message``: one is missing, of another class, or there twice.
    """
    by_task: dict[int, M] = {}
    for message in messages:
        if message is None:
            raise invalid_message("nothing")
        if not isinstance(message, kind) or type(message.partition_id) is not int:
            raise invalid_message("not a message of this writer", got=type(message).__name__)
        if message.partition_id in by_task:
            raise invalid_message("two tasks with one number", task=message.partition_id)
        if not isinstance(message.uploads, dict):
            raise invalid_message("not uploads by topic", task=message.partition_id)
        if message.contents is not None and not _are_contents(message.contents):
            raise invalid_message("not its rows by topic", task=message.partition_id)
        by_task[message.partition_id] = message
    return [message for _, message in sorted(by_task.items())]


def check_uploads(
    messages: Sequence[TaskUpload], born: int, destination: Callable[[str], Destination], *, compared: bool
) -> list[tuple[str, list[Uploaded]]]:
    """Return what the tasks uploaded of each topic, checked: topics by name, uploads in the given order.

    Parameters
    ----------
    born : int
        Entry that had been folded before any upload.
    destination : callable
        Says of a topic where its files have to be; raises if it is none of this write. Asked once for each.
    compared : bool
        Whether the tasks had to say what their rows are.

    Raises
    ------
    InternalError
        Kind ``invalid-commit-message``.
    """
    found: dict[str, tuple[Destination, list[Uploaded]]] = {}
    keys: set[str] = set()
    for message in messages:
        for topic, upload in cast("dict[Any, Any]", message.uploads).items():
            if not isinstance(topic, str) or not isinstance(upload, Uploaded):
                raise invalid_message("not an upload of a topic", task=message.partition_id)
            if topic not in found:
                found[topic] = destination(topic), []
            expected, of_topic = found[topic]
            for file in upload.files:
                _check_file(file, born, expected)
                if file.key in keys:
                    raise invalid_message("an object is named twice", object=file.key)
                keys.add(file.key)
            _check_batches(upload, expected.partition_count)
            of_topic.append(upload)
        _check_contents(message, compared=compared)
    return [(topic, uploads) for topic, (_, uploads) in sorted(found.items())]


def _are_contents(contents: Any) -> bool:
    return isinstance(contents, dict) and all(
        isinstance(topic, str)
        and isinstance(rows, Multiset)
        and all(type(number) is int and 0 <= number < 2**64 for number in rows)
        and rows.records > 0
        for topic, rows in contents.items()
    )


def _check_contents(message: TaskUpload, *, compared: bool) -> None:
    """Check that a task says as many rows of each topic as it uploaded."""
    uploaded = {topic: sum(file.rows for file in upload.files) for topic, upload in message.uploads.items()}
    expected = {topic: rows for topic, rows in uploaded.items() if rows} if compared else {}
    said = None if message.contents is None else message.contents.items()
    if said is None or {topic: rows.records for topic, rows in said} != expected:
        raise invalid_message("other rows than it uploaded", task=message.partition_id)


def _route(topic: str, plan: WritePlan) -> Route:
    try:
        return plan.routes.route(topic)
    except InvalidInputError:
        raise invalid_message("a topic that is not one of this write", topic=topic) from None


def _check_file(file: Any, born: int, expected: Destination) -> None:
    name = parse_data_key(file.key) if isinstance(file, FileRecord) and isinstance(file.key, str) else None
    if name is None or name.born < born or file.key != data_key(expected.directory, name.born, name.uuid):
        raise invalid_message("an object that is not one of this write", got=repr(file)[:200])
    if file.schema_id != expected.schema_id:
        raise invalid_message("a file of another schema", object=file.key, got=file.schema_id)
    sizes = (file.size, file.footer_bytes, file.rows)
    if any(type(value) is not int or value < 1 for value in sizes) or file.footer_bytes > file.size:
        raise invalid_message("impossible sizes", object=file.key, got=sizes)
    if not _SHA256.fullmatch(str(file.sha256)) or not _SHA256.fullmatch(str(file.footer_sha256)):
        raise invalid_message("not a hash", object=file.key)


def _check_batches(upload: Uploaded, partition_count: int) -> None:
    """Check that batches lie one after another in their files and account for every record."""
    next_group = [0] * len(upload.files)
    rows = [0] * len(upload.files)
    for batch in cast(
        "tuple[Any, ...]", upload.batches
    ):  # what a type says of another machine's data is a wish
        if not isinstance(batch, BatchRecord) or any(
            type(value) is not int for value in structs.astuple(batch)
        ):
            raise invalid_message("not a batch", got=repr(batch)[:200])
        if not 0 <= batch.partition < partition_count or not 0 <= batch.file < len(upload.files):
            raise invalid_message("a batch of no partition or file", got=batch)
        if (
            batch.row_group != next_group[batch.file]
            or min(batch.row_group_count, batch.records, batch.size) < 1
        ):
            raise invalid_message("a batch out of place", got=batch)
        next_group[batch.file] += batch.row_group_count
        rows[batch.file] += batch.records
    if rows != [file.rows for file in upload.files]:
        raise invalid_message("batches do not account for the records of their files", got=rows)


def invalid_message(what: str, **values: object) -> InternalError:
    """Return the error about a message that no task of this write can have sent."""
    return InternalError(
        f"a task reported {what}",
        kind="invalid-commit-message",
        hint="nothing was written; do all executors have the driver's version of txnlog?",
        **values,
    )
