"""Session: a producer's identity, what the log holds of its open transaction, and what is not known of it.

Every write is an intent with a fixed identity (:mod:`txnformat.core.intents`): a call whose outcome is
unknown is repeated with the same intent, so nothing is appended twice. A final refusal of the log (a newer
instance of the transactional id, numbers that do not fit) ends the session.

How the records of an open transaction reach the log:

    inline     every flush appends them, with offsets; the end adds what is left, and the markers deferred
    every flush stages them, without offsets; so does a send when much is uploaded. A transaction that has
               staged nothing when it commits is a one-shot
    auto       a one-shot: the commit names all files at once. Beyond a size or an age it goes on as deferred

How the session survives an exception in the middle of a call (a lack of memory, an asynchronous exception, a
mistake of ours; signals do not come here, see :mod:`txnformat.shield`):

* All that the session knows is one immutable :class:`~writers.standing.Standing`, which each step replaces in
  one assignment.
* A call is noted in it (``within``) before it begins, and taken out as its last step. Only errors of this
  library, raised on purpose, end a call as well. A call that is found there was cut: from then on only an
  abort and a close are legal.
* A call notes its request to the log (``unsettled``) before it sends it. An answer is first carried out on
  the buffers, in steps that can be repeated, and then the note is taken out. So an abort knows whether the
  log may hold anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from txnformat.admin.prepared import PreparedTransaction
from txnformat.client.committer import operation_of
from txnformat.clock import waited_ms
from txnformat.consumers.group_offsets import OffsetSource
from txnformat.core.intents import (
    Acks,
    Action,
    AppRef,
    CommitResult,
    GroupOffsets,
    OpenProducer,
    ProducerRef,
    Write,
)
from txnformat.core.operations import InitProducer
from txnformat.core.records.batch_table import BATCHES_IN_ENTRY_MAX
from txnformat.core.state import TopicState
from txnformat.core.topics.cleanup import keeps_latest
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InternalError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    TransactionTimedOutError,
    TxnLogError,
    UnknownProducerIdError,
    UploadExpiredError,
)
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.types import Outcome
from writers.accumulator import Inbox
from writers.chunks import LargeValue
from writers.inputs import AckSource, TransactionInputs, check_acks, check_offsets
from writers.producer_ids import next_producer_id
from writers.settings import Buffer, ProducerSettings
from writers.staging import Staging
from writers.standing import Standing, had_landed, is_final, records_dropped
from writers.transaction import Call, ProducerStatus, Unsettled
from writers.whole_files import WholeFile

__all__ = ["DISTRIBUTIONS_MAX", "UNNAMED_MS_MAX", "Session"]

T = TypeVar("T")

logger = logging.getLogger("txnlog")

DISTRIBUTIONS_MAX = 10
"""How often records are distributed anew when their topic gets more partitions just before each commit."""

UNNAMED_MS_MAX = 3_600_000
"""How long files may be uploaded that the log does not know: the vacuum judges such files by their age."""


_KEEPS_TRANSACTION = frozenset({Call.SEND, Call.FLUSH, Call.SEND_OFFSETS, Call.ACKNOWLEDGE})
"""Calls during which other threads may go on sending."""


class Session:
    """The producer's side of the protocol. One thread at a time, but for ``at`` and ``status``."""

    def __init__(self, log: TxnLog, settings: ProducerSettings, staging: Staging) -> None:
        self._log = log
        self._settings = settings
        self._staging = staging
        self.at = Standing()
        self._entered = self.at  # when the call began that runs
        self._is_running = False  # whether ``within`` runs, for threads that do not hold the lock
        self._inputs = TransactionInputs()
        self._streams = settings.is_transactional and settings.buffer is not Buffer.INLINE

    def _set(self, **changes: object) -> None:
        self.at = replace(self.at, **changes)

    @property
    def status(self) -> ProducerStatus:
        """Where the producer stands.

        While a call runs, as before it; after one that was cut, what is left to do.
        """
        at = self.at
        if self._is_running:
            return self._entered.status
        if self.at is not at:
            return self.at.status
        return at.status_after_cut(self._settings.is_transactional)

    def check(self, call: Call) -> None:
        """Raise unless ``call`` is legal now; what has ended the session is raised again."""
        self.at.check(call, self._settings.is_transactional)

    def check_unless_running(self, call: Call) -> None:
        """As :meth:`check`, without the lock: while another thread's call runs, only the next check can
        tell.
        """
        at = self.at
        if at.within is None:
            at.check(call, self._settings.is_transactional)

    def check_status(self, call: Call) -> None:
        """Raise unless ``call`` were legal after the one that runs, as it stands."""
        self.at.check_status(call, self._settings.is_transactional)

    def perform(self, call: Call, body: Callable[[], T], expected: type[Exception] = TxnLogError) -> T:
        """Do a call, if it is legal.

        If anything ends it that is not expected, only abort and close are left.
        """
        self.check(call)
        return self._guarded(call, body, expected)

    def _guarded(
        self,
        call: Call,
        body: Callable[[], T],
        expected: type[Exception] = TxnLogError,
        *,
        closes: bool = False,
    ) -> T:
        """Do a call that is known to be legal; ``closes``: nothing can be sent any more."""
        self._entered = self.at
        self._is_running = True
        try:
            self._set(within=call)
            if closes or call not in _KEEPS_TRANSACTION:
                self._staging.open_inbox(is_open=False)
            try:
                result = body()
            except (InternalError, MemoryError):
                raise
            except expected:
                self._end_call(closes=closes)
                raise
            self._end_call(closes=closes)
        finally:
            self._is_running = False
        return result

    def _end_call(self, *, closes: bool) -> None:
        sends = ProducerStatus.IN_TRANSACTION if self._settings.is_transactional else ProducerStatus.READY
        if not closes:
            self._staging.open_inbox(is_open=self.at.status is sends and self.at.fatal is None)
        self._set(within=None)

    @property
    def is_torn(self) -> bool:
        """Whether a large value was cut in a call that has ended."""
        at = self.at
        return at.is_torn and at.within is None

    @property
    def is_usable(self) -> bool:
        """Whether nothing has to be settled or ended first."""
        at = self.at
        return at.status is ProducerStatus.READY and at.fatal is None and at.within is None

    def open(self) -> None:
        """Get an identity; or take over what an earlier instance has prepared."""
        settings = self._settings
        if settings.transactional_id is not None:
            wanted = OpenProducer(
                settings.transactional_id, settings.transaction_timeout_ms, settings.deferred_timeout_ms
            )
            try:
                result = self._ask(Call.INIT, wanted)
            except InvalidTransactionStateError as error:
                if error.kind != "transaction-prepared":
                    raise
                # Stand for the instance that has prepared a transaction, until that has ended.
                number, epoch = error.values["producer_id"], error.values["epoch"]
                self._set(
                    ref=ProducerRef(number, epoch, settings.transactional_id),
                    prepared=PreparedTransaction(self._log.log_id, settings.transactional_id, number, epoch),
                    is_recovered=True,
                    appended=True,
                    unsettled=None,
                    status=ProducerStatus.PREPARED,
                )
                return
            opened = operation_of(result, InitProducer)
            ref: ProducerRef | None = ProducerRef(opened.producer_id, opened.epoch, opened.transactional_id)
        else:
            ref = ProducerRef(next_producer_id(self._log), 0) if settings.enable_idempotence else None
        self._set(ref=ref, status=ProducerStatus.READY, unsettled=None)

    def begin(self) -> None:
        """Begin a transaction."""
        self._set(is_torn=False, has_committed=False, status=ProducerStatus.IN_TRANSACTION)

    def take_large(self, topic: TopicState, value: LargeValue, partition: int | None) -> None:
        """Take in a value in chunks, in one partition even if the topic grows meanwhile: all, or abort is
        required.
        """
        if keeps_latest(topic.settings):
            raise InvalidInputError(
                "the value is larger than a record, and the topic keeps the latest record of each key: a "
                "value in several records would lose all but the last",
                kind="chunks-in-compacted-topic",
                hint="use a larger chunk_bytes, or store the value elsewhere and its place here; nothing "
                "was written",
                topic=topic.name,
            )
        staging = self._staging
        staging.take_in()
        if partition is None:
            partition = staging.buffered.choose_partition(topic, value.record)
        try:
            for chunk in value.chunks(self._log.committer.ids.new()):
                sent = staging.buffered.prepare(topic, [chunk], partition)
                self.make_room(sent.size)
                self._set(is_torn=True)
                staging.take(sent)
        except Exception:  # of the value's file, of a flush that made room, or of the value itself
            if self.at.is_torn and self.at.status is ProducerStatus.IN_TRANSACTION:
                self._set(status=ProducerStatus.ABORT_REQUIRED)
            raise
        self._set(is_torn=False)

    def take_whole(self, topic: TopicState, whole: WholeFile, partition: int | None) -> None:
        """Upload a whole file, behind what was sent before it."""
        self.make_room(0)
        self._upload_guarded(lambda: self._staging.take_whole(topic, whole, partition))
        self.make_room(0)

    def has_room(self, inbox: Inbox, coming: int) -> bool:
        """Return whether a send needs nothing but a place in the inbox. Safe in every thread."""
        at = self.at
        if at.unsettled is not None or not self._staging.has_room(inbox, coming):
            return False
        since = at.uploading_since
        return since is None or waited_ms(since, self._log.committer.clock.now()) <= UNNAMED_MS_MAX

    def make_room(self, coming: int) -> None:
        """Write what is buffered when it is too much."""
        staging = self._staging
        if self.at.unsettled is not None:
            self.flush(Call.SEND)
        elif not staging:
            return
        elif not self._streams:
            if staging.is_over(coming):
                self.flush(Call.SEND)
        else:
            if staging.is_over(coming):
                self._upload_guarded(lambda: staging.stream(coming))
            if self._is_stage_due():
                self.flush(Call.SEND)

    def flush(self, call: Call) -> CommitResult | None:
        """Append or stage what is buffered, in one entry, or repeat just that."""
        if not self._waits and self.at.unsettled is None:
            return None
        return self._write(call)

    def flush_transaction(self) -> CommitResult | None:
        """Do what ``flush`` means for the buffer: append, stage, or upload for the one-shot."""
        if self.at.unsettled is None and self._streams and not self._stages:
            self._upload_guarded(self._staging.stream_all)
            if not self._is_stage_due():
                return None
        was_unknown = self.at.unsettled is not None
        result = self.flush(Call.FLUSH)
        # Other threads may have sent after what was repeated had been made.
        return self.flush(Call.FLUSH) if was_unknown and self._waits else result

    def commit(self) -> CommitResult | None:
        """Commit the transaction; None when it is empty, and no entry was made."""
        if not self._waits and not self.at.appended and self.at.unsettled is None:
            self._set(status=ProducerStatus.READY)
            return None
        try:
            result = self._write(Call.COMMIT, Outcome.COMMIT)
        except InvalidTransactionStateError as error:
            if error.kind == "transaction-aborted":  # by a client that ended the prepared transaction
                self._ended(Outcome.ABORT)
            raise
        self._inputs.committed()
        self._ended(Outcome.COMMIT)
        return result

    def send_offsets(self, offsets: GroupOffsets, source: OffsetSource | None) -> None:
        """Take positions of a group for the next entry, if they can be committed as far as is known.

        Requests: none; before it raises 1 GET, and what it takes to end transactions whose time is over.
        """
        check_offsets(self._log, self._identity(), offsets)
        self._inputs.add(offsets, source)

    def acknowledge(self, acks: Acks, source: AckSource) -> None:
        """Take acknowledgements for the next entry, with the checks and requests of :meth:`send_offsets`."""
        check_acks(self._log, self._identity(), (*self._inputs.acks(), acks))
        self._inputs.acknowledge(acks, source, self._identity())

    def prepare(self) -> PreparedTransaction:
        """Write what is left, and let the transaction wait for its outcome, in one entry."""
        self._write(Call.PREPARE, prepare=True)
        ref = self._identity()
        prepared = PreparedTransaction(
            self._log.log_id, ref.transactional_id or "", ref.producer_id, ref.epoch
        )
        self._set(prepared=prepared, status=ProducerStatus.PREPARED)
        return prepared

    def abort(self) -> None:
        """Abort the transaction: an entry when the log holds, or may hold, something of it."""
        at = self.at
        if at.has_committed:  # in a call that was cut after that
            raise had_landed()
        if at.unsettled is None and at.prepared is None:
            # Should the abort fail, no later commit may leave out what is dropped here.
            self._set(status=ProducerStatus.ABORT_REQUIRED)
            self._discard()
            if not at.appended:
                self._set(status=ProducerStatus.READY)
                return
        try:
            self._ask(Call.ABORT, Write(self._identity(), end=Outcome.ABORT))
        except InvalidTransactionStateError as error:
            if error.kind == "transaction-committed":
                self._inputs.committed()
                self._ended(Outcome.COMMIT)
            raise
        self._ended(Outcome.ABORT)

    def settle(self) -> None:
        """Leave nothing open, before :meth:`close`.

        Raises InvalidTransactionStateError of kind ``records-dropped``: of a producer without transactions,
        of which a call was cut.
        """
        at = self.at
        if at.status in (ProducerStatus.CLOSED, ProducerStatus.FENCED):
            return
        if at.within is not None and at.has_committed:
            raise had_landed()
        if at.prepared is not None:
            return  # its outcome is decided elsewhere, also when it is unknown whether the log has it
        if at.ref is None and (self._settings.is_transactional or at.status is ProducerStatus.UNINITIALISED):
            return  # an init whose outcome is unknown: an identity that is never used does no harm
        if self._settings.is_transactional:
            if at.status is not ProducerStatus.READY or at.within is not None:
                self._guarded(Call.ABORT, self.abort, closes=True)
        elif at.within is None or at.unsettled is not None:
            self._guarded(Call.FLUSH, self.flush_transaction, closes=True)
        else:
            raise records_dropped(at.within)

    def close(self) -> None:
        """Forget everything; nothing can be called any more."""
        self._set(status=ProducerStatus.CLOSED)
        self._discard()
        self._set(unsettled=None)

    # --- how it is done -------------------------------------------------------------------------------------

    @property
    def _stages(self) -> bool:
        """Whether a flush of the open transaction stages."""
        return self._streams and (self.at.appended or self._settings.buffer is Buffer.DEFERRED)

    @property
    def _waits(self) -> bool:
        """Whether anything waits for an entry."""
        return bool(self._staging) or bool(self._inputs)

    def _identity(self) -> ProducerRef:
        if self.at.ref is None:
            raise InternalError("a transactional producer without an identity")
        return self.at.ref

    def _is_stage_due(self) -> bool:
        """Return whether the log should get to know of the files so far: they are many, or old, or large."""
        batches = self._staging.uploaded_batches
        if not batches:
            return False
        now = self._log.committer.clock.now()
        since = self.at.uploading_since or now
        self._set(uploading_since=since)
        return (
            batches > BATCHES_IN_ENTRY_MAX
            or waited_ms(since, now) > UNNAMED_MS_MAX
            or (self._stages and self._staging.uploaded_bytes >= self._settings.roll_bytes)
        )

    def _upload_guarded(self, upload: Callable[[], None]) -> None:
        """Upload; when earlier records went down with a file, the transaction can only be aborted."""
        try:
            upload()
        finally:
            if self._staging.is_broken and self.at.status is ProducerStatus.IN_TRANSACTION:
                self._set(status=ProducerStatus.ABORT_REQUIRED)

    def _write(
        self, call: Call, end: Outcome | None = None, *, prepare: bool = False, app: AppRef | None = None
    ) -> CommitResult:
        """Upload what is buffered, and commit it and perhaps the transaction's end; or repeat just that."""
        for tries_left in reversed(range(DISTRIBUTIONS_MAX)):
            unsettled = self.at.unsettled
            write = unsettled.intent.action if unsettled is not None else self._upload(end, prepare, app)
            before = self.at
            try:
                result = self._ask(call, write)
            except ConflictError as error:
                if error.kind != "partition-count-changed" or not tries_left:
                    raise
                continue  # nothing of it is in the log, whose state now has the topic as it has become
            except NotFoundError as error:
                is_told = call is not Call.SEND  # the caller does not hear of a flush in the background
                if error.kind == "topic-gone" and is_told and not self._settings.is_transactional:
                    # This call tells of their loss; the next one sends the rest.
                    self._staging.forget(self._log.state.topics)
                raise
            except UnknownProducerIdError:
                if self.at.fatal is not None or not tries_left:
                    raise
                self._staging.restart_sequences()
                self._set(ref=ProducerRef(next_producer_id(self._log), 0))
                continue  # nothing of it is in the log, and the new identity has written nothing
            if isinstance(write, Write):
                self._staging.landed(write.appends)
                self._inputs.landed()
            self.at = replace(
                before.known(self._settings.is_transactional), uploading_since=None, appended=True
            )
            return result
        raise InternalError("a write has neither a result nor a refusal")

    def _upload(self, end: Outcome | None, prepare: bool, app: AppRef | None) -> Write:
        """Upload what is buffered, for the topics as they are now."""
        topics = self._log.state.topics
        self._staging.adopt(topics)
        self._upload_guarded(self._staging.finish)
        self._staging.redistribute(topics)
        # Records that are appended and committed in one entry need no stage: no reader could see them open.
        deferred = self._streams and (self.at.appended or end is None)
        appends = self._staging.appends(numbered=self.at.ref is not None, deferred=deferred)
        return Write(
            self.at.ref,
            appends,
            end,
            app,
            deferred=deferred,
            prepare=prepare,
            offsets=self._inputs.offsets(),
            acks=self._inputs.acks(),
        )

    def _ask(self, call: Call, action: Action) -> CommitResult:
        """Commit an action, or repeat the intent of the same call whose outcome is unknown.

        An abort is always a new intent: the log knows a repeated end by its epoch. The request stays noted
        until the caller has carried out the answer; a refusal is carried out here.
        """
        before = self.at
        if before.unsettled is not None and call is not Call.ABORT:
            asked = before.unsettled
        else:
            asked = Unsettled(call, self._log.committer.intend(action))
        self.at = replace(before, unsettled=asked, status=ProducerStatus.UNKNOWN_OUTCOME)
        try:
            return self._log.committer.commit(asked.intent)
        except (CommitStateUnknownError, InternalError):
            raise
        except TxnLogError as error:
            self._refused(call, error, before)
            raise

    def _refused(self, call: Call, error: TxnLogError, before: Standing) -> None:
        """Note an error after which it is known that this call's own attempts are not in the log."""
        if isinstance(error, UnknownProducerIdError) and self._is_forgotten(before):
            self.at = before
            return
        is_of_input = self._inputs.is_refused_by(error)
        is_expired = isinstance(error, UploadExpiredError) and not self._settings.is_transactional
        if is_final(error) or isinstance(error, TransactionTimedOutError) or is_expired:
            self._discard()
        self.at = before.refused(call, error, self._settings.is_transactional, is_of_input=is_of_input)

    def _is_forgotten(self, before: Standing) -> bool:
        """Return whether the log has forgotten the producer's id, and another one may be taken for the same
        records.

        Not after an unknown answer: it may have been the log's before it forgot. Not in transactions: ids of
        those have names.
        """
        if before.unsettled is not None or before.ref is None or before.ref.transactional_id is not None:
            return False
        return before.ref.producer_id < self._log.state.retired_below

    def _discard(self) -> None:
        self._staging.discard()
        self._inputs.discard()
        self._set(uploading_since=None)

    def _ended(self, outcome: Outcome) -> None:
        """Go on to the next epoch: every end that is in the log begins one."""
        at, ref = self.at, self._identity()
        self._discard()
        self._staging.restart_sequences()
        self.at = at.ended(ref, outcome)
        if not at.is_recovered:
            return
        try:
            self.open()
        except TxnLogError as error:
            # The end is in the log, and that is what was asked for; the next call says what is missing.
            logger.warning(
                "the prepared transaction has ended, but the producer needs another init(): %s", error
            )
