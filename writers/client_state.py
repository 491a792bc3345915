"""What a producer may do when: its client-side states and the only table of what each call needs.

These are the states of one instance, not those that the log keeps for a transactional id
(:mod:`txnformat.transactions`).
"""

from __future__ import annotations

from enum import StrEnum

from txnformat.errors import InvalidTransactionStateError

__all__ = ["ClientState", "check_call"]


class ClientState(StrEnum):
    """Where one producer instance stands."""

    UNINITIALISED = "uninitialised"
    READY = "ready"
    """Initialised, no transaction begun (for a plain producer: always, while it works)."""
    IN_TRANSACTION = "in-transaction"
    ABORTABLE = "abortable"
    """Something of the transaction is lost (an upload failed): it can only be aborted."""
    UNKNOWN = "unknown-outcome"
    """A commit's outcome is unknown: repeat the same call, abort, or close."""
    FENCED = "fenced"
    """A newer instance has taken over: for good."""
    CLOSED = "closed"


_TRANSACTIONAL: dict[str, frozenset[ClientState]] = {
    "init": frozenset({ClientState.UNINITIALISED}),
    "begin": frozenset({ClientState.READY}),
    "send": frozenset({ClientState.IN_TRANSACTION}),
    "flush": frozenset({ClientState.IN_TRANSACTION, ClientState.UNKNOWN}),
    "commit": frozenset({ClientState.IN_TRANSACTION, ClientState.UNKNOWN}),
    "abort": frozenset({ClientState.IN_TRANSACTION, ClientState.ABORTABLE, ClientState.UNKNOWN}),
}
_PLAIN: dict[str, frozenset[ClientState]] = {
    "init": frozenset({ClientState.UNINITIALISED}),
    "send": frozenset({ClientState.READY}),
    "flush": frozenset({ClientState.READY, ClientState.UNKNOWN}),
}

_WHY = {
    ClientState.UNINITIALISED: "the producer is not initialised; call init(), or use it in a with statement",
    ClientState.READY: "no transaction is open; call begin() first",
    ClientState.IN_TRANSACTION: "a transaction is open; commit() or abort() it first",
    ClientState.ABORTABLE: "a part of the transaction is lost; abort() it and begin again",
    ClientState.UNKNOWN: "the outcome of the last call is unknown; repeat that call, abort() or close()",
    ClientState.FENCED: "a newer instance of this producer has taken over; stop this one",
    ClientState.CLOSED: "the producer is closed; make a new one",
}


def check_call(call: str, state: ClientState, *, is_transactional: bool) -> None:
    """Raise InvalidTransactionStateError if ``call`` is not possible in ``state``."""
    allowed = (_TRANSACTIONAL if is_transactional else _PLAIN).get(call)
    if allowed is None:
        raise InvalidTransactionStateError(
            f"{call}() needs a transactional id",
            kind="no-transactional-id",
            hint="make the producer with Producer(log, transactional_id=...)",
        )
    if state in allowed:
        return
    if call == "init" and state is not ClientState.CLOSED:
        why = "the producer is initialised already; init() is called once"
    else:
        why = _WHY[state]
    raise InvalidTransactionStateError(
        f"{call}() is not possible now", kind=f"producer-{state.value}", hint=why, state=state.value
    )
