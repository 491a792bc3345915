"""Folding erasures: the request, how far files are rewritten, and the certificate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from txnformat.core.folding import At, corrupt
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    Erased,
    PartitionEnd,
    RequestErasure,
)
from txnformat.core.lifecycle.state import COMPLETE_MAX, OPEN_MAX, REWRITING_MAX, ErasureState
from txnformat.core.lifecycle.touching import begun_by
from txnformat.core.records.state import PartitionState
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.persistent import put, replace, update, without
from txnformat.types import TopicPartition

__all__ = [
    "apply_abandon_erasure",
    "apply_advance_erasure",
    "apply_complete_erasure",
    "apply_erased",
    "apply_request_erasure",
    "erasures_without_topic",
    "log_ends",
    "with_erased",
]


def apply_request_erasure(state: LogState, op: RequestErasure, at: At) -> LogState:
    """Return the state with an erasure more."""
    topic = state.topics.get(op.topic_id)
    if topic is None or LIFECYCLE not in state.features.reader or op.erasure_id in state.erasures:
        corrupt(
            at,
            "an erasure is of no topic, of a log without the feature, or was requested before",
            topic_id=op.topic_id,
            erasure_id=op.erasure_id,
        )
    opened = [one for one in state.erasures.values() if one.complete_entry < 0]
    rewriting = sum(one.rewritten_entry < 0 for one in opened)
    if len(opened) >= OPEN_MAX or rewriting >= REWRITING_MAX:
        corrupt(at, "an erasure is one too many", open=len(opened), rewriting=rewriting)
    made = ErasureState(
        op.erasure_id,
        op.topic_id,
        topic.name,
        topic.directory,
        at.entry,
        at.timestamp_ms,
        op.columns,
        op.condition,
        op.requested_by,
    )
    return replace(state, erasures=put(state.erasures, op.erasure_id, made))


def apply_advance_erasure(state: LogState, op: AdvanceErasure, at: At) -> LogState:
    """Return the state after an erasure has come further."""
    known = _open(state, op.erasure_id, at)
    if known.rewritten_entry >= 0 or known.entry >= at.entry:
        corrupt(at, "an erasure advances that is rewritten, or was requested in this entry", got=known)
    numbers = [part.partition for part in op.partitions]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        corrupt(at, "partitions of an erasure do not ascend", got=numbers)
    reached = {part.partition: part.end_offset for part in known.reached}
    for part in op.partitions:
        partition = state.partition(TopicPartition(known.topic_id, part.partition))
        if not reached.get(part.partition, 0) <= part.end_offset <= partition.listed_end:
            corrupt(
                at,
                "an erasure goes back, or beyond what is listed",
                partition=part.partition,
                expected=f"from {reached.get(part.partition, 0)} to {partition.listed_end}",
                got=part.end_offset,
            )
        reached[part.partition] = part.end_offset
    known = replace(known, reached=_ends(reached.items()))
    if known.ends_entry < 0 and not begun_by(state, known.entry):
        known = replace(known, ends_entry=at.entry, ends=log_ends(state, known.topic_id))
    if known.ends_entry >= 0 and all(reached.get(one.partition, 0) >= one.end_offset for one in known.ends):
        known = _rewritten(known, at)
    return replace(state, erasures=put(state.erasures, op.erasure_id, known))


def log_ends(state: LogState, topic_id: str) -> tuple[PartitionEnd, ...]:
    """Return the ends of the partitions of a topic that have records."""
    numbers = range(state.topics[topic_id].partitions)
    return _ends((number, state.partition(TopicPartition(topic_id, number)).log_end) for number in numbers)


def _ends(values: Iterable[tuple[int, int]]) -> tuple[PartitionEnd, ...]:
    return tuple(PartitionEnd(number, end) for number, end in sorted(values) if end)


def apply_erased(
    state: LogState, topic_id: str, op: Erased, replaced: set[int], at: At
) -> tuple[LogState, dict[int, int]]:
    """Return the state after a ``replace`` that is part of an erasure, and the commit entries of its
    partitions.
    """
    known = _open(state, op.erasure_id, at)
    numbers = [part.partition for part in op.partitions]
    if known.topic_id != topic_id or sorted({*numbers} & replaced) != numbers:
        corrupt(
            at,
            "an erasure is of another topic, or its partitions do not ascend, or none of their ranges is "
            "replaced",
            topic_id=topic_id,
            got=numbers,
        )
    if any(part.commit_entry >= at.entry for part in op.partitions) or known.entry >= at.entry:
        corrupt(at, "an erasure removes what is not committed yet", got=op)
    known = replace(
        known,
        records=known.records + op.records,
        files=known.files + op.files,
        replaced_entry=at.entry,
    )
    state = replace(state, erasures=put(state.erasures, op.erasure_id, known))
    return state, {part.partition: part.commit_entry for part in op.partitions}


def with_erased(partition: PartitionState, commit_entry: int) -> PartitionState:
    """Return a partition of which an erasure has removed records."""
    return replace(partition, erased_entry=max(partition.erased_entry, commit_entry))


def apply_complete_erasure(state: LogState, op: CompleteErasure, at: At) -> LogState:
    """Return the state with a certificate, and without the oldest one if there are too many."""
    known = _open(state, op.erasure_id, at)
    told = (op.topic_id, op.entry, op.columns, op.condition, op.requested_by, op.records, op.files)
    expected = (
        known.topic_id,
        known.entry,
        known.columns,
        known.condition,
        known.requested_by,
        known.records,
        known.files,
    )
    if (
        told != expected
        or (op.replaced_entry, op.rewritten_entry) != (known.replaced_entry, known.rewritten_entry)
        or not known.needed_floor <= op.floor <= state.vacuum_floor
    ):
        corrupt(
            at,
            "a certificate differs from its erasure, or its vacuum is too old",
            expected=known,
            floor=state.vacuum_floor,
            got=op,
        )
    known = replace(known, complete_entry=at.entry, floor=op.floor, kept_versions=op.kept_versions)
    erasures = put(state.erasures, op.erasure_id, known)
    complete = sorted((one.complete_entry, key) for key, one in erasures.items() if one.complete_entry >= 0)
    gone = [key for _, key in complete[: max(0, len(complete) - COMPLETE_MAX)]]
    return replace(state, erasures=without(erasures, gone))


def apply_abandon_erasure(state: LogState, op: AbandonErasure, at: At) -> LogState:
    """Return the state without an erasure that was not complete."""
    known = _open(state, op.erasure_id, at)
    if known.entry >= at.entry:
        corrupt(at, "an erasure is abandoned in the entry of its request", erasure_id=op.erasure_id)
    return replace(state, erasures=without(state.erasures, [op.erasure_id]))


def erasures_without_topic(state: LogState, topic_id: str, at: At) -> Mapping[str, ErasureState]:
    """Return the erasures after a topic was deleted: nothing of it is live, so its files only have to be
    deleted.
    """
    touched = [
        known for known in state.erasures.values() if known.topic_id == topic_id and known.rewritten_entry < 0
    ]
    return update(state.erasures, {known.erasure_id: _rewritten(known, at) for known in touched})


def _rewritten(known: ErasureState, at: At) -> ErasureState:
    return replace(known, rewritten_entry=at.entry, rewritten_ms=at.timestamp_ms, ends=(), reached=())


def _open(state: LogState, erasure_id: str, at: At) -> ErasureState:
    known = state.erasures.get(erasure_id)
    if known is None or known.complete_entry >= 0:
        corrupt(at, "an erasure is not there, or complete", erasure_id=erasure_id)
    return known
