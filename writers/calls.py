"""Calls of one object, from which an interrupt can cut off the caller, but nothing else.

A call runs as an :class:`~txnformat.shield.Errand` under the object's lock. It is noted before it is handed
over and forgotten as the very last step, so a call that is still noted when the same thread calls again was
interrupted: it has gone on without its caller, and its answer is there to be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import get_ident
from typing import Any, NamedTuple, TypeVar

from txnformat.shield import Errand
from writers.ownership import OwnLock

__all__ = ["Calls", "Interrupted"]

T = TypeVar("T")


class Interrupted(NamedTuple):
    """A call whose caller was interrupted before it had the answer. It has come to its end."""

    name: str
    """The name of the call."""
    has_run: bool
    """False: it was interrupted before it began, and never will begin."""
    error: BaseException | None
    """The error that the call raised."""
    answer: Callable[[], Any]
    """Returns its result, or raises what it raised; only if it has run."""


class _Noted(NamedTuple):
    name: str
    errand: Errand[Any] | None
    """The errand. If None, the call is not an errand, and may or may not have been done."""
    before: _Noted | None = None
    """The interrupted call whose place it takes; again what counts if this one never begins."""


class Calls:
    """Runs the calls of one object. Safe for use by many threads.

    ``lock``: held while a call runs. ``unrepeatable``: names of calls that take something: the same call
    again means the same again. Every other call that was interrupted is answered when it is repeated; what it
    was given belongs into its name.
    """

    def __init__(self, lock: OwnLock, unrepeatable: Collection[str] = ()) -> None:
        self._lock = lock
        self._unrepeatable = unrepeatable
        self._noted: dict[int, _Noted] = {}  # by the caller's thread

    def run(self, name: str, body: Callable[[], T]) -> T:
        """Do a call: ``body`` runs under the lock, where no signal reaches it."""
        errand = Errand(lambda: self._locked(body))
        me = get_ident()
        self._noted[me] = _Noted(name, errand, self._noted.get(me))
        errand.run()
        try:
            return errand.answer()
        finally:
            self._noted.pop(me, None)

    def run_or_repeat(self, name: str, body: Callable[[], T]) -> T:
        """Do a call, or answer with the one that was interrupted if this is its repeat."""
        earlier = self.interrupted()
        if earlier is None or not earlier.has_run or not self.is_repeat(earlier, name):
            return self.run(name, body)
        try:
            answer: T = earlier.answer()
            return answer
        finally:
            self.forget()

    def is_repeat(self, earlier: Interrupted, name: str) -> bool:
        """Return whether a call asks for the answer of the one that was interrupted; it may never have
        begun.
        """
        return earlier.name == name and self.is_repeatable(name)

    def is_repeatable(self, name: str) -> bool:
        """Return whether a call that was interrupted is answered when it is repeated."""
        return name not in self._unrepeatable

    def _locked(self, body: Callable[[], T]) -> T:
        self._lock.check_own()
        with self._lock.held:
            return body()

    def note(self, name: str) -> None:
        """Note that the caller's thread begins a call that is not an errand."""
        self._noted[get_ident()] = _Noted(name, None)

    def forget(self) -> None:
        """Forget the call that the caller's thread has begun: it knows the answer."""
        self._noted.pop(get_ident(), None)

    @property
    def is_interrupted(self) -> bool:
        """Whether the call that this thread made last was interrupted."""
        return get_ident() in self._noted

    def interrupted(self) -> Interrupted | None:
        """Wait until the interrupted call has ended, and return it; None: there is none.

        It stays noted; repeatable.
        """
        me = get_ident()
        while (noted := self._noted.get(me)) is not None:
            errand = noted.errand
            if errand is None:
                return Interrupted(noted.name, has_run=True, error=None, answer=lambda: None)
            has_run = errand.settle()
            if has_run or noted.before is None:
                return Interrupted(noted.name, has_run, errand.error if has_run else None, errand.answer)
            self._noted[me] = noted.before
        return None
