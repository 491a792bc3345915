"""I22: nothing is left of a topic that was deleted; I24: what is known of erasures.

Pure; the second opinion to the fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import AbandonErasure, DeleteTopic
from txnformat.core.operations import CreateTopic
from txnformat.core.state import LogState
from txnformat.types import TopicPartition

__all__ = ["check_deleted", "check_deleted_step", "check_erasures", "check_erasures_step", "deleted_in"]


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


def check_erasures_step(before: LogState, entry: CommitEntry, after: LogState) -> Iterator[str]:
    """Yield the violations of what an entry does to erasures; O(erasures) if there is any."""
    if before.erasures is after.erasures:
        return
    abandoned = {op.erasure_id for op in entry.operations if isinstance(op, AbandonErasure)}
    for name, old in before.erasures.items():
        new = after.erasures.get(name)
        if new is None:
            if old.complete_entry < 0 and name not in abandoned:
                yield f"I24 erasure {name}: it is gone, and was neither complete nor abandoned"
            continue
        told = (
            "erasure_id",
            "topic_id",
            "topic",
            "directory",
            "entry",
            "columns",
            "condition",
            "requested_by",
        )
        if any(getattr(new, field) != getattr(old, field) for field in told):
            yield f"I24 erasure {name}: it is another one"
        counts = ("records", "files", "replaced_entry", "ends_entry", "rewritten_entry", "complete_entry")
        if any(getattr(new, field) < getattr(old, field) for field in counts):
            yield f"I24 erasure {name}: it goes back"
        reached = {one.partition: one.end_offset for one in new.reached}
        if new.rewritten_entry < 0 and any(
            reached.get(one.partition, 0) < one.end_offset for one in old.reached
        ):
            yield f"I24 erasure {name}: what is rewritten goes back"
        if old.complete_entry < 0 <= new.complete_entry != entry.entry:
            yield f"I24 erasure {name}: its certificate is not of this entry"
    yield from check_erasures(after)


def check_erasures(state: LogState) -> Iterator[str]:
    """Yield what is wrong with the erasures of one state."""
    for name, one in state.erasures.items():
        order = [one.entry, one.ends_entry, one.rewritten_entry, one.complete_entry]
        known = [number for number in order if number >= 0]
        if known != sorted(known) or known[-1] > state.entry or one.replaced_entry > state.entry:
            yield f"I24 erasure {name}: its entries are {order}, in a log of {state.entry}"
        if one.complete_entry >= 0 and not (
            0 <= one.rewritten_entry <= one.floor <= state.vacuum_floor
            and one.replaced_entry < one.floor
            and one.kept_versions is not None
        ):
            yield f"I24 erasure {name}: its certificate is of a vacuum below {one.floor}, which is not enough"
        if one.rewritten_entry >= 0 and (one.ends or one.reached):
            yield f"I24 erasure {name}: it is rewritten, and keeps offsets"
        if one.rewritten_entry < 0 and one.topic_id not in state.topics:
            yield f"I24 erasure {name}: its topic is not there"
        for ends in (one.ends, one.reached):
            if any(later.partition <= earlier.partition for earlier, later in pairwise(ends)):
                yield f"I24 erasure {name}: its partitions do not ascend"
        for part in one.reached:
            listed = state.partition(TopicPartition(one.topic_id, part.partition)).listed_end
            if part.end_offset > listed:
                yield f"I24 erasure {name}: partition {part.partition} is listed up to {listed} only"


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
