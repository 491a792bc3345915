"""Folding what the end of a transaction does to the acknowledgements that are pending in it. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from txnformat.core.drafts import draft, replace
from txnformat.core.folding import At
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import SubscriptionKey
from txnformat.types import Outcome

__all__ = ["end_acks"]


def end_acks(
    state: LogState, transactional_id: str, keys: AbstractSet[SubscriptionKey], outcome: Outcome, at: At
) -> LogState:
    """Return the state after the pending acknowledgements of a transaction are in force, or forgotten: then the records are delivered again."""
    if not keys:
        return state
    subscriptions = draft(state.subscriptions, at)
    for key in keys:
        subscription = subscriptions[key]
        ended = {
            number: acks.ended(transactional_id, at, commit=outcome is Outcome.COMMIT)
            for number, acks in subscription.partitions.items()
            if transactional_id in acks.pending
        }
        subscriptions[key] = replace(
            subscription.with_partitions(ended, at), used_entry=at.entry, used_ms=at.timestamp_ms
        )
    return replace(state, subscriptions=subscriptions)
