"""Deciding what concerns a transaction as a whole: who may act in it, how it ends, who opens its id. Pure.

Rejections are raised here; :mod:`txnformat.core.decide` makes values of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txnformat.core.intents import Done, EndTransaction, OpenProducer, ProducerRef, Write
from txnformat.core.operations import Cause, EndTxn, InitProducer, Marker, PlacedPartition, PrepareTxn
from txnformat.core.state import LogState
from txnformat.core.transactions.state import (
    DEFERRED_TIMEOUT_MS_MAX,
    UNDECIDED,
    LastEnd,
    TransactionalIdState,
    TransactionStatus,
)
from txnformat.errors import (
    ConflictError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    ProducerFencedError,
    TransactionTimedOutError,
    TxnLogError,
    repr_of,
)
from txnformat.types import Outcome, TopicPartition

__all__ = ["check_identity", "end", "end_for_another", "open_producer", "prepare"]


def open_producer(state: LogState, action: OpenProducer) -> InitProducer:
    """Return the operation that opens a transactional id, and aborts what is open under it."""
    _check_timeouts(state, action)
    timeouts = (action.timeout_ms, action.deferred_timeout_ms)
    known = state.transactional_ids.get(action.transactional_id)
    if known is None:
        return InitProducer(action.transactional_id, state.next_producer_id, 0, (), *timeouts)
    if known.status is TransactionStatus.PREPARED:
        raise _prepared(action.transactional_id, known, "commit or abort the prepared transaction")
    aborted: tuple[Marker, ...] = ()
    if known.status is TransactionStatus.ONGOING:
        aborted = _markers(state, known.partitions)
    return InitProducer(action.transactional_id, known.producer_id, known.epoch + 1, aborted, *timeouts)


def _check_timeouts(state: LogState, action: OpenProducer) -> None:
    limits = (
        ("transaction_timeout_ms", action.timeout_ms, state.max_transaction_timeout_ms),
        ("deferred_timeout_ms", action.deferred_timeout_ms, DEFERRED_TIMEOUT_MS_MAX),
    )
    problems = [
        f"{name} is {repr_of(value)}, not 1 to {limit} ms, the longest that this log allows"
        for name, value, limit in limits
        if not 1 <= value <= limit
    ]
    if problems:
        raise InvalidInputError(problems, kind="invalid-transaction-timeout")


def _markers(state: LogState, partitions: Mapping[TopicPartition, int]) -> tuple[Marker, ...]:
    return tuple(
        Marker(key.topic_id, key.partition, state.partition(key).log_end) for key in sorted(partitions)
    )


def _prepared(transactional_id: str, known: TransactionalIdState, hint: str) -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        "the transaction is prepared: its coordinator decides the outcome",
        kind="transaction-prepared",
        hint=hint,
        transactional_id=transactional_id,
        producer_id=known.producer_id,
        epoch=known.epoch,
        entry=known.used_entry,
    )


def check_identity(
    producer: ProducerRef, transactional_id: str, owner: TransactionalIdState | None, write: Write
) -> Done | None:
    """Return Done for what was done before, None when the identity is current, else raise."""
    if owner is None or owner.producer_id != producer.producer_id:
        raise InvalidTransactionStateError(
            "the log does not know this transactional id with this producer id",
            kind="unknown-transactional-id",
            hint="it is another log, or the log has forgotten an id that was long unused: close this "
            "producer, and make a new one with the id",
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
        )
    last = owner.last_end
    if write.end is not None and last is not None and last.epoch == producer.epoch:
        return _repeated_end(producer, owner, last, write.end)
    if producer.epoch < owner.epoch:
        raise _ended_before(producer, owner)
    if producer.epoch > owner.epoch:
        raise InvalidTransactionStateError(
            "the log does not know this epoch",
            kind="unknown-epoch",
            hint="is this a copy of another log? close this producer, and make a new one with the id",
            transactional_id=transactional_id,
            epoch=producer.epoch,
            current_epoch=owner.epoch,
        )
    if owner.status is TransactionStatus.PREPARED:
        if write.prepare:
            return Done(owner.used_entry)
        if write.appends or write.offsets or write.acks:
            raise _prepared(transactional_id, owner, "commit or abort it before anything else is sent")
    return None


def _ended_before(producer: ProducerRef, owner: TransactionalIdState) -> TxnLogError:
    last = owner.last_end
    is_next = last is not None and last.epoch == producer.epoch and owner.epoch == producer.epoch + 1
    values: dict[str, Any] = {"transactional_id": producer.transactional_id, "epoch": producer.epoch}
    if last is not None and last.epoch == producer.epoch and last.cause is Cause.PRODUCER:
        return InvalidTransactionStateError(
            "the transaction has ended",
            kind="transaction-ended",
            hint="begin a new transaction",
            outcome=last.outcome.value,
            entry=last.entry,
            **values,
        )
    if last is not None and is_next and last.cause is Cause.TIMEOUT:
        return TransactionTimedOutError(
            "the transaction was open for longer than its timeout, and was aborted",
            hint="abort, and do the work again in a new transaction; a longer timeout is a setting of the "
            "producer",
            entry=last.entry,
            **values,
        )
    if last is not None and is_next and last.cause is Cause.OPERATOR:
        return _by_operator(producer, last)
    is_last = last is None or last.epoch <= producer.epoch
    return ProducerFencedError(
        "a newer instance of this producer has opened"
        if is_last
        else "a newer instance of this producer has opened, or ended later transactions",
        hint="stop this instance",
        current_epoch=owner.epoch,
        **values,
    )


def _by_operator(producer: ProducerRef, last: LastEnd) -> ProducerFencedError:
    return ProducerFencedError(
        "an operator has aborted the transaction",
        kind="aborted-by-operator",
        hint="find out why before a new producer is opened",
        transactional_id=producer.transactional_id,
        epoch=producer.epoch,
        entry=last.entry,
    )


def _repeated_end(producer: ProducerRef, owner: TransactionalIdState, last: LastEnd, wanted: Outcome) -> Done:
    if last.cause is Cause.INIT:
        raise ProducerFencedError(
            "a newer instance of this producer has opened and aborted the transaction",
            hint="stop this instance",
            transactional_id=producer.transactional_id,
            epoch=producer.epoch,
            entry=last.entry,
        )
    if last.cause is Cause.OPERATOR:
        raise _by_operator(producer, last)
    if last.outcome is wanted:
        return Done(last.entry)
    if last.cause is Cause.TIMEOUT:
        raise _ended_before(producer, owner)
    raise _other_outcome(producer.transactional_id, producer.epoch, last)


def _other_outcome(transactional_id: str | None, epoch: int, last: LastEnd) -> InvalidTransactionStateError:
    past = "committed" if last.outcome is Outcome.COMMIT else "aborted"
    return InvalidTransactionStateError(
        f"the transaction was {past} already",
        kind=f"transaction-{past}",
        hint="begin a new transaction",
        transactional_id=transactional_id,
        epoch=epoch,
        entry=last.entry,
    )


def prepare(producer: ProducerRef, owner: TransactionalIdState | None, *, added: bool) -> PrepareTxn:
    """Return the operation that prepares a transaction; ``added``: the same write appends or stages
    something.
    """
    if owner is None or producer.transactional_id is None:
        raise InternalError("only a transactional producer can prepare a transaction")
    if owner.status is not TransactionStatus.ONGOING and not added:
        raise _nothing_open("prepare", producer.transactional_id)
    if owner.abort_only:
        raise _hold_broken(producer.transactional_id, owner)
    return PrepareTxn(producer.transactional_id, producer.producer_id, producer.epoch)


def _hold_broken(transactional_id: str | None, owner: TransactionalIdState) -> ConflictError:
    """Return why a transaction can only be aborted."""
    return ConflictError(
        "another consumer has committed a position that the transaction had compared",
        kind="offsets-hold-broken",
        hint="abort the transaction; its records are not committed",
        transactional_id=transactional_id,
        epoch=owner.epoch,
        groups=sorted(owner.groups),
    )


def _nothing_open(what: str, transactional_id: str) -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        f"there is no open transaction to {what}",
        kind="no-transaction",
        hint="begin a transaction and send something",
        transactional_id=transactional_id,
    )


def end(
    state: LogState,
    write: Write,
    owner: TransactionalIdState | None,
    ends: Mapping[TopicPartition, int],
    staged: Mapping[TopicPartition, int],
) -> EndTxn:
    """Return the end that a write asks for.

    ``ends`` has the log end of each partition that the same write appends to, ``staged`` the records that it
    stages for each.
    """
    producer = write.producer
    if owner is None or producer is None or producer.transactional_id is None or write.end is None:
        raise InternalError("only a transactional producer can end a transaction")
    is_open = owner.status in UNDECIDED
    if write.end is Outcome.COMMIT and not (is_open or ends or staged or write.offsets or write.acks):
        raise _nothing_open("commit", producer.transactional_id)
    if write.end is Outcome.COMMIT and owner.abort_only:
        raise _hold_broken(producer.transactional_id, owner)
    markers = {
        key: ends.get(key, state.partition(key).log_end)
        for key in {*ends, *(owner.partitions if is_open else ())}
    }
    placed: tuple[PlacedPartition, ...] = ()
    if write.end is Outcome.COMMIT:
        placed = _placed(state, owner, staged)
        markers |= {part.topic_partition: part.base_offset + part.records for part in placed}
    return EndTxn(
        producer.transactional_id,
        producer.producer_id,
        producer.epoch,
        write.end,
        Cause.PRODUCER,
        tuple(Marker(key.topic_id, key.partition, offset) for key, offset in sorted(markers.items())),
        placed,
    )


def _placed(
    state: LogState, owner: TransactionalIdState, staged: Mapping[TopicPartition, int]
) -> tuple[PlacedPartition, ...]:
    records = owner.staged_records()
    for key, more in staged.items():
        records[key] = records.get(key, 0) + more
    return tuple(
        PlacedPartition(key.topic_id, key.partition, state.partition(key).log_end, count)
        for key, count in sorted(records.items())
    )


def end_for_another(state: LogState, action: EndTransaction) -> EndTxn | Done:
    """Return the abort of another producer's transaction, Done when it was aborted already, else raise."""
    owner = state.transactional_ids.get(action.transactional_id)
    values: dict[str, Any] = {"transactional_id": action.transactional_id, "epoch": action.epoch}
    if owner is None or owner.producer_id != action.producer_id:
        raise NotFoundError(
            "the log knows no such transactional id",
            kind="unknown-transactional-id",
            hint="list them with: txnlog transactions list",
            producer_id=action.producer_id,
            **values,
        )
    last = owner.last_end
    if last is not None and last.epoch == action.epoch:
        if last.outcome is Outcome.ABORT:
            return Done(last.entry)
        raise _other_outcome(action.transactional_id, action.epoch, last)
    if owner.status not in UNDECIDED or owner.epoch != action.epoch:
        raise InvalidTransactionStateError(
            "there is no such open transaction", kind="no-transaction", hint="it has ended", **values
        )
    if owner.status is TransactionStatus.PREPARED and not (action.force and action.cause is Cause.OPERATOR):
        raise _prepared(
            action.transactional_id,
            owner,
            "its coordinator must commit or abort it; force_terminate aborts it for good",
        )
    if action.cause is Cause.TIMEOUT and not _is_over(owner, action):
        raise InvalidTransactionStateError(
            "the transaction's time is not over",
            kind="transaction-not-expired",
            hint="abort it as an operator, or wait",
            expires_ms=owner.expires_ms,
            store_time_ms=action.store_time_ms,
            **values,
        )
    if action.cause not in (Cause.TIMEOUT, Cause.OPERATOR):
        raise InternalError("another cannot end a transaction for this cause", cause=action.cause.value)
    markers = _markers(state, owner.partitions)
    return EndTxn(
        action.transactional_id, action.producer_id, action.epoch, Outcome.ABORT, action.cause, markers
    )


def _is_over(owner: TransactionalIdState, action: EndTransaction) -> bool:
    if action.store_time_ms is None:
        return action.observed_entry == owner.timed_entry
    return owner.expires_ms is not None and action.store_time_ms >= owner.expires_ms
