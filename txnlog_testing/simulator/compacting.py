"""Compaction in a simulated history: the files hold no records, all else is as the real compactor makes
it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from txnformat import keys
from txnformat.core.intents import ReplaceSegments
from txnformat.core.sealing.sidecar import RUN_ROW, BatchOutcome
from txnformat.core.state import LIFECYCLE, LogState, TopicState
from txnformat.persistent import Rows, replace
from txnformat.protocol.effects import Steps
from txnformat.reading.compacting import Source
from txnformat.reading.replacing import Work, create_runs, replacement
from txnformat.reading.sealed import SidecarCache
from txnformat.types import FileRecord, TopicPartition

__all__ = ["COMPACTION_HITS", "compacted"]

COMPACTION_HITS = frozenset(
    {"answer replace-superseded", "compacted", "compacted once more", "segments listed"}
)
"""Events that histories with removals must have met."""
PARTS_MAX = 4


def compacted(
    sidecars: SidecarCache, state: LogState, rng: random.Random, new_id: Callable[[], str]
) -> Steps[ReplaceSegments | None]:
    """Write the ``.runs`` and the lists of some compacted parts of a topic, and return the intent; None:
    nothing is listed.

    ``sidecars``: reads without faults.
    """
    if LIFECYCLE not in state.features.reader or not state.topics:
        return None
    topic = state.topics[rng.choice(sorted(state.topics))]
    sources = list(_sources(sidecars, state, topic, rng))
    if not sources:
        return None
    born = max(0, state.entry)
    works = [Work(source, _runs(sidecars, source, number)) for number, source in enumerate(sources)]
    files = {
        number: _file(
            keys.data_key(topic.directory, born, new_id()), new_id(), int(work.runs["records"].sum())
        )
        for number, work in enumerate(works)
        if len(work.runs)
    }
    index = yield from create_runs(born, topic, works, files)
    return (yield from replacement(sidecars, state, topic, works, index, ()))


def _sources(
    sidecars: SidecarCache, state: LogState, topic: TopicState, rng: random.Random
) -> Iterator[Source]:
    """Yield a few parts that follow each other, of some of the partitions."""
    for number in range(topic.partitions):
        key = TopicPartition(topic.topic_id, number)
        if not len(state.segment_lists) or rng.random() < 0.3:
            continue
        listed = sidecars.listed(rng.choice(list(state.segment_lists)), state, key)
        parts = [part for part in listed if part.range.end > state.partition(key).log_start]
        if parts:
            first = rng.randrange(len(parts))
            yield Source(key, parts[first : first + rng.randint(1, PARTS_MAX)])


def _runs(sidecars: SidecarCache, source: Source, file: int) -> Rows:
    """Return a run for each committed batch of a source."""
    found: list[Rows] = [np.zeros(0, RUN_ROW)]
    for part in source.parts:
        index = sidecars.index(part.record.index)
        if index.is_compacted:
            found.append(index.runs_of(source.key.partition, part.range).copy())
            continue
        rows = index.partition(source.key.partition)
        rows = rows[rows["outcome"] != int(BatchOutcome.ABORTED)]
        runs = np.zeros(len(rows), RUN_ROW)
        for name in ("partition", "records", "size", "min_timestamp_ms", "max_timestamp_ms"):
            runs[name] = rows[name]
        runs["start_offset"], runs["end_offset"] = rows["base_offset"], rows["base_offset"] + rows["records"]
        for bound in ("min", "max"):
            for name in ("entry", "commit_entry"):
                runs[f"{bound}_{name}"] = rows[name]
            runs[f"{bound}_log_ms"] = rows["timestamp_ms"]
        found.append(runs)
    runs = np.concatenate(found)
    runs["file"] = file
    runs["row_group"], runs["row_group_count"] = np.arange(len(runs)), 1
    return runs


def _file(key: str, uuid: str, rows: int) -> FileRecord:
    digest = uuid.replace("-", "") * 2
    return replace(FileRecord(key, 100, digest, 20, digest, rows), schema_id=0)
