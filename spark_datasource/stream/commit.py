"""From a batch of a stream to a write: the driver checks the messages of its tasks against the state of the
log.

The driver that commits has not planned, so it checks all that the messages say of the log against its own
knowledge.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from spark_datasource.options.declared import StreamWriteOptions
from spark_datasource.options.write import STREAM_APP_NAMESPACE, STREAM_NAMESPACE
from spark_datasource.stream.messages import Batch, TopicStamp
from spark_datasource.write.commit import Target, write_of
from spark_datasource.write.messages import Destination, invalid_message
from spark_datasource.write.plan import topic_to_create, without_topic
from spark_datasource.write.routing import new_topic_id
from txnformat.core.intents import AppRef, Write
from txnformat.core.state import LogState, TopicState
from txnformat.errors import ConflictError, NotFoundError
from txnformat.log import TxnLog
from txnformat.persistent import replace

__all__ = ["as_write"]


def as_write(log: TxnLog, batch: Batch, options: StreamWriteOptions, frame: StructType) -> Write:
    """Return what to commit for a batch, by what is known of the log.

    Requests: 1 PUT above 1,000 batches, else none.

    Raises InternalError of kind ``invalid-commit-message``: the messages say what no task of this write can
    say; NotFoundError of kind ``topic-gone``: the one topic of the query was deleted; ConflictError of kind
    ``topic-replaced``: a topic of the batch is not in the log. Kind ``partition-count-changed``: one that
    distributes by key has other partitions by now; InvalidInputError of kind ``unroutable-rows``: too many
    topics.
    """
    stamp, state = batch.stamp, log.state
    app = AppRef(
        STREAM_NAMESPACE,
        stamp.query_id,
        stamp.batch_id,
        instance=stamp.run_id,
        is_next=not options.allow_missing_batches,
    )
    known = state.app_versions.get(app.key)
    if known is not None and known.version >= stamp.batch_id:
        return Write(app=app)  # done or refused, never applied: what was uploaded does not matter
    if known is not None and options.write.topic is not None:
        _check_made(state, batch, options.write.topic)
    topics = {name: _known_or_new(state, batch, options, frame, name) for name in sorted(batch.topics)}
    write = write_of(
        log, batch.tasks, stamp.born, topics, app, "configure the source to give smaller batches"
    )
    if options.app_id is None:
        return write
    return replace(write, apps_beside=(AppRef(STREAM_APP_NAMESPACE, options.app_id, stamp.batch_id),))


def _check_made(state: LogState, batch: Batch, name: str) -> None:
    """Raise NotFoundError of kind ``topic-gone`` if the one topic of a query is not there: its first version
    has made it, or has found it.
    """
    if name in batch.topics and batch.topics[name].topic_id not in state.topics:
        raise NotFoundError(
            "the topic of the query is no longer in the log: it was deleted, and perhaps recreated",
            kind="topic-gone",
            hint="nothing was written; to write to a new topic of this name, use a new checkpointLocation",
            topic=name,
            topic_id=batch.topics[name].topic_id,
        )


def _known_or_new(
    state: LogState, batch: Batch, options: StreamWriteOptions, frame: StructType, name: str
) -> Target:
    stamp = batch.topics[name]
    if options.write.topic not in (None, name):
        raise invalid_message("a topic that this write does not have", topic=name)
    topic = state.topics.get(stamp.topic_id)
    if topic is not None:
        if (topic.name, topic.directory) != (name, stamp.directory):
            raise invalid_message("a topic whose name differs in the log", topic=name, got=stamp)
        return Target(stamp.topic_id, _destination(stamp), _partition_count(topic, stamp), None)
    if not options.write.create_topics or stamp.topic_id != new_topic_id(batch.stamp.seed, name):
        raise ConflictError(
            "a topic that the batch was written for is not in the log",
            kind="topic-replaced",
            hint="nothing was written; restart the query: it writes the batch again",
            topic=name,
            topic_id=stamp.topic_id,
        )
    columns = frame if options.write.topic is not None else without_topic(frame)[0]
    create, _ = topic_to_create(options.write, columns, batch.stamp.seed, name)
    expected = TopicStamp(create.topic_id, create.directory, 0, create.partitions)
    if stamp != expected:
        raise invalid_message("a topic that differs from the one to create", topic=name, got=stamp)
    # Another client may have made it meanwhile: then this creates nothing, and the records go there if it is
    # alike.
    theirs = state.topics.get(state.topic_ids.get(name, ""))
    alike = theirs is not None and theirs.created.partitions == create.partitions
    count = _partition_count(theirs, stamp) if theirs is not None and alike else create.partitions
    return Target(create.topic_id, _destination(stamp), count, create)


def _destination(stamp: TopicStamp) -> Destination:
    return Destination(stamp.directory, stamp.schema_id, stamp.partition_count)


def _partition_count(topic: TopicState, stamp: TopicStamp) -> int:
    """Return how many partitions the topic has now: without key columns, records may stay where the tasks put
    them.
    """
    if stamp.schema_id > topic.schema.schema_id or stamp.partition_count > topic.partitions:
        raise invalid_message("a topic that the log does not know yet", topic=topic.name, got=stamp)
    if topic.schema.key_columns and stamp.partition_count != topic.partitions:
        raise ConflictError(
            "the topic has more partitions than when the batch was written, and its records go by key",
            kind="partition-count-changed",
            hint="nothing was written; restart the query: it writes the batch again",
            topic=topic.name,
            expected=stamp.partition_count,
            got=topic.partitions,
        )
    return topic.partitions
