"""Folding blocks of producer ids. Pure. :mod:`txnformat.core.records.fold` folds the appends of producers."""

from __future__ import annotations

from txnformat.core.folding import At, corrupt
from txnformat.core.operations import AllocateProducerIds
from txnformat.core.state import LogState, ProducerIdBlock
from txnformat.core.transactions.fold import NUMBER_MAX
from txnformat.persistent import put, replace

__all__ = ["allocate_producer_ids"]


def allocate_producer_ids(state: LogState, op: AllocateProducerIds, at: At) -> LogState:
    """Return the state after a process was given a block of ids."""
    if op.first != state.next_producer_id:
        corrupt(
            at,
            "a block of producer ids does not begin where it must",
            expected=state.next_producer_id,
            got=op.first,
        )
    if op.last >= NUMBER_MAX:
        corrupt(at, "a block of producer ids goes beyond the largest id", got=op.last)
    block = ProducerIdBlock(op.owner, op.first, op.last, at.entry, at.timestamp_ms)
    return replace(
        state,
        next_producer_id=op.last + 1,
        blocks=put(state.blocks, op.first, block),
    )
