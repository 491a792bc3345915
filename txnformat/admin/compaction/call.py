"""Compaction: small segment files of sealed records become few large ones, without a reader's notice.

The records are written first; one entry then puts the new segments into the place of the old ones. A process
that dies before leaves objects that no entry names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple

from txnformat.admin.compaction.cleaning import Cleaned, Cleaner, KeyPasses
from txnformat.admin.compaction.counts import CompactedTopic, CompactionProgress, Counts
from txnformat.admin.compaction.policy import Ages, check_arguments, is_left_alone, lag_of, target_of
from txnformat.admin.topics import is_deleted
from txnformat.arguments import check_callable, items
from txnformat.client.committer import Committer
from txnformat.core.intents import SealSegments
from txnformat.core.lifecycle.compaction import groups_of
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.operations import (
    CleanedPartition,
)
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.sealing.sidecar import decode_markers, decode_txnindex
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.cleanup import keeps_latest
from txnformat.errors import ConflictError, NotFoundError
from txnformat.protocol.sealing import list_segments
from txnformat.reading.compacting import Source, Written, files_of_about, write_together
from txnformat.reading.replacing import Work, create_runs, is_overtaken, is_there, replacement
from txnformat.reading.sealed import SidecarCache
from txnformat.spans import span
from txnformat.types import (
    ObjectRecord,
    OffsetRange,
    TopicPartition,
)

__all__ = [
    "CompactionWriter",
    "Groups",
    "compact",
    "compact_parts",
    "compact_topic",
    "seal_and_list",
]

ATTEMPTS = 20
"""How often an entry is made anew because another client has changed segments, log starts or lists."""

logger = logging.getLogger(__name__)


Report = Callable[[CompactionProgress], None]
Groups = Sequence[Sequence[Source]]
"""Sources that become files of their own, group by group."""


Compacted = tuple[Cleaned, Counts]
"""The outcome of key passes."""


class CompactionWriter(NamedTuple):
    """The writer of the files: this process, or others, such as tasks of Spark."""

    write: Callable[[LogState, TopicState, Groups], Iterator[Written]]
    """Writes groups of sources, as they are in a state; it yields in the order of the groups."""
    at_once: int
    """How many groups it gets in one call."""
    clean: Callable[[LogState, KeyPasses], Iterator[Compacted]] | None = None
    """Runs key passes, each with :func:`run_key_passes`. If None, this process does."""


def compact(
    committer: Committer,
    sidecars: SidecarCache,
    topic: str | None = None,
    partitions: Sequence[int] | None = None,
    *,
    target_bytes: int | None = None,
    min_lag_ms: int | None = None,
    dry_run: bool = False,
    progress: Report | None = None,
    writer: CompactionWriter | None = None,
) -> list[CompactedTopic]:
    """Compact topics; see :meth:`txnformat.log.TxnLog.compact`."""
    partitions = items(partitions, "partitions")
    check_arguments(topic, partitions, target_bytes, min_lag_ms)
    check_callable(progress, "progress")
    state = committer.refresh()
    check_removal(state)
    names = [topic] if topic is not None else sorted(found.name for found in state.topics.values())
    for name in names:
        for number in partitions or ():
            state.topic(name).check_partition(number)
    if not dry_run:
        seal_and_list(committer, None if topic is None else state.topic(topic).topic_id)
    run = partial(compact_topic, committer, sidecars, partitions=partitions, progress=progress, writer=writer)
    found = []
    for name in names:
        try:
            found.append(run(name, target_bytes=target_bytes, min_lag_ms=min_lag_ms, dry_run=dry_run))
        except NotFoundError as error:
            if topic is not None or not is_deleted(error):
                raise
            logger.debug("not compacted: %s", error)
    return found


def compact_topic(
    committer: Committer,
    sidecars: SidecarCache,
    name: str,
    *,
    partitions: Sequence[int] | None = None,
    target_bytes: int | None = None,
    min_lag_ms: int | None = None,
    dry_run: bool = False,
    progress: Report | None = None,
    writer: CompactionWriter | None = None,
    when_dirty: bool = False,
) -> CompactedTopic:
    """Compact one topic, of what is listed; its settings say what the caller does not.

    ``when_dirty``: as maintenance does: keys only of partitions that the settings call dirty enough, and
    files only if they do not say that these are left as they are.
    """
    settings = committer.state.topic(name).settings
    target = target_of(settings) if target_bytes is None else target_bytes
    lag = lag_of(settings) if min_lag_ms is None else min_lag_ms
    ages = Ages.of(settings)
    with span("compact", log=committer.store.url, topic=name) as one:
        done = _Topic(committer, sidecars, name, partitions, target, lag, ages, progress, writer).run(
            dry_run=dry_run, when_dirty=when_dirty
        )
        if one:
            one.set(partitions=done.partitions)
        return done


def seal_and_list(committer: Committer, topic_id: str | None = None) -> None:
    """Seal what can be sealed, of one topic or of all, and list what is sealed: only listed segments are
    compacted.
    """
    committer.seal(topic_id=topic_id)
    for _ in range(ATTEMPTS):
        seal = committer.read(list_segments(committer.refresh()))
        if seal is None:
            return
        try:
            committer.commit(committer.intend(SealSegments(seal)))
            return
        except ConflictError as error:
            logger.debug("not listed: %s", error)


def run_key_passes(committer: Committer, sidecars: SidecarCache, passes: KeyPasses) -> Compacted:
    """Compact the keys of some partitions, and commit what was written."""
    topic = committer.state.topic_of(passes.topic_id, "a compaction")
    ages = Ages.of(topic.settings)
    one = _Topic(
        committer, sidecars, topic.name, None, passes.target_bytes, passes.min_lag_ms, ages, None, None
    )
    return one.clean(passes), one.counts


class _Topic:
    """A compaction of one topic."""

    def __init__(
        self,
        committer: Committer,
        sidecars: SidecarCache,
        name: str,
        partitions: Sequence[int] | None,
        target_bytes: int,
        min_lag_ms: int,
        ages: Ages,
        progress: Report | None,
        writer: CompactionWriter | None,
    ) -> None:
        self._writer = writer or CompactionWriter(self._write_here, 1)
        self._ages = ages
        self._committer = committer
        self._sidecars = sidecars
        self._name = name
        self._partitions = partitions
        self._target_bytes = target_bytes
        self._min_lag_ms = min_lag_ms
        self._progress = progress
        self.counts = Counts()

    def run(self, *, dry_run: bool, when_dirty: bool) -> CompactedTopic:
        state, now_ms = self._committer.refresh_with_time()
        now_ms = max(now_ms, state.timestamp_ms)  # log time may be ahead
        topic = state.topic(self._name)
        cleaned = Cleaned()
        if keeps_latest(topic.settings):
            passes = KeyPasses(
                topic_id=topic.topic_id,
                numbers=self._numbers(topic),
                now_ms=now_ms,
                target_bytes=self._target_bytes,
                min_lag_ms=self._min_lag_ms,
                dry_run=dry_run,
                when_dirty=when_dirty,
            )
            if self._writer.clean is None:
                cleaned = self.clean(passes)
            else:
                for found, counts in self._writer.clean(state, passes):
                    cleaned.add(found)
                    self.counts.add(counts)
            state = state if dry_run else self._committer.refresh()
            topic = state.topic_of(topic.topic_id, "a compaction")
        stays = when_dirty and is_left_alone(topic.settings)
        sources = [] if stays else list(self._sources(state, topic, now_ms - self._min_lag_ms))
        total, done = sum(source.size for source in sources), 0
        groups = list(files_of_about(self._target_bytes, sources))
        for first in range(0, len(groups), self._writer.at_once):
            wave = groups[first : first + self._writer.at_once]
            if dry_run:
                for together in wave:
                    self.counts.replaced(self._sidecars, together, {}, [])
            else:
                self.write_anew(state, wave)
            done += sum(source.size for together in wave for source in together)
            if self._progress is not None:
                self._progress(CompactionProgress(self._name, done, total))
        return self.counts.report(self._name, cleaned)

    def clean(self, passes: KeyPasses) -> Cleaned:
        """Run key passes in this process."""
        is_young = partial(self._has_young_abort, ended_ms=passes.now_ms - passes.min_lag_ms)
        return Cleaner(self._committer, self._sidecars, passes, is_young, self._replace_cleaned).run()

    # The plan.

    def _numbers(self, topic: TopicState) -> Sequence[int]:
        return range(topic.partitions) if self._partitions is None else sorted(set(self._partitions))

    def _sources(self, state: LogState, topic: TopicState, ended_ms: int) -> Iterator[Source]:
        for number in self._numbers(topic):
            key = TopicPartition(topic.topic_id, number)
            if not state.partition(key).listed_end:
                continue
            for parts in self._sidecars.live_lists(state, key):
                stays = [self._has_young_abort(state, key, part, ended_ms) for part in parts]
                for settled in _between(parts, stays):
                    for _, near in groupby(settled, partial(self._ages.of_part, self._sidecars, number)):
                        for group in groups_of(list(near), self._target_bytes):
                            yield Source(key, group)

    def _has_young_abort(
        self, state: LogState, key: TopicPartition, part: SegmentPart, ended_ms: int
    ) -> bool:
        """Return whether a transaction with aborted records in a part has ended after a time.

        Requests: its abort index, and the markers where it ends.
        """
        if not part.row["aborted_records"] or part.record.txnindex is None:
            return False
        named = part.record.txnindex
        data = self._sidecars.store.get(named.key, named.size)
        aborted = decode_txnindex(data, named, int(part.row["first_aborted"]), int(part.row["aborted"]))
        return any(self._ended_ms(state, key, one.last_offset) > ended_ms for one in aborted)

    def _ended_ms(self, state: LogState, key: TopicPartition, offset: int) -> int:
        """Return the log time of a marker; -1: it was compacted, so it is old."""
        for part in self._sidecars.segments(state, key, OffsetRange(offset, offset + 1)):
            if part.record.markers is None:
                return -1
            named = part.record.markers
            rows = decode_markers(self._sidecars.store.get(named.key, named.size), named)
            rows = rows[(rows["partition"] == key.partition) & (rows["offset"] == offset)]
            return int(rows["timestamp_ms"].max(initial=-1))
        state = self._sidecars.whole(state, key, OffsetRange(offset, offset + 1))
        rows = state.partition(key).markers.array()
        return int(rows["timestamp_ms"][rows["offset"] == offset].max(initial=-1))

    # Writing it.

    def write_anew(self, planned: LogState, wave: Groups) -> None:
        """Write groups of sources, as they were in a state, and put what was written into their place."""
        # A run may take longer than the grace of a vacuum: what it writes is born now, and what it reads is
        # there now.
        state = self._committer.refresh()
        found = [
            [one for one in sources if self._is_there(state, one, planned.partition(one.key).log_start)]
            for sources in wave
        ]
        left = [sources for sources in found if sources]
        if not left:
            logger.debug("nothing compacted: other clients have replaced or removed the segments")
            return
        topic = state.topics[left[0][0].key.topic_id]
        writing = self._writer.write(state, topic, left)
        for sources in left:
            try:
                written = next(writing)
            except NotFoundError as error:
                if not is_overtaken(error, self._sidecars, state, self._committer.refresh(), sources):
                    raise
                logger.debug("not compacted, the segments were replaced or removed meanwhile: %s", error)
                return
            self._replace(state, topic, sources, written)

    def _write_here(self, state: LogState, topic: TopicState, groups: Groups) -> Iterator[Written]:
        for sources in groups:
            yield write_together(self._sidecars, state, topic, sources, self._committer.ids.new)

    def _replace_cleaned(
        self, state: LogState, source: Source, found: Written, cleaned: CleanedPartition
    ) -> bool:
        topic = state.topics[source.key.topic_id]
        return self._replace(state, topic, [source], found, (cleaned,))

    def _replace(
        self,
        state: LogState,
        topic: TopicState,
        sources: Sequence[Source],
        found: Written,
        cleaned: tuple[CleanedPartition, ...] = (),
    ) -> bool:
        """Put what was written, as of a state, into the place of its sources; return False if one of these is
        not there any more.

        The file has the records of all of them. If one was removed or erased meanwhile, no entry may name the
        file: it would keep them.
        """
        works = [Work(*one) for one in zip(sources, found.runs, strict=True)]
        written = found.files
        born = max(0, state.entry)
        starts = {source.key: state.partition(source.key).log_start for source in sources}
        revisions = {source.key: state.partition(source.key).revision for source in sources if cleaned}
        index: ObjectRecord | None = None
        for _ in range(ATTEMPTS):
            state = self._committer.refresh()
            if not all(self._is_there(state, source, starts[source.key]) for source in sources):
                logger.debug("nothing compacted: other clients have replaced or removed some of the segments")
                return False
            moved = any(state.partition(key).revision != known for key, known in revisions.items())
            if moved or not _is_wanted(state, topic.topic_id, cleaned):
                logger.debug(
                    "nothing compacted: other clients have compacted the keys, or changed the policy"
                )
                return False
            if index is None:
                index = self._committer.read(create_runs(born, topic, works, written))
            action = self._committer.read(replacement(self._sidecars, state, topic, works, index, cleaned))
            try:
                self._committer.commit(self._committer.intend(action))
            except ConflictError as error:
                logger.debug("made again: %s", error)
                continue
            self.counts.replaced(self._sidecars, sources, written, found.runs)
            return True
        raise ConflictError(
            "other clients change the segments all the time",
            kind="replace-superseded",
            hint="compact again; nothing was changed",
            topic=topic.name,
        )

    def _is_there(self, state: LogState, source: Source, log_start: int) -> bool:
        """Return whether the parts of a source are still listed, and none of them was removed since the log
        start that was known.
        """
        return is_there(self._sidecars, state, source, log_start)


def _is_wanted(state: LogState, topic_id: str, cleaned: Sequence[CleanedPartition]) -> bool:
    """Return whether key compaction has not gone on without this one, and the topic still wants it."""
    ends = [
        (one.cleaned_end, state.partition(TopicPartition(topic_id, one.partition)).cleaned_end)
        for one in cleaned
    ]
    return not ends or (
        keeps_latest(state.topics[topic_id].settings) and all(known <= end for end, known in ends)
    )


def _between(parts: Sequence[SegmentPart], stays: Sequence[bool]) -> Iterator[list[SegmentPart]]:
    """Yield runs of parts between those that stay as they are."""
    found: list[SegmentPart] = []
    for part, remains in zip(parts, stays, strict=True):
        if remains:
            yield found
            found = []
        else:
            found.append(part)
    yield found


def compact_parts(
    committer: Committer,
    sidecars: SidecarCache,
    name: str,
    sources: Sequence[Source],
    writer: CompactionWriter | None = None,
) -> int:
    """Write some listed parts of a topic anew, whatever their size and age, and return the number of parts
    that gave way to others.

    Records that were aborted are left out, however young they are.
    """
    state = committer.refresh()
    check_removal(state)
    topic = state.topic(name)
    target, ages = target_of(topic.settings), Ages.of(topic.settings)
    one = _Topic(committer, sidecars, name, None, max(1, target), 0, ages, None, writer)
    for together in files_of_about(max(1, target), sources):
        one.write_anew(state, [together])
    return one.counts.segments_before
