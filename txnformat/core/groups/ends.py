"""Folding what the end of a transaction does to the positions that are pending in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from txnformat.core.folding import At, PendingIndex
from txnformat.core.groups.operations import GroupKey
from txnformat.core.groups.state import Committed, GroupState
from txnformat.core.state import LogState
from txnformat.persistent import replace, update, without
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
    state: LogState, transactional_id: str, names: Iterable[str], outcome: Outcome, at: At
) -> LogState:
    """Return the state after the pending positions of a transaction have come into force, or are forgotten.

    Of two commits of one position that came into force the later by log position wins, not the one that ended
    later (Kafka's rule for offsets in transactions).
    """
    ended: dict[str, GroupState] = {}
    for name in names:
        group = state.groups[name]
        if name in at.positions:
            for key in group.pending[transactional_id]:
                at.positions[name].remove(transactional_id, key)
        ended[name] = _ended(group, transactional_id, outcome, at)
    return replace(state, groups=update(state.groups, ended)) if ended else state


def _ended(group: GroupState, transactional_id: str, outcome: Outcome, at: At) -> GroupState:
    ended = group.pending[transactional_id]
    pending = without(group.pending, (transactional_id,))
    committed = group.committed
    if outcome is Outcome.COMMIT:
        now: dict[GroupKey, Committed] = {}
        for key, one in ended.items():
            before = committed.get(key)
            if before is None or before.order < one.order:
                now[key] = Committed(one.value, one.metadata, one.order, at.entry, at.timestamp_ms)
        committed = update(committed, now)
    return replace(group, pending=pending, committed=committed, used_entry=at.entry, used_ms=at.timestamp_ms)
