"""Measures of consumer groups, from the state alone. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from txnformat.admin.prometheus import Sample
from txnformat.core.groups.listing import GroupStatus, Unread, group_status
from txnformat.core.state import LogState
from txnformat.types import TopicPartition

__all__ = ["GroupMetrics", "GroupPartitionMetrics", "group_samples", "measure_groups"]


@dataclass(frozen=True, slots=True)
class GroupPartitionMetrics:
    """Measures of a group in one partition."""

    topic: str
    partition: int
    committed_offset: int
    """Next offset to read."""
    lag_records: int
    """Committed records from there to the last stable offset, never too few."""
    lag_exact: bool
    """False: the offset lies inside a sealed segment, of which the state knows only totals."""


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """Measures of one consumer group."""

    group: str
    state: GroupStatus
    pending_offsets: int
    """Number of positions in undecided transactions; foreign ones included."""
    idle_ms: int
    """Since the last entry that used the group."""
    partitions: tuple[GroupPartitionMetrics, ...]
    """With a committed offset, by topic and partition."""


def measure_groups(state: LogState, now_ms: int) -> tuple[GroupMetrics, ...]:
    """Return the measures of all groups, by name.

    No requests. O(positions x log(extents) + extents in the state of their partitions).
    """
    unread: dict[TopicPartition, Unread] = {}
    found = []
    for name, group in sorted(state.groups.items()):
        partitions = []
        for key, one in group.committed.items():
            if isinstance(key, str):
                continue
            if key not in unread:
                unread[key] = Unread(state.partition(key))
            offset = int(one.value)
            topic = state.topics[key.topic_id].name
            partitions.append(GroupPartitionMetrics(topic, key.partition, offset, *unread[key].since(offset)))
        found.append(
            GroupMetrics(
                name,
                group_status(group, now_ms),
                sum(map(len, group.pending.values())),
                max(0, now_ms - group.used_ms),
                tuple(sorted(partitions, key=lambda part: (part.topic, part.partition))),
            )
        )
    return tuple(found)


def group_samples(groups: Iterable[GroupMetrics]) -> Iterator[Sample]:
    """Yield the samples of groups."""
    states: Counter[GroupStatus] = Counter()
    for group in groups:
        states[group.state] += 1
        named = (("group", group.group),)
        yield Sample("txnlog_group_pending_offsets", named, group.pending_offsets)
        yield Sample("txnlog_group_idle_seconds", named, group.idle_ms / 1000)
        for part in group.partitions:
            labels = (*named, ("topic", part.topic), ("partition", str(part.partition)))
            yield Sample("txnlog_group_committed_offset", labels, part.committed_offset)
            yield Sample("txnlog_group_lag_records", labels, part.lag_records)
    for status in GroupStatus:
        yield Sample("txnlog_groups", (("state", status.value),), states[status])
