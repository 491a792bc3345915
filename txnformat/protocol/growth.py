"""Growth of the state that a log cannot stop by itself: the operator has to act, or the state grows with
every append.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from txnformat.core.records.scan import extents_in
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.lists import LISTS_MAX
from txnformat.core.state import LogState
from txnformat.protocol.sealing import SEAL_EXTENTS, UNSEALABLE_BATCHES, may_spill, sealable_end
from txnformat.store.object_sizes import METADATA_BYTES_MAX
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["Growth", "crosses", "growing"]

SNAPSHOT_BYTES = METADATA_BYTES_MAX // 4
"""Bytes of a snapshot from which on it counts as growing: beyond four times as many none can be written."""
LISTS = LISTS_MAX // 4


class Growth(msgspec.Struct, frozen=True):
    """One thing that grows."""

    kind: str
    """``held-back``, ``unsealable``, ``snapshot`` or ``segment-lists``."""
    count: int
    """Extents in the state, bytes of the snapshot, or lists."""
    cause: str
    """Why it cannot shrink, as a sentence."""
    hint: str
    """The operator's possible actions."""
    topic: str = ""
    partition: int = -1
    transactional_id: str = ""
    """The transactional id that holds the partition back; empty when none has it."""


def growing(state: LogState, extents_min: int = SEAL_EXTENTS) -> tuple[Growth, ...]:
    """Return what grows and cannot be sealed, merged or expired; empty for a log in good order.

    ``extents_min``: partitions whose transactions hold back fewer extents are not named. O(partitions +
    extents in the state).
    """
    return (*_partitions(state, extents_min), *_whole_log(state))


def crosses(extents_before: int, extents: int, bound: int = SEAL_EXTENTS) -> bool:
    """Return whether the state passes twice the bound, four times, and so on: seldom enough to warn."""
    return extents >= 2 * bound and (extents_before // bound).bit_length() < (extents // bound).bit_length()


def _partitions(state: LogState, extents_min: int) -> Iterator[Growth]:
    names = {
        (known.producer_id, known.epoch): name
        for name in state.undecided
        for known in (state.transactional_ids[name],)
    }
    for key, one in sorted(state.partitions.items()):
        if len(one.extents) < extents_min:
            continue
        end = sealable_end(one)
        held = len(extents_in(one, OffsetRange(end, one.log_end)))
        if held < extents_min:
            continue
        topic = state.topics[key.topic_id].name
        # Where no transaction is open, a spill that no seal takes is one append of too many batches.
        if end < one.last_stable_offset and (end >= one.spilled_end or not one.open):
            yield Growth(
                "unsealable",
                held,
                f"an append at offset {end} has more than {UNSEALABLE_BATCHES:,} batches in the partition",
                "write fewer batches with each append; copy the existing records to another topic",
                topic,
                key.partition,
            )
        else:
            yield _held_back(one, names, held, topic, key, may_spill(state))


def _held_back(
    partition: PartitionState,
    names: dict[tuple[int, int], str],
    held: int,
    topic: str,
    key: TopicPartition,
    is_spilled: bool,
) -> Growth:
    transaction = min(partition.open, key=lambda one: partition.open[one])
    name = names.get(transaction, "")
    return Growth(
        "held-back",
        held,
        "a transaction of "
        f"{f'transactional id {name}' if name else f'producer id {transaction[0]}, which is hanging,'} "
        f"has been open since offset {partition.open[transaction]}",
        "end it: txnlog transactions abort, or commit it where it was prepared"
        + ("" if is_spilled else "; after txnlog upgrade writers move what is behind it out of the state"),
        topic,
        key.partition,
        name,
    )


def _whole_log(state: LogState) -> Iterator[Growth]:
    size = state.checkpoints[-1].size if state.checkpoints else 0
    if size >= SNAPSHOT_BYTES:
        counts = {
            "transactional ids": len(state.transactional_ids),
            "producers": len(state.producers),
            "consumer groups": len(state.groups),
            "subscriptions": len(state.subscriptions),
            "versions of applications": len(state.app_versions),
            "partitions": len(state.partitions),
            "extents": state.extents,
        }
        most = sorted(counts.items(), key=lambda one: -one[1])[:3]
        yield Growth(
            "snapshot",
            size,
            f"the snapshot holds {', '.join(f'{count:,} {name}' for name, count in most)}",
            f"a snapshot may have {METADATA_BYTES_MAX >> 20} MiB: use fewer of these, or another log",
        )
    if len(state.segment_lists) >= LISTS:
        yield Growth(
            "segment-lists",
            len(state.segment_lists),
            "writers leave segment lists of more than 200,000 rows to maintenance",
            "run txnlog maintain",
        )
