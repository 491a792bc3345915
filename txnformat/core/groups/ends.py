"""Folding what the end of a transaction does to the positions that are pending in it. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from txnformat.core.drafts import draft, replace, without
from txnformat.core.folding import At, PendingIndex
from txnformat.core.groups.state import Committed, GroupState
from txnformat.core.state import LogState
from txnformat.types import Outcome

__all__ = ["end_positions", "pending_index"]


def pending_index(group: GroupState, name: str, at: At) -> PendingIndex:
    """Return what each transaction has pending in a group; looked up once for the fold of an entry."""
    index = at.positions.get(name)
    if index is None:
        index = at.positions[name] = PendingIndex()
        for transactional_id, found in group.pending.items():
            for key, one in found.items():
                index.add(transactional_id, key, holds=one.holds)
    return index


def end_positions(
    state: LogState, transactional_id: str, names: AbstractSet[str], outcome: Outcome, at: At
) -> LogState:
    """Return the state after the pending positions of a transaction have come into force, or are forgotten.

    Of two commits of one position that came into force the later by log position wins, not the one that ended later
    (Kafka's rule for offsets in transactions).
    """
    if not names:
        return state
    groups = draft(state.groups, at)
    for name in names:
        if name in at.positions:
            for key in groups[name].pending[transactional_id]:
                at.positions[name].remove(transactional_id, key)
        groups[name] = _ended(groups[name], transactional_id, outcome, at)
    return replace(state, groups=groups)


def _ended(group: GroupState, transactional_id: str, outcome: Outcome, at: At) -> GroupState:
    ended = group.pending[transactional_id]
    pending = without(group.pending, (transactional_id,), at)
    committed = group.committed
    if outcome is Outcome.COMMIT:
        committed = draft(committed, at)
        for key, one in ended.items():
            before = committed.get(key)
            if before is None or before.order < one.order:
                committed[key] = Committed(one.value, one.metadata, one.order, at.entry, at.timestamp_ms)
    return replace(group, pending=pending, committed=committed, used_entry=at.entry, used_ms=at.timestamp_ms)
