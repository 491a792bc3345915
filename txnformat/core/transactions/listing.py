"""Lists and details of transactions, and the producers of a partition, read off one state. Pure.

The questions, and the names of the values, are those of Kafka's ``kafka-transactions.sh`` (KIP-664, KIP-994,
KIP-1152).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from txnformat.arguments import items
from txnformat.core.records.state import PartitionState, Transaction
from txnformat.core.state import LogState
from txnformat.core.transactions.state import UNDECIDED, LastEnd, TransactionalIdState, TransactionStatus
from txnformat.errors import InvalidInputError, NotFoundError, repr_of
from txnformat.patterns import Pattern
from txnformat.types import TopicPartition

__all__ = [
    "ProducerOfPartition",
    "TransactionDetails",
    "TransactionListing",
    "TransactionPartition",
    "buffer_of",
    "describe_producers",
    "describe_transaction",
    "is_late",
    "known_id",
    "list_transactions",
    "named_partition",
    "named_states",
    "transaction_at",
]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One line of a list of transactional ids."""

    transactional_id: str
    producer_id: int
    state: TransactionStatus
    duration_ms: int | None
    """Since the open transaction's first append or stage. If None, no transaction is open."""


@dataclass(frozen=True, slots=True)
class TransactionPartition:
    """The records of an open transaction in one partition."""

    topic: str
    partition: int
    start_offset: int | None
    """Its first offset there; None while what it has is staged and has no offsets."""
    staged_records: int
    last_stable_offset: int
    latest_offset: int
    """The log end (exclusive)."""
    holds_back: int
    """Offsets that read_committed does not reach because of it: 0 behind an older open transaction, and when
    staged."""


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """One transactional id, and its open transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: TransactionStatus
    buffer: str | None
    """"inline" when the open transaction's records have offsets, "deferred" when they are staged. If None, no
    transaction is open."""
    timeout_ms: int
    """Timeout of the open transaction; when none is open, that of transactions with offsets."""
    start_timestamp_ms: int | None
    """Log time of the open transaction's first append or stage."""
    start_entry: int | None
    """Number of that entry."""
    duration_ms: int | None
    expires_ms: int | None
    """Log time from which on any client may end it. If None, no transaction is open, or it is prepared."""
    late: bool
    """Any client may end it, and none has."""
    partitions: tuple[TransactionPartition, ...]
    last_end: LastEnd | None
    """How the transaction before ended."""


@dataclass(frozen=True, slots=True)
class ProducerOfPartition:
    """A producer that a partition remembers: one without a transactional id, or one whose transaction is
    open.
    """

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    """Kafka does not tell. None for a producer without one."""
    last_sequence: int
    """-1: none is known."""
    last_entry: int | None
    """Entry of its last append."""
    last_timestamp_ms: int | None
    """Log time of that entry; None where the append is sealed and its entry is gone."""
    current_transaction_start_offset: int | None
    """First offset of the open transaction; None outside of a transaction."""


S = TypeVar("S", bound=StrEnum)


def named_states(states: Iterable[str] | None, every: type[S], of: str, kind: str) -> frozenset[S]:
    """Return the members of ``every`` that ``states`` names, in any case; raise InvalidInputError of ``kind``
    about others.
    """
    wanted = [states] if isinstance(states, str) else items(() if states is None else states, "states")
    known = {status.lower(): status for status in every}
    if not isinstance(wanted, Iterable):
        wanted = [wanted]
    unknown = [state for state in wanted if not isinstance(state, str) or state.lower() not in known]
    if unknown:
        problems = [f"{repr_of(state, 60)} is not a state of a {of}" for state in unknown]
        raise InvalidInputError(problems, kind=kind, hint=f"use {', '.join(every)}")
    return frozenset(known[state.lower()] for state in wanted)


def duration_ms(known: TransactionalIdState, now_ms: int) -> int | None:
    """Return for how long the id's transaction has been open."""
    if known.status not in UNDECIDED or known.started_ms is None:
        return None
    return max(0, now_ms - known.started_ms)


def buffer_of(known: TransactionalIdState) -> str | None:
    """Return how the id's open transaction keeps its records; None when none is open."""
    if known.status not in UNDECIDED:
        return None
    return "deferred" if known.staged else "inline"


def is_late(known: TransactionalIdState, now_ms: int) -> bool:
    """Return whether the id has an open transaction whose own time is over."""
    return known.expires_ms is not None and now_ms >= known.expires_ms


