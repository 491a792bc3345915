"""A producer for jobs of many processes: others stage in its open transaction, and it ends the transaction.

    producer              opens: fences older instances                                    1 entry
    whoever it lets       stages under the producer's identity: (id, epoch)                1 entry each
    producer              ends the transaction, with positions, acknowledgements and the   1 entry
                          application's version

Those who stage take their sequence numbers from the log's state, one after another, each once (``Write.follows``). The producer learns what they did
from there, too (:meth:`JobProducer.delegated`), so that it neither takes the transaction for empty nor gives numbers twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from txnformat.decide_transaction import check_identity
from txnformat.errors import InternalError, ProducerFencedError, TxnLogError
from txnformat.intents import AppRef, CommitResult, ProducerRef, Write
from txnformat.log import TxnLog
from txnformat.operations import DEFERRED_TIMEOUT_MS
from txnformat.state import LogState
from txnformat.transactions import TransactionalIdState, TransactionStatus
from txnformat.types import Outcome
from writers.producer import Producer
from writers.session import Session
from writers.settings import Buffer
from writers.transaction import Call, CommitInfo, ProducerStatus

__all__ = ["Delegation", "JobProducer"]


class Delegation(NamedTuple):
    """What one who stages on the producer's behalf has to know."""

    producer: ProducerRef
    follows: int
    """The transaction's last entry so far: if the log has a later one, the one who was to stage has done so."""


class _JobSession(Session):
    """A session whose transaction holds what others have staged."""

    @contextmanager
    def delegated(self) -> Iterator[Delegation]:
        """Let others stage while the block runs; see :meth:`JobProducer.delegated`."""
        ref = self._identity()
        try:
            yield Delegation(ref, self._owner(ref, self._log.state).used_entry)
            self._follow(ref)
        except BaseException as error:
            # What they did, or still do, is not known.
            self._appended = True
            if isinstance(error, TxnLogError):
                self._refused(Call.FLUSH, error)
            if self.status is ProducerStatus.IN_TRANSACTION:
                self.status = ProducerStatus.ABORT_REQUIRED
            raise

    def _follow(self, ref: ProducerRef) -> None:
        """Take note of what the log has staged of the open transaction."""
        owner = self._owner(ref, self._log.refresh())
        if owner.status is TransactionStatus.ONGOING:
            self._appended = True
            windows = owner.staged_sequences.items()
            self._staging.follow_sequences({key: window[-1].last_sequence for key, window in windows})

    def _owner(self, ref: ProducerRef, state: LogState) -> TransactionalIdState:
        """Return what the log knows of the producer, which must still be the newest instance."""
        name = ref.transactional_id or ""
        owner = state.transactional_ids.get(name)
        check_identity(ref, name, owner, Write(ref))
        if owner is None:
            raise InternalError("an identity that was checked, of an id that is not known")
        return owner

    def commit_version(self, app: AppRef) -> tuple[CommitResult, bool]:
        """Commit the transaction and the version; return also whether this transaction did it."""
        if self._unsettled is not None:
            action = self._unsettled.intent.action
            ends = isinstance(action, Write) and action.end is not None
        else:
            ends = self._appended or self._waits
        result = self._write(Call.COMMIT, Outcome.COMMIT if ends else None, app=app)
        if self._has_ended(result):
            self._progress.committed()
            self._ended()
            return result, True
        if (
            ends
        ):  # the version is somebody else's: nothing of this transaction may become visible, or stay open
            with suppress(ProducerFencedError):  # the newer instance has aborted it
                self.abort()
            return result, False
        self._appended = False
        self.status = ProducerStatus.READY
        return result, not result.repeated

    def _has_ended(self, result: CommitResult) -> bool:
        """Return whether a result is that of the open transaction's commit."""
        ref = self._identity()
        if result.end is not None:
            return (result.end.producer_id, result.end.epoch) == (ref.producer_id, ref.epoch)
        owner = self._log.state.transactional_ids.get(ref.transactional_id or "")
        last = None if owner is None else owner.last_end
        # The entry may be gone, and then only the state tells who made it.
        return last is not None and (last.epoch, last.outcome, last.entry) == (
            ref.epoch,
            Outcome.COMMIT,
            result.entry,
        )


class JobProducer(Producer):
    """A transactional producer whose open transaction others stage in, and that commits an application's version.

    Parameters
    ----------
    transactional_id : str
        As for :class:`~writers.producer.Producer`; the buffer is always "deferred".
    deferred_timeout_ms : int
        How long the transaction may stay open after the last stage.
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
        """Let somebody else stage in the open transaction while the block runs, in one entry.

        Yields the identity under which that is done, and behind which entry: so it is done once, also when whoever does it
        is started twice. Records that were sent before are staged first: they come first in
        their partitions. If the block raises, or what it did cannot be learned, the transaction can only be aborted.

        Requests: 1 GET when nothing was staged, else 1 for each entry since; and a flush when records wait.

        Raises
        ------
        InvalidTransactionStateError
            No transaction is open.
        ProducerFencedError, TransactionTimedOutError
            The transaction was ended by somebody else.
        """
        with self._lock:
            self._session.check(Call.SEND)
            if self._staging or self.status is ProducerStatus.UNKNOWN_OUTCOME:
                self._session.flush(Call.FLUSH)
            with self._job.delegated() as delegation:
                yield delegation

    def commit_version(self, app: AppRef) -> tuple[CommitInfo, bool]:
        """Commit the transaction together with an application's version, in one entry.

        Returns what the entry did, and whether it is this transaction's: if somebody else has committed the version,
        this transaction is aborted, in one more entry unless a newer instance has done so. If nothing was sent, staged or
        to be committed, the entry holds the version only.

        Raises
        ------
        StaleAppVersionError
            The log holds a later version. Nothing was committed; abort.
        CommitStateUnknownError
            Repeat the call. An abort instead settles what becomes of the records; a version without any may have landed.
        TxnLogError
            As for :meth:`~writers.producer.Producer.commit`.
        """
        with self._lock:
            self._session.check(Call.COMMIT)
            result, is_own = self._job.commit_version(app)
            return self._info(result), is_own
