"""Retention: the oldest records of a topic are removed by its settings.

This module finds the partitions and their new log starts; :mod:`txnformat.admin.trimming` moves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from txnformat.admin.topics import DamagedTopic, attempt
from txnformat.admin.trimming import DeletedRecords, trim_to
from txnformat.client.committer import Committer
from txnformat.core.lifecycle.pins import unread_from
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.cleanup import deletes
from txnformat.core.topics.settings import value_of
from txnformat.errors import NotFoundError
from txnformat.keys import born_of
from txnformat.protocol.cuts import cut_at
from txnformat.protocol.old_entries import HISTORY_GONE
from txnformat.reading.sealed import SidecarCache
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["AppliedRetention", "apply_retention"]


class _Policy(NamedTuple):
    """The settings of a topic that say which records retention removes."""

    ms: int
    size: int
    by_record: bool
    """Time is the records' own, not that of their appends."""
    pinned_ms: int

    @classmethod
    def of(cls, topic: TopicState) -> _Policy:
        ms, size, time, pinned = (
            value_of(topic.settings, name)
            for name in ("retention.ms", "retention.bytes", "retention.time", "retention.pinned.ms")
        )
        if not deletes(topic.settings):
            ms = size = -1
        return cls(int(ms), int(size), time == "record", int(pinned))

    @property
    def is_empty(self) -> bool:
        return self.ms < 0 and self.size < 0


class _Cuts:
    """The last entries that are older than some times; each is looked for once.

    ``now_ms``: the store's time.
    """

    def __init__(self, committer: Committer, state: LogState, now_ms: int) -> None:
        self._committer, self._state, self._now_ms = committer, state, now_ms
        self._found: dict[int, int] = {}

    def time_ms(self, age_ms: int) -> int:
        """Return the newest time that is older than an age."""
        return self._now_ms - age_ms - 1

    def entry(self, age_ms: int) -> int:
        """Return the newest entry that is older than an age; -1: none is.

        Requests: about log2(entries) GETs the first time.
        """
        if age_ms not in self._found:
            self._found[age_ms] = self._look(self.time_ms(age_ms))
        return self._found[age_ms]

    def _look(self, time_ms: int) -> int:
        if time_ms < 0:
            return -1
        try:
            return self._committer.read(cut_at(self._state, None, time_ms))
        except NotFoundError as error:
            if error.kind not in ("timestamp-before-log", HISTORY_GONE):
                raise
            return -1


class AppliedRetention(NamedTuple):
    """The effect of the retention of all topics."""

    removed: tuple[DeletedRecords, ...] = ()
    """Partitions whose log starts moved."""
    damaged: tuple[DamagedTopic, ...] = ()


def apply_retention(
    committer: Committer, sidecars: SidecarCache, *, dry_run: bool = False
) -> AppliedRetention:
    """Remove the records that the settings of all topics no longer keep.

    ``dry_run``: only say which these are, of what is sealed.

    Requests: none in a log without such settings. Else about log2(entries) GETs for each retention time; for
    each partition those of its segment list, the ``.index`` of the oldest segment that is sealed later than
    that time, and those of a trim.
    """
    state, store_ms = committer.refresh_with_time()
    policies = [(topic, _Policy.of(topic)) for _, topic in sorted(state.topics.items())]
    cuts = _Cuts(committer, state, store_ms)
    removed: list[DeletedRecords] = []
    damaged: list[DamagedTopic] = []
    for topic, policy in policies:
        if policy.is_empty:
            continue
        found = attempt(
            committer,
            topic.name,
            "retention",
            partial(_apply, committer, sidecars, cuts, topic, policy, dry_run),
        )
        if isinstance(found, DamagedTopic):
            damaged.append(found)
        else:
            removed += found or ()
    return AppliedRetention(tuple(removed), tuple(damaged))


def _apply(
    committer: Committer,
    sidecars: SidecarCache,
    cuts: _Cuts,
    topic: TopicState,
    policy: _Policy,
    dry_run: bool,
) -> Sequence[DeletedRecords]:
    state = committer.state
    wanted: dict[int, int] = {}
    unpinned: dict[int, int] = {}
    for number in range(topic.partitions):
        key = TopicPartition(topic.topic_id, number)
        partition = state.partition(key)
        if partition.log_start >= partition.sealed_end:
            continue
        segments = sidecars.segments(state, key, OffsetRange(partition.log_start, partition.sealed_end))
        expired = _Expired(sidecars, cuts, key, segments, by_record=policy.by_record)
        end = max(expired.end(policy.ms), _beyond(partition, segments, policy.size))
        if policy.pinned_ms:
            unread = unread_from(state, key)
            unpinned[number] = expired.end(policy.pinned_ms)
            if unread is not None:
                allowed = max(unread, unpinned[number])
                end = max(
                    (part.range.end for part in segments if part.range.end <= min(end, allowed)), default=0
                )
        if end > partition.log_start:
            wanted[number] = end
    if dry_run:
        starts = {
            number: state.partition(TopicPartition(topic.topic_id, number)).log_start for number in wanted
        }
        return [DeletedRecords(topic.name, number, starts[number], end) for number, end in wanted.items()]
    if not wanted:
        return ()
    return trim_to(committer, sidecars, topic, wanted, unpinned=unpinned if policy.pinned_ms else None)


class _Expired:
    """Which of the oldest segments of a partition are older than some age."""

    def __init__(
        self,
        sidecars: SidecarCache,
        cuts: _Cuts,
        key: TopicPartition,
        segments: Sequence[SegmentPart],
        *,
        by_record: bool,
    ) -> None:
        self._sidecars, self._cuts, self._key = sidecars, cuts, key
        self._segments, self._by_record = segments, by_record

    def end(self, age_ms: int) -> int:
        """Return where the first segments end of which every record is older than an age; -1 stands for no
        age, and 0 is returned.
        """
        end = 0
        if age_ms < 0:
            return end
        for part in self._segments:
            if not self._is_older(part, age_ms):
                break
            end = part.range.end
        return end

    def _is_older(self, part: SegmentPart, age_ms: int) -> bool:
        if self._by_record:
            return int(part.row["max_timestamp_ms"]) <= self._cuts.time_ms(age_ms)
        last = self._cuts.entry(age_ms)
        # A segment holds appends of entries up to the one that it was born in.
        return last >= 0 and (born_of(part.record.index.key) <= last or self._newest(part) <= last)

    def _newest(self, part: SegmentPart) -> int:
        """Return the newest entry that has appended records of a segment.

        Requests: 1 GET, none when it is kept.
        """
        return self._sidecars.index(part.record.index).newest_entry(self._key.partition, part.range)


def _beyond(partition: PartitionState, segments: Sequence[SegmentPart], size: int) -> int:
    """Return where the first segments end without which the partition still has ``size`` compressed bytes; as
    Kafka's retention.bytes.
    """
    if size < 0:
        return 0
    left = partition.sealed.size + int(partition.extents.array()["size"].sum())
    left += sum(one.size for one in partition.spills)
    end = 0
    for part in segments:
        left -= int(part.row["size"])
        if left < size:
            break
        end = part.range.end
    return end
