"""Where a consumer may stand in a partition, and where it begins. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from txnformat.arguments import items
from txnformat.consumers.settings import OffsetReset
from txnformat.core.groups.resets import is_names
from txnformat.core.records.scan import readable_end
from txnformat.core.records.state import PartitionState
from txnformat.core.state import LogState
from txnformat.errors import InvalidInputError, NotFoundError, OffsetOutOfRangeError, repr_of
from txnformat.types import IsolationLevel, TopicPartition

__all__ = [
    "Names",
    "as_pairs",
    "check_offset",
    "is_in_range",
    "named_partitions",
    "reset_position",
]

Names = tuple[str, int]
"""Topic and partition, as users name them."""


def as_pairs(wanted: object) -> list[Names]:
    """Return (topic, partition) pairs.

    Raises InvalidInputError (``invalid-partitions``) about every entry that is no such pair.
    """
    pairs: list[Any] = [wanted]
    if isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes):
        pairs = items(wanted, "the partitions")
    odd = [pair for pair in pairs if not is_names(pair)]
    if odd:
        raise InvalidInputError(
            [f"{repr_of(value, 80)} is not a pair of topic and partition" for value in odd[:20]],
            kind="invalid-partitions",
            hint='name partitions as in ("orders", 0)',
        )
    return list(dict.fromkeys(pairs))


def named_partitions(state: LogState, pairs: Iterable[Names]) -> dict[Names, TopicPartition]:
    """Return the partitions that pairs name, in their order.

    Raises NotFoundError about every one that is not there.
    """
    found: dict[Names, TopicPartition] = {}
    unknown: list[Names] = []
    for name, number in pairs:
        topic = state.topic(name)
        if not 0 <= number < topic.partitions:
            unknown.append((name, number))
        found[name, number] = TopicPartition(topic.topic_id, number)
    if unknown:
        counts = {name: state.topic(name).partitions for name, _ in unknown}
        raise NotFoundError(
            "no such partition",
            kind="unknown-partition",
            hint="; ".join(f"{name!r} has partitions 0 to {count - 1}" for name, count in counts.items()),
            partitions=unknown[:20],
        )
    return found


def is_in_range(partition: PartitionState, position: int) -> bool:
    """Return whether a position is one that a reader can wait at: behind the last stable offset, too."""
    return partition.log_start <= position <= partition.log_end


def check_offset(offset: object) -> int:
    """Return an offset to seek to.

    Raises InvalidInputError of kind ``invalid-offset`` when it is negative, or no whole number.
    """
    if type(offset) is not int or offset < 0:
        raise InvalidInputError(
            f"{repr_of(offset, 80)} is not an offset",
            kind="invalid-offset",
            hint="offsets are whole numbers from 0 on; for the ends there are seek_to_beginning and "
            "seek_to_end",
        )
    return offset


def reset_position(
    partition: PartitionState,
    isolation: IsolationLevel,
    policy: OffsetReset,
    names: Names,
    position: int | None,
) -> int:
    """Return where a partition is begun whose position is not known (None), or not in range.

    Raises OffsetOutOfRangeError when the policy is NONE; of kind ``no-offset`` when no position is known.
    """
    latest = readable_end(partition, isolation)
    if policy is OffsetReset.EARLIEST:
        return partition.log_start
    if policy is OffsetReset.LATEST:
        return latest
    topic, number = names
    where: dict[str, Any] = {
        "topic": topic,
        "partition": number,
        "earliest": partition.log_start,
        "latest": latest,
    }
    if position is None:
        raise OffsetOutOfRangeError(
            "a partition has no position to begin at",
            kind="no-offset",
            hint="seek first, or choose auto_offset_reset",
            **where,
        )
    raise OffsetOutOfRangeError(
        "the position is no longer in the partition",
        hint="seek to an offset from earliest to latest, or choose auto_offset_reset",
        got=position,
        **where,
    )
