"""The decision about a removal by force: undecided transactions that stand in its way are ended, prepared
ones by name only.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from txnformat.core.intents import Done, EndTransaction, FreePartitions
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.touching import check_named_prepared, holders, is_prepared
from txnformat.core.operations import Cause, EndTxn, GiveUp, Marker
from txnformat.core.state import LogState
from txnformat.core.transactions.decide import end_for_another
from txnformat.errors import ConflictError, InternalError, OffsetOutOfRangeError
from txnformat.persistent import replace
from txnformat.types import TopicPartition

__all__ = ["aborted_by_operator", "check_uncut", "free_partitions"]


def free_partitions(state: LogState, action: FreePartitions) -> tuple[EndTxn | GiveUp, ...]:
    """Return the ends of the open transactions that begin below the offsets, and what the prepared ones lose.

    Raises ConflictError (``nothing-held``: there are none), InvalidTransactionStateError
    (``transaction-prepared``: the action does not name a prepared one), OffsetOutOfRangeError (also as
    :func:`check_uncut`), NotFoundError (``topic-gone``), UnsupportedFeatureError.
    """
    topic = state.topic_of(action.topic_id, "a removal of records")
    check_removal(state)
    ends = {TopicPartition(action.topic_id, number): offset for number, offset in action.ends}
    for key, offset in ends.items():
        if offset > (latest := state.partition(key).log_end):
            raise OffsetOutOfRangeError(
                "records can be deleted up to the log end",
                hint="use an offset up to that",
                topic=topic.name,
                partition=key.partition,
                got=offset,
                latest=latest,
            )
    check_uncut(state, ends)
    found = holders(state, ends)
    if not found:
        raise ConflictError(
            "no undecided transaction begins below the offsets any more",
            kind="nothing-held",
            hint="no action is needed",
            topic=topic.name,
        )
    check_named_prepared(state, found, action.prepared)
    opened = [name for name in found if not is_prepared(state, name)]
    aborts, before = aborted_by_operator(state, opened)
    given_up: list[GiveUp] = []
    for name, held in found.items():
        if name in opened:
            continue
        known = state.transactional_ids[name]
        markers = tuple(
            Marker(key.topic_id, key.partition, state.partition(key).log_end + before[key])
            for key in sorted(held)
        )
        before.update(held)
        given_up.append(GiveUp(name, known.producer_id, known.epoch, markers))
    return (*aborts, *given_up)


def check_uncut(state: LogState, ends: Mapping[TopicPartition, int]) -> None:
    """Raise OffsetOutOfRangeError about an offset (exclusive) inside of a spill that cannot be sealed after
    the ends: a transaction that stays begins in it, too.

    A seal takes a spill whole. So the ends would be for nothing: no record could be removed.
    """
    for key, offset in ends.items():
        partition = state.partition(key)
        stays = min(
            (first for first in partition.open.values() if first >= offset), default=partition.log_end
        )
        for spill in partition.spills:
            if spill.start_offset < offset <= stays < spill.end_offset:
                raise OffsetOutOfRangeError(
                    "what lies below the offset was spilled together with records of an open transaction "
                    "that begins there or above",
                    hint=f"use an offset up to {spill.start_offset}; or one above {stays}, where that "
                    "transaction begins: force ends it, too",
                    topic=state.topics[key.topic_id].name,
                    partition=key.partition,
                    got=offset,
                    latest=spill.start_offset,
                )


def aborted_by_operator(state: LogState, names: list[str]) -> tuple[list[EndTxn], Counter[TopicPartition]]:
    """Return the ends of open transactions, as an operator aborts them, and the number of their markers by
    partition; a marker follows those of the ends before.
    """
    ends: list[EndTxn] = []
    before: Counter[TopicPartition] = Counter()
    for name in names:
        owner = state.transactional_ids[name]
        end = end_for_another(state, EndTransaction(name, owner.producer_id, owner.epoch, Cause.OPERATOR))
        if isinstance(end, Done):
            raise InternalError("an open transaction has ended", transactional_id=name)
        markers = tuple(
            replace(marker, offset=marker.offset + before[marker.topic_partition]) for marker in end.markers
        )
        before.update(marker.topic_partition for marker in markers)
        ends.append(replace(end, markers=markers))
    return ends, before