def list_transactions(
    state: LogState,
    now_ms: int,
    *,
    states: Iterable[str] | None = None,
    pattern: str | None = None,
    min_duration_ms: int | None = None,
    producer_ids: Collection[int] | None = None,
) -> list[TransactionListing]:
    """Return the transactional ids that meet every condition, by name; see :meth:`Transactions.list`."""
    statuses = named_states(states, TransactionStatus, "transactional id", "unknown-transaction-state")
    names = sorted(state.transactional_ids)
    found = []
    for name in names if pattern is None else Pattern(pattern).matching(names):
        known = state.transactional_ids[name]
        duration = duration_ms(known, now_ms)
        if statuses and known.status not in statuses:
            continue
        if producer_ids and known.producer_id not in producer_ids:
            continue
        if min_duration_ms is not None and min_duration_ms >= 0 and (duration or 0) <= min_duration_ms:
            continue  # as Kafka: running for longer than this, and every one when it is negative
        found.append(TransactionListing(name, known.producer_id, known.status, duration))
    return found


def known_id(state: LogState, transactional_id: str) -> TransactionalIdState:
    """Return what the log knows of an id, or raise NotFoundError of kind ``unknown-transactional-id``."""
    known = state.transactional_ids.get(transactional_id)
    if known is None:
        raise NotFoundError(
            "the log knows no such transactional id",
            kind="unknown-transactional-id",
            hint="list them with: txnlog transactions list",
            transactional_id=transactional_id,
        )
    return known


def describe_transaction(state: LogState, transactional_id: str, now_ms: int) -> TransactionDetails:
    """Return what the log knows of an id and its open transaction; see :meth:`Transactions.describe`."""
    known = known_id(state, transactional_id)
    is_open = known.status in UNDECIDED
    return TransactionDetails(
        transactional_id,
        known.producer_id,
        known.epoch,
        known.status,
        buffer_of(known),
        known.allowed_ms,
        known.started_ms if is_open else None,
        known.started_entry if is_open else None,
        duration_ms(known, now_ms),
        known.expires_ms,
        is_late(known, now_ms),
        tuple(_partitions(state, known)),
        known.last_end,
    )


def _partitions(state: LogState, known: TransactionalIdState) -> Iterable[TransactionPartition]:
    staged = known.staged_records()
    keys = sorted(
        {*known.partitions, *staged}, key=lambda key: (state.topics[key.topic_id].name, key.partition)
    )
    for key in keys:
        partition = state.partition(key)
        stable, end = partition.last_stable_offset, partition.log_end
        start = known.partitions.get(key)
        # Only the first of the open transactions of a partition holds its last stable offset.
        holds = start is not None and start == stable
        yield TransactionPartition(
            state.topics[key.topic_id].name,
            key.partition,
            start,
            staged.get(key, 0),
            stable,
            end,
            end - stable if holds else 0,
        )


def named_partition(state: LogState, topic: str, partition: int) -> TopicPartition:
    """Return a partition by its topic's name, or raise NotFoundError."""
    found = state.topic(topic)
    found.check_partition(partition)
    return TopicPartition(found.topic_id, partition)


def transaction_at(partition: PartitionState, start_offset: int) -> Transaction | None:
    """Return the open transaction whose first offset in the partition is ``start_offset``."""
    return next((one for one, first in partition.open.items() if first == start_offset), None)


def last_append(partition: PartitionState, transaction: Transaction) -> tuple[int, int] | None:
    """Return entry and log time of a producer's last append that is not sealed; None when there is none."""
    extents = partition.extents.array()
    own = np.flatnonzero((extents["producer_id"] == transaction[0]) & (extents["epoch"] == transaction[1]))
    if not len(own):
        return None
    last: Any = extents[own[-1]]
    return int(last["entry"]), int(last["timestamp_ms"])


def describe_producers(state: LogState, topic: str, partition: int) -> list[ProducerOfPartition]:
    """Return the producers that a partition remembers, by id; see :meth:`Transactions.describe_producers`."""
    found = state.partition(named_partition(state, topic, partition))
    names = {(known.producer_id, known.epoch): name for name, known in state.transactional_ids.items()}
    producers = []
    for transaction in sorted({*found.sequences, *found.open}):
        window = found.sequences.get(transaction, ())
        appended = last_append(found, transaction)
        entry, timestamp_ms = appended or (window[-1].entry if window else None, None)
        producers.append(
            ProducerOfPartition(
                *transaction,
                names.get(transaction),
                window[-1].last_sequence if window else -1,
                entry,
                timestamp_ms,
                found.open.get(transaction),
            )
        )
    return producers
