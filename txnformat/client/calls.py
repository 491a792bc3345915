"""Calls of commit that wait: their intents, and how their threads are woken."""

from __future__ import annotations

import contextlib
from _thread import allocate_lock
from collections.abc import Sequence

from txnformat.core.intents import CommitResult, Intent
from txnformat.errors import InternalError, TxnLogError

__all__ = ["CommitCall", "Waiter", "answer_of", "unanswered_error"]

WAKE_SECONDS = 0.5
"""How long a thread waits for its answer at a time."""


class CommitCall:
    """A call of commit: its intents, and how its thread is woken."""

    __slots__ = ("_wake", "waiters")

    def __init__(self, intents: Sequence[Intent]) -> None:
        self.waiters = [Waiter(self, intent) for intent in intents]
        # A lock of C: an exception in a thread that waits for it cannot leave it half taken.
        self._wake = allocate_lock()
        self._wake.acquire()

    @property
    def is_answered(self) -> bool:
        """Whether all of its intents have their answers."""
        return all(waiter.answer is not None for waiter in self.waiters)

    def wait(self) -> None:
        """Wait until it is woken, or for a while."""
        self._wake.acquire(timeout=WAKE_SECONDS)

    def wake(self) -> None:
        """Wake the call's thread; again is harmless."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self._wake.release()


class Waiter:
    """An intent that waits for its answer."""

    __slots__ = ("answer", "call", "intent", "unsent")

    def __init__(self, call: CommitCall, intent: Intent) -> None:
        self.call = call
        self.intent = intent
        self.unsent = False
        """Whether the intent was never sent to any slot."""
        self.answer: CommitResult | TxnLogError | None = None


def unanswered_error(intent: Intent) -> InternalError:
    """Return the error about an intent that no entry and no error answers."""
    return InternalError("a commit ended without an answer", intent=intent.intent_id)


def answer_of(waiter: Waiter) -> CommitResult | TxnLogError:
    """Return the answer to an intent."""
    if waiter.answer is None:
        raise unanswered_error(waiter.intent)
    return waiter.answer
