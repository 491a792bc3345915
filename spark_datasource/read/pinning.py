"""Pinning a read: options and the newest state in, what to read of every topic out, fixed for good.

A pin is made once for each ``load()``. Every later plan of it, on any newer state, in any process, gives the
same rows: rows below a pinned end never change, nor do those that an entry committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_datasource.options.declared import Order, ReadOptions
from spark_datasource.options.offsets import EARLIEST, LATEST, StartOrEnd
from txnformat.core.records.scan import check_range, readable_end
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import InvalidInputError, NotFoundError, OffsetOutOfRangeError
from txnformat.log import TxnLog
from txnformat.protocol.cuts import cut_at, topic_as_of
from txnformat.reading.times import first_at
from txnformat.types import OffsetRange, TopicPartition

__all__ = [
    "Pin",
    "TopicPin",
    "check_partitions",
    "check_topics",
    "entry_before",
    "first_floors",
    "log_starts",
    "offset_at",
    "pin_read",
    "start_entry",
]


@dataclass(frozen=True, slots=True)
class TopicPin:
    """The range of a read in one topic."""

    topic_id: str
    name: str
    schema: TopicSchema
    ranges: tuple[OffsetRange, ...]
    """Ranges by partition, from 0; empty in commit order."""
    floors: tuple[int, ...] = ()
    """In commit order the offset to look from, by partition; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Pin:
    """The range of a read."""

    log_id: str
    entry: int
    """The entry of a snapshot, the last one (inclusive) in commit order; else the one whose state it was made
    on."""
    topics: tuple[TopicPin, ...]
    """The topics, by name."""
    since: int = -1
    """In commit order: what this entry and older ones committed is left out."""


def pin_read(log: TxnLog, options: ReadOptions) -> Pin:
    """Pin a read on the newest state; of a snapshot the entry decides what is there, and the ends only bound
    it.

    Requests: none beyond the state's; with times those of finding the entry, or, on a topic that declares a
    timestamp column, the ranges of that column in one batch for each partition and timestamp; with
    ``end_expired`` those of ending transactions. Raises NotFoundError: no such topic, partition or version;
    OffsetOutOfRangeError, InvalidInputError: offsets that are not there, an end before its start.
    """
    state = log.transactions.end_expired_if_permitted() if options.end_expired else log.state
    if options.order is Order.COMMIT:
        return _pin_commits(log, state, options)
    entry = log.committer.read(cut_at(state, options.version_as_of, options.timestamp_as_of_ms))
    pins = []
    topics = options.topics.chosen_any(state)
    check_topics("startingOffsets", topics, options.starting)
    check_topics("endingOffsets", topics, options.ending)
    for found in topics:
        topic = topic_as_of(state, found.name, entry)
        for option in (options.starting, options.ending):
            check_partitions(topic, option)
        ranges = tuple(_range(log, state, topic, number, options) for number in range(topic.partitions))
        pins.append(TopicPin(topic.topic_id, topic.name, topic.schema, ranges))
    return Pin(state.log_id, entry, tuple(pins))


def _pin_commits(log: TxnLog, state: LogState, options: ReadOptions) -> Pin:
    since = -1 if options.starting is None else start_entry(state, options.starting)
    if options.starting_timestamp_ms is not None:
        since = entry_before(log, state, options.starting_timestamp_ms)
    if options.ending_timestamp_ms is not None:
        until = entry_before(log, state, options.ending_timestamp_ms)
    elif options.ending.entry is not None:
        until = options.ending.entry
        if until > state.entry:
            raise _no_entry(until, state)
    elif options.ending.default == EARLIEST:
        until = -1
    else:
        until = log.committer.read(cut_at(state, options.version_as_of, options.timestamp_as_of_ms))
    if until < since and options.ending.default != EARLIEST:
        raise InvalidInputError(
            "the end entry is before the start entry", kind="end-before-start", start=since + 1, end=until
        )
    pins = [
        TopicPin(topic.topic_id, topic.name, topic.schema, (), first_floors(state, topic, since))
        for topic in (
            topic_as_of(state, one.name, max(until, since)) for one in options.topics.chosen_any(state)
        )
    ]
    return Pin(state.log_id, max(until, since), tuple(pins), since)


