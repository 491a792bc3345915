"""Calls that no signal can cut: a library thread does the work, the caller's thread only waits for it.

Python runs signal handlers in the main thread, between any two bytecodes, and a handler may raise: Ctrl-C, an
alarm, the soft limit of a task queue, the interrupt of a notebook. No order of statements is safe against
that. So whatever changes state runs as an *errand* on a thread of the library, which no handler ever
interrupts, and the main thread waits. An interrupted wait leaves the errand running, and its answer stays in
the errand: the next call asks it.

In every other thread an errand runs at once, in that thread. The hand-over costs about 10 microseconds.

Rules of this module, for signals can strike here, too: the main thread holds no lock, ever; each of its steps
is one assignment or one call of a C function, and each can be repeated.
"""

from __future__ import annotations

import atexit
import threading
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import ReferenceType, ref

from txnformat.errors import InternalError
from txnformat.forking import run_after_fork
from txnformat.spans import carried

__all__ = ["Errand", "is_interruptible", "settle_errands", "shielded"]

T = TypeVar("T")

POLL_SECONDS = 0.25
"""How long a thread waits for an errand at a time: a second waiter sees within this that it has ended."""


class Errand(Generic[T]):
    """A function that runs at most once, and its answer.

    It sees the context variables of the thread that makes the errand.
    """

    __slots__ = (
        "__weakref__",
        "_claim",
        "_context",
        "_ended",
        "_error",
        "_function",
        "_is_cancelled",
        "_result",
        "is_ended",
    )

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._context = copy_context()
        self._claim = allocate_lock()  # held while it runs
        self._ended = allocate_lock()
        self._ended.acquire()
        self._is_cancelled = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self.is_ended = False
        """Whether it has run, or never will."""

    def perform(self) -> None:
        """Run the function here, unless another thread has begun to.

        An exception of the function becomes the answer.
        """
        with self._claim:  # of two threads that were given it the second one comes when the first has ended
            if not self.is_ended:
                self._perform()

    def _perform(self) -> None:
        try:
            if self._is_cancelled or self._function is None:
                self._error = _NotRun()
            else:
                self._result = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001  # told to the thread that asks for the answer
            self._error = error
        finally:
            self._function = None
            self.is_ended = True
            self._ended.release()

    def run(self) -> None:
        """Have it run, and wait for its end: in the main thread on a library thread, elsewhere at once."""
        if get_ident() != _main:
            self.perform()
        else:
            _submit(self)
        self.wait()

    def wait(self) -> None:
        """Wait for the end."""
        while not self.is_ended:
            self._ended.acquire(timeout=POLL_SECONDS)  # never given back: ``is_ended`` lets all others pass

    def settle(self) -> bool:
        """Wait for the end if it has begun, else see that it never does; return whether it has run.

        For an errand whose caller was interrupted, perhaps before it was handed over. Can be interrupted and
        repeated.
        """
        self._is_cancelled = True
        self.run()
        return not isinstance(self._error, _NotRun)

    @property
    def error(self) -> BaseException | None:
        """The exception of the function; None when it returned, or has not ended."""
        return self._error

    def answer(self) -> T:
        """Return what the function returned, or raise what it raised. Only after the end."""
        if not self.is_ended or isinstance(self._error, _NotRun):
            raise InternalError("a call without an answer was asked for it")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # T may include None


class _NotRun(BaseException):
    """The answer of an errand that was cancelled before it began."""


class _Worker(threading.Thread):
    """A library thread: performs errands one after the other, until it gets None."""

    def __init__(self) -> None:
        super().__init__(name="txnlog-shield", daemon=True)
        self.errands: SimpleQueue[Errand[Any] | None] = SimpleQueue()
        self.newest: ReferenceType[Errand[Any]] | None = None
        """The object that it was given last; not kept alive by it, for the answer may be large."""
        self.is_at_work = False
        """Whether its thread has begun, and has not ended. Set by that thread alone."""
        self.is_retired = False
        """Whether it was told to end. Set by the main thread alone."""

    def running(self) -> Errand[Any] | None:
        """Return what it was given last, unless that has ended."""
        errand = None if self.newest is None else self.newest()
        return None if errand is None or errand.is_ended else errand

    def run(self) -> None:
        """Perform errands."""
        self.is_at_work = True
        try:
            while (errand := self.errands.get()) is not None:
                errand.perform()
                del errand  # while it waits it keeps nothing alive
        finally:
            self.is_at_work = False


_main = threading.main_thread().ident
_worker: _Worker | None = None
_retired: list[_Worker] = []
"""Workers that may still be busy with errands whose callers were interrupted."""


def is_interruptible() -> bool:
    """Return whether a signal handler can raise in this thread."""
    return get_ident() == _main


def shielded(function: Callable[[], T]) -> T:
    """Run ``function`` where no signal handler can raise, and return what it returns.

    An interrupt reaches the caller at once, and the function goes on without it: only for what may end
    unseen.
    """
    if get_ident() != _main:
        return function()
    errand = Errand(carried(function))
    _submit(errand)
    errand.wait()
    return errand.answer()


def _submit(errand: Errand[T]) -> None:
    """Hand an errand to a worker; an errand that was handed over before is not run again."""
    global _worker
    worker = _worker
    if worker is None or worker.is_retired or not worker.is_at_work or worker.running() is not None:
        if worker is not None:
            # It ends with what it does: an errand whose caller was interrupted. It is out of use before it is
            # told so, for an
            # errand behind the None would never be done, and an interrupt may leave it here as the newest
            # worker.
            worker.is_retired = True
            _retired[:] = [worker, *(one for one in _retired if one.running() is not None)]
            worker.errands.put(None)
        _worker = worker = _Worker()  # one whose start is cut short is not at work, and is replaced
        try:
            start_new_thread(_start, (worker,))
        except RuntimeError:  # the interpreter ends, or there are too many threads
            errand.perform()
            return
    # Noted before it is handed over: an interrupt between the two must not make a worker that is busy look
    # idle.
    worker.newest = ref(errand)
    worker.errands.put(errand)


def _start(worker: _Worker) -> None:
    """Start a worker; not in the main thread, for a start waits with locks, which an interrupt could lose."""
    try:
        worker.start()
    except RuntimeError:  # no further thread: this one will do
        worker.run()


def _begin_in_child() -> None:
    global _main, _worker
    _main = threading.main_thread().ident
    _worker = None
    _retired.clear()


def settle_errands() -> None:
    """Let errands whose callers were interrupted come to their end; those that have not begun never do.

    The interpreter calls it before it stops the threads of the library.
    """
    for worker in [*_retired, *([] if _worker is None else [_worker])]:
        errand = worker.running()
        if errand is not None:
            errand.settle()


run_after_fork(_begin_in_child)
atexit.register(settle_errands)
