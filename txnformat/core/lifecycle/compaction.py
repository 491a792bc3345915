"""Compaction: which listed segments get others in their place, and the decision about it. Pure.

Parts of a partition that follow each other are written together until the new part has the target size; a
compacted part of that size is left alone. At the end of a list, where less is left, a compacted part is taken
in only if the newer ones together have at least half as many records: so each record is written O(log n)
times. Bytes would not do: a rewritten part has more or fewer than before, and a second compaction could find
it large enough to take in the older one.
"""

from __future__ import annotations

from collections.abc import Sequence

from txnformat.core.intents import ReplaceSegments
from txnformat.core.lifecycle.erasure import check_open
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.operations import Replace
from txnformat.core.sealing.lists import lists_replaced
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LogState
from txnformat.core.topics.cleanup import keeps_latest
from txnformat.errors import ConflictError
from txnformat.keys import is_runs_key
from txnformat.persistent import replace
from txnformat.types import TopicPartition

__all__ = ["groups_of", "replace_segments"]

RATIO = 2
"""A compacted part that has more than so many times the records of all newer ones together is not taken in at
the end of a list."""


def groups_of(parts: Sequence[SegmentPart], target_bytes: int) -> list[Sequence[SegmentPart]]:
    """Return the parts that are to be written together, of parts of one partition that follow each other in a
    list.
    """
    groups: list[Sequence[SegmentPart]] = []
    open_: list[SegmentPart] = []
    size = 0
    for part in parts:
        if _is_compacted(part) and _size(part) >= target_bytes:
            groups += _last(open_)
            open_, size = [], 0
            continue
        open_.append(part)
        size += _size(part)
        if size >= target_bytes:
            groups.append(open_)
            open_, size = [], 0
    return [*groups, *_last(open_)]


def _last(parts: Sequence[SegmentPart]) -> list[Sequence[SegmentPart]]:
    """Return the group of the last parts of a run, if there is one: all that are not compacted are in it."""
    taken, total = 0, 0
    for count, part in enumerate(reversed(parts), 1):
        if not _is_compacted(part) or _records(part) <= RATIO * total:
            taken = count
        total += _records(part)
    group = parts[len(parts) - taken :]
    return [group] if len(group) > 1 or (group and not _is_compacted(group[0])) else []


def _is_compacted(part: SegmentPart) -> bool:
    return is_runs_key(part.record.index.key)


def _records(part: SegmentPart) -> int:
    return int(part.row["records"] - part.row["aborted_records"])


def _size(part: SegmentPart) -> int:
    return int(part.row["size"] - part.row["aborted_size"])


def replace_segments(state: LogState, action: ReplaceSegments) -> Replace:
    """Return the operation, if segments, log starts and segment lists are still those that the caller has
    compacted.
    """
    op = action.replace
    topic = state.topic_of(op.topic_id, "a compaction")
    check_removal(state)
    for part in (part for segment in op.segments for part in segment.partitions):
        known = state.partition(TopicPartition(op.topic_id, part.partition))
        seen = (part.revision, action.log_starts[part.partition])
        if (known.revision, known.log_start) != seen:
            raise _superseded(
                "another client has compacted the partition, or moved its log start",
                partition=part.partition,
                expected=seen,
                got=(known.revision, known.log_start),
            )
    for cleaned in op.cleaned:
        known = state.partition(TopicPartition(op.topic_id, cleaned.partition))
        if known.cleaned_end > cleaned.cleaned_end or not keeps_latest(topic.settings):
            raise _superseded(
                "another client has compacted the keys of the partition, or the topic keeps all records "
                "of a key by now",
                partition=cleaned.partition,
                expected=cleaned.cleaned_end,
                got=known.cleaned_end,
            )
    if op.erased is not None:
        check_open(state, op.erased.erasure_id)
    if lists_replaced(state, op) is None:
        raise _superseded("another client has rewritten the segment lists")
    return replace(op, intent=0)


def _superseded(what: str, **values: object) -> ConflictError:
    return ConflictError(what, kind="replace-superseded", hint="compact again", **values)
