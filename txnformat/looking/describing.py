"""The part of a document that one state tells: topics, open transactions, groups, objects. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from txnformat.admin.metrics import LogMetrics, PartitionMetrics
from txnformat.core.state import LogState
from txnformat.core.transactions.hanging import find_hanging
from txnformat.core.transactions.listing import describe_transaction
from txnformat.looking.ending import EFFECTS, ending_command, status_of
from txnformat.looking.model import GroupView, OpenTransaction, StorageView, TopicView
from txnformat.types import TopicPartition

__all__ = ["OPEN_MAX", "TOPICS_MAX", "group_views", "open_transactions", "storage_view", "topic_views"]

TOPICS_MAX = 500
"""Most topics of a document, and most groups."""
OPEN_MAX = 500
"""Most open transactions that are described with their command."""


@dataclass(slots=True)
class _Sums:
    """Sums over the partitions of a topic."""

    records: int = 0
    bytes: int = 0
    aborted_records: int = 0
    aborted_bytes: int = 0
    lag: int = 0
    extents: int = 0
    unsealed: int = 0

    def add(self, part: PartitionMetrics) -> None:
        """Add the measures of a partition."""
        self.records += part.records
        self.bytes += part.bytes
        self.aborted_records += part.aborted_records
        self.aborted_bytes += part.aborted_bytes
        self.lag += part.lag


def topic_views(state: LogState, metrics: LogMetrics) -> tuple[TopicView, ...]:
    """Return the topics, by name."""
    sums = {topic.name: _Sums() for topic in state.topics.values()}
    for part in metrics.partitions:
        sums[part.topic].add(part)
    topics = sorted(state.topics.values(), key=lambda topic: topic.name)
    return tuple(
        TopicView(
            name=topic.name,
            partitions=topic.partitions,
            records=sums[topic.name].records,
            bytes=sums[topic.name].bytes,
            aborted_records=sums[topic.name].aborted_records,
            lag=sums[topic.name].lag,
            settings={one.name: one.value for one in topic.settings},
            key_columns=topic.schema.key_columns,
        )
        for topic in islice(topics, TOPICS_MAX)
    )


def open_transactions(
    state: LogState, url: str, now_ms: int, topic: str | None
) -> tuple[OpenTransaction, ...]:
    """Return the transactions without an outcome that have something in ``topic`` (None: anywhere), those
    first that hold back most.
    """
    found = []
    for name in sorted(state.undecided):
        known = state.transactional_ids[name]
        details = describe_transaction(state, name, now_ms)
        if topic is not None and not any(part.topic == topic for part in details.partitions):
            continue
        status = status_of(known, now_ms)
        found.append(
            OpenTransaction(
                name,
                known.producer_id,
                known.epoch,
                status,
                details.duration_ms or 0,
                details.expires_ms,
                details.buffer or "",
                tuple((p.topic, p.partition, p.holds_back) for p in details.partitions if p.holds_back),
                sum(part.staged_records for part in details.partitions),
                ending_command(status, name, url),
                EFFECTS[status],
            )
        )
    found.sort(key=lambda one: (-sum(held for _, _, held in one.holds_back), -one.age_ms))
    hanging = [
        OpenTransaction(
            "",
            one.producer_id,
            one.producer_epoch,
            "hanging",
            one.duration_ms,
            None,
            "",
            ((one.topic, one.partition, _held(state, one.topic, one.partition)),),
            0,
            ending_command("hanging", "", url),
            EFFECTS["hanging"],
        )
        for one in find_hanging(state, now_ms, topic=topic, max_transaction_timeout_ms=0).hanging
    ]
    return tuple(islice([*hanging, *found], OPEN_MAX))


def _held(state: LogState, topic: str, number: int) -> int:
    part = state.partition(TopicPartition(state.topic(topic).topic_id, number))
    return part.log_end - part.last_stable_offset


def group_views(state: LogState, metrics: LogMetrics) -> tuple[GroupView, ...]:
    """Return the consumer groups, by name."""
    found = []
    for one in islice(metrics.groups, TOPICS_MAX):
        member = state.groups[one.group].member
        positions = tuple(
            (part.topic, part.partition, part.committed_offset, part.lag_records, part.lag_exact)
            for part in one.partitions
        )
        found.append(
            GroupView(
                one.group,
                one.state.value,
                "" if member is None else member.name,
                one.idle_ms,
                one.pending_offsets,
                positions,
            )
        )
    return tuple(found)


def storage_view(state: LogState, metrics: LogMetrics) -> StorageView:
    """Return the objects that the state names."""
    sums: dict[str, _Sums] = {}
    for part in metrics.partitions:
        found = sums.setdefault(part.topic, _Sums())
        found.add(part)
        kept = state.partition(TopicPartition(state.topic_ids[part.topic], part.partition))
        found.extents += len(kept.extents)
        found.unsealed += kept.log_end - max(kept.log_start, kept.sealed_end)
    return StorageView(
        tuple(
            (topic, one.bytes, one.aborted_bytes, one.extents, one.unsealed)
            for topic, one in islice(sorted(sums.items()), TOPICS_MAX)
        ),
        state.segments.end,
        state.listed_segments,
        tuple((one.key, one.size) for one in state.segment_lists),
        tuple((one.entry, one.key, one.size) for one in state.checkpoints),
        len(state.files),
        sum(one.size for one in state.files),
        len(state.tables),
        sum(one.size for one in state.tables),
        metrics.tail_entries,
    )