def log_starts(state: LogState, topic: TopicState) -> tuple[int, ...]:
    """Return the log start of each partition."""
    return tuple(
        state.partition(TopicPartition(topic.topic_id, number)).log_start
        for number in range(topic.partitions)
    )


def first_floors(state: LogState, topic: TopicState, since: int) -> tuple[int, ...]:
    """Return where a read in commit order looks from that begins after an entry; -1: at the earliest, so at
    what there is now.
    """
    found = log_starts(state, topic) if since < 0 else ()
    return found if any(found) else ()


def start_entry(state: LogState, starting: StartOrEnd) -> int:
    """Return the last entry before a read in commit order.

    OffsetOutOfRangeError: it begins beyond the next entry.
    """
    if starting.entry is None:
        return -1 if starting.default == EARLIEST else state.entry
    if starting.entry > state.entry + 1:
        raise _no_entry(starting.entry, state)
    return starting.entry - 1


def _no_entry(entry: int, state: LogState) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        "there is no such entry yet",
        hint="use an existing entry, earliest, or latest",
        got=entry,
        latest=state.entry,
    )


def entry_before(log: TxnLog, state: LogState, timestamp_ms: int) -> int:
    """Return the last entry before a time; -1 when there is none. A time to come gives the newest one."""
    if timestamp_ms > state.timestamp_ms:
        return state.entry
    try:
        return log.committer.read(cut_at(state, None, timestamp_ms - 1))
    except NotFoundError as error:
        if error.kind != "timestamp-before-log":
            raise
        return -1


def check_topics(name: str, topics: Sequence[TopicState], option: StartOrEnd | None) -> None:
    """Raise NotFoundError ``unknown-topic`` about named topics that are not read; for a pattern only the log
    tells.
    """
    read = {topic.name for topic in topics}
    others = sorted(
        topic for topic in (option.by_topic if option is not None else ()) if topic and topic not in read
    )
    if others:
        raise NotFoundError(
            f"option {name} names topics that are not read",
            kind="unknown-topic",
            hint="name existing topics that the pattern matches",
            topics=others[:20],
        )


def check_partitions(topic: TopicState, option: StartOrEnd | None) -> None:
    """Raise NotFoundError (kind ``unknown-partition``) about partitions that are named and not there."""
    named = set() if option is None else set(option.of(topic.name))
    unknown = sorted(number for number in named if number >= topic.partitions)
    if unknown:
        raise NotFoundError(
            "no such partition",
            kind="unknown-partition",
            hint=f"the topic has {topic.shown_partitions}",
            topic=topic.name,
            partitions=unknown,
        )


def offset_at(
    log: TxnLog,
    state: LogState,
    topic: TopicState,
    number: int,
    readable: OffsetRange,
    option: StartOrEnd,
    timestamp_ms: int | None,
) -> int:
    """Return the offset of an option, or of a time instead; a time after ``readable`` (readable now) gives
    its end.
    """
    if timestamp_ms is not None:
        found = first_at(log.sidecars, state, topic, number, readable, timestamp_ms * 1_000)
        return readable.end if found is None else found
    offset = option.of(topic.name).get(number, option.default)
    return {EARLIEST: readable.start, LATEST: readable.end}.get(offset, offset)


def _range(log: TxnLog, state: LogState, topic: TopicState, number: int, options: ReadOptions) -> OffsetRange:
    partition = state.partition(TopicPartition(topic.topic_id, number))
    latest = readable_end(partition, options.isolation)
    readable = OffsetRange(partition.log_start, latest)
    starting = options.starting or StartOrEnd(EARLIEST)
    start = offset_at(log, state, topic, number, readable, starting, options.starting_timestamp_ms)
    end = offset_at(log, state, topic, number, readable, options.ending, options.ending_timestamp_ms)
    # An end that is simply the latest cannot be what is wrong with a start beyond it.
    if not options.fail_on_data_loss and (start <= end or end == latest):
        start, end = (min(max(offset, partition.log_start), latest) for offset in (start, end))
    asked_end = None if end == latest else end
    return check_range(partition, options.isolation, start, asked_end, topic=topic.name, number=number)
