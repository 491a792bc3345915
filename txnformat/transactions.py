"""States of a transactional id, and the only table of legal transitions.

Kafka's PrepareCommit and PrepareAbort cannot be observed here: the decision and the markers are one entry.
The names of states that later features bring (Prepared, Dead) are reserved in the specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnformat.operations import Cause
from txnformat.types import Outcome, TopicPartition

__all__ = [
    "LEGAL_TRANSITIONS",
    "LastEnd",
    "TransactionStatus",
    "TransactionalIdState",
    "is_legal_transition",
]


class TransactionStatus(StrEnum):
    """Where a transactional id stands (Kafka's names)."""

    EMPTY = "Empty"
    """Opened; nothing appended yet."""
    ONGOING = "Ongoing"
    """Has appended records that are not decided."""
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


LEGAL_TRANSITIONS: dict[TransactionStatus, frozenset[TransactionStatus]] = {
    # target: the states that it may be entered from.
    TransactionStatus.EMPTY: frozenset(TransactionStatus),  # init_producer; aborts what was Ongoing
    TransactionStatus.ONGOING: frozenset(
        TransactionStatus
    ),  # the first append of a transaction, and the next
    TransactionStatus.COMPLETE_COMMIT: frozenset({TransactionStatus.ONGOING}),
    # An abort is legal in every state of the epoch: after an unknown answer it settles what happened.
    TransactionStatus.COMPLETE_ABORT: frozenset(TransactionStatus),
}


def is_legal_transition(source: TransactionStatus, target: TransactionStatus) -> bool:
    """Return whether a transactional id may go from ``source`` to ``target``."""
    return source in LEGAL_TRANSITIONS[target]


@dataclass(frozen=True, slots=True)
class LastEnd:
    """How the last ended transaction of a transactional id ended: what a repeated call is answered from."""

    epoch: int
    outcome: Outcome
    cause: Cause
    entry: int


@dataclass(frozen=True, slots=True)
class TransactionalIdState:
    """What the log knows of one transactional id."""

    producer_id: int
    """For life."""
    epoch: int
    """The epoch that an append must carry; grows by 1 at each init and at each end."""
    status: TransactionStatus
    partitions: dict[TopicPartition, int]
    """Partitions of the open transaction, and their first offset in it."""
    started_entry: int | None = None
    """Entry of the open transaction's first append."""
    started_ms: int | None = None
    """Log time of that entry."""
    last_end: LastEnd | None = None
