"""Producer: sends records to topics, in transactions or without, each record exactly once.

Every write is an intent with a fixed identity (:mod:`txnformat.intents`): a call whose outcome is unknown is
repeated with the same intent, so nothing is appended twice. What the log refuses for good (a newer instance of the
transactional id, numbers that do not fit) ends the producer.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from txnformat.committer import operation_of
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    ProducerFencedError,
    SequenceError,
    TxnLogError,
)
from txnformat.intents import Action, CommitResult, Intent, OpenProducer, ProducerRef, Write
from txnformat.log import TxnLog
from txnformat.operations import InitProducer
from txnformat.state import TopicState
from txnformat.types import Outcome
from writers.chunks import LargeValue, Value, large_value
from writers.linger import Linger
from writers.lookup import commit_info, now_of, topic_named
from writers.ownership import OwnLock
from writers.producer_ids import next_producer_id
from writers.rows import kafka_record
from writers.settings import MIB, Buffer, ProducerSettings
from writers.staging import Staging
from writers.transaction import Call, CommitInfo, ProducerStatus, Transaction, Unsettled, check_call
from writers.upload import ROLL_BYTES

__all__ = ["Producer"]

logger = logging.getLogger("txnlog")

DISTRIBUTIONS_MAX = 10
"""How often records are distributed anew when their topic gets more partitions just before each commit."""

_NOTHING = CommitInfo()

_UNKNOWN_IDENTITY = frozenset({"unknown-transactional-id", "unknown-epoch"})
"""Kinds of errors that no call of this producer can cure: only init() gives an identity, and only once."""


class Producer:
    """Sends records. Safe for use by many threads; every call waits for the one before it.

    A process that was forked since it was made cannot use it: its calls raise InvalidTransactionStateError of kind
    ``forked``, and ``close`` does nothing there.

    Parameters
    ----------
    log : TxnLog
        Where to.
    transactional_id : str, optional
        Stable name that fences older instances and allows transactions. Without one, each flush is one atomic step.
    enable_idempotence : bool
        Number the records, so that a repeat is never appended twice. Transactions need it.
    buffer : str
        "auto": the records of an open transaction are in files that the log does not know, and the commit names
        them in one entry. "inline": every flush appends them with offsets, and a marker decides them.
    linger_ms, batch_bytes, buffer_bytes, roll_bytes, chunk_bytes : int
        See :class:`writers.settings.ProducerSettings`.

    Notes
    -----
    The constructor does no input or output; :meth:`init`, or entering a ``with`` statement, does.
    """

    def __init__(
        self,
        log: TxnLog,
        transactional_id: str | None = None,
        *,
        enable_idempotence: bool = True,
        buffer: str = Buffer.AUTO,
        linger_ms: int = 5,
        batch_bytes: int = 8 * MIB,
        buffer_bytes: int = 64 * MIB,
        roll_bytes: int = ROLL_BYTES,
        chunk_bytes: int = 8 * MIB,
    ) -> None:
        self.settings = ProducerSettings(
            transactional_id=transactional_id,
            enable_idempotence=enable_idempotence,
            buffer=buffer,  # type: ignore[arg-type]  # checked and converted there
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            roll_bytes=roll_bytes,
            chunk_bytes=chunk_bytes,
        )
        if not isinstance(log, TxnLog):
            raise InvalidInputError(
                f"{log!r:.80} is not a log",
                kind="not-a-log",
                hint="open it first: Producer(TxnLog.open(path), …)",
            )
        self._log = log
        self._lock = OwnLock("producer")
        self._status = ProducerStatus.UNINITIALISED
        self._ref: ProducerRef | None = None
        self._unsettled: Unsettled | None = None
        self._fatal: TxnLogError | None = None
        self._is_torn = False  # whether the open transaction holds a large value's beginning alone
        self._appended = False  # whether the log holds, or may hold, something of the open transaction
        self._linger = Linger(linger_ms, self._flush_held)
        self._streams = self.settings.is_transactional and self.settings.buffer is Buffer.AUTO
        self._staging = Staging(log.store, log.committer.ids, self.settings, lambda: log.state.entry)

    def __repr__(self) -> str:
        name = self.settings.transactional_id
        return f"{type(self).__name__}({self._log.url!r}, transactional_id={name!r}, status={self._status.value!r})"

    @property
    def status(self) -> ProducerStatus:
        """Where the producer stands."""
        return self._status

    @property
    def producer_id(self) -> int | None:
        """Its id in the log; None before ``init``, and without idempotence."""
        return None if self._ref is None else self._ref.producer_id

    @property
    def epoch(self) -> int | None:
        """The epoch of the open or next transaction; None as for ``producer_id``."""
        return None if self._ref is None else self._ref.epoch

    # --- the calls ---------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Get an identity, and with a transactional id fence older instances and abort what they left open.

        Requests: 1 entry; without a transactional id 1 per process and 1,000 producers.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``already-initialised``.
        """
        with self._lock:
            self._check(Call.INIT)
            if self.settings.transactional_id is not None:
                result = self._commit(Call.INIT, OpenProducer(self.settings.transactional_id))
                opened = operation_of(result, InitProducer)
                if not isinstance(opened, InitProducer):
                    raise InternalError("another operation than was asked for", entry=result.entry)
                self._ref = ProducerRef(opened.producer_id, opened.epoch, opened.transactional_id)
            elif self.settings.enable_idempotence:
                self._ref = ProducerRef(next_producer_id(self._log), 0)
            self._status = ProducerStatus.READY

    def begin(self) -> None:
        """Begin a transaction. Requests: none."""
        with self._lock:
            self._check(Call.BEGIN)
            self._is_torn = False
            self._status = ProducerStatus.IN_TRANSACTION

    def transaction(self) -> Transaction:
        """Return a transaction for a ``with`` statement: commits on exit, aborts on an exception."""
        return Transaction(self)

    def send(
        self,
        topic: str,
        data: Any = None,
        partition: int | None = None,
        *,
        key: bytes | str | None = None,
        value: Value = None,
        headers: Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None = None,
        timestamp: datetime.datetime | None = None,
    ) -> None:
        """Send records to a topic.

        They are buffered; when the buffer is full, what it holds is written *before* these are taken in. So a send
        that raises has kept nothing of its own, and the transaction stays usable.

        Parameters
        ----------
        data : pyarrow Table or RecordBatch, list of dicts, pandas or polars DataFrame
            The topic's columns, in any order. Do not change the memory of Arrow data before it is flushed.
        partition : int, optional
            Else by the topic's key columns (Kafka's murmur2), else the whole batch to the next partition in turn.
        key, value, headers, timestamp : optional
            In place of ``data``: one record of a topic with the schema ``"kafka"``. The timestamp is now by default.
            A value larger than ``chunk_bytes`` is sent as several records; as a binary file it is read as it is sent.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic`` or ``unknown-partition``.
        InvalidInputError
            Kind ``schema-mismatch``: every difference.
        InvalidTransactionStateError
            Kind ``chunks-need-transaction``.
        StorageError, CommitStateUnknownError
            Of the flush that made room. In the middle of a large value, as whatever its file raises, it leaves a
            transaction that can only be aborted.
        """
        with self._lock:
            self._check(Call.SEND)
            if self._is_torn:  # by a send whose outcome was unknown: repeat what it flushed, and no more
                self._make_room(0)
                self._check(Call.SEND)
            found = topic_named(self._log, topic)
            if data is None:
                stamp = timestamp or now_of(self._log)
                data = [kafka_record(found.schema, key, value, headers, stamp)]
                data = large_value(data[0], self.settings) or data
            elif any(given is not None for given in (key, value, headers, timestamp)):
                raise InvalidInputError("data and key=, value=, headers= or timestamp= exclude each other")
            if isinstance(data, LargeValue):
                self._send_large(found, data, partition)
            else:
                self._take(found, data, partition)
            if not self.settings.is_transactional:
                self._linger.arm()

    def flush(self) -> CommitInfo:
        """Write what is buffered.

        In a transaction with ``buffer="auto"`` it goes to files that nobody sees before the commit; else it is
        appended to the log, in one entry.

        Raises
        ------
        StorageError
            Nothing was appended; the call may be repeated (or, in status ABORT_REQUIRED, the transaction aborted).
        CommitStateUnknownError
            Repeat the call, abort, or close.
        """
        with self._lock:
            self._check(Call.FLUSH)
            if self._streams:
                self._guarded(self._staging.stream_all)
                return _NOTHING
            return self._flush(Call.FLUSH)

    def commit(self) -> CommitInfo:
        """Commit the transaction. Requests: 1 PUT per file and 1 entry; none when nothing was sent.

        Raises
        ------
        ProducerFencedError
            A newer instance has opened; nothing of the transaction is committed.
        StorageError, ConflictError
            Nothing was committed; commit again, or abort.
        CommitStateUnknownError
            Repeat the call, abort, or close.
        """
        with self._lock:
            self._check(Call.COMMIT)
            if not self._staging and not self._appended and self._unsettled is None:
                self._status = ProducerStatus.READY
                return _NOTHING
            result = self._write(Call.COMMIT, Outcome.COMMIT)
            self._ended()
            return commit_info(self._log, result)

    def abort(self) -> None:
        """Abort the transaction. Requests: 1 entry when the log holds, or may hold, something of it; else none.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``transaction-committed``: a commit whose outcome was unknown had landed.
        """
        with self._lock:
            self._check(Call.ABORT)
            if self._unsettled is None:
                self._staging.discard()
                # Should the abort fail, no later commit may leave out what was just dropped.
                self._status = ProducerStatus.ABORT_REQUIRED if self._appended else ProducerStatus.READY
                if not self._appended:
                    return
            try:
                self._commit(Call.ABORT, Write(self._identity(), end=Outcome.ABORT))
            except InvalidTransactionStateError as error:
                if error.kind == "transaction-committed":
                    self._ended()
                raise
            self._ended()

    def close(self) -> None:
        """Abort an open transaction; without transactions flush. Idempotent once it has succeeded.

        Raises
        ------
        TxnLogError
            The abort or the flush failed; close again.
        InvalidTransactionStateError
            Kind ``transaction-committed``, as for :meth:`abort`; the producer is closed.
        """
        if self._lock.is_foreign:
            return
        with self._lock:
            try:
                self._settle()
            except InvalidTransactionStateError as error:
                if error.kind == "transaction-committed":
                    self._status = ProducerStatus.CLOSED
                raise
            except ProducerFencedError:
                pass  # the newer instance has aborted the transaction
            self._linger.stop()
            self._staging.discard()
            self._unsettled = None
            self._status = ProducerStatus.CLOSED

    def __enter__(self) -> Self:
        if self._status is ProducerStatus.UNINITIALISED:
            self.init()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TxnLogError as failure:
            if error is None:
                raise
            # What went wrong first is what the caller must see.
            error.add_note(f"the producer could not be closed: {failure}")

    # --- how they are done -------------------------------------------------------------------------------------------

    def _check(self, call: Call) -> None:
        if self._fatal is not None:
            raise self._fatal.with_traceback(None)
        unknown = None if self._unsettled is None else self._unsettled.call
        check_call(call, self._status, is_transactional=self.settings.is_transactional, unknown=unknown)

    def _identity(self) -> ProducerRef:
        if self._ref is None:
            raise InternalError("a transactional producer without an identity")
        return self._ref

    def _take(self, topic: TopicState, data: Any, partition: int | None) -> None:
        prepared = self._staging.buffered.prepare(topic, data, partition)
        self._make_room(prepared.size)
        self._staging.buffered.accept(prepared)

    def _send_large(self, topic: TopicState, value: LargeValue, partition: int | None) -> None:
        """Send a value in chunks, to one partition even if the topic grows meanwhile: all, or abort is required."""
        if partition is None:
            partition = self._staging.buffered.choose_partition(topic, value.record)
        try:
            for chunk in value.chunks(self._log.committer.ids.new()):
                self._take(topic, [chunk], partition)
                self._is_torn = True
            self._is_torn = False
        finally:
            if self._is_torn and self._status is ProducerStatus.IN_TRANSACTION:
                self._status = ProducerStatus.ABORT_REQUIRED

    def _make_room(self, coming: int) -> None:
        """Write what is buffered when it is too much."""
        if self._unsettled is not None:
            self._flush(Call.SEND)
        elif self._staging and self._staging.is_over(coming):
            if self._streams:
                self._guarded(lambda: self._staging.stream(coming))
            else:
                self._flush(Call.SEND)

    def _flush_held(self) -> None:
        """Flush what has lingered, in the background. What fails stays held: the next call tries again, and says so."""
        with self._lock:
            if self._status is not ProducerStatus.READY or self._fatal is not None:
                return
            try:
                self._flush(Call.SEND)
            except TxnLogError as error:
                logger.warning("records are held back: %s", error)

    def _guarded(self, upload: Callable[[], None]) -> None:
        """Upload; when earlier records went down with a file, the transaction can only be aborted."""
        try:
            upload()
        finally:
            if self._staging.is_broken and self._status is ProducerStatus.IN_TRANSACTION:
                self._status = ProducerStatus.ABORT_REQUIRED

    def _flush(self, call: Call) -> CommitInfo:
        """Append what is buffered, in one entry."""
        if not self._staging:
            return _NOTHING
        return commit_info(self._log, self._write(call, None))

    def _write(self, call: Call, end: Outcome | None) -> CommitResult:
        """Upload what is buffered, and commit it and perhaps the transaction's end; or repeat just that."""
        for tries_left in reversed(range(DISTRIBUTIONS_MAX)):
            write = self._unsettled.intent.action if self._unsettled is not None else self._upload(end)
            try:
                result = self._commit(call, write)
            except ConflictError as error:
                if error.kind != "partition-count-changed" or not tries_left:
                    raise
                continue  # nothing of it is in the log, whose state now has the topic as it has become
            if isinstance(write, Write):
                self._staging.landed(write.appends)
            self._appended = True
            return result
        raise InternalError("a write that was neither done nor refused")

    def _upload(self, end: Outcome | None) -> Write:
        """Upload what is buffered, for the topics as they are now."""
        topics = self._log.state.topics
        self._staging.adopt(topics)
        self._guarded(self._staging.finish)
        self._staging.redistribute(topics)
        return Write(self._ref, self._staging.appends(numbered=self._ref is not None), end)

    def _commit(self, call: Call, action: Action) -> CommitResult:
        """Commit an action, or repeat the intent of the same call whose outcome is unknown.

        An abort is always a new intent: the log knows a repeated end by its epoch.
        """
        unsettled = self._unsettled
        intent = unsettled.intent if unsettled is not None and call is not Call.ABORT else None
        intent = intent or self._log.committer.intend(action)
        try:
            result = self._log.committer.commit(intent)
        except CommitStateUnknownError:
            self._unknown(call, intent)
            raise
        except TxnLogError as error:
            self._refused(call, error)
            raise
        except BaseException:  # interrupted: the request may be on its way
            self._unknown(call, intent)
            raise
        self._known()
        return result

    def _unknown(self, call: Call, intent: Intent) -> None:
        if self._unsettled is None or call is Call.ABORT:
            self._unsettled = Unsettled(call, intent)
        self._status = ProducerStatus.UNKNOWN_OUTCOME

    def _refused(self, call: Call, error: TxnLogError) -> None:
        """Note an error after which it is known that this call's own attempts are not in the log."""
        if isinstance(error, ProducerFencedError | SequenceError) or error.kind in _UNKNOWN_IDENTITY:
            self._fatal = error
            self._staging.discard()
            self._unsettled = None
            self._status = ProducerStatus.FENCED
        elif isinstance(error, ConflictError) and call is not Call.ABORT:
            # Every slot is known to be somebody else's, so an earlier attempt is not there either. An abort has
            # attempts of its own: what it was to settle stays open.
            self._known()

    def _known(self) -> None:
        """Leave the unknown: the log has answered."""
        if self._unsettled is None:
            return
        if self._ref is None and self.settings.is_transactional:
            self._status = ProducerStatus.UNINITIALISED
        elif self.settings.is_transactional:
            self._status = ProducerStatus.ABORT_REQUIRED if self._is_torn else ProducerStatus.IN_TRANSACTION
        else:
            self._status = ProducerStatus.READY
        self._unsettled = None

    def _ended(self) -> None:
        """Go on to the next epoch: every end that is in the log begins one."""
        ref = self._identity()
        self._ref = replace(ref, epoch=ref.epoch + 1)
        self._staging.discard()
        self._staging.restart_sequences()
        self._appended = False
        self._unsettled = None
        self._status = ProducerStatus.READY

    def _settle(self) -> None:
        """Leave nothing open: what close does before the producer is closed."""
        if self._status in (ProducerStatus.CLOSED, ProducerStatus.FENCED, ProducerStatus.UNINITIALISED):
            return
        if self._ref is None and self.settings.is_transactional:
            return  # an init whose outcome is unknown: an identity that is never used does no harm
        if not self.settings.is_transactional:
            self._flush(Call.FLUSH if self._unsettled is None else self._unsettled.call)
        elif self._status is not ProducerStatus.READY:
            self.abort()
