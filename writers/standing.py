"""Standing: all that a producer knows of its identity and its open transaction, as one immutable value. Pure."""

from __future__ import annotations

import msgspec

from txnformat.admin.prepared import PreparedTransaction
from txnformat.clock import Instant
from txnformat.core.drafts import replace
from txnformat.core.intents import ProducerRef
from txnformat.errors import InvalidTransactionStateError, TxnLogError
from writers.transaction import Call, ProducerStatus, Unsettled, check_call

__all__ = ["Standing"]


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
    """What the log was asked and has not answered, or what its answer was not carried out of."""
    fatal: TxnLogError | None = None
    """What has ended the session."""
    within: Call | None = None
    """The call that has begun and has not ended."""

    def check(self, call: Call, is_transactional: bool) -> None:
        """Raise unless ``call`` is legal now; what has ended the session is raised again.

        Raises
        ------
        InvalidTransactionStateError
            As :func:`~writers.transaction.check_call`; kind ``call-interrupted``: a call was cut.
        """
        if self.fatal is not None:
            raise self.fatal.with_traceback(None)
        if self.within is None or self.unsettled is not None or self.status is ProducerStatus.CLOSED:
            # What was asked of the log was made whole before: the same can be asked again, also after a cut.
            self.check_status(call, is_transactional)
            return
        left = None
        if is_transactional:
            left = Call.INIT if self.ref is None else Call.ABORT
        if call is not left:
            raise InvalidTransactionStateError(
                f"{call}() is not possible now: an unexpected error has cut off {self.within}()",
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
