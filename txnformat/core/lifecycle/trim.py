"""The decision about a trim. Pure."""

from __future__ import annotations

from txnformat.core.intents import TrimTopic
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.operations import Trim
from txnformat.core.lifecycle.pins import unread_from
from txnformat.core.state import LogState
from txnformat.errors import ConflictError
from txnformat.persistent import replace
from txnformat.types import TopicPartition

__all__ = ["trim"]


def trim(state: LogState, action: TrimTopic) -> Trim:
    """Return the operation that moves log starts, if they and the segments are still those that the caller
    has counted.
    """
    state.topic_of(action.trim.topic_id, "a trim")
    check_removal(state)
    revisions = action.revisions or (0,) * len(action.seen)
    for part, seen, revision in zip(action.trim.partitions, action.seen, revisions, strict=True):
        known = state.partition(TopicPartition(action.trim.topic_id, part.partition))
        if known.log_start != seen or known.revision != revision:
            raise ConflictError(
                "another client has moved the log start, or compacted what lies below the new one",
                kind="trim-superseded",
                hint="call again if the log start is still too low",
                partition=part.partition,
                expected=seen,
                got=known.log_start,
                revision=known.revision,
            )
    for part, free in zip(action.trim.partitions, action.unpinned or (), strict=False):
        unread = unread_from(state, TopicPartition(action.trim.topic_id, part.partition))
        if unread is not None and part.log_start > max(unread, free):
            raise ConflictError(
                "a group or a subscription has not read all of the records, and holds them back",
                kind="records-pinned",
                hint="wait until it has read them; the setting retention.pinned.ms limits how long it may "
                "hold them back",
                partition=part.partition,
                got=part.log_start,
                unread_from=unread,
            )
    return replace(action.trim, intent=0)
