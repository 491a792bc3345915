"""Lookups of producers and consumers in the log as they know it."""

from __future__ import annotations

import datetime

from txnformat.arguments import is_text
from txnformat.core.state import TopicState
from txnformat.log import TxnLog

__all__ = ["changed", "now_of", "topic_named"]


def topic_named(log: TxnLog, name: str, partition: int | None = None) -> TopicState:
    """Return a topic.

    Requests: none when it is known, with that partition; else those of a refresh: either may be new.

    Raises NotFoundError of kind ``unknown-topic``.
    """
    state = log.state
    if is_text(name) and name in state.topic_ids:
        known = state.topic(name)
        if type(partition) is not int or partition < known.partitions:
            return known
    return log.refresh().topic(name)


def changed(log: TxnLog, topic: TopicState) -> TopicState | None:
    """Return the topic that has the name of ``topic`` now; None: it has the columns and settings that are
    known.

    Requests: those of a refresh.
    """
    now = log.refresh().topic(topic.name)
    is_known = now.topic_id == topic.topic_id and now.schema.schema_id == topic.schema.schema_id
    return None if is_known and now.settings == topic.settings else now


def now_of(log: TxnLog) -> datetime.datetime:
    """Return the time by the log's own clock."""
    return datetime.datetime.fromtimestamp(log.committer.clock.now().wall_ms / 1000, datetime.UTC)
