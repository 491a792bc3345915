"""Putting compacted parts into the place of listed ones: the objects that a ``replace`` names, and its
intent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import ReplaceSegments
from txnformat.core.lifecycle.operations import (
    CleanedPartition,
    CompactedRange,
    CompactedSegment,
    Replace,
    ReplacedList,
)
from txnformat.core.records.state import SEGMENT
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.sealing.sidecar import RUN_ROW, encode_runs
from txnformat.core.state import LogState, TopicState
from txnformat.errors import NotFoundError
from txnformat.persistent import Rows
from txnformat.protocol.effects import DrawId, Steps
from txnformat.protocol.segment_lists import Exchange, rewrite_list
from txnformat.protocol.snapshots import create_object
from txnformat.reading.compacting import Source
from txnformat.reading.resolving import FILE_MISSING
from txnformat.reading.sealed import SidecarCache
from txnformat.types import FileRecord, ObjectRecord, SegmentListRecord, SegmentRecord, TopicPartition

__all__ = ["Work", "create_runs", "is_overtaken", "is_there", "list_of", "replacement"]


@dataclass(slots=True)
class Work:
    """Sources that were written, with what came of them."""

    source: Source
    runs: Rows


def is_there(sidecars: SidecarCache, state: LogState, source: Source, log_start: int) -> bool:
    """Return whether the parts of a source are still listed, and none of them was removed since the log start
    that was known.
    """
    known = state.partition(source.key).log_start
    if source.key.topic_id not in state.topics or (known != log_start and known > source.range.start):
        return False
    return list_of(sidecars, state, source) is not None


def is_overtaken(
    error: NotFoundError,
    sidecars: SidecarCache,
    planned: LogState,
    newest: LogState,
    sources: Sequence[Source],
) -> bool:
    """Return whether a file of ``sources``, as of ``planned``, is gone because other clients have replaced or
    removed some of their records since.
    """
    return error.kind == FILE_MISSING and not all(
        is_there(sidecars, newest, one, planned.partition(one.key).log_start) for one in sources
    )


def list_of(sidecars: SidecarCache, state: LogState, source: Source) -> SegmentListRecord | None:
    """Return the list that describes all parts of a source as they were; None: there is none any more."""
    wanted = [(part.record, part.range) for part in source.parts]
    for named in state.segment_lists:
        found = sidecars.listed(named, state, source.key)
        inside = [part for part in found if source.range.start <= part.range.start < source.range.end]
        if inside:
            return named if [(part.record, part.range) for part in inside] == wanted else None
    return None


def create_runs(
    born: int, topic: TopicState, works: Sequence[Work], files: Mapping[int, FileRecord]
) -> Steps[ObjectRecord]:
    """Write the ``.runs`` of what was written anew; ``born``: an entry that its files were not born
    before.
    """
    runs = np.concatenate([np.zeros(0, RUN_ROW), *(work.runs for work in works)])
    runs = runs[np.lexsort((runs["start_offset"], runs["partition"]))]
    data = encode_runs(runs, files)
    uuid: str = yield DrawId()
    key = keys.sidecar_key(topic.directory, born, uuid, "runs")
    yield from create_object(key, data)
    return ObjectRecord(key, len(data), sha256_hex(data))


def replacement(
    sidecars: SidecarCache,
    state: LogState,
    topic: TopicState,
    works: Sequence[Work],
    index: ObjectRecord,
    cleaned: tuple[CleanedPartition, ...],
) -> Steps[ReplaceSegments]:
    """Write the lists anew that describe the sources, and return the intent."""
    lists: dict[str, SegmentListRecord] = {}
    exchanges: dict[str, dict[TopicPartition, list[Exchange]]] = {}
    ranges = []
    for work in sorted(works, key=lambda work: (work.source.key, work.source.range)):
        named = list_of(sidecars, state, work.source)
        assert named is not None  # it was there in this state
        part = _compacted_part(work, SegmentRecord(topic.topic_id, index))
        lists[named.key] = named
        exchange = Exchange(*work.source.range, part)
        exchanges.setdefault(named.key, {}).setdefault(work.source.key, []).append(exchange)
        ranges.append(_range(state, work, part))
    replaced = []
    for key, named in lists.items():
        record = yield from rewrite_list(state, named, exchanges[key])
        replaced.append(ReplacedList(key, record))
    op = Replace(topic.topic_id, (CompactedSegment(index, tuple(ranges)),), tuple(replaced), cleaned=cleaned)
    starts = {
        part.partition: state.partition(TopicPartition(topic.topic_id, part.partition)).log_start
        for part in ranges
    }
    return ReplaceSegments(op, starts)


def _compacted_part(work: Work, record: SegmentRecord) -> SegmentPart:
    row = np.zeros(1, SEGMENT)
    row["start_offset"], row["end_offset"] = work.source.range
    row["segment"] = work.source.parts[0].row["segment"]
    row["batches"] = len(work.runs)
    row["records"], row["size"] = work.runs["records"].sum(), work.runs["size"].sum()
    if len(work.runs):
        row["min_timestamp_ms"] = work.runs["min_timestamp_ms"].min()
        row["max_timestamp_ms"] = work.runs["max_timestamp_ms"].max()
    return SegmentPart(record, row[0])


def _range(state: LogState, work: Work, part: SegmentPart) -> CompactedRange:
    old = {
        name: sum(int(one.row[name]) for one in work.source.parts)
        for name in ("records", "size", "aborted_records", "aborted_size")
    }
    return CompactedRange(
        work.source.key.partition,
        *work.source.range,
        state.partition(work.source.key).revision,
        len(work.runs),
        int(part.row["records"]),
        int(part.row["size"]),
        int(part.row["min_timestamp_ms"]),
        int(part.row["max_timestamp_ms"]),
        old["records"],
        old["size"],
        old["aborted_records"],
        old["aborted_size"],
    )
