"""Targets of a reset of a group's positions: the forms a caller may ask for, and their meaning for each
partition.

Pure.

The ways are those of ``kafka-consumer-groups.sh --reset-offsets``. But a position at which no consumer can
read is refused, not moved to the nearest one.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txnformat.core.groups.operations import NO_OFFSET, OffsetCommit
from txnformat.core.groups.state import GroupState
from txnformat.core.state import LogState
from txnformat.core.transactions.listing import named_partition
from txnformat.errors import InvalidInputError, OffsetOutOfRangeError, repr_of
from txnformat.types import TopicPartition

__all__ = [
    "PartitionReset",
    "Place",
    "Shift",
    "Target",
    "as_commits",
    "check_resets",
    "is_names",
    "plan_resets",
    "read_target",
    "reset_keys",
]

Names = tuple[str, int]
"""Topic and partition."""


class Place(StrEnum):
    """A position that has a name."""

    EARLIEST = "earliest"
    """The log start."""
    LATEST = "latest"
    """The last stable offset."""
    CURRENT = "current"
    """Where the group is; the last stable offset in a partition without a position."""


@dataclass(frozen=True, slots=True)
class Shift:
    """So many offsets further on, or back."""

    by: int


Target = Place | Shift | int | datetime.datetime | datetime.timedelta | dict[Names, int]
"""Where to: an offset, a time, a duration before now, or an offset for each partition."""


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """A position of a group that is set, or would be."""

    topic: str
    partition: int
    previous_offset: int | None
    """The position before. If None, the group had no position."""
    offset: int
    """The new position: the next offset to read."""


_SHIFT = re.compile(r"shift:([+-]?[0-9]{1,18})")
_NOW = datetime.timedelta(0)
_HINT = (
    '"earliest", "latest", "current", an offset, "shift:+n" or "shift:-n", a datetime, a timedelta (this '
    "long before now), or a "
    "mapping of partition to offset; without a topic one of (topic, partition) to offset"
)


def read_target(to: object, topic: str | None) -> Target:
    """Return what an operator asks positions to be set to, of one topic or (None) of several.

    Raises InvalidInputError: ``invalid-reset-target`` (none of the ways), ``invalid-offset`` (every offset
    that is negative or no integer).
    """
    if isinstance(to, datetime.datetime) or (isinstance(to, datetime.timedelta) and to >= _NOW):
        return to
    if isinstance(to, str):
        if to in tuple(Place):
            return Place(to)
        shift = _SHIFT.fullmatch(to)
        if shift is not None:
            return Shift(int(shift[1]))
    if isinstance(to, int) and not isinstance(to, bool):
        _check_offsets([to])
        return to
    if isinstance(to, Mapping) and to:
        _check_offsets(list(to.values()))
        if topic is not None and all(type(key) is int for key in to):
            return {(topic, key): offset for key, offset in to.items()}
        if topic is None and all(map(is_names, to)):
            return dict(to)
    raise InvalidInputError(
        f"{repr_of(to, 80)} is not a position that a group can be set to",
        kind="invalid-reset-target",
        hint=f"use {_HINT}",
    )


def is_names(key: object) -> bool:
    """Return whether a user's value is a pair of topic and partition number."""
    return isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and type(key[1]) is int


def _check_offsets(offsets: Sequence[object]) -> None:
    problems = [
        f"{repr_of(offset, 40)} is not an offset"
        for offset in offsets
        if type(offset) is not int or offset < 0
    ]
    if problems:
        raise InvalidInputError(problems, kind="invalid-offset", hint="use integers from 0 on")


