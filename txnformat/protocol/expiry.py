"""Open transactions whose time is over: who may be ended, judged by the store's time or by watching. Pure.

Two ways to know it, since clocks may lie (specification, section "Timeouts"):

* the store's time is at or beyond the transaction's expiry, which counts from log time. Log time that runs
  ahead only makes this later;
* this process has watched the transaction do nothing for as long as its timeout, by its own clock that counts
  suspended time and does not jump. This needs no clock to agree with any other: it also works in a log whose
  time ran years ahead.
"""

from __future__ import annotations

from typing import NamedTuple

from txnformat.core.intents import EndTransaction
from txnformat.core.operations import Cause
from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionalIdState
from txnformat.protocol.effects import Times

__all__ = ["PIGGYBACK_MAX", "Watch"]

PIGGYBACK_MAX = 100
"""Most transactions of others that a writer ends with an entry of its own."""


class _Seen(NamedTuple):
    producer_id: int
    entry: int
    """Entry that its timeout counts from."""
    since_ms: int
    """Boot time at which it was first seen so."""


class Watch:
    """The open transactions that one process has seen, and since when.

    Safe for use by many threads: it is one value, replaced in one step. Of two threads that replace it at
    once one may bring back what was seen a little earlier. Then a timeout is counted anew, or its end is
    refused, for the transaction has gone on since.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def note(self, state: LogState, boot_ms: int | None) -> dict[str, _Seen]:
        """Look at the open transactions, and return what was seen of each, by name; O(their number).

        ``boot_ms`` is the process's clock that counts suspended time; without one, watching proves nothing.
        """
        before, seen = self._seen, dict[str, _Seen]()
        if boot_ms is not None:
            for name in state.undecided:
                known = state.transactional_ids[name]
                one = before.get(name)
                if one is None or (one.producer_id, one.entry) != (known.producer_id, known.timed_entry):
                    one = _Seen(known.producer_id, known.timed_entry, boot_ms)
                seen[name] = one
        self._seen = seen
        return seen

    def expired(self, state: LogState, now: Times) -> list[EndTransaction]:
        """Look at the open transactions, and return the ends of those whose time is over, by name."""
        watched = self.note(state, now.boot_ms)
        ends = []
        for name in sorted(state.undecided):
            known = state.transactional_ids[name]
            expires_ms = known.expires_ms
            if expires_ms is None:
                continue  # prepared: it has no time
            seen = watched.get(name)
            if now.store_ms >= expires_ms:
                ends.append(_end(name, known, store_time_ms=now.store_ms))
            elif (
                seen is not None
                and now.boot_ms is not None
                and now.boot_ms - seen.since_ms >= known.allowed_ms
            ):
                ends.append(_end(name, known, observed_entry=seen.entry))
        return ends


def _end(
    name: str,
    known: TransactionalIdState,
    *,
    store_time_ms: int | None = None,
    observed_entry: int | None = None,
) -> EndTransaction:
    return EndTransaction(name, known.producer_id, known.epoch, Cause.TIMEOUT, store_time_ms, observed_entry)
