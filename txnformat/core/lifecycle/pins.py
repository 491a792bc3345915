"""Which records groups and subscriptions still have to read. Pure."""

from __future__ import annotations

from txnformat.core.state import LogState
from txnformat.types import TopicPartition

__all__ = ["unread_from"]


def unread_from(state: LogState, key: TopicPartition) -> int | None:
    """Return the first offset that a group with a position in the partition, or a subscription of its topic,
    has not read; None: no reader is known.

    O(groups + subscriptions).
    """
    found = []
    for group in state.groups.values():
        committed = group.committed.get(key)
        if committed is not None and isinstance(committed.value, int):
            found.append(committed.value)
    for (topic_id, _), subscription in state.subscriptions.items():
        if topic_id == key.topic_id:
            found.append(state.acks(subscription, key).mark)
    return min(found, default=None)
