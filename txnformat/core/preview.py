"""Previews: what a commit would decide now, for those that ask before they commit. Pure.

A preview reserves nothing, and the commit decides again: it spares work that would be refused, and dry runs
show it. Outside the core nothing else asks a concern for a decision.
"""

from __future__ import annotations

from collections.abc import Mapping

from txnformat.core.decide import decide_action
from txnformat.core.groups.decide import commit_offsets
from txnformat.core.intents import Acks, Action, GroupOffsets, Included, ProducerRef, Rejected, Write
from txnformat.core.operations import Operation
from txnformat.core.state import LogState
from txnformat.core.subscriptions.decide import acknowledge, check_nack
from txnformat.core.transactions.decide import check_identity
from txnformat.core.transactions.state import TransactionalIdState
from txnformat.errors import InternalError

__all__ = ["preview_acks", "preview_action", "preview_identity", "preview_nack", "preview_offsets"]


def preview_action(state: LogState, action: Action) -> tuple[Operation, ...]:
    """Return the operations of an action, none if it was done before; raise what its commit would raise."""
    verdict = decide_action(state, action)
    if isinstance(verdict, Rejected):
        raise verdict.error
    return verdict.operations if isinstance(verdict, Included) else ()


def preview_offsets(state: LogState, producer: ProducerRef, offsets: GroupOffsets) -> None:
    """Raise what a commit of a group's positions by the producer would raise."""
    commit_offsets(state, offsets, producer, _owner(state, producer))


def preview_acks(state: LogState, producer: ProducerRef, acks: tuple[Acks, ...]) -> None:
    """Raise what a commit of acknowledgements by the producer would raise."""
    acknowledge(state, acks, producer, _owner(state, producer))


def preview_nack(
    state: LogState, topic_id: str, subscription: str, ranges: Mapping[int, tuple[tuple[int, int], ...]]
) -> None:
    """Refuse a negative acknowledgement; see :func:`~txnformat.core.subscriptions.decide.check_nack`."""
    check_nack(state, topic_id, subscription, ranges)


def preview_identity(state: LogState, producer: ProducerRef) -> TransactionalIdState:
    """Return what the log knows of a transactional producer; raise if it is not the newest instance."""
    owner = _owner(state, producer)
    check_identity(producer, producer.transactional_id or "", owner, Write(producer))
    if owner is None:
        raise InternalError("a checked identity belongs to an unknown transactional id")
    return owner


def _owner(state: LogState, producer: ProducerRef) -> TransactionalIdState | None:
    return state.transactional_ids.get(producer.transactional_id or "")
