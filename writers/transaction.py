"""The states of a producer as its user sees them, which calls each allows, and the transaction as a
context.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import IO, Any, NamedTuple, Protocol, Self

from txnformat.admin.prepared import PreparedTransaction
from txnformat.consumers.group_offsets import GroupMetadata, Offsets, OffsetSource
from txnformat.consumers.record_ids import Records
from txnformat.core.intents import CommitResult, Intent
from txnformat.errors import InvalidTransactionStateError, TxnLogError
from txnformat.log import TxnLog
from writers.inputs import AckSource

__all__ = [
    "ABORTABLE",
    "LEGAL_IN",
    "REPEATS",
    "Call",
    "CommitInfo",
    "ProducerStatus",
    "Transaction",
    "Unsettled",
    "abort_after",
    "check_call",
]


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """The effect of a flush or a commit."""

    entry: int | None = None
    """Entry of the log that holds it; None when there was nothing to append, and no entry was made."""
    timestamp_ms: int | None = None
    """That entry's log time, ms since the epoch; None when it is not known (a repeat, answered from memory).
    """
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """(topic, partition) to the offset of the first record appended there."""

    @classmethod
    def of(cls, log: TxnLog, result: CommitResult) -> CommitInfo:
        """Return what a commit did, with the topics' names."""
        topics = log.state.topics
        offsets = {
            (topics[key.topic_id].name, key.partition): offset for key, offset in result.offsets.items()
        }
        return cls(result.entry, result.timestamp_ms, offsets)


class ProducerStatus(StrEnum):
    """Where a producer stands."""

    UNINITIALISED = "uninitialised"
    READY = "ready"
    """Initialised; of a transactional producer: no transaction is open."""
    IN_TRANSACTION = "in-transaction"
    ABORT_REQUIRED = "abort-required"
    """Records of the open transaction are lost, a large value is torn, its time was over, or its positions
    were refused: it can only be aborted."""
    PREPARED = "prepared"
    """The transaction's outcome is decided elsewhere: it can be committed or aborted, and nothing else."""
    UNKNOWN_OUTCOME = "unknown-outcome"
    """It is not known whether the last call's entry is in the log."""
    FENCED = "fenced"
    """The identity can never be used again."""
    CLOSED = "closed"


ABORTABLE = frozenset(
    {ProducerStatus.IN_TRANSACTION, ProducerStatus.ABORT_REQUIRED, ProducerStatus.UNKNOWN_OUTCOME}
)
"""Where a producer has a transaction that an error may abort."""


class Call(StrEnum):
    """The calls of a producer except close, which is always legal."""

    INIT = "init"
    BEGIN = "begin"
    SEND = "send"
    FLUSH = "flush"
    COMMIT = "commit"
    ABORT = "abort"
    PREPARE = "prepare"
    SEND_OFFSETS = "send_offsets"
    ACKNOWLEDGE = "acknowledge"
    DELEGATE = "delegate"
    TAKE_BACK = "take_back"


class Unsettled(NamedTuple):
    """A call whose outcome is unknown, and what repeats it."""

    call: Call
    intent: Intent


_OPEN = frozenset({ProducerStatus.IN_TRANSACTION})

LEGAL_IN: Mapping[Call, frozenset[ProducerStatus]] = {
    Call.INIT: frozenset({ProducerStatus.UNINITIALISED}),
    Call.BEGIN: frozenset({ProducerStatus.READY}),
    Call.SEND: _OPEN,  # without transactions: READY
    Call.FLUSH: _OPEN,  # likewise
    Call.COMMIT: _OPEN | {ProducerStatus.PREPARED},
    Call.ABORT: _OPEN | {ProducerStatus.ABORT_REQUIRED, ProducerStatus.PREPARED},
    Call.PREPARE: _OPEN,
    Call.SEND_OFFSETS: _OPEN,
    Call.ACKNOWLEDGE: _OPEN,
    Call.DELEGATE: _OPEN,  # of a JobProducer
    Call.TAKE_BACK: frozenset({ProducerStatus.ABORT_REQUIRED}),
}
"""The statuses in which a call is legal, besides what an unknown outcome allows."""