def reset_keys(
    state: LogState,
    group: GroupState,
    topic: str | None,
    partitions: Sequence[int] | None,
    target: Target,
) -> list[TopicPartition]:
    """Return the partitions whose positions are to be set, by topic and partition.

    Those of the mapping, if the target is one; else of the topic, all or those that are named; without a
    topic all in which the group has a position. Raises NotFoundError, and InvalidInputError of kind
    ``invalid-reset`` if there are none, or if partitions are named without a topic or besides a mapping.
    """
    if partitions is not None:
        if topic is None or isinstance(target, dict):
            raise _invalid(
                "partitions are given, but a mapping names its own partitions",
                "leave them out, or name a topic",
            )
        if isinstance(partitions, str | bytes) or not isinstance(partitions, Sequence):
            raise _invalid(
                f"partitions is {repr_of(partitions, 60)}, not a list of numbers", "such as [0, 2]"
            )
    if isinstance(target, dict):
        names = list(target)
    elif topic is not None:
        numbers = range(state.topic(topic).partitions) if partitions is None else partitions
        names = [(topic, number) for number in numbers]
    else:
        own = [key for key in group.committed if not isinstance(key, str)]
        names = [(state.topics[key.topic_id].name, key.partition) for key in own]
    if not names:
        raise _invalid(
            "there is no position to set",
            "name the topic whose positions to set; for topics of other logs use a consumer with "
            "offsets_log: seek, "
            "then commit",
        )
    keys = {named_partition(state, *one) for one in names}
    return sorted(keys, key=lambda key: (state.topics[key.topic_id].name, key.partition))


def _invalid(what: str, hint: str) -> InvalidInputError:
    return InvalidInputError(what, kind="invalid-reset", hint=hint)


def plan_resets(
    state: LogState,
    group: GroupState,
    keys: Sequence[TopicPartition],
    target: Target,
    at_time: Callable[[TopicPartition], int],
) -> list[PartitionReset]:
    """Return what each position would be set to; ``at_time`` gives the offset of a partition that a target
    which is a time means.

    Raises InvalidInputError of kind ``no-position`` when one without a position is to be shifted.
    """
    found = []
    for key in keys:
        value = group.value(key)
        previous = None if value == NO_OFFSET else int(value)
        name = state.topics[key.topic_id].name
        partition = state.partition(key)
        offset: int
        match target:
            case Place.EARLIEST:
                offset = partition.log_start
            case Place.LATEST:
                offset = partition.last_stable_offset
            case Place.CURRENT:
                offset = partition.last_stable_offset if previous is None else previous
            case Shift():
                if previous is None:
                    raise InvalidInputError(
                        "the group has no position in a partition that is to be shifted",
                        kind="no-position",
                        hint="name the partitions in which the group has a position, or set it to an offset",
                        topic=name,
                        partition=key.partition,
                    )
                offset = previous + target.by
            case dict():
                offset = target[name, key.partition]
            case int():
                offset = target
            case _:
                offset = at_time(key)
        found.append(PartitionReset(name, key.partition, previous, offset))
    return found


def check_resets(state: LogState, resets: Sequence[PartitionReset]) -> None:
    """Raise OffsetOutOfRangeError unless a committed reader can read at every position."""
    wrong = []
    for one in resets:
        partition = state.partition(TopicPartition(state.topic_ids[one.topic], one.partition))
        if not partition.log_start <= one.offset <= partition.last_stable_offset:
            wrong.append((one, partition))
    if not wrong:
        return
    first, partition = wrong[0]
    others: dict[str, Any] = (
        {} if len(wrong) == 1 else {"also": [f"{one.topic}-{one.partition}" for one, _ in wrong[1:21]]}
    )
    raise OffsetOutOfRangeError(
        "a position must be set to a readable offset",
        hint="use an offset from earliest to latest, the last stable offset; nothing was changed",
        topic=first.topic,
        partition=first.partition,
        got=first.offset,
        earliest=partition.log_start,
        latest=partition.last_stable_offset,
        **others,
    )


def as_commits(state: LogState, resets: Sequence[PartitionReset], target: Target) -> tuple[OffsetCommit, ...]:
    """Return what sets the positions.

    A shift is relative to the current positions: these must still be the same at the commit.
    """
    return tuple(
        OffsetCommit(
            state.topic_ids[one.topic],
            one.partition,
            one.offset,
            expected=one.previous_offset if isinstance(target, Shift) else None,
        )
        for one in resets
    )
