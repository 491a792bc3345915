"""Folding what the end of a transaction does to the acknowledgements that are pending in it. Pure."""

from __future__ import annotations

from txnformat.ack_operations import SubscriptionKey
from txnformat.folding import At
from txnformat.replacing import replace
from txnformat.state import LogState
from txnformat.types import Outcome

__all__ = ["end_acks"]


def end_acks(
    state: LogState, transactional_id: str, keys: frozenset[SubscriptionKey], outcome: Outcome, at: At
) -> LogState:
    """Return the state after the pending acknowledgements of a transaction are in force, or forgotten: then the records are delivered again."""
    if not keys:
        return state
    subscriptions = dict(state.subscriptions)
    for key in keys:
        subscription = subscriptions[key]
        ended = {
            number: acks.ended(transactional_id, commit=outcome is Outcome.COMMIT)
            for number, acks in subscription.partitions.items()
            if transactional_id in acks.pending
        }
        subscriptions[key] = replace(
            subscription.with_partitions(ended), used_entry=at.entry, used_ms=at.timestamp_ms
        )
    return replace(state, subscriptions=subscriptions)
