"""Where a stream goes on: from an offset, and the log as it is now, to the end of the next micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from spark_datasource.options.declared import Order, ReadOptions
from spark_datasource.options.offsets import LATEST, StartOrEnd
from spark_datasource.read.pinning import (
    check_partitions,
    check_topics,
    entry_before,
    first_floors,
    offset_at,
    start_entry,
)
from spark_datasource.stream.admission import Available, granted
from spark_datasource.stream.offsets import StreamOffset, TopicPosition
from txnformat.core.records.scan import check_range, extents_in, readable_end
from txnformat.core.state import LogState, TopicState
from txnformat.errors import NotFoundError, OffsetOutOfRangeError
from txnformat.log import TxnLog
from txnformat.reading.commits import committed_between, next_end
from txnformat.reading.sealed import SidecarCache
from txnformat.types import IsolationLevel, OffsetRange, TopicPartition

__all__ = ["Limits", "available", "check_there", "first_offset", "next_offset", "topic_gone", "without_loss"]

Limits = tuple[int | None, int | None]
"""Offsets and bytes of a micro-batch at most."""


def first_offset(
    log: TxnLog, state: LogState, options: ReadOptions, topics: Sequence[TopicState]
) -> StreamOffset:
    """Return where a new query begins.

    Requests: none beyond the state's; with a time those of finding it. Raises NotFoundError,
    OffsetOutOfRangeError: A partition, offset or entry that is named is not there.
    """
    starting = options.starting or StartOrEnd(LATEST)
    if options.order is Order.COMMIT:
        if options.starting_timestamp_ms is None:
            entry = start_entry(state, starting)
        else:
            entry = entry_before(log, state, options.starting_timestamp_ms)
        floors = {
            topic.topic_id: TopicPosition(topic.name, first_floors(state, topic, entry)) for topic in topics
        }
        return StreamOffset(state.log_id, options.order, entry, floors, is_initial=True)
    check_topics("startingOffsets", topics, starting)
    positions = {}
    for topic in topics:
        check_partitions(topic, starting)
        offsets = tuple(
            _first_offset(log, state, options, topic, number, starting) for number in range(topic.partitions)
        )
        positions[topic.topic_id] = TopicPosition(topic.name, offsets)
    return StreamOffset(state.log_id, options.order, state.entry, positions, is_initial=True)


def _first_offset(
    log: TxnLog, state: LogState, options: ReadOptions, topic: TopicState, number: int, starting: StartOrEnd
) -> int:
    partition = state.partition(TopicPartition(topic.topic_id, number))
    readable = OffsetRange(partition.log_start, readable_end(partition, options.isolation))
    offset = offset_at(log, state, topic, number, readable, starting, options.starting_timestamp_ms)
    if not options.fail_on_data_loss:
        return min(max(offset, readable.start), readable.end)
    return check_range(partition, options.isolation, offset, None, topic=topic.name, number=number).start


def without_loss(
    state: LogState, start: StreamOffset, chosen: Sequence[TopicState], *, fail_on_data_loss: bool
) -> StreamOffset:
    """Return an offset of all partitions of the chosen topics, without what the log has not any more.

    A topic that is still there and not read any more is no loss, nor are offsets without a record that was
    committed: the log never takes those back. A partition that the query has not met begins at offset 0.
    Raises NotFoundError of kind ``topic-gone``: a topic was deleted, or made again; OffsetOutOfRangeError of
    kind ``data-loss``: records that were not read yet are gone, or offsets that were read are not there.
    """
    if fail_on_data_loss:
        check_there(state, start)
    positions = {}
    for topic in chosen:
        read_to = start.offsets(topic.topic_id)
        offsets = [
            _present(state, start, topic, number, offset, fail_on_data_loss)
            for number, offset in enumerate((*read_to, *(0 for _ in range(len(read_to), topic.partitions))))
        ]
        positions[topic.topic_id] = TopicPosition(topic.name, tuple(offsets[: topic.partitions]))
    return StreamOffset(start.log_id, start.order, start.entry, positions)


def check_there(state: LogState, start: StreamOffset) -> None:
    """Raise NotFoundError of kind ``topic-gone`` if a topic that the query has read was deleted."""
    for topic_id, position in start.topics.items():
        if topic_id not in state.topics:
            raise topic_gone(
                "a topic of the checkpoint is no longer in the log: it was deleted or recreated",
                position,
                topic_id,
            )


def topic_gone(what: str, position: TopicPosition, topic_id: str) -> NotFoundError:
    """Return the error of a topic that the query has read, and that the log has not."""
    return NotFoundError(
        what,
        kind="topic-gone",
        hint='restore it, use a new checkpointLocation, or continue without it: option("failOnDataLoss", '
        '"false")',
        topic=position.name or topic_id,
        topic_id=topic_id,
    )


def _present(
    state: LogState, start: StreamOffset, topic: TopicState, number: int, offset: int, fail_on_data_loss: bool
) -> int:
    """Return where the query goes on in a partition that it has read to an offset; raise if anything between
    is gone.
    """
    partition = state.partition(TopicPartition(topic.topic_id, number))
    first, end = partition.log_start, partition.log_end
    # A floor is no more than a place to look from: what earlier entries committed is read.
    is_gone = offset < first and (start.order is Order.OFFSET or partition.trimmed_entry > start.entry)
    if fail_on_data_loss and (is_gone or offset > end):
        raise _data_loss(
            "records that the query has not read yet are gone"
            if is_gone
            else "offsets that the query has read are not in the log",
            topic,
            number,
            got=offset,
            earliest=first,
            latest=end,
        )
    return min(max(offset, first), end)


def _data_loss(what: str, topic: TopicState, number: int, **values: object) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        what,
        kind="data-loss",
        hint='to continue with what is left: option("failOnDataLoss", "false")',
        topic=topic.name,
        partition=number,
        **values,
    )


def available(state: LogState, topics: Sequence[TopicState], isolation: IsolationLevel) -> StreamOffset:
    """Return the offset up to which everything can be read now, in offset order."""
    positions = {
        topic.topic_id: TopicPosition(topic.name, tuple(_ends(state, topic, isolation))) for topic in topics
    }
    return StreamOffset(state.log_id, Order.OFFSET, state.entry, positions)


def _ends(state: LogState, topic: TopicState, isolation: IsolationLevel) -> list[int]:
    keys = (TopicPartition(topic.topic_id, number) for number in range(topic.partitions))
    return [readable_end(state.partition(key), isolation) for key in keys]


def next_offset(
    sidecars: SidecarCache,
    state: LogState,
    start: StreamOffset,
    topics: Sequence[TopicState],
    isolation: IsolationLevel,
    limits: Limits,
) -> StreamOffset | None:
    """Return the end of the next micro-batch; None: there is nothing to read.

    ``start``: from :func:`without_loss`. ``topics``: those to read. In offset order one that ``start`` has
    not is read from its first offset. Requests in offset order: none, but with a limit of bytes that of a
    segment list; in commit order those of :func:`txnformat.reading.commits.next_end`.
    """
    if start.order is Order.COMMIT:
        return _next_commits(sidecars, state, start, topics, limits)
    target = available(state, topics, isolation)
    if target.topics == {key: start.topics.get(key) for key in target.topics}:
        return None  # most looks see nothing: that much is quick, also of many partitions
    backlogs: list[Available] = []
    for topic in topics:
        before = start.offsets(topic.topic_id)
        for number, end in enumerate(target.offsets(topic.topic_id)):
            begin = before[number] if number < len(before) else 0
            backlogs.append(
                _backlog(
                    sidecars, state, TopicPartition(topic.topic_id, number), OffsetRange(begin, end), limits
                )
            )
    taken = granted(backlogs, *limits)
    if not any(taken):
        return None  # a partition was added, or the isolation level reads less than it did
    ends = iter([int(backlog.offsets[0]) + count for backlog, count in zip(backlogs, taken, strict=True)])
    positions = {
        topic.topic_id: TopicPosition(topic.name, tuple(next(ends) for _ in range(topic.partitions)))
        for topic in topics
    }
    return StreamOffset(state.log_id, start.order, state.entry, positions)


def _backlog(
    sidecars: SidecarCache, state: LogState, key: TopicPartition, wanted: OffsetRange, limits: Limits
) -> Available:
    """Return what a partition has to be read; where it begins before the log does, from there."""
    partition = state.partition(key)
    start = max(wanted.start, partition.log_start)
    if limits[1] is None or wanted.end <= start:
        offsets = np.array([start, max(wanted.end, start)], np.int64)
        return Available(offsets, np.zeros(2, np.int64))
    within = OffsetRange(start, wanted.end)
    spans = [
        (part.range.start, part.range.end, int(part.row["size"] - part.row["aborted_size"]))
        for part in sidecars.segments(state, key, within)
    ]
    rows = extents_in(sidecars.whole(state, key, within).partition(key), within)
    spans += zip(
        rows["base_offset"].tolist(),
        (rows["base_offset"] + rows["records"]).tolist(),
        rows["size"].tolist(),
        strict=True,
    )
    places, sizes = [start], [0]
    for first, end, size in spans:
        places += [first, end]
        sizes += [sizes[-1], sizes[-1] + size]
    offsets = np.unique(np.clip([*places, wanted.end], start, wanted.end)).astype(np.int64)
    size_at = np.interp(offsets, places, sizes)
    return Available(offsets, (size_at - size_at[0]).astype(np.int64))


def _next_commits(
    sidecars: SidecarCache, state: LogState, start: StreamOffset, topics: Sequence[TopicState], limits: Limits
) -> StreamOffset | None:
    floors: Mapping[str, Sequence[int]] = {topic.topic_id: start.offsets(topic.topic_id) for topic in topics}
    rows_max, bytes_max = limits
    until = next_end(sidecars, state, topics, start.entry, floors, rows_max=rows_max, bytes_max=bytes_max)
    if until == start.entry:
        return None
    positions = {}
    for topic in topics:
        window = committed_between(
            sidecars, state, topic, start.entry, until, floors=start.offsets(topic.topic_id)
        )
        positions[topic.topic_id] = TopicPosition(topic.name, window.floors)
    return StreamOffset(state.log_id, start.order, until, positions)
