"""Commit messages of a stream: besides what was uploaded, everything that the driver needs to know of the
batch.

Spark plans a batch in one process and commits it in another, so a message also says what the tasks were
given. All messages of a batch say the same of it, or none is believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_datasource.write.messages import TaskUpload, invalid_message, of_tasks
from spark_datasource.write.plan import WritePlan
from spark_datasource.write.routing import OneTopic, Route
from txnformat.errors import InternalError
from txnformat.field_types import Count, Name, PartitionCount, SchemaId, Uuid

__all__ = ["PROPERTIES", "Batch", "BatchStamp", "StreamUpload", "TopicStamp", "as_batch", "stamp_of"]

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""The local properties in which Spark tells a task what it works for; of a stream, the job group is the run.
"""
PROPERTIES = (QUERY_ID, BATCH_ID, RUN_ID)


_NUMBER = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class BatchStamp:
    """The query, run and batch of a task, and the log that its plan was made on."""

    query_id: Name
    """Stays the same as long as the checkpoint."""
    run_id: Name
    """A new one for each start of the query."""
    batch_id: Count
    log_id: Name
    seed: Uuid
    """A UUID of the plan, from which ids of missing topics are derived."""
    born: Count
    """Entry that had been folded before any upload."""


@dataclass(frozen=True, slots=True)
class TopicStamp:
    """A topic as a task knew it."""

    topic_id: str
    directory: str
    schema_id: SchemaId
    partition_count: PartitionCount

    @classmethod
    def of(cls, route: Route) -> TopicStamp:
        """Return the stamp of a route."""
        layout = route.layout
        return cls(route.topic_id, route.directory, layout.schema.schema_id, layout.partition_count)


@dataclass
class StreamUpload(TaskUpload):
    """The upload of one task of a batch."""

    batch: BatchStamp
    topics: dict[str, TopicStamp]
    """Stamps by topic name: topics of the uploads, and the one topic of a write that has only one."""

    @classmethod
    def of(cls, upload: TaskUpload, batch: BatchStamp, plan: WritePlan) -> StreamUpload:
        """Return the message of a task."""
        routes = [plan.routes.route(topic) for topic in upload.uploads]
        if isinstance(plan.routes, OneTopic):
            routes = [plan.routes.only]
        topics = {route.topic: TopicStamp.of(route) for route in routes}
        return cls(upload.partition_id, upload.uploads, upload.contents, batch, topics)


class Batch(NamedTuple):
    """The agreed content of all messages of a batch."""

    stamp: BatchStamp
    topics: Mapping[str, TopicStamp]
    tasks: Sequence[StreamUpload]
    """In the order of their numbers."""


def stamp_of(plan: WritePlan, properties: Mapping[str, str | None]) -> BatchStamp:
    """Return a task's stamp.

    Raises InternalError of kind ``no-streaming-query``: its ``properties`` name no query.
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
    """Return what the messages say of their batch. Their statements about uploads are not checked yet.

    ``batch_id``: Spark's. InternalError ``invalid-commit-message``: messages are missing, malformed or
    disagree.
    """
    tasks = of_tasks(messages, StreamUpload)
    if not tasks:
        raise invalid_message("nothing")
    stamp = tasks[0].batch
    topics: dict[str, TopicStamp] = {}
    for task in tasks:
        if task.batch != stamp:
            raise invalid_message(
                "a batch that differs from that of other tasks", got=task.batch, expected=stamp
            )
        if not set(task.uploads) <= set(task.topics):
            raise invalid_message("uploads of topics that it does not name", task=task.partition_id)
        for name, topic in task.topics.items():
            if topics.setdefault(name, topic) != topic:
                raise invalid_message("a topic that differs from that of other tasks", topic=name)
    if stamp.batch_id != batch_id:
        raise invalid_message(
            "a batch that differs from the one to commit", got=stamp.batch_id, expected=batch_id
        )
    return Batch(stamp, topics, tasks)
