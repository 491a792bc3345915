"""A producer for jobs of many processes: others stage in its open transaction, and it ends the transaction.

    producer              opens: fences older instances                                    1 entry
    others, by its leave  stage  under the producer's identity: (id, epoch)                1 entry each
    producer              ends the transaction, with positions, acknowledgements and the   1 entry
                          application's version

The others take their sequence numbers from the log's state, one after another, each once (``Write.follows``).
The producer learns there what they staged (:meth:`JobProducer.delegated`): it neither takes the transaction
for empty nor gives a number twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from txnformat.core.intents import AppRef, CommitResult, ProducerRef, Write
from txnformat.core.operations import DEFERRED_TIMEOUT_MS
from txnformat.core.preview import preview_identity
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import ProducerFencedError, TxnLogError
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.types import Outcome
from writers.calls import Interrupted
from writers.producer import Producer
from writers.session import Session
from writers.settings import Buffer
from writers.standing import Standing
from writers.transaction import Call, CommitInfo, ProducerStatus

__all__ = ["Delegation", "JobProducer"]


_COMMIT_VERSION = "commit_version"


class Delegation(NamedTuple):
    """The identity and place that a process needs to stage on the producer's behalf."""

    producer: ProducerRef
    follows: int
    """The transaction's last entry so far: if the log has a later one, the other process has staged already.
    """


class _JobSession(Session):
    """A session whose transaction also holds the stages of other processes."""

    def delegate(self) -> tuple[Delegation, Standing]:
        """Let others stage: until :meth:`take_back` only an abort is legal.

        Also returns the standing before.
        """
        if self._staging or self.at.unsettled is not None:
            self.flush(Call.FLUSH)
        before = self.at
        ref = self._identity()
        delegation = Delegation(ref, preview_identity(self._log.state, ref).used_entry)
        self.at = replace(before, appended=True, status=ProducerStatus.ABORT_REQUIRED)
        return delegation, before

    def take_back(self, before: Standing) -> None:
        """Learn what the log has staged of the open transaction."""
        ref = self._identity()
        try:
            owner = preview_identity(self._log.refresh(), ref)
        except TxnLogError as error:
            self._refused(Call.FLUSH, error, self.at)
            raise
        is_ongoing = owner.status is TransactionStatus.ONGOING
        if is_ongoing:
            windows = owner.staged_sequences.items()
            self._staging.follow_sequences({key: window[-1].last_sequence for key, window in windows})
        self.at = replace(
            self.at, appended=before.appended or is_ongoing, status=ProducerStatus.IN_TRANSACTION
        )

    def note_refusal(self, error: TxnLogError) -> None:
        """Note the error with which the log has refused the others' stage."""
        self._refused(Call.FLUSH, error, self.at)

    def commit_version(self, app: AppRef) -> tuple[CommitResult, bool]:
        """Commit the transaction and the version; return also whether this transaction did it."""
        if self.at.unsettled is not None:
            action = self.at.unsettled.intent.action
            ends = isinstance(action, Write) and action.end is not None
        else:
            ends = self.at.appended or self._waits
        result = self._write(Call.COMMIT, Outcome.COMMIT if ends else None, app=app)
        if self._has_ended(result):
            self._inputs.committed()
            self._ended(Outcome.COMMIT)
            return result, True
        if ends:  # the version is another run's: nothing of this transaction may become visible, or stay open
            with suppress(ProducerFencedError):  # the newer instance has aborted it
                self.abort()
            return result, False
        self._set(appended=False, status=ProducerStatus.READY)
        return result, not result.repeated

    def _has_ended(self, result: CommitResult) -> bool:
        """Return whether a result is that of the open transaction's commit."""
        ref = self._identity()
        if result.end is not None:
            return (result.end.producer_id, result.end.epoch) == (ref.producer_id, ref.epoch)
        owner = self._log.state.transactional_ids.get(ref.transactional_id or "")
        last = None if owner is None else owner.last_end
        # The entry may be gone, and then only the state tells its producer.
        return last is not None and (last.epoch, last.outcome, last.entry) == (
            ref.epoch,
            Outcome.COMMIT,
            result.entry,
        )


class JobProducer(Producer):
    """A transactional producer whose open transaction others stage in, and that commits an application's
    version.

    ``transactional_id``: as for :class:`~writers.producer.Producer`; the buffer is always "deferred".
    ``deferred_timeout_ms``: how long the transaction may stay open after the last stage.
    """

    def __init__(
        self, log: TxnLog, transactional_id: str, *, deferred_timeout_ms: int = DEFERRED_TIMEOUT_MS
    ) -> None:
        super().__init__(
            log, transactional_id, buffer=Buffer.DEFERRED, deferred_timeout_ms=deferred_timeout_ms
        )
        self._session = self._job = _JobSession(self._log, self.settings, self._staging)

    @contextmanager
    def delegated(self) -> Iterator[Delegation]:
        """Let another process stage in the open transaction while the block runs, in one entry.

        Yields the identity for the stage, and the entry that it must follow: so it lands once, even if the
        other process starts twice. Records that were sent before are staged first: they come first in their
        partitions. If the block raises, or the stage cannot be looked up, the transaction can only be
        aborted. Requests: 1 GET when nothing was staged, else 1 for each entry since; and a flush when
        records wait. Raises InvalidTransactionStateError: no transaction is open; ProducerFencedError,
        TransactionTimedOutError: the transaction was ended by another client.
        """
        delegation, before = self._do(Call.DELEGATE, self._job.delegate)
        try:
            yield delegation
        except TxnLogError as error:
            refusal = error
            self._do(Call.TAKE_BACK, lambda: self._job.note_refusal(refusal))
            raise
        # A block that was left by an exception leaves a transaction that can only be aborted: what was done
        # in it, or
        # still is, is not known.
        self._do(Call.TAKE_BACK, lambda: self._job.take_back(before))

    def commit_version(self, app: AppRef) -> tuple[CommitInfo, bool]:
        """Commit the transaction together with an application's version, in one entry.

        Returns what the entry did, and whether it is this transaction's: if another run has committed the
        version, this transaction is aborted, in one more entry unless a newer instance has done so. If
        nothing was sent, staged or to be committed, the entry holds the version only. Raises
        StaleAppVersionError: the log holds a later version. Nothing was committed; abort;
        CommitStateUnknownError: repeat the call. An abort instead settles what becomes of the records; a
        version without any may have landed; TxnLogError: as for :meth:`~writers.producer.Producer.commit`.
        """
        result, is_own = self._do(
            Call.COMMIT, lambda: self._job.commit_version(app), name=f"{_COMMIT_VERSION} {app}"
        )
        return self._info(result), is_own

    def _has_committed(self, earlier: Interrupted) -> bool:
        if not earlier.name.startswith(_COMMIT_VERSION):
            return super()._has_committed(earlier)
        _, is_own = earlier.answer()
        return bool(is_own)
