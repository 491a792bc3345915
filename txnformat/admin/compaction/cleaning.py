"""Key compaction: of each key the latest record stays.

As Kafka's LogCleaner: a map of the keys that were not compared yet, then everything below is written anew.

A pass over a partition may take several entries. It begins with the oldest records, so that at every moment
each key has its latest record; only the last entry says how far the keys were compared. A pass that another
client disturbs ends there, and the next run begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from txnformat.admin.compaction.policy import Ages
from txnformat.client.committer import Committer
from txnformat.core.lifecycle.offset_map import SLOT_BYTES
from txnformat.core.lifecycle.operations import CleanedPartition
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.cleanup import KeyPolicy, keeps_latest
from txnformat.errors import NotFoundError
from txnformat.keys import is_runs_key
from txnformat.reading.compacting import Source, Written, write_together
from txnformat.reading.latest import Latest, Look
from txnformat.reading.replacing import is_overtaken, is_there
from txnformat.reading.sealed import SidecarCache
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["Cleaned", "Cleaner", "KeyPasses", "dirty_ratios"]

MAP_BYTES = 128 * 2**20
"""Size of the map of keys, as Kafka's ``log.cleaner.dedupe.buffer.size``; with more keys there are more
passes."""

logger = logging.getLogger(__name__)

Replace = Callable[[LogState, Source, Written, CleanedPartition], bool]
"""Puts what was written in the place of a source; returns False if the source is not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPasses:
    """The key passes over some partitions of a topic: plain data, for another process."""

    topic_id: str
    numbers: Sequence[int]
    """The partitions."""
    now_ms: int
    """Log time, or the store's if that is later."""
    target_bytes: int
    min_lag_ms: int
    dry_run: bool
    """Whether only the records are counted that the first pass over a partition would remove."""
    when_dirty: bool
    """Whether to clean only partitions that the topic's settings call dirty enough."""


@dataclass(slots=True)
class Cleaned:
    """The outcome of the cleaning of a partition."""

    dirty_ratio: float | None = None
    removed: int = 0

    def add(self, other: Cleaned) -> None:
        """Add the outcome of other partitions."""
        ratios = [one for one in (self.dirty_ratio, other.dirty_ratio) if one is not None]
        self.dirty_ratio = max(ratios, default=None)
        self.removed += other.removed


