"""Which undecided transactions touch a topic, or stand in the way of a removal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import InvalidTransactionStateError
from txnformat.types import TopicPartition

__all__ = ["NAMES_SHOWN_MAX", "begun_by", "check_named_prepared", "holders", "is_prepared", "touching"]

NAMES_SHOWN_MAX = 20


def touching(state: LogState, topic_id: str) -> list[str]:
    """Return the transactional ids, ascending, of the undecided transactions with records, positions or
    acknowledgements in a topic.
    """
    return sorted(name for name in state.undecided if _touches(state, name, topic_id))


def _touches(state: LogState, name: str, topic_id: str) -> bool:
    known = state.transactional_ids[name]
    return (
        any(key.topic_id == topic_id for key in known.partitions)
        or any(flush.topic_id == topic_id for flush in known.staged)
        or any(of == topic_id for of, _ in known.subscriptions)
        or any(
            not isinstance(key, str) and key.topic_id == topic_id
            for group in known.groups
            for key in state.groups[group].pending[name]
        )
    )


def begun_by(state: LogState, entry: int) -> list[str]:
    """Return the transactional ids, ascending, of the undecided transactions that had begun by an entry
    (inclusive).
    """
    return sorted(
        name
        for name in state.undecided
        if (started := state.transactional_ids[name].started_entry) is not None and started <= entry
    )


def holders(state: LogState, ends: Mapping[TopicPartition, int]) -> dict[str, set[TopicPartition]]:
    """Return the undecided transactions that begin below some offsets (exclusive), by transactional id,
    ascending, and where they do.
    """
    found = {}
    for name in sorted(state.undecided):
        known = state.transactional_ids[name].partitions
        held = {key for key, end in ends.items() if known.get(key, end) < end}
        if held:
            found[name] = held
    return found


def check_named_prepared(state: LogState, names: Iterable[str], named: Collection[str]) -> None:
    """Raise InvalidTransactionStateError about prepared transactions that the user has not named."""
    left = [name for name in names if is_prepared(state, name) and name not in named]
    if left:
        raise InvalidTransactionStateError(
            "prepared transactions have records below the offset: their coordinator decides their outcome",
            kind="transaction-prepared",
            hint="commit or abort them first; or name each of them in force (--prepared), which discards "
            "their records in the partition",
            transactional_ids=left[:NAMES_SHOWN_MAX],
        )


def is_prepared(state: LogState, name: str) -> bool:
    """Return whether the transaction of a transactional id is prepared."""
    return state.transactional_ids[name].status is TransactionStatus.PREPARED
