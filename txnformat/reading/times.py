"""Finding offsets by time, as Kafka's offsetsForTimes does: where a partition's records begin to be that
young.

A record's time is the topic's timestamp column, else the log time of its append. Records without a time never
match. Aborted records count: the answer is a place in the log.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.core.state import LogState, TopicState
from txnformat.reading.plan import extents_since, plan_range
from txnformat.reading.rows import read_rows
from txnformat.reading.sealed import SidecarCache
from txnformat.types import IsolationLevel, OffsetRange, TopicPartition

__all__ = ["first_at"]

_INT64 = np.iinfo(np.int64)


def first_at(
    sidecars: SidecarCache,
    state: LogState,
    topic: TopicState,
    number: int,
    within: OffsetRange,
    time_us: int,
) -> int | None:
    """Return the first offset in ``within`` whose record is at or after a time; None when there is none.

    ``number``: the partition. ``time_us``: microseconds since the epoch.

    Requests: those of metadata; on a topic that declares a timestamp column also the ranges of that column in
    one batch, or in several where a batch's times are out of order at its edge.
    """
    key = TopicPartition(topic.topic_id, number)
    time_us = max(int(_INT64.min), min(time_us, int(_INT64.max)))
    declared = topic.schema.timestamp_column is not None
    # The log has milliseconds, rounded down: of what has more, the millisecond of the time itself is looked
    # at.
    time_ms = time_us // 1_000 if declared else -(-time_us // 1_000)
    for extent in extents_since(sidecars, state, key, within, time_ms):
        if not declared and extent.is_append:
            return extent.range.start
        found = _first_record_at(sidecars, state, topic, number, extent.range, time_us)
        if found is not None:
            return found
    return None


def _first_record_at(
    sidecars: SidecarCache,
    state: LogState,
    topic: TopicState,
    number: int,
    within: OffsetRange,
    time_us: int,
) -> int | None:
    """Look at the records of one extent."""
    key = TopicPartition(topic.topic_id, number)
    plan = plan_range(sidecars, state, key, within, IsolationLevel.READ_UNCOMMITTED)
    rows = plan.partitions[0].rows
    wanted = pa.scalar(time_us, pa.int64())
    for batch in read_rows(
        sidecars.store,
        topic.name,
        topic.schema,
        number,
        rows,
        plan.files.__getitem__,
        ["_timestamp", "_offset"],
    ):
        late = pc.fill_null(pc.greater_equal(batch.column("_timestamp").cast(pa.int64()), wanted), False)
        hits = np.flatnonzero(late.to_numpy(zero_copy_only=False))
        if len(hits):
            return int(batch.column("_offset")[int(hits[0])].as_py())
    return None
