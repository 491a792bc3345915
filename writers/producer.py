"""The producer: Kafka's idempotent and transactional producer, without a broker.

Steps of a commit, and what a crash after each leaves:

1. rows are buffered and streamed to files           files that nobody names
2. the files are closed                              files that nobody names
3. one entry: appends, end of the transaction        everything, in every topic and partition

With ``buffer="inline"`` each flush appends with offsets already (read_uncommitted sees it, the last stable offset
waits), and the commit is the entry that ends the transaction.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

from txnformat import keys
from txnformat.errors import (
    CommitStateUnknownError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    ProducerFencedError,
    TxnLogError,
)
from txnformat.intents import CommitResult, Intent, OpenProducer, ProducerRef, TopicAppend, Write
from txnformat.log import TxnLog
from txnformat.operations import InitProducer
from txnformat.schema import conform
from txnformat.state import TopicState
from txnformat.types import Outcome, TopicPartition
from writers.client_state import ClientState, check_call
from writers.linger import Linger
from writers.pending import Pending
from writers.producer_ids import allocate_producer_id
from writers.transaction import Transaction
from writers.upload import ROLL_BYTES

__all__ = ["CommitInfo", "Producer", "ProducerSettings"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Bounds of a producer's buffers."""

    linger_ms: int = 5
    """How long a producer without a transaction may hold a row back to make larger batches (Kafka's default)."""
    batch_bytes: int = 8 * MIB
    """A partition that holds this much is written to its file as one batch."""
    buffer_bytes: int = 64 * MIB
    """Bytes held over all partitions; beyond, the largest partition is written first."""
    roll_bytes: int = ROLL_BYTES
    """Size at which a segment file is closed and the next begun."""

    def __post_init__(self) -> None:
        """Check all settings at once."""
        problems = [
            f"{name} must be an integer of at least {minimum}, not {value!r}"
            for name, minimum, value in (
                ("linger_ms", 0, self.linger_ms),
                ("batch_bytes", 1, self.batch_bytes),
                ("buffer_bytes", 1, self.buffer_bytes),
                ("roll_bytes", 1, self.roll_bytes),
            )
            if type(value) is not int or value < minimum
        ]
        if problems:
            raise InvalidInputError(problems, kind="invalid-settings")


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """What a flush or commit put into the log."""

    entry: int | None
    """The entry; None when there was nothing to write."""
    timestamp_ms: int | None
    """Log time of the entry."""
    offsets: dict[tuple[str, int], int]
    """(topic, partition) -> first offset of what this entry appended there."""


