"""Calls of an object that serves one thread at a time: each is done whole, or not at all, whatever interrupts the caller.

A call runs where no signal reaches it (:mod:`writers.calls`). One whose caller was interrupted comes to its end alone;
the same thread's next call waits for that, and one that only waits for something is told to give up. So the object is
as before a call, or as behind it. What else fails unexpectedly in a call that changes several things leaves open how
far it came: then only ``close`` is possible.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TypeVar

from txnformat.errors import InvalidTransactionStateError, TxnLogError
from writers.calls import Calls, Interrupted
from writers.ownership import OneThread

__all__ = ["Caller", "Uncut"]

T = TypeVar("T")


class Caller:
    """One who waits for the answer of a call."""

    __slots__ = ("is_gone",)

    def __init__(self) -> None:
        self.is_gone = False
        """Whether an interrupt has taken it away."""


class Uncut:
    """Runs the calls of one object.

    Parameters
    ----------
    what : str
        The object, for errors: "consumer".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.lock = OneThread(what)
        """Held while a call runs."""
        self._calls = Calls(self.lock)
        self._callers: dict[int, Caller] = {}  # by their thread: the newest call of each
        self._failure: BaseException | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked since the object was made."""
        return self.lock.is_foreign

    def run(self, name: str, body: Callable[[Caller], T], *, breaks: bool) -> T:
        """Do a call.

        Parameters
        ----------
        breaks : bool
            Whether an unexpected failure of ``body`` leaves open what it has done.

        Raises
        ------
        InvalidTransactionStateError
            Kinds ``forked``, ``concurrent-use``; kind ``close-required``: an earlier call failed unexpectedly.
        """
        self.interrupted()
        caller = self._callers[get_ident()] = Caller()
        try:
            return self._calls.run(name, lambda: self._checked(body, caller, breaks=breaks))
        except BaseException:
            caller.is_gone = True
            raise

    def interrupted(self) -> Interrupted | None:
        """Return the call in which this thread was interrupted last, once it has come to its end; None if none was."""
        if self.lock.is_foreign:
            with self.lock:  # refuses
                raise AssertionError
        if not self._calls.is_interrupted:
            return None
        before = self._callers.get(get_ident())
        if before is not None:
            before.is_gone = True
        return self._calls.interrupted()

    def close(self, body: Callable[[], None]) -> None:
        """Do the last call: it is possible after any failure. A repeat of one that was interrupted tells what that came to."""
        earlier = self.interrupted()
        if earlier is not None and earlier.name == _CLOSE and earlier.has_run:
            self._calls.forget()
            if earlier.error is not None:
                raise earlier.error
            return
        self._calls.run(_CLOSE, lambda: self._closed(body))

    def _closed(self, body: Callable[[], None]) -> None:
        try:
            body()
        finally:
            self._failure = None

    def _checked(self, body: Callable[[Caller], T], caller: Caller, *, breaks: bool) -> T:
        if self._failure is not None:
            raise InvalidTransactionStateError(
                f"a call of this {self._what} failed unexpectedly: {self._failure!r:.200}",
                kind="close-required",
                hint=f"close it, and make a new {self._what}",
            ) from self._failure
        try:
            return body(caller)
        except TxnLogError:
            raise
        except BaseException as error:
            if breaks:
                self._failure = error
            raise


_CLOSE = "close"
