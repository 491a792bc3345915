"""Calls of an object that serves one thread at a time: each is done whole, or not at all, whatever interrupts
the caller.

A call runs as an errand (:mod:`txnformat.shield`), where no signal reaches it. One whose caller was
interrupted comes to its end alone; the same thread's next call waits for that, and one that only waits for
something is told to give up. So the object is as before a call, or as behind it. Any other unexpected failure
in a call that changes several things leaves open how far the call came: then only ``close`` is possible.

There is no lock that could be lost. Calls form a chain; a call may join it behind one that has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple, TypeVar

from txnformat.errors import InvalidTransactionStateError, TxnLogError
from txnformat.forking import generation
from txnformat.shield import Errand

__all__ = ["Caller", "Uncut"]

T = TypeVar("T")

_CLOSE = "close"


class Caller:
    """The waiting caller of a call."""

    __slots__ = ("is_gone",)

    def __init__(self) -> None:
        self.is_gone = False
        """Whether an interrupt has taken it away."""


class _Noted(NamedTuple):
    """A call whose answer is not known yet to its caller."""

    name: str
    errand: Errand[Any]
    caller: Caller


class _Turn:
    """A call in the chain of calls, and the one that has joined behind it."""

    __slots__ = ("errand", "following")

    def __init__(self, errand: Errand[Any] | None) -> None:
        self.errand = errand
        self.following: dict[None, _Turn] = {}


class Uncut:
    """Runs the calls of one object; ``what`` names it in errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._generation = generation()
        self._noted: dict[int, _Noted] = {}  # by the callers' threads
        self._turn = _Turn(None)  # the last one, or one not far before it
        self._failure: BaseException | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked since the object was made."""
        return self._generation != generation()

    def run(self, name: str, body: Callable[[Caller], T], *, breaks: bool) -> T:
        """Do a call; ``breaks`` says whether an unexpected failure of ``body`` leaves open what it has done.

        Raises InvalidTransactionStateError: ``forked``, ``concurrent-use``, ``close-required`` (an earlier
        call failed unexpectedly).
        """
        self._settle()
        caller = Caller()
        return self._do(name, lambda: self._checked(body, caller, breaks=breaks), caller)

    def close(self, body: Callable[[], None]) -> None:
        """Do the last call: it is possible after any failure.

        A repeat of one that was interrupted tells what that came to.
        """
        earlier = self._settle()
        if earlier is not None and earlier.name == _CLOSE and earlier.errand.settle():
            self._noted.pop(get_ident(), None)
            earlier.errand.answer()
            return
        self._do(_CLOSE, lambda: self._closed(body), Caller())

    def _settle(self) -> _Noted | None:
        """Return the call in which this thread was interrupted last, once it has come to its end; None if
        none was.
        """
        if self.is_foreign:
            raise InvalidTransactionStateError(
                f"this {self._what} belongs to the parent process, not to this forked one",
                kind="forked",
                hint=f"make a new {self._what} in the forked process",
            )
        noted = self._noted.get(get_ident())
        if noted is not None:
            noted.caller.is_gone = True
            noted.errand.settle()
        return noted

    def _do(self, name: str, body: Callable[[], T], caller: Caller) -> T:
        errand: Errand[T] = Errand(lambda: self._in_turn(errand, body))
        me = get_ident()
        self._noted[me] = _Noted(name, errand, caller)
        try:
            errand.run()
        except BaseException:
            caller.is_gone = True
            raise
        self._noted.pop(me, None)
        return errand.answer()

    def _in_turn(self, errand: Errand[T], body: Callable[[], T]) -> T:
        """Join the chain, and do a call."""
        turn, mine = self._turn, _Turn(errand)
        while turn is not mine:
            if turn.errand is not None and not turn.errand.is_ended:
                raise InvalidTransactionStateError(
                    f"another thread is using this {self._what}",
                    kind="concurrent-use",
                    hint=f"a {self._what} serves one thread at a time: make one for each thread, or take "
                    "turns",
                )
            # One of all that try at the same time joins; the others go on behind it.
            turn = self._turn = turn.following.setdefault(None, mine)
        return body()

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

    def _closed(self, body: Callable[[], None]) -> None:
        try:
            body()
        finally:
            self._failure = None
