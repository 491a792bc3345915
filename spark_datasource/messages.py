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

from spark_datasource.write_plan import WritePlan
from txnformat.errors import InternalError
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
    uploaded: Uploaded


def check_messages(messages: Sequence[WriterCommitMessage | None], plan: WritePlan) -> list[Uploaded]:
    """Return what the tasks uploaded, in the order of the tasks, checked.

    Raises
    ------
    InternalError
        Kind ``invalid-commit-message``: a message is missing, or says what no task of this write can say.
    """
    found: dict[int, Uploaded] = {}
    for message in messages:
        if not isinstance(message, TaskUpload) or type(message.partition_id) is not int:
            raise _invalid("not a message of this writer", got=type(message).__name__)
        if message.partition_id in found:
            raise _invalid("two tasks with one number", task=message.partition_id)
        if not isinstance(message.uploaded, Uploaded):
            raise _invalid("not an upload", task=message.partition_id)
        found[message.partition_id] = message.uploaded
    uploads = [found[number] for number in sorted(found)]
    keys: set[str] = set()
    for upload in uploads:
        for file in upload.files:
            _check_file(file, plan)
            if file.key in keys:
                raise _invalid("an object is named twice", object=file.key)
            keys.add(file.key)
        _check_batches(upload, plan)
    return uploads


def _check_file(file: Any, plan: WritePlan) -> None:
    name = parse_data_key(file.key) if isinstance(file, FileRecord) and isinstance(file.key, str) else None
    if name is None or name.born < plan.born or file.key != data_key(plan.directory, name.born, name.uuid):
        raise _invalid("an object that is not one of this write", got=repr(file)[:200])
    sizes = (file.size, file.footer_bytes, file.rows)
    if any(type(value) is not int or value < 1 for value in sizes) or file.footer_bytes > file.size:
        raise _invalid("impossible sizes", object=file.key, got=sizes)
    if not _SHA256.fullmatch(str(file.sha256)) or not _SHA256.fullmatch(str(file.footer_sha256)):
        raise _invalid("not a hash", object=file.key)


def _check_batches(upload: Uploaded, plan: WritePlan) -> None:
    """Check that batches lie one after another in their files and account for every record."""
    next_group = [0] * len(upload.files)
    rows = [0] * len(upload.files)
    for batch in cast(
        "tuple[Any, ...]", upload.batches
    ):  # what a type says of another machine's data is a wish
        if not isinstance(batch, BatchRecord) or any(type(value) is not int for value in astuple(batch)):
            raise _invalid("not a batch", got=repr(batch)[:200])
        if not 0 <= batch.partition < plan.partition_count or not 0 <= batch.file < len(upload.files):
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
