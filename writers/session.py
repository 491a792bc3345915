"""Session: a producer's identity, what the log holds of its open transaction, and what is not known of it.

Every write is an intent with a fixed identity (:mod:`txnformat.intents`): a call whose outcome is unknown is
repeated with the same intent, so nothing is appended twice. What the log refuses for good (a newer instance of the
transactional id, numbers that do not fit) ends the session.

How the records of an open transaction reach the log:

    inline     every flush appends them, with offsets; the end adds what is left, and the markers
    deferred   every flush stages them, without offsets; so does a send when much is uploaded. A transaction that has
               staged nothing when it commits is a one-shot
    auto       a one-shot: the commit names all files at once. Beyond a size or an age it goes on as deferred
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from txnformat.batch_table import BATCHES_IN_ENTRY_MAX
from txnformat.clock import Instant, waited_ms
from txnformat.committer import operation_of
from txnformat.decide_acks import acknowledge
from txnformat.decide_groups import commit_offsets
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InternalError,
    InvalidTransactionStateError,
    ProducerFencedError,
    SequenceError,
    TransactionTimedOutError,
    TxnLogError,
    UnknownProducerIdError,
)
from txnformat.intents import (
    Acks,
    Action,
    AppRef,
    CommitResult,
    GroupOffsets,
    Intent,
    OpenProducer,
    ProducerRef,
    Write,
)
from txnformat.log import TxnLog
from txnformat.operations import InitProducer
from txnformat.prepared import PreparedTransaction
from txnformat.state import LogState
from txnformat.types import Outcome
from writers.group_offsets import OffsetSource
from writers.producer_ids import next_producer_id
from writers.progress import AckSource, Progress
from writers.settings import Buffer, ProducerSettings
from writers.staging import Staging
from writers.transaction import Call, ProducerStatus, Unsettled, check_call

__all__ = ["DISTRIBUTIONS_MAX", "UNNAMED_MS_MAX", "Session"]

logger = logging.getLogger("txnlog")

DISTRIBUTIONS_MAX = 10
"""How often records are distributed anew when their topic gets more partitions just before each commit."""

UNNAMED_MS_MAX = 3_600_000
"""How long files may be uploaded that the log does not know: the vacuum judges such files by their age."""


_UNKNOWN_IDENTITY = frozenset({"unknown-transactional-id", "unknown-epoch"})
"""Kinds of errors that no call of this producer can cure: only init() gives an identity, and only once."""


class Session:
    """What of a producer concerns the log. One thread at a time."""

    def __init__(self, log: TxnLog, settings: ProducerSettings, staging: Staging) -> None:
        self._log = log
        self._settings = settings
        self._staging = staging
        self.status = ProducerStatus.UNINITIALISED
        self.ref: ProducerRef | None = None
        self.prepared: PreparedTransaction | None = None
        """The transaction whose outcome is decided elsewhere."""
        self.is_torn = False
        """Whether the open transaction holds a large value's beginning alone."""
        self._progress = Progress()
        self._is_recovered = False  # whether another instance has prepared it
        self._appended = False  # whether the log holds, or may hold, something of the open transaction
        self._uploading_since: Instant | None = None
        self._unsettled: Unsettled | None = None
        self._fatal: TxnLogError | None = None
        self._streams = settings.is_transactional and settings.buffer is not Buffer.INLINE

    def check(self, call: Call) -> None:
        """Raise unless ``call`` is legal now; what has ended the session is raised again."""
        if self._fatal is not None:
            raise self._fatal.with_traceback(None)
        unknown = None if self._unsettled is None else self._unsettled.call
        check_call(call, self.status, is_transactional=self._settings.is_transactional, unknown=unknown)

    @property
    def is_usable(self) -> bool:
        """Whether nothing has to be settled or ended first."""
        return self.status is ProducerStatus.READY and self._fatal is None

    def open(self) -> None:
        """Get an identity; or take over what an earlier instance has prepared."""
        settings = self._settings
        if settings.transactional_id is not None:
            wanted = OpenProducer(
                settings.transactional_id, settings.transaction_timeout_ms, settings.deferred_timeout_ms
            )
            try:
                result = self._commit(Call.INIT, wanted)
            except InvalidTransactionStateError as error:
                if error.kind != "transaction-prepared":
                    raise
                self._recover(settings.transactional_id, error.values["producer_id"], error.values["epoch"])
                return
            opened = operation_of(result, InitProducer)
            if not isinstance(opened, InitProducer):
                raise InternalError("another operation than was asked for", entry=result.entry)
            self.ref = ProducerRef(opened.producer_id, opened.epoch, opened.transactional_id)
        elif settings.enable_idempotence:
            self.ref = ProducerRef(next_producer_id(self._log), 0)
        self.status = ProducerStatus.READY

    def begin(self) -> None:
        """Begin a transaction."""
        self.is_torn = False
        self.status = ProducerStatus.IN_TRANSACTION

    @contextmanager
    def tearing(self) -> Iterator[Callable[[], None]]:
        """Keep a value of several records together: unless the block takes all of them in, abort is required.

        Yields what is to be called after each record that was taken in.
        """

        def taken() -> None:
            self.is_torn = True

        try:
            yield taken
            self.is_torn = False
        finally:
            if self.is_torn and self.status is ProducerStatus.IN_TRANSACTION:
                self.status = ProducerStatus.ABORT_REQUIRED

    def make_room(self, coming: int) -> None:
        """Write what is buffered when it is too much."""
        staging = self._staging
        if self._unsettled is not None:
            self.flush(Call.SEND)
        elif not staging:
            return
        elif not self._streams:
            if staging.is_over(coming):
                self.flush(Call.SEND)
        else:
            if staging.is_over(coming):
                self._guarded(lambda: staging.stream(coming))
            if self._is_stage_due():
                self.flush(Call.SEND)

    def flush(self, call: Call) -> CommitResult | None:
        """Append or stage what is buffered, in one entry, or repeat just that."""
        if not self._waits and self._unsettled is None:
            return None
        return self._write(call)

    def flush_transaction(self) -> CommitResult | None:
        """Do what ``flush`` means for the buffer: append, stage, or upload for the one-shot."""
        if self._unsettled is None and self._streams and not self._stages:
            self._guarded(self._staging.stream_all)
            if not self._is_stage_due():
                return None
        return self.flush(Call.FLUSH)

    def commit(self) -> CommitResult | None:
        """Commit the transaction; None when it is empty, and no entry was made."""
        if not self._waits and not self._appended and self._unsettled is None:
            self.status = ProducerStatus.READY
            return None
        try:
            result = self._write(Call.COMMIT, Outcome.COMMIT)
        except InvalidTransactionStateError as error:
            if error.kind == "transaction-aborted":  # by somebody who ended what is prepared
                self._ended()
            raise
        self._progress.committed()
        self._ended()
        return result

    def send_offsets(self, offsets: GroupOffsets, source: OffsetSource | None) -> None:
        """Take positions of a group for the next entry, if they can be committed as far as is known.

        Requests: none; before it raises 1 GET, and what it takes to end transactions whose time is over.
        """
        state = self._log.state
        try:
            self._check_offsets(state, offsets)
        except TxnLogError:
            # Who is refused may wait for an instance that is dead, and nobody else might ever end its transaction.
            self._check_offsets(self._log.transactions.end_expired_if_permitted(), offsets)
        self._progress.add(offsets, source)

    def _check_offsets(self, state: LogState, offsets: GroupOffsets) -> None:
        ref = self._identity()
        commit_offsets(state, offsets, ref, state.transactional_ids.get(ref.transactional_id or ""))

    def acknowledge(self, acks: Acks, source: AckSource) -> None:
        """Take acknowledgements for the next entry, if they do not conflict as far as is known.

        Requests: none; before it raises 1 GET, and what it takes to end transactions whose time is over.
        """
        try:
            self._check_acks(self._log.state, acks)
        except TxnLogError:
            self._check_acks(self._log.transactions.end_expired_if_permitted(), acks)
        self._progress.acknowledge(acks, source, self._identity())

    def _check_acks(self, state: LogState, acks: Acks) -> None:
        ref = self._identity()
        owner = state.transactional_ids.get(ref.transactional_id or "")
        acknowledge(state, (*self._progress.acks(), acks), ref, owner)

    def prepare(self) -> PreparedTransaction:
        """Write what is left, and let the transaction wait for its outcome, in one entry."""
        self._write(Call.PREPARE, prepare=True)
        ref = self._identity()
        self.prepared = PreparedTransaction(
            self._log.log_id, ref.transactional_id or "", ref.producer_id, ref.epoch
        )
        self.status = ProducerStatus.PREPARED
        return self.prepared

    def abort(self) -> None:
        """Abort the transaction: an entry when the log holds, or may hold, something of it."""
        if self._unsettled is None and self.prepared is None:
            self._discard()
            # Should the abort fail, no later commit may leave out what was just dropped.
            self.status = ProducerStatus.ABORT_REQUIRED if self._appended else ProducerStatus.READY
            if not self._appended:
                return
        try:
            self._commit(Call.ABORT, Write(self._identity(), end=Outcome.ABORT))
        except InvalidTransactionStateError as error:
            if error.kind == "transaction-committed":
                self._progress.committed()
                self._ended()
            raise
        self._ended()

    def settle(self) -> None:
        """Leave nothing open: what close does before the producer is closed."""
        if self.status in (ProducerStatus.CLOSED, ProducerStatus.FENCED, ProducerStatus.UNINITIALISED):
            return
        if self.prepared is not None:
            return  # its outcome is decided elsewhere, also when it is not known whether the log has it already
        if self.ref is None and self._settings.is_transactional:
            return  # an init whose outcome is unknown: an identity that is never used does no harm
        if not self._settings.is_transactional:
            self.flush(Call.FLUSH if self._unsettled is None else self._unsettled.call)
        elif self.status is not ProducerStatus.READY:
            self.abort()

    def close(self) -> None:
        """Forget everything; nothing can be called any more."""
        self._discard()
        self._unsettled = None
        self.status = ProducerStatus.CLOSED

    # --- how it is done ----------------------------------------------------------------------------------------------

    @property
    def _stages(self) -> bool:
        """Whether a flush of the open transaction stages."""
        return self._streams and (self._appended or self._settings.buffer is Buffer.DEFERRED)

    @property
    def _waits(self) -> bool:
        """Whether anything waits for an entry."""
        return bool(self._staging) or bool(self._progress)

    def _identity(self) -> ProducerRef:
        if self.ref is None:
            raise InternalError("a transactional producer without an identity")
        return self.ref

    def _is_stage_due(self) -> bool:
        """Return whether the log should get to know of the files so far: they are many, or old, or large."""
        batches = self._staging.uploaded_batches
        if not batches:
            return False
        now = self._log.committer.clock.now()
        self._uploading_since = self._uploading_since or now
        return (
            batches > BATCHES_IN_ENTRY_MAX
            or waited_ms(self._uploading_since, now) > UNNAMED_MS_MAX
            or (self._stages and self._staging.uploaded_bytes >= self._settings.roll_bytes)
        )

    def _guarded(self, upload: Callable[[], None]) -> None:
        """Upload; when earlier records went down with a file, the transaction can only be aborted."""
        try:
            upload()
        finally:
            if self._staging.is_broken and self.status is ProducerStatus.IN_TRANSACTION:
                self.status = ProducerStatus.ABORT_REQUIRED

    def _write(
        self, call: Call, end: Outcome | None = None, *, prepare: bool = False, app: AppRef | None = None
    ) -> CommitResult:
        """Upload what is buffered, and commit it and perhaps the transaction's end; or repeat just that."""
        for tries_left in reversed(range(DISTRIBUTIONS_MAX)):
            unsettled = self._unsettled
            write = unsettled.intent.action if unsettled is not None else self._upload(end, prepare, app)
            try:
                result = self._commit(call, write)
            except ConflictError as error:
                if error.kind != "partition-count-changed" or not tries_left:
                    raise
                continue  # nothing of it is in the log, whose state now has the topic as it has become
            except UnknownProducerIdError:
                if self._fatal is not None or not tries_left:
                    raise
                self.ref = ProducerRef(next_producer_id(self._log), 0)
                self._staging.restart_sequences()
                continue  # nothing of it is in the log, and the new identity has written nothing
            if isinstance(write, Write):
                self._staging.landed(write.appends)
                self._progress.landed()
            self._uploading_since = None
            self._appended = True
            return result
        raise InternalError("a write that was neither done nor refused")

    def _upload(self, end: Outcome | None, prepare: bool, app: AppRef | None) -> Write:
        """Upload what is buffered, for the topics as they are now."""
        topics = self._log.state.topics
        self._staging.adopt(topics)
        self._guarded(self._staging.finish)
        self._staging.redistribute(topics)
        # What is appended and committed in one entry needs no stage: nobody could see it open.
        deferred = self._streams and (self._appended or end is None)
        appends = self._staging.appends(numbered=self.ref is not None, deferred=deferred)
        return Write(
            self.ref,
            appends,
            end,
            app,
            deferred=deferred,
            prepare=prepare,
            offsets=self._progress.offsets(),
            acks=self._progress.acks(),
        )

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
        self.status = ProducerStatus.UNKNOWN_OUTCOME

    def _refused(self, call: Call, error: TxnLogError) -> None:
        """Note an error after which it is known that this call's own attempts are not in the log."""
        if isinstance(error, UnknownProducerIdError) and self._is_forgotten():
            return
        if isinstance(error, ProducerFencedError | SequenceError) or error.kind in _UNKNOWN_IDENTITY:
            self._fatal = error
            self._discard()
            self._unsettled = None
            self.status = ProducerStatus.FENCED
        elif isinstance(error, TransactionTimedOutError):
            # Somebody has aborted it for us. The abort that is asked for makes no entry, and begins the next epoch.
            self._discard()
            self._unsettled = None
            self._appended = True
            self.status = ProducerStatus.ABORT_REQUIRED
        elif call is not Call.ABORT and self._progress.is_refused_by(error):
            # Nothing of this call is in the log, and what was read is not this transaction's to bring any more.
            self._known()
            self.status = ProducerStatus.ABORT_REQUIRED
        elif isinstance(error, ConflictError) and call is not Call.ABORT:
            # Every slot is known to be somebody else's, so an earlier attempt is not there either. An abort has
            # attempts of its own: what it was to settle stays open.
            self._known()

    def _is_forgotten(self) -> bool:
        """Return whether the log has forgotten the producer's id, and another one may be taken for the same records.

        Not after an unknown answer: it may have been the log's before it forgot. Not in transactions: ids of those have
        names.
        """
        if self._unsettled is not None or self.ref is None or self.ref.transactional_id is not None:
            return False
        return self.ref.producer_id < self._log.state.retired_below

    def _known(self) -> None:
        """Leave the unknown: the log has answered."""
        if self._unsettled is None:
            return
        if self.ref is None and self._settings.is_transactional:
            self.status = ProducerStatus.UNINITIALISED
        elif self.prepared is not None:
            self.status = ProducerStatus.PREPARED
        elif self._settings.is_transactional:
            self.status = ProducerStatus.ABORT_REQUIRED if self.is_torn else ProducerStatus.IN_TRANSACTION
        else:
            self.status = ProducerStatus.READY
        self._unsettled = None

    def _discard(self) -> None:
        self._staging.discard()
        self._progress.discard()
        self._uploading_since = None

    def _recover(self, transactional_id: str, producer_id: int, epoch: int) -> None:
        """Stand for the instance that has prepared a transaction, until that has ended."""
        self.ref = ProducerRef(producer_id, epoch, transactional_id)
        self.prepared = PreparedTransaction(self._log.log_id, transactional_id, producer_id, epoch)
        self._is_recovered = self._appended = True
        self._unsettled = None
        self.status = ProducerStatus.PREPARED

    def _ended(self) -> None:
        """Go on to the next epoch: every end that is in the log begins one."""
        ref = self._identity()
        self._discard()
        self._staging.restart_sequences()
        self._appended = False
        self._unsettled = None
        self.prepared = None
        if not self._is_recovered:
            self.ref = replace(ref, epoch=ref.epoch + 1)
            self.status = ProducerStatus.READY
            return
        # Others may have taken over the same transaction, and the next epoch would be theirs as well.
        self._is_recovered = False
        self.ref = None
        self.status = ProducerStatus.UNINITIALISED
        try:
            self.open()
        except TxnLogError as error:
            # The end is in the log, and that is what was asked for; the next call says what is missing.
            logger.warning(
                "the prepared transaction has ended, but the producer must be initialised again: %s", error
            )
