"""Producer: sends records to topics, in transactions or without, each record exactly once.

Users call this class: it checks and buffers records. :mod:`writers.session` talks to the log.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from txnformat.admin.prepared import PreparedTransaction
from txnformat.consumers.group_offsets import GroupMetadata, Offsets, OffsetSource, group_offsets, offsets_of
from txnformat.consumers.record_ids import Records
from txnformat.core.intents import CommitResult
from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS
from txnformat.core.state import TopicState
from txnformat.core.topics.cleanup import keeps_latest
from txnformat.errors import (
    InvalidInputError,
    InvalidTransactionStateError,
    ProducerFencedError,
    TxnLogError,
    repr_of,
)
from txnformat.log import TxnLog
from txnformat.lookup import changed, now_of, topic_named
from writers.accumulator import Inbox, Prepared, check_partition
from writers.calls import Calls, Interrupted
from writers.chunks import LargeValue, Value, large_value
from writers.inputs import AckSource
from writers.linger import Linger
from writers.ownership import OwnLock
from writers.rows import Headers, kafka_record, kafka_rows
from writers.session import Session
from writers.settings import EMBED_BYTES, MIB, Buffer, ProducerSettings
from writers.staging import Staging
from writers.standing import had_landed
from writers.transaction import Call, CommitInfo, ProducerStatus, Transaction
from writers.upload import ROLL_BYTES
from writers.whole_files import as_segment_file, open_file

__all__ = ["Producer"]

logger = logging.getLogger("txnlog")

T = TypeVar("T")

_CLOSE = "close"

_TAKES = frozenset({Call.SEND, Call.SEND_OFFSETS, Call.ACKNOWLEDGE, Call.DELEGATE, Call.TAKE_BACK})
"""Calls that take something: when one was interrupted, the same call again would take it twice."""


class Producer:
    """Sends records. Safe for use by many threads; every call waits for the one before it.

    A process that was forked since it was made cannot use it: its calls raise InvalidTransactionStateError of
    kind ``forked``, and ``close`` does nothing there.

    Parameters
    ----------
    log : TxnLog
        Where to.
    transactional_id : str, optional
        Stable name that fences older instances and allows transactions. Without one, each flush is one atomic
        step.
    enable_idempotence : bool
        Number the records, so that a repeat is never appended twice. Transactions need it.
    buffer : str
        "auto": the records of an open transaction are in files that the log does not know, and the commit
        names them in one entry; a transaction that grows large or old goes on as "deferred". "deferred":
        every flush stages them, and they get offsets with the commit. "inline": every flush appends them with
        offsets, and a marker decides them. Which when: docs/open-transactions.md.
    transaction_timeout_ms, deferred_timeout_ms, linger_ms, batch_bytes, buffer_bytes, roll_bytes,
    chunk_bytes, embed_bytes : int
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
        transaction_timeout_ms: int = TIMEOUT_MS,
        deferred_timeout_ms: int = DEFERRED_TIMEOUT_MS,
        linger_ms: int = 5,
        batch_bytes: int = 8 * MIB,
        buffer_bytes: int = 64 * MIB,
        roll_bytes: int = ROLL_BYTES,
        chunk_bytes: int = 8 * MIB,
        embed_bytes: int = EMBED_BYTES,
    ) -> None:
        self.settings = ProducerSettings(
            transactional_id=transactional_id,
            enable_idempotence=enable_idempotence,
            buffer=buffer,  # type: ignore[arg-type]  # checked and converted there
            transaction_timeout_ms=transaction_timeout_ms,
            deferred_timeout_ms=deferred_timeout_ms,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            roll_bytes=roll_bytes,
            chunk_bytes=chunk_bytes,
            embed_bytes=embed_bytes,
        )
        if not isinstance(log, TxnLog):
            raise InvalidInputError(
                f"{repr_of(log, 80)} is not a log",
                kind="not-a-log",
                hint="open it first: Producer(TxnLog.open(path), …)",
            )
        self._log = log
        self._lock = OwnLock("producer")
        self._calls = Calls(self._lock, _TAKES)
        self._linger = Linger(linger_ms, self._flush_held)
        committer = log.committer
        self._staging = Staging(
            log.store, committer.ids, self.settings, committer.born, committer.clock, lambda: log.embeds
        )
        self._session = Session(log, self.settings, self._staging)

    def __repr__(self) -> str:
        name = self.settings.transactional_id
        return (
            f"{type(self).__name__}({self._log.url!r}, transactional_id={name!r}, "
            f"status={self.status.value!r})"
        )

    def __reduce__(self) -> Any:
        # Pickle would say that a lock inside cannot be pickled, and copy would share all of it.
        raise InvalidInputError(
            f"{self!r:.200} cannot be pickled or copied: a producer works only in the process that made it",
            kind="not-picklable",
            hint="make a producer in the process or Spark task that sends; give that process the path of "
            "the log",
        )

    @property
    def status(self) -> ProducerStatus:
        """Where the producer stands; UNKNOWN_OUTCOME when this thread was interrupted in a call and has not
        settled it.
        """
        return ProducerStatus.UNKNOWN_OUTCOME if self._calls.is_interrupted else self._session.status

    @property
    def producer_id(self) -> int | None:
        """Its id in the log; None before ``init``, and without idempotence."""
        ref = self._session.at.ref
        return None if ref is None else ref.producer_id

    @property
    def epoch(self) -> int | None:
        """The epoch of the open or next transaction; None as for ``producer_id``."""
        ref = self._session.at.ref
        return None if ref is None else ref.epoch

    @property
    def prepared(self) -> PreparedTransaction | None:
        """In status PREPARED: the transaction whose outcome is decided elsewhere; an earlier instance may
        have left it.
        """
        return self._session.at.prepared

    # --- the calls ------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Get an identity, and with a transactional id fence older instances and abort what they left open.

        A transaction that an older instance has prepared stays prepared: then the status is PREPARED,
        :attr:`prepared` names it, and no instance is fenced before it has ended.

        Requests: 1 entry; without a transactional id 1 per process and 1,000 producers; none when one is
        prepared.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``already-initialised``.
        InvalidInputError
            Kind ``invalid-transaction-timeout``: the timeout is longer than the log allows.
        """
        self._do(Call.INIT, self._session.open)

    def begin(self) -> None:
        """Begin a transaction. Requests: none."""
        self._do(Call.BEGIN, self._session.begin)

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
        headers: Headers | None = None,
        timestamp: datetime.datetime | None = None,
    ) -> None:
        """Send records to a topic.

        They are buffered; when the buffer is full, what it holds is written *before* these are taken in. So a
        send that raises has kept nothing of its own, and the transaction stays usable. Records that do not
        fit the topic cost one request: another client may have changed it.

        Parameters
        ----------
        data : pyarrow Table or RecordBatch, list of dicts, pandas or polars DataFrame
            The topic's columns, in any order. Do not change the memory of Arrow data before it is flushed.
            Dicts for a topic with the schema ``"kafka"`` may leave out key, headers and timestamp (which is
            now then).
        partition : int, optional
            Else by the topic's key columns (Kafka's murmur2). Records without a key go to one partition until
            its batch is full or written, then to the next; the first one is random.
        key, value, headers, timestamp : optional
            In place of ``data``: one record of a topic with the schema ``"kafka"``; text is stored as UTF-8,
            no value is a null (Kafka's tombstone). Headers: a mapping, (name, value) pairs, or what a reader
            returned. The timestamp is now by default; one without a time zone is in UTC. A value larger than
            ``chunk_bytes`` is sent as several records; as a binary file it is read as it is sent, in a thread
            of the library: it must not need a lock that the caller holds.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic`` or ``unknown-partition``.
        InvalidInputError
            Kind ``schema-mismatch``: every difference.
        InvalidTransactionStateError
            Kind ``chunks-need-transaction``.
        StorageError, CommitStateUnknownError
            Of the flush that made room, or of the look at a topic that the records do not fit. In the middle
            of a large value, as whatever its file raises, it leaves a transaction that can only be aborted.
        TransactionTimedOutError
            As for :meth:`flush`.
        """
        self._settle_interrupted(Call.SEND)
        self._lock.check_own()
        self._session.check_unless_running(Call.SEND)
        if self._session.is_torn:  # by a send whose outcome was unknown: repeat what it flushed, and no more
            self._do(Call.SEND, self._repair)
        found = topic_named(self._log, topic, partition)
        if data is None:
            stamp = now_of(self._log) if timestamp is None else timestamp
            data = [kafka_record(found.schema, key, value, headers, stamp)]
            data = large_value(data[0], self.settings) or data
        elif any(given is not None for given in (key, value, headers, timestamp)):
            raise InvalidInputError(
                "send takes either data, or key=, value=, headers= and timestamp=, not both"
            )
        else:
            data = kafka_rows(found.schema, data, lambda: now_of(self._log))
        if isinstance(data, LargeValue):
            large = data
            # An exception of the caller's file is the caller's, and ends the call as an error of ours does.
            self._do(Call.SEND, lambda: self._session.take_large(found, large, partition), Exception)
        else:
            self._hand_over(self._prepared(found, data, partition))

    def send_file(
        self, topic: str, file: str | os.PathLike[str] | IO[bytes], partition: int | None = None
    ) -> bool:
        """Send the records of a Parquet file as they are: its bytes go into the log, and nothing is encoded
        anew.

        The file is read, and its values are checked, before any of it is sent; nothing that its footer says
        is passed on. Its records stand behind all that was sent before.

        Parameters
        ----------
        file
            Path of a local file, or a file opened for reading bytes that can seek. It must not change
            meanwhile. It is read several times; one that is not of this machine is copied to a temporary file
            first.
        partition : int, optional
            Else the one whose turn it is, as for records without a key.

        Returns
        -------
        bool
            False: nothing was sent, because the file is not as a file of the topic must be; read its rows,
            and :meth:`send` them. A file is taken as it is when

            * it has the topic's columns and no others, in their order, all of them optional, and of types
              that Parquet stores as the topic does;
            * it uses encodings and compressions that files of a log have (no delta encodings, no LZ4 or
              Brotli);
            * its row groups take at most 256 MiB in memory;
            * it is larger than ``embed_bytes``: smaller ones travel in the entry;
            * the topic has one partition or no key columns, or ``partition`` is given; and it does not keep
              the latest record of each key.

        Raises
        ------
        NotFoundError
            Kind ``unknown-topic`` or ``unknown-partition``.
        InvalidInputError
            Kind ``invalid-file``: it cannot be opened or read.
        StorageError, CommitStateUnknownError, TransactionTimedOutError
            As of :meth:`send`: nothing of the file was kept.
        """
        self._settle_interrupted(Call.SEND)
        self._lock.check_own()
        self._session.check_unless_running(Call.SEND)
        found = topic_named(self._log, topic, partition)
        if partition is not None:
            check_partition(found, partition)
        is_spread = partition is None and found.partitions > 1 and bool(found.schema.key_columns)
        if is_spread or keeps_latest(found.settings):
            return False
        with open_file(file) as opened:
            whole = as_segment_file(opened, found.schema)
            if whole is None or whole.size <= self.settings.embed_bytes:
                return False
            self._do(Call.SEND, lambda: self._session.take_whole(found, whole, partition), Exception)
        self._arm()
        return True

    def send_offsets(
        self,
        group: str | GroupMetadata | OffsetSource,
        offsets: Offsets | None = None,
        *,
        expected: Mapping[tuple[str, int], int | None] | None = None,
        positions: Mapping[str, str] | None = None,
        expected_positions: Mapping[str, str | None] | None = None,
    ) -> None:
        """Commit a group's positions with the transaction: input offsets and output commit atomically.

        They are written with the next flush, prepare or commit. Requests: none.

        Parameters
        ----------
        group : str, GroupMetadata or Consumer
            A consumer gives its positions, its generation, and the positions that it last knew as committed,
            which must still be so; then nothing else is to be given.
        offsets : mapping of (topic, partition) to int or OffsetAndMetadata, optional
            The *next* offset to read, at most the last stable offset.
        expected : mapping of (topic, partition) to int or None, optional
            What must be committed so far (None: nothing), and stay so until the transaction ends.
        positions, expected_positions : mapping of str to str, optional
            The same for what is not of this log, as texts.

        Raises
        ------
        InvalidInputError, NotFoundError, OffsetOutOfRangeError
            Nothing was taken; the transaction stays usable.
        ConflictError
            Kinds ``offsets-changed``, ``offsets-held``, ``offsets-pending``, ``member-fenced``: another
            client reads under this group; abort. The flush or the commit can still raise them, and kind
            ``offsets-hold-broken``.
        """
        self._session.check_unless_running(Call.SEND_OFFSETS)
        source: OffsetSource | None = None
        if isinstance(group, str | GroupMetadata):
            found = group_offsets(self._log, group, offsets, expected, positions, expected_positions)
        else:
            source = group
            found = offsets_of(group, self._log.log_id, offsets, expected, positions, expected_positions)
        self._do(Call.SEND_OFFSETS, lambda: self._session.send_offsets(found, source))

    def acknowledge(self, subscription: AckSource, records: Records) -> None:
        """Acknowledge records of a subscription with the transaction; its abort gives them back.

        They are written with the next flush, prepare or commit; from then on no other client can acknowledge
        them, or give them back. Requests: those of a look at the log.

        Parameters
        ----------
        subscription : Subscription
            Of the same log.
        records : RecordBatch, Table, dicts, or (partition, offset) pairs
            As for :meth:`txnformat.consumers.subscription.Subscription.acknowledge`.

        Raises
        ------
        AckConflictError
            Kinds ``ack-pending``, ``already-acknowledged``; abort. The flush or the commit can still raise
            it.
        NotFoundError, OffsetOutOfRangeError, InvalidInputError
            Nothing was taken; the transaction stays usable.
        """
        self._acknowledge(subscription, records, cumulative=False)

    def acknowledge_cumulative(self, subscription: AckSource, record: Records) -> None:
        """Acknowledge everything up to a record with the transaction; otherwise as :meth:`acknowledge`."""
        self._acknowledge(subscription, record, cumulative=True)

    def _acknowledge(self, subscription: AckSource, records: Records, *, cumulative: bool) -> None:
        self._session.check_unless_running(Call.ACKNOWLEDGE)
        if subscription.log_id != self._log.log_id:
            raise InvalidInputError(
                "the subscription belongs to another log, outside the reach of this log's transactions",
                kind="another-log",
                hint="use send_offsets to keep the position in the other log as a foreign position",
            )
        acks = subscription.acks(records, cumulative=cumulative)
        self._do(Call.ACKNOWLEDGE, lambda: self._session.acknowledge(acks, subscription))

    def flush(self) -> CommitInfo:
        """Write what is buffered.

        In a transaction with ``buffer="auto"`` it goes to files that no reader sees before the commit. With
        "deferred", and once "auto" has become so, it is staged: 1 PUT per file, 1 batch table and 1 entry.
        Else it is appended to the log, in 1 entry.

        Raises
        ------
        StorageError
            Nothing was appended; the call may be repeated (or, in status ABORT_REQUIRED, the transaction
            aborted).
        TransactionTimedOutError
            The transaction was open for too long, and another client has aborted it. Abort, and do the work
            again.
        UploadExpiredError
            The records were uploaded longer ago than the grace of a vacuum. Nothing was appended: send them
            again (in a transaction after an abort).
        CommitStateUnknownError
            Repeat the call, abort, or close.
        """
        return self._do(Call.FLUSH, lambda: self._info(self._session.flush_transaction()))

    def commit(self) -> CommitInfo:
        """Commit the transaction. Requests: 1 PUT per file and 1 entry; none when nothing was sent.

        With staged records, 1 batch table more when some are left to be staged. A transaction that an earlier
        instance has prepared is ended, and the producer then opened as by :meth:`init`.

        Raises
        ------
        TransactionTimedOutError
            As for :meth:`flush`.
        ProducerFencedError
            A newer instance has opened; nothing of the transaction is committed.
        StorageError, ConflictError
            Nothing was committed; commit again, or abort.
        CommitStateUnknownError
            Repeat the call, abort, or close.
        """
        return self._do(Call.COMMIT, lambda: self._info(self._session.commit()))

    def prepare(self) -> PreparedTransaction:
        """Write what is left and let the transaction wait for its outcome, in one entry: two-phase commit.

        From then on it can only be committed or aborted: by this producer, by the next instance of its
        transactional id, or by any client with ``str()`` of what this returns (``log.commit_prepared``,
        ``log.abort_prepared``). No time ends it, and ``close`` leaves it as it is.

        Requests: 1 PUT per file, 1 batch table and 1 entry, as far as records are left; with
        ``buffer="inline"`` no table.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``no-transaction``: nothing was sent.
        TransactionTimedOutError, ProducerFencedError, StorageError, CommitStateUnknownError
            As for :meth:`commit`.
        """
        return self._do(Call.PREPARE, self._session.prepare)

    def abort(self) -> None:
        """Abort the transaction.

        Requests: 1 entry when the log holds, or may hold, something of it; else none.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``transaction-committed``: a commit whose outcome was unknown had landed.
        """
        self._do(Call.ABORT, self._session.abort)

    def close(self) -> None:
        """Abort an open transaction; without transactions flush. Idempotent once it has succeeded.

        A prepared transaction stays prepared: its outcome is decided elsewhere.

        Raises
        ------
        TxnLogError
            The abort or the flush failed; close again.
        InvalidTransactionStateError
            Kind ``transaction-committed``, as for :meth:`abort`; the producer is closed.
        """
        if self._lock.is_foreign:
            return
        committed = self._settle_interrupted(_CLOSE)
        self._calls.run_or_repeat(_CLOSE, lambda: self._close(committed))

    def _close(self, committed: InvalidTransactionStateError | None) -> None:
        """Close, and then raise the outcome of a commit that was interrupted before."""
        session = self._session
        try:
            session.settle()
        except InvalidTransactionStateError as error:
            if error.kind in ("transaction-committed", "records-dropped"):
                self._linger.stop()
                session.close()
            raise
        except ProducerFencedError:
            pass  # the newer instance has aborted the transaction
        self._linger.stop()
        session.close()
        if committed is not None:
            raise committed

    def __enter__(self) -> Self:
        if self.status is ProducerStatus.UNINITIALISED:
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
            # The caller must see the first error.
            told = failure.kind == "transaction-committed"
            error.add_note(
                f"{'the producer is closed' if told else 'the producer could not be closed'}: {failure}"
            )

    # --- how they are done ----------------------------------------------------------------------------------

    def _do(
        self, call: Call, body: Callable[[], T], expected: type[Exception] = TxnLogError, name: str = ""
    ) -> T:
        """Do a call where no signal reaches it; a repeat of one that was interrupted gets the answer of that
        one.

        ``name``: of the call with what it was given, if that must be the same in a repeat.
        """
        self._settle_interrupted(name or call)
        return self._calls.run_or_repeat(name or call, lambda: self._session.perform(call, body, expected))

    def _settle_interrupted(self, call: str) -> InvalidTransactionStateError | None:
        """Settle the call in which this thread was interrupted last, unless ``call`` is its repeat.

        Returns the error that a close must raise. Raises InvalidTransactionStateError of kind
        ``transaction-committed``: it was a commit that has landed, and ``call`` is an abort; of kind
        ``call-interrupted``: repeat it first, or abort.
        """
        earlier = self._calls.interrupted()
        if earlier is None or self._calls.is_repeat(earlier, call):
            return None
        if call not in (Call.ABORT, _CLOSE) and earlier.name != _CLOSE:
            repeat = [f"repeat {earlier.name}()"] if self._calls.is_repeatable(earlier.name) else []
            abort = ["abort the transaction"] if self.settings.is_transactional else []
            raise InvalidTransactionStateError(
                f"{call}() is not possible now: {earlier.name}() was interrupted before it returned",
                kind="call-interrupted",
                hint=" or ".join([*repeat, *abort, "close the producer"]),
            )
        committed = None
        if earlier.has_run and earlier.error is None and self._has_committed(earlier):
            committed = had_landed()
        if call == _CLOSE:
            return committed  # the close takes the place of what is noted
        try:
            if committed is not None:
                raise committed
        finally:
            self._calls.forget()
        return None

    def _has_committed(self, earlier: Interrupted) -> bool:
        """Return whether an interrupted call that has succeeded has committed the transaction."""
        return earlier.name == Call.COMMIT

    def _prepared(self, topic: TopicState, data: Any, partition: int | None) -> Prepared:
        """Return the data of a send, checked; what does not fit the topic as it is known here, against the
        topic as it is now.
        """
        try:
            return self._staging.buffered.prepare(topic, data, partition)
        except InvalidInputError:
            now = changed(self._log, topic)
            if now is None:
                raise
        return self._staging.buffered.prepare(now, data, partition)

    def _hand_over(self, sent: Prepared) -> None:
        """Leave a send in the inbox; or have it taken in, when there is no inbox, or no room in it."""
        if sent.row is None and sent.table.num_rows == 0:
            return  # nothing waits for an entry
        staging, calls = self._staging, self._calls
        inbox = staging.inbox
        if inbox is not None and self._session.at.within is None and self._session.has_room(inbox, sent.size):
            # From here to the end an interrupt leaves open whether the record was taken.
            calls.note(Call.SEND)
            inbox.items.append(sent)
            inbox.size += sent.size
            if staging.inbox is inbox:
                self._arm()
                calls.forget()
                return
        calls.run(Call.SEND, lambda: self._take(sent, inbox))

    def _arm(self) -> None:
        if not self.settings.is_transactional:
            self._linger.arm()

    def _take(self, sent: Prepared, inbox: Inbox | None) -> None:
        """Take a send in, unless the call that took ``inbox`` out of use has found it there."""
        if inbox is None or not any(sent is one for one in inbox.taken):
            self._session.perform(Call.SEND, lambda: self._make_room_and_take(sent))
        self._arm()

    def _make_room_and_take(self, sent: Prepared) -> None:
        self._session.make_room(sent.size)
        self._staging.take(sent)

    def _repair(self) -> None:
        self._session.make_room(0)
        self._session.check_status(Call.SEND)

    def _flush_held(self) -> None:
        """Flush lingering records in the background.

        After a failure they stay held, and the next call tries again and raises.
        """
        with self._lock:
            if not self._session.is_usable:
                return
            try:
                self._session.perform(Call.FLUSH, lambda: self._session.flush(Call.SEND))
            except TxnLogError as error:
                logger.warning("records are held back: %s", error)

    def _info(self, result: CommitResult | None) -> CommitInfo:
        return CommitInfo() if result is None else CommitInfo.of(self._log, result)