NOTHING = CommitInfo(None, None, {})


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A commit whose answer is not final: the same intent is sent again, whatever happens in between."""

    call: str
    intent: Intent
    unclear: bool
    """Whether an attempt may have landed."""


class Producer:
    """Writes to the topics of a log.

    Without a transactional id, sends are idempotent: each flush is appended exactly once, however often it has to be
    repeated within this producer's life. With one, everything between ``begin`` and ``commit`` becomes visible in one
    atomic step, over any number of topics and partitions, and opening a producer fences older instances of the id.

    The constructor does no IO; ``init()`` or the ``with`` statement does. Safe for use by many threads; one
    transaction at a time.

    Parameters
    ----------
    transactional_id : str, optional
        1 to 249 UTF-8 bytes; the same over restarts of the same task.
    enable_idempotence : bool
        False appends without an identity: after a crash of this process nobody can tell repeats from new data.
    buffer : {"auto", "inline"}
        "auto": nothing is in the log before the commit. "inline": Kafka's way, each flush is appended at once.
    linger_ms, batch_bytes, buffer_bytes, roll_bytes : int
        See :class:`ProducerSettings`.
    """

    def __init__(
        self,
        log: TxnLog,
        transactional_id: str | None = None,
        *,
        enable_idempotence: bool = True,
        buffer: Literal["auto", "inline"] = "auto",
        **settings: int,
    ) -> None:
        problems = []
        if transactional_id is not None:
            keys.check_transactional_id(transactional_id)
            if not enable_idempotence:
                problems.append("a transactional producer is always idempotent; leave enable_idempotence on")
        if buffer not in ("auto", "inline"):
            problems.append(f"buffer must be 'auto' or 'inline', not {buffer!r}")
        if buffer == "inline" and transactional_id is None:
            problems.append("buffer='inline' is about transactions: it needs a transactional id")
        unknown = sorted(set(settings) - set(ProducerSettings.__dataclass_fields__))
        problems += [f"there is no setting {name!r}" for name in unknown]
        if problems:
            raise InvalidInputError(problems, kind="invalid-settings")
        self.log = log
        self.transactional_id = transactional_id
        self.settings = ProducerSettings(**settings)
        self._inline = buffer == "inline"
        self._idempotent = enable_idempotence
        self._lock = threading.RLock()
        self._state = ClientState.UNINITIALISED
        self._producer_id = -1
        self._epoch = 0
        self._in_log = False  # whether this epoch may have something in the log
        self._attempt: _Attempt | None = None
        self._pending = Pending(
            log.store,
            log.committer.ids,
            batch_bytes=self.settings.batch_bytes,
            buffer_bytes=self.settings.buffer_bytes,
            roll_bytes=self.settings.roll_bytes,
        )
        self._linger = Linger(self.settings.linger_ms, self._flush_held)

    @property
    def state(self) -> ClientState:
        """Where this instance stands."""
        return self._state

    @property
    def producer_id(self) -> int:
        """The id that the log knows this producer by; -1 before ``init`` and without idempotence."""
        return self._producer_id

    @property
    def epoch(self) -> int:
        """The epoch of the current transaction, or of the next."""
        return self._epoch

    @property
    def _is_transactional(self) -> bool:
        return self.transactional_id is not None

    def _check(self, call: str) -> None:
        check_call(call, self._state, is_transactional=self._is_transactional)
        if self._state is ClientState.UNKNOWN and call != "abort":
            attempt = self._attempt
            if attempt is None or attempt.call != call:
                raise InvalidTransactionStateError(
                    f"{call}() is not possible now",
                    kind="producer-unknown-outcome",
                    hint="the outcome of the last call is unknown; repeat that call, abort() or close()",
                    last_call=attempt.call if attempt else None,
                )

    def init(self) -> Self:
        """Open the producer: get its identity, fence older instances, abort what they left open.

        Requests: 1 entry with a transactional id; without, 1 entry per process and 1,000 producers.
        """
        with self._lock:
            self._check("init")
            if self.transactional_id is not None:
                result = self._send_intent("init", OpenProducer(self.transactional_id))
                opened = next((op for op in result.operations if isinstance(op, InitProducer)), None)
                if opened is None:
                    raise InternalError("opening a producer gave no identity", entry=result.entry)
                self._producer_id, self._epoch = opened.producer_id, opened.epoch
            elif self._idempotent:
                self._producer_id = allocate_producer_id(self.log)
            self._state = ClientState.READY
        return self

    def begin(self) -> None:
        """Begin a transaction. Requests: none."""
        with self._lock:
            self._check("begin")
            self._state = ClientState.IN_TRANSACTION

    def transaction(self) -> Transaction:
        """Return a context manager: begins, commits on a normal exit, aborts on an exception."""
        return Transaction(self)

    def send(self, topic: str, data: Any, partition: int | None = None) -> None:
        """Hand over records of one topic; they are buffered, and written as buffers fill.

        Parameters
        ----------
        data : pyarrow.Table, pyarrow.RecordBatch, list of dict, or pandas.DataFrame
            With exactly the topic's columns.
        partition : int, optional
            For all the records; else by the topic's key columns, else by turns.

        Raises
        ------
        NotFoundError, InvalidInputError
            Unknown topic or partition; every difference from the schema. Nothing of this send is kept.
        StorageError
            Writing to a file failed. A transaction can then only be aborted.
        """
        with self._lock:
            self._check("send")
            self._linger.raise_failure()
            found = self._topic(topic)
            table = conform(data, found.schema.arrow_schema)
            if table.num_rows == 0:
                return
            self._pending.add(found, table, partition)
            self._stream()
            if not self._is_transactional:
                if self._pending.has_full_batch():
                    self.flush()
                else:
                    self._linger.arm()
            elif self._inline and self._pending.has_full_batch():
                self.flush()

    def _topic(self, name: str) -> TopicState:
        try:
            return self.log.state.topic(name)
        except NotFoundError:  # it may have been created since this process last looked
            return self.log.refresh().topic(name)

    def _stream(self) -> None:
        try:
            self._pending.stream_full(self.log.state.entry)
        except BaseException:
            self._lose()
            raise

    def _lose(self) -> None:
        """Rows that were buffered are gone: a transaction can only be aborted, a plain producer begins afresh."""
        self._pending.drop()
        if self._is_transactional:
            self._state = ClientState.ABORTABLE

    def flush(self) -> CommitInfo:
        """Write what is buffered.

        Without a transaction, and with ``buffer="inline"``, it is appended to the log: 1 PUT per topic and 1 entry.
        With ``buffer="auto"`` nothing is in the log before the commit, and this does nothing.
        """
        with self._lock:
            self._check("flush")
            self._linger.raise_failure()
            if self._is_transactional and not self._inline:
                return NOTHING
            return self._flush("flush")

    def _flush(self, call: str) -> CommitInfo:
        info = NOTHING
        if self._attempt is not None:
            info = self._finish_append(call)
        if not self._pending:
            return info
        write = Write(self._reference(), self._take())
        self._attempt = _Attempt(call, self.log.committer.intend(write), unclear=False)
        return self._finish_append(call)

    def _finish_append(self, call: str) -> CommitInfo:
        """Send the append that waits for its answer (again)."""
        self._in_log = True
        result = self._send_intent(call)
        self._state = ClientState.IN_TRANSACTION if self._is_transactional else ClientState.READY
        return self._info(result)

    def _take(self) -> tuple[TopicAppend, ...]:
        try:
            return self._pending.take(self.log.state.entry, sequenced=self._producer_id >= 0)
        except BaseException:
            self._lose()
            raise

    def _reference(self) -> ProducerRef | None:
        if self._producer_id < 0:
            return None
        return ProducerRef(self._producer_id, self._epoch, self.transactional_id)

    def commit(self) -> CommitInfo:
        """End the transaction: everything sent becomes visible, in every topic and partition, in one step.

        Requests: 1 PUT per topic that has something to write, and 1 entry; none if nothing was sent.

        Raises
        ------
        CommitStateUnknownError
            Nobody can tell whether it landed: repeat ``commit()``, or ``abort()``.
        ProducerFencedError
            A newer instance has aborted the transaction.
        ConflictError, StorageError
            It did not land: ``commit()`` may be repeated.
        """
        with self._lock:
            self._check("commit")
            if self._attempt is not None and self._attempt.call == "flush":
                # A flush that failed without an unclear answer: its rows go first, under their own sequences.
                self._finish_append("flush")
            if self._attempt is None:
                if not self._pending and not self._in_log:
                    self._state = ClientState.READY
                    return NOTHING
                write = Write(self._reference(), self._take() if self._pending else (), Outcome.COMMIT)
                self._attempt = _Attempt("commit", self.log.committer.intend(write), unclear=False)
            result = self._send_intent("commit")
            self._next_epoch()
            return self._info(result)

    def abort(self) -> None:
        """End the transaction: nothing that was sent becomes visible to read_committed.

        Requests: none while nothing of it is in the log; else 1 entry.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``transaction-committed``: a commit whose outcome was unknown had landed.
        CommitStateUnknownError
            Repeat ``abort()``.
        """
        with self._lock:
            self._check("abort")
            self._pending.drop()
            if not self._in_log and not (self._attempt is not None and self._attempt.unclear):
                # Nothing is in the log, and nothing on its way can get there: the epoch is still unused.
                self._attempt = None
                self._pending.restart_sequences()
                self._state = ClientState.READY
                return
            if self._attempt is None or self._attempt.call != "abort":
                unclear = self._attempt is not None and self._attempt.unclear
                write = Write(self._reference(), (), Outcome.ABORT)
                self._attempt = _Attempt("abort", self.log.committer.intend(write), unclear=unclear)
            try:
                self._send_intent("abort")
            except InvalidTransactionStateError as error:
                if error.kind == "transaction-committed":
                    self._next_epoch()
                raise
            self._next_epoch()

    def _next_epoch(self) -> None:
        """Follow what every end does in the log."""
        self._epoch += 1
        self._attempt = None
        self._in_log = False
        self._pending.restart_sequences()
        self._state = ClientState.READY

    def _send_intent(self, call: str, action: OpenProducer | None = None) -> CommitResult:
        """Commit the waiting attempt's intent, or that of ``action``; keep it for a repeat unless it is answered."""
        attempt = self._attempt
        if attempt is None:
            if action is None:
                raise InternalError("nothing to commit", call=call)
            attempt = self._attempt = _Attempt(call, self.log.committer.intend(action), unclear=False)
        try:
            result = self.log.committer.commit(attempt.intent)
        except CommitStateUnknownError:
            self._attempt = _Attempt(attempt.call, attempt.intent, unclear=True)
            if call != "init":
                self._state = ClientState.UNKNOWN
            raise
        except ProducerFencedError:
            self._attempt = None
            self._pending.drop()
            self._state = ClientState.FENCED
            raise
        self._attempt = None
        return result

    def _info(self, result: CommitResult) -> CommitInfo:
        topics = self.log.state.topics
        offsets = {_named(topics, key): offset for key, offset in result.offsets.items()}
        return CommitInfo(result.entry, result.timestamp_ms, offsets)

    def _flush_held(self) -> None:
        """Flush from the linger thread; whoever calls next gets the error."""
        with self._lock:
            if self._state is ClientState.READY and self._pending:
                self._flush("flush")

    def close(self) -> None:
        """Flush a plain producer, abort an open transaction, and refuse every further call. Idempotent.

        An error leaves the producer open, so that closing can be repeated.
        """
        with self._lock:
            if self._state is ClientState.CLOSED:
                return
            self._linger.stop()
            if self._is_transactional:
                if self._state in (ClientState.IN_TRANSACTION, ClientState.ABORTABLE, ClientState.UNKNOWN):
                    self.abort()
            elif self._state in (ClientState.READY, ClientState.UNKNOWN):
                self._flush("flush")
            self._pending.drop()
            self._state = ClientState.CLOSED

    def __enter__(self) -> Self:
        """Open the producer."""
        return self.init()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the producer; after an exception without hiding it."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except TxnLogError as second:
            error.add_note(f"closing the producer failed too: {second}")


def _named(topics: dict[str, TopicState], key: TopicPartition) -> tuple[str, int]:
    return topics[key.topic_id].name, key.partition
