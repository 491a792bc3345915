"""Whether a group's position may be committed beside what is in force and what is pending: decision and fold
ask the same rule.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.groups.state import GroupState
from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionStatus

__all__ = ["PositionConflict", "position_conflict"]


class PositionConflict(NamedTuple):
    """Why a position cannot be committed."""

    kind: Literal["offsets-changed", "offsets-held", "offsets-pending"]
    transactional_id: str | None = None
    """The transaction that holds the position, or has one pending; None if it is another than was expected.
    """


def position_conflict(
    state: LogState,
    group: GroupState,
    commit: OffsetCommit | PositionCommit,
    pending: Collection[str],
    holding: Collection[str],
) -> PositionConflict | None:
    """Return why a position cannot be committed, None if it can.

    Parameters
    ----------
    pending, holding
        Transactional ids of the other transactions that have the position pending, and of those that have
        compared it.

    Notes
    -----
    A commit that compares needs the expected position, and nothing pending beside it. One that does not
    compare breaks the hold of an open transaction, which can then only abort, but not that of a prepared one.
    """
    if commit.expected is None:
        for name in holding:
            if state.transactional_ids[name].status is TransactionStatus.PREPARED:
                return PositionConflict(kind="offsets-held", transactional_id=name)
        return None
    if commit.expected != group.value(commit.key):
        return PositionConflict(kind="offsets-changed")
    for name in pending:
        return PositionConflict(
            kind="offsets-held" if name in holding else "offsets-pending", transactional_id=name
        )
    return None
