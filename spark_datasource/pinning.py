"""Pinning a read: options and the newest state in, offsets of every partition out, fixed for good.

A pin is made once for each ``load()``. Whatever is planned from it later, on any newer state, in any process,
gives the same rows: rows below a pinned end never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_datasource.offset_options import EARLIEST, LATEST, OffsetsOption
from spark_datasource.options import ReadOptions
from txnformat.cuts import cut_at, topic_as_of
from txnformat.errors import NotFoundError
from txnformat.log import TxnLog
from txnformat.scan import check_range, readable_end
from txnformat.schema import TopicSchema
from txnformat.state import LogState, TopicState
from txnformat.time_lookup import first_at
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["Pin", "pin_read"]


@dataclass(frozen=True, slots=True)
class Pin:
    """What a read covers."""

    log_id: str
    topic_id: str
    entry: int
    """The entry of a snapshot; else the one whose state it was made on."""
    schema: TopicSchema
    ranges: tuple[OffsetRange, ...]
    """By partition, from 0."""


def pin_read(log: TxnLog, options: ReadOptions) -> Pin:
    """Pin a read on the newest state; of a snapshot the entry decides what is there, and the ends only bound it.

    Requests: none beyond the state's; with ``timestampAsOf`` those of finding the entry; with ``end_expired`` those of ending transactions; with timestamps, on a topic that declares a timestamp column, the ranges of
    that column in one batch for each partition and timestamp.

    Raises
    ------
    NotFoundError
        No such topic, partition or version.
    OffsetOutOfRangeError, InvalidInputError
        Offsets that are not there, an end before its start.
    """
    state = log.transactions.end_expired_if_permitted() if options.end_expired else log.state
    entry = log.committer.read(cut_at(state, options.version_as_of, options.timestamp_as_of_ms))
    topic = topic_as_of(state, options.topic, entry)
    _check_partitions(topic, options)
    ranges = tuple(_range(log, state, topic, number, options) for number in range(topic.partitions))
    return Pin(state.log_id, topic.topic_id, entry, topic.schema, ranges)


def _check_partitions(topic: TopicState, options: ReadOptions) -> None:
    named: set[int] = set()
    for option in (options.starting, options.ending):
        if isinstance(option, Mapping):
            named |= set(option)
    unknown = sorted(number for number in named if number >= topic.partitions)
    if unknown:
        raise NotFoundError(
            "no such partition",
            kind="unknown-partition",
            hint=f"the topic has partitions 0 to {topic.partitions - 1}",
            topic=topic.name,
            partitions=unknown,
        )


def _range(log: TxnLog, state: LogState, topic: TopicState, number: int, options: ReadOptions) -> OffsetRange:
    partition = state.partition(TopicPartition(topic.topic_id, number))
    latest = readable_end(partition, options.isolation)

    def resolve(option: OffsetsOption, timestamp_ms: int | None, default: int) -> int:
        if timestamp_ms is not None:
            readable = OffsetRange(partition.log_start, latest)
            found = first_at(log.sidecars, state, topic, number, readable, timestamp_ms * 1_000)
            return latest if found is None else found
        offset = option.get(number, default) if isinstance(option, Mapping) else option
        return {EARLIEST: partition.log_start, LATEST: latest}.get(offset, offset)

    start = resolve(options.starting, options.starting_timestamp_ms, EARLIEST)
    end = resolve(options.ending, options.ending_timestamp_ms, LATEST)
    if not options.fail_on_data_loss and start <= end:
        start, end = (min(max(offset, partition.log_start), latest) for offset in (start, end))
    # An end that is simply the latest cannot be what is wrong with a start beyond it.
    asked_end = None if end == latest else end
    return check_range(partition, options.isolation, start, asked_end, topic=topic.name, number=number)
