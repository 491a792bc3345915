"""Commit messages: what a task reports to the driver, and what the driver believes of it.

A message comes from another machine. It is plain data of declared types, and all that ends up in the log is
checked again: a defective executor must not make the log name objects outside the topic, or records that do
not add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from txnformat.columns.multiset import Multiset
from txnformat.core.entry import sha256_hex
from txnformat.errors import InternalError, repr_of
from txnformat.field_types import Count
from txnformat.keys import data_key, parse_data_key
from txnformat.types import FileRecord
from txnformat.version import __version__
from writers.upload import Uploaded

__all__ = ["HANDED_BYTES_MAX", "Destination", "TaskUpload", "check_uploads", "invalid_message", "of_tasks"]


HANDED_BYTES_MAX = 8 * 1024
"""Largest file that a task hands over to the driver: of 10,000 tasks with a topic each that is 80 MiB there.
"""


@dataclass
class TaskUpload(WriterCommitMessage):
    """The upload of one task."""

    partition_id: Count
    """The task's number: decides the order of records in the log."""
    uploads: dict[str, Uploaded]
    """Uploads by topic."""
    contents: dict[str, Multiset] | None
    """Its rows, by topic, if they have to be comparable; also those that were not uploaded, because the log
    holds the version. None: the log does, and some of the rows fit no topic."""
    version: str = field(default=__version__, kw_only=True)
    """Version of txnlog where the task ran."""


M = TypeVar("M", bound=TaskUpload)


@dataclass(frozen=True, slots=True)
class Destination:
    """The required form of the uploads of one topic."""

    directory: str
    schema_id: int
    partition_count: int


def of_tasks(messages: Sequence[object], kind: type[M]) -> list[M]:
    """Return the messages in the order of the tasks' numbers.

    Raises InternalError of kind ``invalid-commit-message``: one is missing, foreign, malformed, or there
    twice.
    """
    by_task: dict[int, M] = {}
    for message in messages:
        if message is None:
            raise invalid_message("nothing")
        if not isinstance(message, kind):
            raise invalid_message("not a message of this writer", got=type(message).__name__)
        if message.version != __version__:
            raise invalid_message("in another version of txnlog", got=message.version, expected=__version__)
        try:
            known = msgspec.convert(msgspec.to_builtins(message), kind)
        except Exception as error:  # noqa: BLE001  # values of any class: what reads them runs their code
            raise invalid_message("a malformed message", why=repr_of(error)) from None
        if known.partition_id in by_task:
            raise invalid_message("two tasks with one number", task=known.partition_id)
        by_task[known.partition_id] = known
    return [message for _, message in sorted(by_task.items())]


def check_uploads(
    tasks: Sequence[TaskUpload], born: int, destinations: Mapping[str, Destination], *, compared: bool
) -> list[tuple[str, list[Uploaded]]]:
    """Return what the tasks uploaded of each topic, checked: topics by name, uploads in the given order.

    ``born``: entry that had been folded before any upload. ``destinations``: of all topics of the uploads.
    ``compared``: whether the tasks had to say what their rows are. Raises InternalError of kind
    ``invalid-commit-message``.
    """
    found: dict[str, list[Uploaded]] = {}
    keys: set[str] = set()
    for task in tasks:
        for topic, upload in task.uploads.items():
            _check_payload(upload)
            for file in upload.files:
                _check_file(file, born, destinations[topic])
                if file.key in keys:
                    raise invalid_message("an object is named twice", object=file.key)
                keys.add(file.key)
            _check_batches(upload, destinations[topic].partition_count)
            found.setdefault(topic, []).append(upload)
        _check_contents(task, compared=compared)
    return sorted(found.items())


def _check_contents(message: TaskUpload, *, compared: bool) -> None:
    """Check that a task says as many rows of each topic as it uploaded."""
    uploaded = {topic: sum(file.rows for file in upload.files) for topic, upload in message.uploads.items()}
    expected = {topic: rows for topic, rows in uploaded.items() if rows} if compared else {}
    said = message.contents
    if said is None or {topic: rows.records for topic, rows in said.items()} != expected:
        raise invalid_message("rows that differ from its uploads", task=message.partition_id)
    if not all(0 <= number < 2**64 for rows in said.values() for number in rows):
        raise invalid_message("not a sum of rows", task=message.partition_id)


def _check_payload(upload: Uploaded) -> None:
    """Check that bytes which a task hands over are those of its files."""
    if not upload.payload:
        return
    found = [(len(data), sha256_hex(data)) for data in upload.payload]
    if found != [(file.size, file.sha256) for file in upload.files] or max(found)[0] > HANDED_BYTES_MAX:
        raise invalid_message("bytes that are not those of its files", got=found)


def _check_file(file: FileRecord, born: int, expected: Destination) -> None:
    name = parse_data_key(file.key)
    if name is None or name.born < born or file.key != data_key(expected.directory, name.born, name.uuid):
        raise invalid_message("an object that this write does not have", got=repr(file)[:200])
    if file.schema_id != expected.schema_id:
        raise invalid_message("a file of another schema", object=file.key, got=file.schema_id)
    if not file.rows or file.footer_bytes > file.size:
        raise invalid_message(
            "impossible sizes", object=file.key, got=(file.size, file.footer_bytes, file.rows)
        )


def _check_batches(upload: Uploaded, partition_count: int) -> None:
    """Check that batches lie one after another in their files and account for every record."""
    next_group = [0] * len(upload.files)
    rows = [0] * len(upload.files)
    for batch in upload.batches:
        if batch.partition >= partition_count or batch.file >= len(upload.files):
            raise invalid_message("a batch of no partition or file", got=batch)
        if batch.row_group != next_group[batch.file] or not batch.size:
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
        hint="nothing was written; check that all executors have the driver's version of txnlog",
        **values,
    )
