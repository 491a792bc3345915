"""Decisions about seals and spills: whether what was written still fits the state. Pure."""

from __future__ import annotations

from txnformat.core.intents import SealSegments, SpillExtents
from txnformat.core.lifecycle.features import check_lifecycle
from txnformat.core.operations import Operation
from txnformat.core.sealing.lists import lists_with
from txnformat.core.sealing.spills import taken_by
from txnformat.core.state import LogState
from txnformat.errors import ConflictError
from txnformat.persistent import replace
from txnformat.types import TopicPartition

__all__ = ["seal", "spill"]


def seal(state: LogState, action: SealSegments) -> Operation:
    """Refuse what another process has sealed in the meantime; offsets below the last stable offset stay
    so.
    """
    seal = action.seal
    for segment in seal.segments:
        topic_id = segment.record.topic_id
        for part in segment.partitions:
            partition = state.partition(TopicPartition(topic_id, part.partition))
            # Its end is above the last stable offset in a view only that is older than the one it was made
            # from.
            if (
                partition.sealed_end != part.start_offset
                or part.end_offset > partition.last_stable_offset
                or any(one.start_offset < part.end_offset < one.end_offset for one in partition.spills)
            ):
                raise _superseded(
                    topic_id=topic_id, partition=part.partition, sealed_end=partition.sealed_end
                )
    known = state.segments.end + len(seal.segments)
    follows = seal.listed_segments >= state.listed_segments and lists_with(state, seal) is not None
    if seal.segment_list is not None and not (follows and seal.listed_segments <= known):
        if not seal.segments:
            raise _superseded(listed_segments=state.listed_segments)
        # Another process has changed the lists. The sealed segments do not depend on them.
        seal = replace(seal, segment_list=None, listed_segments=0, replaced_lists=())
    return replace(seal, intent=0)


def _superseded(**values: object) -> ConflictError:
    return ConflictError(
        "another process has sealed these offsets",
        kind="seal-superseded",
        hint="no action is needed",
        **values,
    )


def spill(state: LogState, action: SpillExtents) -> Operation:
    """Leave out the partitions of which another process has spilled something, or that can be sealed by now;
    refuse a spill of which nothing is left.

    The object may hold rows of more partitions than the operation names.
    """
    check_lifecycle(state)
    parts = tuple(
        part
        for part in action.spill.partitions
        if taken_by(state.partition(part.topic_partition), state.tables, part) is not None
    )
    if not parts:
        raise ConflictError(
            "another process has spilled these offsets, or the transactions that held them back have ended",
            kind="spill-superseded",
            hint="no action is needed",
            partitions=[part.topic_partition for part in action.spill.partitions[:20]],
        )
    return replace(action.spill, partitions=parts, intent=0)