REPEATS: Mapping[Call, frozenset[Call]] = {
    Call.INIT: frozenset({Call.INIT}),
    # A flush repeats the records that a send had to flush first, and so does the same send.
    Call.SEND: frozenset({Call.SEND, Call.FLUSH, Call.ABORT, Call.DELEGATE}),
    Call.FLUSH: frozenset({Call.FLUSH, Call.ABORT}),
    Call.COMMIT: frozenset({Call.COMMIT, Call.ABORT}),
    Call.ABORT: frozenset({Call.ABORT}),
    Call.PREPARE: frozenset({Call.PREPARE, Call.ABORT}),
}
"""After a call with an unknown outcome: the calls that are legal."""

_NEEDS_TRANSACTIONS = frozenset(Call) - {Call.INIT, Call.SEND, Call.FLUSH}

_REFUSALS: Mapping[ProducerStatus, tuple[str, str, str]] = {
    ProducerStatus.UNINITIALISED: (
        "not-initialised",
        "the producer is not initialised",
        "call init() once, or use the producer in a with statement",
    ),
    ProducerStatus.READY: ("no-transaction", "no transaction is open", "call begin() first"),
    ProducerStatus.IN_TRANSACTION: ("transaction-open", "a transaction is open", "commit or abort it first"),
    ProducerStatus.ABORT_REQUIRED: (
        "abort-required",
        (
            "records of this transaction are incomplete or lost, it was open for too long, or its input was "
            "read elsewhere"
        ),
        "abort the transaction and send everything again",
    ),
    ProducerStatus.PREPARED: (
        "transaction-prepared",
        "the transaction is prepared: its coordinator decides the outcome",
        "commit or abort it; producer.prepared names it",
    ),
    ProducerStatus.UNKNOWN_OUTCOME: (
        "outcome-unknown",
        "it is not known whether the last call is in the log",
        "repeat that call, abort, or close",
    ),
    ProducerStatus.CLOSED: ("producer-closed", "the producer is closed", "make a new producer"),
}


def check_call(
    call: Call,
    status: ProducerStatus,
    *,
    is_transactional: bool,
    unknown: Call | None,
    has_committed: bool = False,
) -> None:
    """Raise InvalidTransactionStateError unless ``call`` is legal: its kind names the reason, its hint a way
    out.

    ``unknown``: the call whose outcome is unknown, in status UNKNOWN_OUTCOME. ``has_committed``: whether the
    last transaction is committed, for the error of a caller that was interrupted just before it had the
    answer.
    """
    if not is_transactional and call in _NEEDS_TRANSACTIONS:
        raise InvalidTransactionStateError(
            f"{call}() is for transactional producers",
            kind="not-transactional",
            hint="give the producer a transactional_id",
        )
    legal = LEGAL_IN[call]
    if not is_transactional and call in (Call.SEND, Call.FLUSH):
        legal = frozenset({ProducerStatus.READY})
    if status in legal or (unknown is not None and call in REPEATS[unknown]):
        return
    if call is Call.INIT and status not in (ProducerStatus.CLOSED, ProducerStatus.UNKNOWN_OUTCOME):
        kind, what, hint = "already-initialised", "the producer is initialised already", "call init() once"
    else:
        kind, what, hint = _REFUSALS[status]
    values: dict[str, Any] = {} if unknown is None else {"unknown": str(unknown)}
    if kind == "no-transaction" and has_committed:
        values["last_transaction"] = "committed"
    raise InvalidTransactionStateError(
        f"{call}() is not possible now: {what}", kind=kind, hint=hint, status=str(status), **values
    )


class Transactional(Protocol):
    """The calls of :class:`writers.producer.Producer` that a transaction makes, with the same arguments."""

    @property
    def status(self) -> ProducerStatus: ...
    def begin(self) -> None: ...
    def send(self, *args: Any, **record: Any) -> None: ...
    def send_file(self, *args: Any) -> bool: ...
    def send_offsets(self, *args: Any, **expected: Any) -> None: ...
    def acknowledge(self, *args: Any) -> None: ...
    def acknowledge_cumulative(self, *args: Any) -> None: ...
    def flush(self) -> CommitInfo: ...
    def prepare(self) -> PreparedTransaction: ...
    def commit(self) -> CommitInfo: ...
    def abort(self) -> None: ...


