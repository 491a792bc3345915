"""States of a transactional id, and the only table of legal transitions.

Kafka's PrepareCommit and PrepareAbort cannot be observed here: the decision and the markers are one entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

import msgspec

from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS, Cause, PendingPartition
from txnformat.core.producers.state import SequenceWindow
from txnformat.field_types import Count, Int32, Positive, Text
from txnformat.types import Outcome, TopicPartition

__all__ = [
    "DEFERRED_TIMEOUT_MS_MAX",
    "LEGAL_TRANSITIONS",
    "MAX_TRANSACTION_TIMEOUT_MS",
    "UNDECIDED",
    "LastEnd",
    "StagedFlush",
    "TransactionStatus",
    "TransactionalIdState",
    "is_legal_transition",
]


MAX_TRANSACTION_TIMEOUT_MS = 15 * 60_000
"""Longest timeout of transactions with offsets, unless the log says otherwise (Kafka's
transaction.max.timeout.ms)."""
DEFERRED_TIMEOUT_MS_MAX = 7 * 24 * 3_600_000
"""Longest timeout of transactions whose records have no offsets yet."""


class TransactionStatus(StrEnum):
    """Where a transactional id stands (Kafka's names)."""

    EMPTY = "Empty"
    """Opened; nothing appended yet."""
    ONGOING = "Ongoing"
    """Has appended or staged records that are not decided."""
    PREPARED = "Prepared"
    """Complete; whether it commits is decided elsewhere."""
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


UNDECIDED = frozenset({TransactionStatus.ONGOING, TransactionStatus.PREPARED})
"""The statuses of an id whose transaction is in the log and has no outcome."""

_NOT_PREPARED = frozenset(TransactionStatus) - {TransactionStatus.PREPARED}

LEGAL_TRANSITIONS: dict[TransactionStatus, frozenset[TransactionStatus]] = {
    # target: the states that it may be entered from.
    TransactionStatus.EMPTY: _NOT_PREPARED,  # init_producer; aborts what was Ongoing
    TransactionStatus.ONGOING: _NOT_PREPARED,  # the first append or stage of a transaction, and the next
    TransactionStatus.PREPARED: frozenset({TransactionStatus.ONGOING}),
    TransactionStatus.COMPLETE_COMMIT: UNDECIDED,
    # An abort is legal in every state of the epoch: after an unknown answer it settles what happened.
    TransactionStatus.COMPLETE_ABORT: frozenset(TransactionStatus),
}


def is_legal_transition(source: TransactionStatus, target: TransactionStatus) -> bool:
    """Return whether a transactional id may go from ``source`` to ``target``."""
    return source in LEGAL_TRANSITIONS[target]


class LastEnd(msgspec.Struct, frozen=True):
    """How the last ended transaction of a transactional id ended: what a repeated call is answered from."""

    epoch: Count
    outcome: Outcome
    cause: Cause
    entry: Count


class StagedFlush(msgspec.Struct, frozen=True):
    """The addition of one stage to an open transaction: references and totals, no records."""

    topic_id: Text
    table: Count
    """Number in LogState.tables of the batch table."""
    section: Int32
    first_file: Count
    """Number in LogState.files of its file 0."""
    file_count: Positive
    partitions: tuple[PendingPartition, ...]


class TransactionalIdState(msgspec.Struct, frozen=True):
    """The state of one transactional id."""

    producer_id: int
    """Id of the producer; it never changes."""
    epoch: int
    """The epoch that an append must carry; grows by 1 at each init and at each end."""
    status: TransactionStatus
    partitions: Mapping[TopicPartition, int]
    """Partitions that the open transaction has appended to, and its first offset there."""
    started_entry: int | None = None
    """Entry of the open transaction's first append, stage, position or acknowledgement."""
    started_ms: int | None = None
    """Log time of that entry."""
    last_end: LastEnd | None = None
    staged: tuple[StagedFlush, ...] = ()
    """The stages of the open transaction, in order; a transaction appends or stages, never both."""
    staged_sequences: Mapping[TopicPartition, SequenceWindow] = msgspec.field(default_factory=dict)
    """The sequences of the partitions for which it has staged records."""
    timeout_ms: int = TIMEOUT_MS
    deferred_timeout_ms: int = DEFERRED_TIMEOUT_MS
    groups: AbstractSet[str] = frozenset()
    """Consumer groups that the open transaction has positions of."""
    subscriptions: AbstractSet[tuple[str, str]] = frozenset()
    """Subscriptions that the open transaction has acknowledged records of."""
    abort_only: bool = False
    """True after a change to the positions that the open transaction had compared: it can only be aborted."""
    used_entry: int = 0
    """Last entry that opened the id, or appended to, staged, committed offsets or acknowledged in, prepared
    or ended a transaction of it."""
    used_ms: int = 0
    """Log time of that entry."""

    @property
    def timed_entry(self) -> int:
        """Entry that the open transaction's timeout counts from: its first append, or its last stage."""
        return self.used_entry if self.staged or self.started_entry is None else self.started_entry

    @property
    def allowed_ms(self) -> int:
        """How long the open transaction may take from there on."""
        return self.deferred_timeout_ms if self.staged else self.timeout_ms

    @property
    def expires_ms(self) -> int | None:
        """Log time from which on any client may end the open transaction; None: none is open, or it is
        prepared.
        """
        if self.status is not TransactionStatus.ONGOING or self.started_ms is None:
            return None
        return (self.used_ms if self.staged else self.started_ms) + self.allowed_ms

    def staged_records(self) -> dict[TopicPartition, int]:
        """Return how many records are staged for each partition."""
        found: dict[TopicPartition, int] = {}
        for flush in self.staged:
            for part in flush.partitions:
                key = TopicPartition(flush.topic_id, part.partition)
                found[key] = found.get(key, 0) + part.records
        return found