class Cleaner:
    """Runs key passes.

    ``is_young``: tells whether a part has records that were aborted too short a time ago.
    """

    def __init__(
        self,
        committer: Committer,
        sidecars: SidecarCache,
        passes: KeyPasses,
        is_young: Callable[[LogState, TopicPartition, SegmentPart], bool],
        replace: Replace,
    ) -> None:
        self._committer = committer
        self._sidecars = sidecars
        self._passes = passes
        self._is_young = is_young
        self._replace = replace
        self.done = Cleaned(0.0)

    def run(self) -> Cleaned:
        """Compact the keys of the partitions."""
        for number in self._passes.numbers:
            self._clean(number)
        return self.done

    def _clean(self, number: int) -> None:
        state = self._committer.state
        topic = state.topic_of(self._passes.topic_id, "a compaction")
        key = TopicPartition(self._passes.topic_id, number)
        parts = self._below_the_cut(state, key, list(self._sidecars.live_parts(state, key)))
        if not parts:
            return
        ratio = _ratio(parts, _clean_end(state.partition(key)))
        self.done.dirty_ratio = max(self.done.dirty_ratio or 0.0, ratio)
        policy = KeyPolicy.of(topic.settings, topic.schema, topic.first_columns)
        if self._passes.when_dirty and not (
            ratio > policy.dirty_ratio
            or self._is_overdue(state, key, parts, policy.max_lag_ms)
            or _due_end(state.partition(key), policy, self._passes.now_ms) > state.partition(key).log_start
        ):
            return
        cut = parts[-1].range.end
        seed = self._committer.ids.new().encode()
        while self._pass(key, cut, seed):
            pass

    def _below_the_cut(
        self, state: LogState, key: TopicPartition, parts: Sequence[SegmentPart]
    ) -> list[SegmentPart]:
        """Return the first parts, up to one that was appended too short a time ago."""
        clean_end = _clean_end(state.partition(key))
        found: list[SegmentPart] = []
        for part in parts:
            if part.range.end > clean_end and (
                _log_ms(self._sidecars, key, part)[1] > self._passes.now_ms - self._passes.min_lag_ms
                or self._is_young(state, key, part)
            ):
                break
            found.append(part)
        return found

    def _is_overdue(
        self, state: LogState, key: TopicPartition, parts: Sequence[SegmentPart], max_lag_ms: int
    ) -> bool:
        """Return whether the oldest record that was not compared is older than the topic allows."""
        clean_end = _clean_end(state.partition(key))
        dirty = next((part for part in parts if part.range.end > clean_end), None)
        if dirty is None or max_lag_ms < 0:
            return False
        return _log_ms(self._sidecars, key, dirty)[0] < self._passes.now_ms - max_lag_ms

    def _pass(self, key: TopicPartition, cut: int, seed: bytes) -> bool:
        """Compare the next records below the cut with all before them; return whether there are more."""
        state = self._committer.refresh()
        topic = state.topics.get(self._passes.topic_id)
        if topic is None or not keeps_latest(topic.settings):
            return False
        partition = state.partition(key)
        policy = KeyPolicy.of(topic.settings, topic.schema, topic.first_columns)
        due_end = _due_end(partition, policy, self._passes.now_ms)
        begin = _clean_end(partition)
        if begin >= cut and (due_end <= partition.log_start or partition.cleaned_end > cut):
            return False
        look = Look(self._sidecars, state, topic, key, policy.tombstone_column, seed)
        latest = look.latest(OffsetRange(begin, cut), max(1, MAP_BYTES // SLOT_BYTES), due_end)
        parts = [part for part in self._sidecars.live_parts(state, key) if part.range.start < latest.end]
        sources = list(
            _sources(self._sidecars, topic, key, state, parts[-1].range.end, self._passes.target_bytes)
        )
        if self._passes.dry_run:
            for source in sources:
                self.done.removed += latest.count(_readable(partition, source)).removed
            return False
        compared = max(_commit_entry(self._sidecars, key, part) for part in parts)
        return self._write(sources, partition, latest, compared) and latest.end < cut

    def _write(
        self, sources: Sequence[Source], planned: PartitionState, latest: Latest, compared: int
    ) -> bool:
        """Write sources anew without the records that go; return False if another client has replaced
        segments of the partition since it was ``planned``.

        An erasure may have removed the latest record of a key: the one before it, which this pass would
        remove, is the latest now. ``compared``: the largest commit entry of all.
        """
        swept_end, log_start, revision = latest.end, planned.log_start, planned.revision
        for place, source in enumerate(sources, 1):
            # A pass may take longer than the grace of a vacuum: what it writes is born now.
            state = self._committer.refresh()
            is_same = state.partition(source.key).revision == revision
            if not is_same or not is_there(self._sidecars, state, source, log_start):
                logger.debug("keys of %s are left to the next run: another client has changed it", source.key)
                return False
            topic, known = state.topics[source.key.topic_id], state.partition(source.key)
            latest = latest.at(state)
            kept = latest.count(_readable(known, source))
            swept_end = min(swept_end, kept.first_tombstone)
            is_last = place == len(sources)
            if not (is_last or kept.removed or _is_new(source)):
                continue
            try:
                written = write_together(
                    self._sidecars, state, topic, [source], self._committer.ids.new, latest.keep
                )
            except NotFoundError as error:
                if not is_overtaken(error, self._sidecars, state, self._committer.refresh(), [source]):
                    raise
                logger.debug("keys of %s are left to the next run: %s", source.key, error)
                return False
            cleaned = CleanedPartition(
                source.key.partition,
                max(latest.end, known.cleaned_end) if is_last else known.cleaned_end,
                swept_end if is_last else 0,
                compared if kept.removed else -1,
            )
            if not self._replace(state, source, written, cleaned):
                return False
            self.done.removed += kept.removed
            revision += 1
        return True


def dirty_ratios(sidecars: SidecarCache, state: LogState) -> dict[str, float]:
    """Return, by id of each topic that is compacted by key, the largest fraction of a partition's listed
    bytes whose keys were not compared with later ones.

    Requests: those of the segment lists that are not kept.
    """
    topics = (topic for topic in state.topics.values() if keeps_latest(topic.settings))
    return {topic.topic_id: _dirtiest(sidecars, state, topic) for topic in topics}


def _dirtiest(sidecars: SidecarCache, state: LogState, topic: TopicState) -> float:
    ratios = []
    for number in range(topic.partitions):
        key = TopicPartition(topic.topic_id, number)
        ratios.append(_ratio(list(sidecars.live_parts(state, key)), _clean_end(state.partition(key))))
    return max(ratios)


def _clean_end(partition: PartitionState) -> int:
    return max(partition.cleaned_end, partition.log_start)


def _due_end(partition: PartitionState, policy: KeyPolicy, now_ms: int) -> int:
    """Return where the tombstones end that have stayed long enough (exclusive)."""
    due_ms = now_ms - policy.delete_retention_ms
    return max((one.end_offset for one in partition.horizons if one.timestamp_ms <= due_ms), default=0)


def _readable(partition: PartitionState, source: Source) -> OffsetRange:
    return OffsetRange(max(source.range.start, partition.log_start), source.range.end)


def _sources(
    sidecars: SidecarCache,
    topic: TopicState,
    key: TopicPartition,
    state: LogState,
    end: int,
    target_bytes: int,
) -> Iterator[Source]:
    """Yield the parts of a partition up to an offset, those together that one file gets."""
    age = partial(Ages.of(topic.settings).of_part, sidecars, key.partition)
    for parts in sidecars.live_lists(state, key):
        for _, near in groupby((part for part in parts if part.range.end <= end), age):
            group: list[SegmentPart] = []
            for part in near:
                group.append(part)
                if Source(key, group).size >= target_bytes:
                    yield Source(key, group)
                    group = []
            if group:
                yield Source(key, group)


def _is_new(source: Source) -> bool:
    return len(source.parts) > 1 or not is_runs_key(source.parts[0].record.index.key)


def _ratio(parts: Sequence[SegmentPart], clean_end: int) -> float:
    """Return the fraction of the bytes of parts that lie from an offset on; of a part that it cuts, by
    offsets.
    """
    total = dirty = 0.0
    for part in parts:
        size = int(part.row["size"] - part.row["aborted_size"])
        begin, end = part.range
        total += size
        dirty += size * (end - min(end, max(begin, clean_end))) / (end - begin)
    return dirty / total if total else 0.0


def _log_ms(sidecars: SidecarCache, key: TopicPartition, part: SegmentPart) -> tuple[int, int]:
    """Return the log times of a part's first and last append. Requests: 1 GET, none when it is kept."""
    return sidecars.index(part.record.index).log_times(key.partition, part.range)


def _commit_entry(sidecars: SidecarCache, key: TopicPartition, part: SegmentPart) -> int:
    """Return the largest entry that committed a record of a part; -1: none did.

    Requests: 1 GET, none when it is kept.
    """
    return sidecars.index(part.record.index).newest_commit(key.partition, part.range)