class Transaction:
    """One transaction: begins on entering, commits on a normal exit, aborts on an exception.

    A transaction that the block has prepared is left so. A commit after which nothing but an abort is
    possible (the transaction was open for too long) is followed by it: the error is told once, and the
    producer can be used again.

    Made by :meth:`writers.producer.Producer.transaction`. Its calls are of its own block only: after it they
    raise, also while the producer has another transaction open.

    Attributes
    ----------
    info : CommitInfo or None
        What the commit did, after the exit.
    """

    def __init__(self, producer: Transactional) -> None:
        self._producer = producer
        self._is_over = False
        self.info: CommitInfo | None = None

    def send(self, topic: str, data: Any = None, partition: int | None = None, **record: Any) -> None:
        """Send records; see :meth:`writers.producer.Producer.send`."""
        self._check(Call.SEND)
        self._producer.send(topic, data, partition, **record)

    def send_file(
        self, topic: str, file: str | os.PathLike[str] | IO[bytes], partition: int | None = None
    ) -> bool:
        """Send the records of a Parquet file as they are; see :meth:`writers.producer.Producer.send_file`."""
        self._check(Call.SEND)
        return self._producer.send_file(topic, file, partition)

    def send_offsets(
        self,
        group: str | GroupMetadata | OffsetSource,
        offsets: Offsets | None = None,
        *,
        expected: Mapping[tuple[str, int], int | None] | None = None,
        positions: Mapping[str, str] | None = None,
        expected_positions: Mapping[str, str | None] | None = None,
    ) -> None:
        """Take consumed positions along; see :meth:`writers.producer.Producer.send_offsets`."""
        self._check(Call.SEND_OFFSETS)
        self._producer.send_offsets(
            group, offsets, expected=expected, positions=positions, expected_positions=expected_positions
        )

    def acknowledge(self, subscription: AckSource, records: Records) -> None:
        """Acknowledge records with the transaction; see :meth:`writers.producer.Producer.acknowledge`."""
        self._check(Call.ACKNOWLEDGE)
        self._producer.acknowledge(subscription, records)

    def acknowledge_cumulative(self, subscription: AckSource, record: Records) -> None:
        """Acknowledge everything up to a record; see
        :meth:`writers.producer.Producer.acknowledge_cumulative`.
        """
        self._check(Call.ACKNOWLEDGE)
        self._producer.acknowledge_cumulative(subscription, record)

    def flush(self) -> CommitInfo:
        """Flush; see :meth:`writers.producer.Producer.flush`."""
        self._check(Call.FLUSH)
        return self._producer.flush()

    def prepare(self) -> PreparedTransaction:
        """Prepare; see :meth:`writers.producer.Producer.prepare`."""
        self._check(Call.PREPARE)
        return self._producer.prepare()

    def _check(self, call: Call) -> None:
        # The producer may be in its next transaction, which must not get what was meant for this one.
        if self._is_over:
            raise InvalidTransactionStateError(
                f"{call}() is not possible now: this transaction is over",
                kind="no-transaction",
                hint="use it only in its own with block; begin the next transaction with another "
                "producer.transaction()",
            )

    def __enter__(self) -> Self:
        self._producer.begin()
        self._is_over = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if error is None and self._producer.status is ProducerStatus.READY:
            raise InvalidTransactionStateError(
                "the transaction was ended inside its with block, which ends it itself; its outcome stands",
                kind="no-transaction",
                hint="remove that commit() or abort(), or use begin() without a with statement",
            )
        if error is None and self._producer.status is not ProducerStatus.PREPARED:
            try:
                self.info = self._producer.commit()
            except TxnLogError as refused:
                if self._producer.status is ProducerStatus.ABORT_REQUIRED:
                    abort_after(self._producer, refused)
                raise
        elif error is not None:
            abort_after(self._producer, error)


def abort_after(producer: Transactional, error: BaseException) -> None:
    """Abort a transaction because of ``error``, which is what the caller must see.

    One that is fenced, closed or ended stays as it is.
    """
    if producer.status not in ABORTABLE:
        return
    try:
        producer.abort()
    except TxnLogError as failure:
        error.add_note(f"the transaction could not be aborted: {failure}")
