"""Invariants of the versions of a topic's schema. Pure. See :mod:`txnformat.core.invariants`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from txnformat.core.state import TopicState
from txnformat.core.topics.schema import fields_from_json

__all__ = ["check_versions", "versions_of"]

_Problems = Iterator[str]

_WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "float": ("double",),
}


def versions_of(topic: TopicState) -> tuple[Any, ...]:
    """Return the columns of every version, oldest first."""
    return (*topic.schema.earlier, topic.schema.arrow_schema)


def check_versions(topic: TopicState) -> _Problems:
    """Return the violations of I13 in a topic by itself: it has no fewer partitions than it began with, every version can hold what it has of the one before, and a place is one column for ever."""
    versions, schema = versions_of(topic), topic.schema
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
