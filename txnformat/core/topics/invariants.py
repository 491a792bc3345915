"""Invariants of the versions of a topic's schema. Pure. See :mod:`txnformat.core.invariants`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.invariants import deleted_in
from txnformat.core.operations import AlterTopic, Append, CreateTopic, Stage
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.schema import fields_from_json

__all__ = ["check_topics_step", "check_versions"]

_Problems = Iterator[str]

_WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "float": ("double",),
}


def _versions_of(topic: TopicState) -> tuple[Any, ...]:
    """Return the columns of every version, oldest first."""
    return (*topic.schema.earlier, topic.schema.arrow_schema)


def check_versions(topic: TopicState) -> _Problems:
    """Return the violations of I13 in a topic by itself: it has no fewer partitions than it began with, every
    version can hold what it has of the one before, and a place is one column for ever.
    """
    versions, schema = _versions_of(topic), topic.schema
    all_places = [schema.places_of(number) for number in range(len(versions))]
    place_of = dict(zip(versions[-1].names, all_places[-1], strict=True))
    keys = {place_of[name] for name in schema.key_columns}
    needed = keys if schema.timestamp_column is None else keys | {place_of[schema.timestamp_column]}
    if topic.partitions < topic.created.partitions or not versions[0].equals(
        fields_from_json(list(topic.created.fields))
    ):
        yield f"I13 topic {topic.topic_id}: it is not what was created"
    free = 0
    for (earlier, later), (old_places, new_places) in zip(
        pairwise(versions), pairwise(all_places), strict=True
    ):
        free = max(free, 1 + max(old_places))
        before = dict(zip(old_places, earlier, strict=True))
        after = dict(zip(new_places, later, strict=True))
        changed = [
            (old, after[place])
            for place, old in before.items()
            if place in after
            and not old.type.equals(after[place].type)
            and (place in keys or not _holds(old, after[place]))
        ]
        made = sorted(after.keys() - before.keys())
        has_names = not schema.places and any(
            place not in after or after[place].name != old.name for place, old in before.items()
        )
        is_ordered = list(after) == sorted(after) and made == list(range(free, free + len(made)))
        if changed or has_names or not is_ordered or not needed <= after.keys() or after == before:
            yield f"I13 topic {topic.topic_id}: a schema does not follow from the one before: {changed}"


def _holds(old: Any, new: Any) -> bool:
    """Return whether the type of a column can hold the values of the type that it had before."""
    if str(new.type) in _WIDER.get(str(old.type), ()):
        return True
    if not (str(old.type).startswith("decimal128(") and str(new.type).startswith("decimal128(")):
        return False
    whole_old, whole_new = old.type.precision - old.type.scale, new.type.precision - new.type.scale
    return bool(whole_new >= whole_old and new.type.scale >= old.type.scale)


def check_topics_step(before: LogState, entry: CommitEntry, after: LogState) -> _Problems:
    """Yield the violations of I13 in one step."""
    made = {op.topic_id: op for op in entry.operations if isinstance(op, CreateTopic)}
    named = {op.topic_id for op in entry.operations if isinstance(op, Append | Stage)}
    gone = deleted_in(entry)
    if len(after.topics) != len(before.topics) + len(made) - len(gone) or len(after.topic_ids) != len(
        after.topics
    ):
        yield (
            f"I13 entry {entry.entry}: the state goes from {len(before.topics)} to {len(after.topics)} topics"
        )
    altered = {op.topic_id: op for op in entry.operations if isinstance(op, AlterTopic)}
    for topic_id in sorted((made.keys() | named | altered.keys()) - gone):
        old, new = before.topics.get(topic_id), after.topics.get(topic_id)
        expected = old.created if old else made.get(topic_id)
        if new is None or new.created != expected or after.topic_ids.get(new.name) != topic_id:
            yield f"I13 topic {topic_id}: it is not what was created"
            continue
        before_it = (old.partitions, old.schema.schema_id) if old else (expected.partitions, 0)
        now = altered.get(topic_id)
        wanted = (now.partitions, now.schema_id) if now else before_it
        if (new.partitions, new.schema.schema_id) != wanted or new.name != new.created.name:
            yield f"I13 topic {topic_id}: it is {new.partitions, new.schema.schema_id}, expected {wanted}"
        if wanted < before_it or (old and _versions_of(new)[: len(_versions_of(old))] != _versions_of(old)):
            yield f"I13 topic {topic_id}: it has shrunk, or an older version has changed"
        yield from check_versions(new)
    for operation in entry.operations:
        if isinstance(operation, Append | Stage) and operation.topic_id in after.topics:
            newest = max((file.schema_id for file in operation.files), default=0)
            if newest > after.topics[operation.topic_id].schema.schema_id:
                yield f"I13 topic {operation.topic_id}: a file has its schema {newest}, which is not there"
