"""What writers look up in the log as they know it."""

from __future__ import annotations

import datetime

from txnformat.intents import CommitResult
from txnformat.log import TxnLog
from txnformat.state import TopicState
from writers.transaction import CommitInfo

__all__ = ["commit_info", "now_of", "topic_named"]


def topic_named(log: TxnLog, name: str, partition: int | None = None) -> TopicState:
    """Return a topic. Requests: none when it is known, with that partition; else those of a refresh: either may be new.

    Raises
    ------
    NotFoundError
        Kind ``unknown-topic``.
    """
    state = log.state
    if name in state.topic_ids:
        known = state.topic(name)
        if type(partition) is not int or partition < known.partitions:
            return known
    return log.refresh().topic(name)


def now_of(log: TxnLog) -> datetime.datetime:
    """Return the time by the log's own clock."""
    return datetime.datetime.fromtimestamp(log.committer.clock.now().wall_ms / 1000, datetime.UTC)


def commit_info(log: TxnLog, result: CommitResult) -> CommitInfo:
    """Return what a commit did, with the topics' names."""
    topics = log.state.topics
    offsets = {(topics[key.topic_id].name, key.partition): offset for key, offset in result.offsets.items()}
    return CommitInfo(result.entry, result.timestamp_ms, offsets)
