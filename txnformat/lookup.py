"""Lookups of producers and consumers in the log as they know it."""

from __future__ import annotations

import datetime

from txnformat.arguments import is_text
from txnformat.core.state import TopicState
from txnformat.log import TxnLog

__all__ = ["now_of", "topic_named"]


def topic_named(log: TxnLog, name: str, partition: int | None = None) -> TopicState:
    """Return a topic. Requests: none when it is known, with that partition; else those of a refresh: either may be new.

    Raises NotFoundError of kind ``unknown-topic``.
    """
    state = log.state
    if is_text(name) and name in state.topic_ids:
        known = state.topic(name)
        if type(partition) is not int or partition < known.partitions:
            return known
    return log.refresh().topic(name)


def now_of(log: TxnLog) -> datetime.datetime:
    """Return the time by the log's own clock."""
    return datetime.datetime.fromtimestamp(log.committer.clock.now().wall_ms / 1000, datetime.UTC)
