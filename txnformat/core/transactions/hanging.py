"""Transactions that hang, and transactions that only look so: late ones, and prepared ones. Pure.

A hanging transaction (KIP-664) is open in a partition although no transactional id has it: no producer and no
timeout can ever end it. Kafka's brokers can come to that because a partition and the coordinator are two
places. Here one entry moves both, so no writer can make one; to look for it is a check of the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from txnformat.core.records.state import Transaction
from txnformat.core.state import LogState
from txnformat.core.transactions.listing import is_late, last_append, named_partition
from txnformat.core.transactions.state import UNDECIDED, TransactionalIdState, TransactionStatus
from txnformat.errors import InvalidInputError
from txnformat.types import TopicPartition

__all__ = ["HangingReport", "HangingTransaction", "HeldPartition", "HoldCause", "find_hanging"]


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no transactional id has."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    """Log time of its last append there."""
    duration_ms: int
    """Since then."""
    reason: str


class HoldCause(StrEnum):
    """Why a partition is held back for longer than it should be."""

    LATE = "late"
    """The transaction's own time is over, and it is still open."""
    PREPARED = "prepared"
    """Its outcome is decided elsewhere, and has not been delivered."""


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A transaction that holds a partition back and is not hanging: it can be ended."""

    topic: str
    partition: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    cause: HoldCause
    start_offset: int
    holds_back: int
    """Offsets that read_committed does not reach; 0 behind an older open transaction."""
    duration_ms: int
    """Since its first append anywhere."""
    advice: str


@dataclass(frozen=True, slots=True)
class HangingReport:
    """The faults of open transactions."""

    hanging: tuple[HangingTransaction, ...]
    """Empty, unless the state is damaged."""
    held: tuple[HeldPartition, ...]
    """Late and prepared transactions: what people look for when a reader stands still."""


def find_hanging(
    state: LogState,
    now_ms: int,
    *,
    topic: str | None = None,
    partition: int | None = None,
    max_transaction_timeout_ms: int | None = None,
) -> HangingReport:
    """Look for hanging transactions as Kafka's tool does; see :meth:`Transactions.find_hanging`."""
    if topic is None and partition is not None:
        raise InvalidInputError("a partition needs its topic", kind="invalid-partition")
    limit_ms = state.max_transaction_timeout_ms
    if max_transaction_timeout_ms is not None:
        limit_ms = max_transaction_timeout_ms
    owners = {known.producer_id: (name, known) for name, known in state.transactional_ids.items()}
    hanging: list[HangingTransaction] = []
    held: list[HeldPartition] = []
    for name, key in _places(state, topic, partition):
        for transaction, start in sorted(state.partition(key).open.items(), key=lambda item: item[1]):
            owner = owners.get(transaction[0])
            reason = _lost(owner, transaction, key)
            if reason is None and owner is not None:
                held += _held(state, name, key, *owner, start, now_ms)
                continue
            last = last_append(state.partition(key), transaction)
            last_ms = last[1] if last is not None else state.timestamp_ms
            if now_ms - last_ms > limit_ms:
                hanging.append(
                    HangingTransaction(
                        name, key.partition, *transaction, start, last_ms, now_ms - last_ms, reason or ""
                    )
                )
    return HangingReport(tuple(hanging), tuple(held))


def _places(
    state: LogState, topic: str | None, partition: int | None
) -> Iterator[tuple[str, TopicPartition]]:
    if topic is not None and partition is not None:
        yield topic, named_partition(state, topic, partition)
        return
    topics = (
        [state.topic(topic)] if topic is not None else sorted(state.topics.values(), key=lambda one: one.name)
    )
    for one in topics:
        for number in range(one.partitions):
            yield one.name, TopicPartition(one.topic_id, number)


def _lost(
    owner: tuple[str, TransactionalIdState] | None, transaction: Transaction, key: TopicPartition
) -> str | None:
    """Return why a transaction can never be ended; None when its id has it."""
    if owner is None:
        return "no transactional id has its producer id"
    name, known = owner
    if known.status not in UNDECIDED or known.epoch != transaction[1]:
        return f"transactional id {name!r} has no such open transaction"
    if key not in known.partitions:
        return f"the open transaction of transactional id {name!r} is not in this partition"
    return None


def _held(
    state: LogState,
    topic: str,
    key: TopicPartition,
    name: str,
    known: TransactionalIdState,
    start: int,
    now_ms: int,
) -> Iterator[HeldPartition]:
    if known.status is TransactionStatus.PREPARED:
        cause, advice = HoldCause.PREPARED, advice_for_prepared(name)
    elif is_late(known, now_ms):
        cause, advice = HoldCause.LATE, advice_for_late(name)
    else:
        return
    partition = state.partition(key)
    yield HeldPartition(
        topic,
        key.partition,
        name,
        known.producer_id,
        known.epoch,
        cause,
        start,
        partition.log_end - start if partition.last_stable_offset == start else 0,
        max(0, now_ms - (known.started_ms or now_ms)),
        advice,
    )


def advice_for_late(name: str) -> str:
    """Return what to do about a late transaction."""
    return (
        "any commit to the log ends it; without commits run txnlog transactions end-expired (its id "
        f"is {name!r})"
    )


def advice_for_prepared(name: str) -> str:
    """Return what to do about a prepared transaction."""
    return (
        "its coordinator must commit or abort it with its token; to abort it for good: "
        f"txnlog transactions force-terminate {name!r}"
    )
