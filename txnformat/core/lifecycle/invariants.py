"""I22: nothing is left of a topic that was deleted. Pure; the second opinion to the fold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.operations import CreateTopic
from txnformat.core.state import LogState
from txnformat.types import TopicPartition

__all__ = ["check_deleted", "check_deleted_step", "deleted_in"]


def deleted_in(entry: CommitEntry) -> set[str]:
    """Return the ids of the topics that an entry deletes."""
    return {op.topic_id for op in entry.operations if isinstance(op, DeleteTopic)}


def check_deleted_step(before: LogState, entry: CommitEntry, after: LogState) -> Iterator[str]:
    """Yield the violations of what an entry deletes; O(state) if it deletes a topic, else nothing."""
    gone = deleted_in(entry)
    if not gone:
        return
    made = {op.topic_id: op.directory for op in entry.operations if isinstance(op, CreateTopic)}
    for topic_id in sorted(gone):
        known = before.topics.get(topic_id)
        directory = known.directory if known is not None else made.get(topic_id, "")
        found = after.deleted.get(directory)
        if found is None or (found.topic_id, found.entry) != (topic_id, entry.entry):
            yield f"I22 topic {topic_id}: its directory is not kept"
    yield from check_deleted(after)


def check_deleted(state: LogState) -> Iterator[str]:
    """Yield what one state has of topics that are not there."""
    for where, topic_id in _named(state):
        if topic_id not in state.topics:
            yield f"I22 {where}: it is of topic {topic_id}, which is not there"
    for topic in state.topics.values():
        if topic.directory in state.deleted:
            yield f"I22 topic {topic.topic_id}: a deleted topic had its directory {topic.directory}"
    for directory, gone in state.deleted.items():
        if gone.directory != directory or gone.topic_id in state.topics:
            yield f"I22 {directory}: topic {gone.topic_id} is there"


def _named(state: LogState) -> Iterator[tuple[str, str]]:
    yield from ((f"partition {key.partition}", key.topic_id) for key in state.partitions)
    yield from ((f"segment {segment.index.key}", segment.topic_id) for segment in state.segments)
    yield from ((f"subscription {name}", topic_id) for topic_id, name in state.subscriptions)
    for name, group in state.groups.items():
        for key in chain(group.committed, *group.pending.values()):
            if isinstance(key, TopicPartition):
                yield f"group {name}", key.topic_id
    for name, known in state.transactional_ids.items():
        yield from ((f"id {name}", key.topic_id) for key in (*known.partitions, *known.staged_sequences))
        yield from ((f"id {name}", flush.topic_id) for flush in known.staged)
        yield from ((f"id {name}", topic_id) for topic_id, _ in known.subscriptions)
    for app, version in state.app_versions.items():
        yield from ((f"application {app}", topic_id) for topic_id in version.topics)
