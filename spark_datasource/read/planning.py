"""Planning a read of pinned topics: from the state of the log to the splits that tasks read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql.types import StructType

from spark_datasource.options.declared import ReadOptions
from spark_datasource.read.splits import (
    OPEN_BYTES,
    OPEN_BYTES_AT_HAND,
    Split,
    TopicPlan,
    TopicRead,
    cut,
    split_count,
)
from spark_datasource.schema import project
from txnformat.core.state import LogState
from txnformat.core.topics.schema import TopicSchema
from txnformat.log import TxnLog
from txnformat.reading.commits import committed_between
from txnformat.reading.plan import topic_predicate
from txnformat.reading.resolving import known_at
from txnformat.spans import here
from txnformat.store.base import ObjectStore
from txnformat.types import OffsetRange

__all__ = ["plan_commits", "plan_offsets", "splits_of", "topic_read"]


def topic_read(
    options: ReadOptions, name: str, topic_id: str, schema: TopicSchema, wanted: StructType
) -> TopicRead:
    """Return a topic as a task reads it.

    Raises InvalidInputError of kinds ``schema-mismatch``, ``invalid-where``.
    """
    # A session has a time zone, which the log does not know: a time without one would be another in Spark's
    # own WHERE.
    where = None if options.where is None else topic_predicate(options.where, schema, need_zone=True)
    return TopicRead(name, topic_id, schema, project(name, schema, options.columns, wanted).columns, where)


def plan_offsets(
    log: TxnLog,
    state: LogState,
    options: ReadOptions,
    read: TopicRead,
    ranges: Sequence[OffsetRange],
    entry: int,
) -> TopicPlan:
    """Plan to read offsets of a topic. Requests: 1 GET for each batch table in range that is not kept.

    ``ranges``: by partition; the topic may have more by now. ``entry``: of the state that the read was pinned
    to.
    """
    plan = log.plan(
        read.name,
        isolation=options.isolation,
        start={number: wanted.start for number, wanted in enumerate(ranges)},
        end={number: wanted.end for number, wanted in enumerate(ranges)},
        where=read.where,
        partitions=range(len(ranges)),
        state=state,
        open_sealed=False,
        as_of=entry,
    )
    parts = [replace(part, rows=known_at(part.rows, entry)) for part in plan.partitions]
    return TopicPlan(read, parts, plan.files, plan.sealed)


def plan_commits(
    log: TxnLog,
    state: LogState,
    read: TopicRead,
    topic_id: str,
    since: int,
    until: int,
    floors: Sequence[int] = (),
) -> TopicPlan:
    """Plan to read what the entries of (``since``, ``until``] committed in a topic; by commit entry, then
    offset.
    """
    window = committed_between(
        log.sidecars, state, state.topics[topic_id], since, until, floors=floors, where=read.where
    )
    return TopicPlan(read, window.partitions, window.files)


def splits_of(
    log_id: str, entry: int, plans: Sequence[TopicPlan], options: ReadOptions, store: ObjectStore
) -> list[Split]:
    """Return the splits of a read: enough for the cores, and none of a larger cost than the options allow."""
    open_bytes = OPEN_BYTES_AT_HAND if store.reads_in_flight == 1 else OPEN_BYTES
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    size = sum(plan.cost(open_bytes) for plan in plans)
    count = split_count(size, options.bytes_per_partition_max, options.partitions_min, cores)
    splits = cut(log_id, entry, plans, count, open_bytes)
    trace = here()
    if trace is not None:
        for split in splits:
            split.trace = trace
    return splits
