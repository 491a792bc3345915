"""Folding what the end of a transaction does to the acknowledgements that are pending in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from txnformat.core.folding import At
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import SubscriptionKey
from txnformat.core.subscriptions.state import SubscriptionState
from txnformat.persistent import replace, update
from txnformat.types import Outcome

__all__ = ["end_acks"]


def _holding(subscription: SubscriptionState, key: SubscriptionKey, at: At) -> dict[str, set[int]]:
    """Return by transactional id the partitions that it holds something in; looked up once for the fold of an
    entry.
    """
    index = at.holding.get(key)
    if index is None:
        index = at.holding[key] = {}
        for number, acks in subscription.partitions.items():
            for name in acks.pending:
                index.setdefault(name, set()).add(number)
    return index


def end_acks(
    state: LogState, transactional_id: str, keys: Iterable[SubscriptionKey], outcome: Outcome, at: At
) -> LogState:
    """Return the state after the pending acknowledgements of a transaction are in force, or forgotten: then
    the records are delivered again.
    """
    changed: dict[SubscriptionKey, SubscriptionState] = {}
    for key in keys:
        subscription = state.subscriptions[key]
        ended = {
            number: subscription.partitions[number].ended(transactional_id, commit=outcome is Outcome.COMMIT)
            for number in sorted(_holding(subscription, key, at).pop(transactional_id, ()))
        }
        changed[key] = replace(
            subscription.with_partitions(ended), used_entry=at.entry, used_ms=at.timestamp_ms
        )
    return replace(state, subscriptions=update(state.subscriptions, changed)) if changed else state
