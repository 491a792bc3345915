"""Folding ``expire``: what nobody has used for long leaves the state. Pure."""

from __future__ import annotations

from itertools import pairwise

from txnformat.folding import At, corrupt
from txnformat.operations import Expire
from txnformat.partition import PartitionState
from txnformat.replacing import replace
from txnformat.state import LogState
from txnformat.transactions import UNDECIDED
from txnformat.types import IDEMPOTENT_EPOCH

__all__ = ["apply_expire"]


def apply_expire(state: LogState, op: Expire, at: At) -> LogState:
    """Return the state without what the operation names."""
    for name in op.transactional_ids:
        known = state.transactional_ids.get(name)
        if known is None or known.status in UNDECIDED:
            corrupt(at, "a transactional id expires that is not there or not idle", transactional_id=name)
    for producer_id in op.producers:
        if producer_id not in state.producers:
            corrupt(at, "a producer expires that is not there", producer_id=producer_id)
    firsts = {block.first for block in state.blocks}
    for first in op.blocks:
        if first not in firsts:
            corrupt(at, "a block of producer ids expires that is not there", first=first)
    for name in op.groups:
        if name not in state.groups or state.groups[name].pending:
            corrupt(at, "a group expires that is not there, or has pending positions", group=name)
    for names in (sorted(op.transactional_ids), op.producers, op.blocks, sorted(op.groups)):
        if any(later <= earlier for earlier, later in pairwise(names)):  # type: ignore[operator]
            corrupt(at, "something expires twice", names=list(names)[:10])
    gone = frozenset((producer_id, IDEMPOTENT_EPOCH) for producer_id in op.producers)
    return replace(
        state.without_groups(op.groups),
        transactional_ids={
            name: known
            for name, known in state.transactional_ids.items()
            if name not in set(op.transactional_ids)
        },
        producers={
            producer_id: used
            for producer_id, used in state.producers.items()
            if producer_id not in op.producers
        },
        retired_below=max([state.retired_below, *(producer_id + 1 for producer_id in op.producers)]),
        blocks=tuple(block for block in state.blocks if block.first not in op.blocks),
        partitions={key: _without(one, gone) for key, one in state.partitions.items()}
        if gone
        else state.partitions,
    )


def _without(partition: PartitionState, gone: frozenset[tuple[int, int]]) -> PartitionState:
    if gone.isdisjoint(partition.sequences):
        return partition
    return replace(
        partition,
        sequences={key: window for key, window in partition.sequences.items() if key not in gone},
    )
