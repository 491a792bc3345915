"""Commit messages of a stream: besides what was uploaded, everything that the driver needs to know of the batch.

Spark plans a batch in one process and commits it in another, so a message also says what the tasks were given. All
messages of a batch say the same of it, or none is believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from spark_datasource.write.messages import TaskUpload, invalid_message, of_tasks
from spark_datasource.write.plan import WritePlan
from spark_datasource.write.routing import OneTopic, Route
from txnformat.errors import InternalError

__all__ = ["PROPERTIES", "Batch", "BatchStamp", "StreamUpload", "TopicStamp", "as_batch", "stamp_of"]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""The local properties in which Spark tells a task what it works for; of a stream, the job group is the run."""
PROPERTIES = (QUERY_ID, BATCH_ID, RUN_ID)


_NUMBER = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class BatchStamp:
    """What a task worked for, and on what it was planned."""

    query_id: str
    """Stays with the checkpoint."""
    run_id: str
    """Of this start of the query."""
    batch_id: int
    log_id: str
    seed: str
    """A UUID of the plan, from which ids of missing topics are derived."""
    born: int
    """Entry that had been folded before any upload."""


@dataclass(frozen=True, slots=True)
class TopicStamp:
    """What a task took a topic for."""

    topic_id: str
    directory: str
    schema_id: int
    partition_count: int

    @classmethod
    def of(cls, route: Route) -> TopicStamp:
        """Return the stamp of a route."""
        layout = route.layout
        return cls(route.topic_id, route.directory, layout.schema.schema_id, layout.partition_count)


@dataclass
class StreamUpload(TaskUpload):
    """What one task of a batch uploaded."""

    batch: BatchStamp
    topics: dict[str, TopicStamp]
    """By name: those of the uploads, and the one topic of a write that has only one."""

    @classmethod
    def of(cls, upload: TaskUpload, batch: BatchStamp, plan: WritePlan) -> StreamUpload:
        """Return the message of a task."""
        routes = [plan.routes.route(topic) for topic in upload.uploads]
        if isinstance(plan.routes, OneTopic):
            routes = [plan.routes.only]
        topics = {route.topic: TopicStamp.of(route) for route in routes}
        return cls(upload.partition_id, upload.uploads, upload.contents, batch, topics)


class Batch(NamedTuple):
    """What all tasks of a batch say."""

    stamp: BatchStamp
    topics: Mapping[str, TopicStamp]
    tasks: Sequence[StreamUpload]
    """In the order of their numbers."""

    @property
    def rows(self) -> int:
        """Rows that were uploaded."""
        uploads = (upload for task in self.tasks for upload in task.uploads.values())
        return sum(file.rows for upload in uploads for file in upload.files)


def stamp_of(plan: WritePlan, properties: Mapping[str, str | None]) -> BatchStamp:
    """Return the stamp of a task.

    Parameters
    ----------
    properties : mapping of str to str or None
        The task's local properties.

    Raises
    ------
    InternalError
        Kind ``no-streaming-query``: they name none.
    """
    query_id, run_id, batch_id = (properties.get(name) or "" for name in (QUERY_ID, RUN_ID, BATCH_ID))
    if not query_id or not run_id or not _NUMBER.fullmatch(batch_id):
        raise InternalError(
            "the task of a streaming write does not know its query, run and batch",
            kind="no-streaming-query",
            hint="nothing was written; this writer is for Spark's writeStream: use df.write elsewhere",
            query_id=query_id or None,
            run_id=run_id or None,
            batch_id=batch_id or None,
        )
    return BatchStamp(query_id, run_id, int(batch_id), plan.log_id, plan.seed, plan.born)


def as_batch(messages: Sequence[object], batch_id: int) -> Batch:
    """Return what the messages say of their batch. What they say of uploads is not looked at yet.

    Parameters
    ----------
    batch_id : int
        What Spark says that the batch is.

    Raises
    ------
    InternalError
        Kind ``invalid-commit-message``: a message is missing or malformed, or they do not agree.
    """
    tasks = of_tasks(messages, StreamUpload)
    if not tasks:
        raise invalid_message("nothing")
    stamp = tasks[0].batch
    topics: dict[str, TopicStamp] = {}
    for task in tasks:
        if not _is_stamp(task.batch):
            raise invalid_message("a malformed batch", task=task.partition_id)
        if task.batch != stamp:
            raise invalid_message("another batch than the others", got=task.batch, expected=stamp)
        named = cast("Any", task.topics)
        if not isinstance(named, dict) or not set(task.uploads) <= set(named):
            raise invalid_message("uploads of topics that it does not name", task=task.partition_id)
        for name, topic in named.items():
            if not isinstance(name, str) or not _is_topic_stamp(topic):
                raise invalid_message("a malformed topic", task=task.partition_id)
            if topics.setdefault(name, topic) != topic:
                raise invalid_message("another topic than the others", topic=name)
    if stamp.batch_id != batch_id:
        raise invalid_message("another batch than the one to commit", got=stamp.batch_id, expected=batch_id)
    return Batch(stamp, topics, tasks)


def _is_stamp(stamp: Any) -> bool:
    if not isinstance(stamp, BatchStamp):
        return False
    texts = stamp.query_id, stamp.run_id, stamp.log_id, stamp.seed
    numbers = stamp.batch_id, stamp.born
    return (
        all(type(text) is str and text for text in texts)
        and _UUID.fullmatch(stamp.seed) is not None
        and all(type(number) is int and number >= 0 for number in numbers)
    )


def _is_topic_stamp(stamp: Any) -> bool:
    if not isinstance(stamp, TopicStamp):
        return False
    numbers = stamp.schema_id, stamp.partition_count
    return (
        type(stamp.topic_id) is str
        and type(stamp.directory) is str
        and all(type(number) is int and number >= 0 for number in numbers)
    )
