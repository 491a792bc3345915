"""Standing: a producer's knowledge of its identity and its open transaction, as one immutable value. Pure."""

from __future__ import annotations

import msgspec

from txnformat.admin.prepared import PreparedTransaction
from txnformat.clock import Instant
from txnformat.core.intents import ProducerRef
from txnformat.errors import (
    ConflictError,
    InvalidTransactionStateError,
    ProducerFencedError,
    SequenceError,
    TransactionTimedOutError,
    TxnLogError,
    UploadExpiredError,
)
from txnformat.persistent import replace
from txnformat.types import Outcome
from writers.transaction import Call, ProducerStatus, Unsettled, check_call

__all__ = ["Standing", "had_landed", "is_final", "records_dropped"]

_UNKNOWN_IDENTITY = frozenset({"unknown-transactional-id", "unknown-epoch"})
"""Kinds of errors that no call of this producer can cure: only init() gives an identity, and only once."""


class Standing(msgspec.Struct, frozen=True):
    """A producer's protocol state: its identity, its open transaction, and what is not known of them."""

    status: ProducerStatus = ProducerStatus.UNINITIALISED
    """Where it stands, unless a call was cut."""
    ref: ProducerRef | None = None
    """Identity: producer id and the epoch of the open or next transaction."""
    prepared: PreparedTransaction | None = None
    """The transaction whose outcome is decided elsewhere."""
    is_recovered: bool = False
    """Whether another instance has prepared it."""
    is_torn: bool = False
    """Whether the open transaction holds a large value's beginning alone."""
    appended: bool = False
    """Whether the log holds, or may hold, something of the open transaction."""
    has_committed: bool = False
    """Whether the transaction that was open last is committed."""
    uploading_since: Instant | None = None
    """When the first file of the open transaction was seen that the log does not know."""
    unsettled: Unsettled | None = None
    """The request that the log has not answered, or whose answer was not carried out in full."""
    fatal: TxnLogError | None = None
    """The error that has ended the session."""
    within: Call | None = None
    """The call that has begun and has not ended."""

    def check(self, call: Call, is_transactional: bool) -> None:
        """Raise unless ``call`` is legal now; what has ended the session is raised again.

        Raises InvalidTransactionStateError: as :func:`~writers.transaction.check_call`; kind
        ``call-interrupted``: a call was cut.
        """
        if self.fatal is not None:
            raise self.fatal.with_traceback(None)
        if self.within is None or self.unsettled is not None or self.status is ProducerStatus.CLOSED:
            # The noted request was made whole before: the same request can be sent again, also after a cut.
            self.check_status(call, is_transactional)
            return
        left = None
        if is_transactional:
            left = Call.INIT if self.ref is None else Call.ABORT
        if call is not left:
            raise InvalidTransactionStateError(
                f"{call}() is not possible now: an unexpected error has interrupted {self.within}()",
                kind="call-interrupted",
                hint="close the producer" if left is None else f"call {left}(), or close the producer",
                status=str(self.status_after_cut(is_transactional)),
            )

    def check_status(self, call: Call, is_transactional: bool) -> None:
        """As :meth:`check`, whatever call runs or was cut."""
        unknown = None if self.unsettled is None else self.unsettled.call
        check_call(
            call,
            self.status,
            is_transactional=is_transactional,
            unknown=unknown,
            has_committed=self.has_committed,
        )

    def status_after_cut(self, is_transactional: bool) -> ProducerStatus:
        """Return the status; if a call was cut, the one that says what is left to do."""
        if self.within is None or self.status in (ProducerStatus.CLOSED, ProducerStatus.FENCED):
            return self.status
        if self.unsettled is not None or not is_transactional:
            return ProducerStatus.UNKNOWN_OUTCOME
        return ProducerStatus.UNINITIALISED if self.ref is None else ProducerStatus.ABORT_REQUIRED

    def known(self, is_transactional: bool) -> Standing:
        """Return where the producer stands once the log has answered what was unknown."""
        if self.unsettled is None:
            return self
        if self.ref is None and is_transactional:
            status = ProducerStatus.UNINITIALISED
        elif self.prepared is not None:
            status = ProducerStatus.PREPARED
        elif is_transactional:
            status = ProducerStatus.ABORT_REQUIRED if self.is_torn else ProducerStatus.IN_TRANSACTION
        else:
            status = ProducerStatus.READY
        return replace(self, unsettled=None, status=status)

    def refused(
        self, call: Call, error: TxnLogError, is_transactional: bool, *, is_of_input: bool
    ) -> Standing:
        """Return the standing after a refusal of this call's attempts.

        ``is_of_input``: others have read its input.
        """
        if is_final(error):
            return replace(self, fatal=error, unsettled=None, status=ProducerStatus.FENCED)
        if isinstance(error, TransactionTimedOutError):
            # Another client has aborted it. The abort that is asked for makes no entry, and begins the next
            # epoch.
            lost = replace(self, unsettled=None, appended=True, uploading_since=None)
            return replace(lost, status=ProducerStatus.ABORT_REQUIRED)
        if call is Call.ABORT:
            return self  # it has attempts of its own: what it was to settle stays open
        if isinstance(error, UploadExpiredError):
            # Its files may be gone: the records have to be sent again.
            if not is_transactional:
                return replace(self.known(is_transactional), uploading_since=None)
            return replace(self, unsettled=None, status=ProducerStatus.ABORT_REQUIRED)
        if is_of_input:
            return replace(self, unsettled=None, status=ProducerStatus.ABORT_REQUIRED)
        # After a conflict every slot is known to be another writer's, so an earlier attempt is not there
        # either.
        return self.known(is_transactional) if isinstance(error, ConflictError) else self

    def ended(self, ref: ProducerRef, outcome: Outcome) -> Standing:
        """Return where the producer stands once its transaction has ended: every end in the log begins an
        epoch.
        """
        ended = replace(
            self,
            ref=replace(ref, epoch=ref.epoch + 1),
            status=ProducerStatus.READY,
            appended=False,
            unsettled=None,
            prepared=None,
            is_recovered=False,
            has_committed=outcome is Outcome.COMMIT,
            uploading_since=None,
        )
        # Others may have taken over the same prepared transaction, and the next epoch would be theirs as
        # well.
        return replace(ended, ref=None, status=ProducerStatus.UNINITIALISED) if self.is_recovered else ended


def is_final(error: TxnLogError) -> bool:
    """Return whether an error ends the session: the identity can never be used again."""
    return isinstance(error, ProducerFencedError | SequenceError) or error.kind in _UNKNOWN_IDENTITY


def had_landed() -> InvalidTransactionStateError:
    """Return the error of an abort after a commit that was cut off."""
    return InvalidTransactionStateError(
        "the interrupted commit has succeeded: the transaction is committed",
        kind="transaction-committed",
        hint="continue with the next transaction; do not send these records again",
    )


def records_dropped(within: Call) -> InvalidTransactionStateError:
    """Return the error of a call that was cut outside of the log's answers: what is buffered may be torn."""
    return InvalidTransactionStateError(
        f"an unexpected error has interrupted {within}(): records that were sent after the last flush "
        "that succeeded "
        "may be missing in the log",
        kind="records-dropped",
        hint="check which records the log holds, and send the rest with another producer",
    )
