"""One trial: a log, a producer, one interrupted call, what a user does next, and whether all that was told is
true."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Protocol

from tests.interrupts.world import Stores, World
from txnformat.errors import InternalError, TxnLogError
from txnformat.shield import settle_errands
from txnformat.store.base import ObjectStore
from txnlog_testing.interrupts import Point, interrupt, record, thinned
from txnlog_testing.stores.signalling import SignallingStore

__all__ = [
    "HUNG_SECONDS",
    "Hung",
    "Interruption",
    "Mode",
    "Next",
    "Trial",
    "points_of",
    "run_trial",
    "watched",
]

HUNG_SECONDS = 6.0
"""A trial takes milliseconds: what takes this long will never answer."""


ENDING_SECONDS_MAX = 5.0
"""How long what an interrupt has left running may take to end."""


class Interruption(KeyboardInterrupt):
    """What is raised."""


class NoMemory(MemoryError):
    """The same as another kind of error."""


class Hung(BaseException):
    """Raised in the main thread when a trial takes too long."""


class Next(StrEnum):
    """What the user does after the interrupted call."""

    REPEAT = "repeat"
    ABORT = "abort"
    CLOSE = "close"
    GO_ON = "go-on"
    LEAVE = "leave"
    """Leave the producer's ``with`` statement with the exception."""


class Mode(StrEnum):
    """How a call is interrupted."""

    SIGNAL = "signal"
    """KeyboardInterrupt at a point of the main thread."""
    TWICE = "twice"
    """The same, and again where the next call first waits."""
    MEMORY = "memory"
    """MemoryError at a point of another thread, where everything is done in the thread itself."""
    REQUEST = "request"
    """A signal during a request to the store, whichever thread makes it."""


class Request(NamedTuple):
    """A point of mode REQUEST."""

    nth: int
    is_after: bool

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} request {self.nth}"


@dataclass(slots=True)
class Trial:
    """What came of one trial."""

    scenario: str
    then: Next
    mode: Mode
    point: Point | Request
    is_hit: bool = False
    outcome: str = "not-hit"
    """"returned", "raised", or the kind of the error that was raised in place of the interruption. "late": only when the
    request had ended, for which a pool of threads waited."""
    told: list[str] = field(default_factory=list)
    """What the calls after it told, in their order."""
    problems: list[str] = field(default_factory=list)

    def attempt(self, name: str, call: Callable[[], object]) -> bool:
        """Call; return whether it returned. What is no error of the project's is a problem."""
        try:
            call()
        except Hung:
            raise
        except InternalError as error:
            self.problems.append(f"{name}: InternalError: {error}")
            self.told.append(f"{name}: {error.kind}")
            return False
        except TxnLogError as error:
            self.told.append(f"{name}: {error.kind}")
            return False
        except (Interruption, NoMemory):
            self.told.append(f"{name}: interrupted")
            return False
        except BaseException as error:  # noqa: BLE001  # that is what is looked for
            self.problems.append(f"{name}: {error!r:.200} at {_where(error.__traceback__)}")
            return False
        self.told.append(f"{name}: done")
        return True

    def __str__(self) -> str:
        told = "; ".join(self.told)
        return (
            f"{self.scenario} {self.mode} then {self.then} @ {self.point}: {self.outcome}; {told}: "
            f"{' | '.join(self.problems)}"
        )


class Play(Protocol):
    """Something whose call is interrupted, in a world of its own; what came before it was done when it was
    made."""

    world: World

    def call(self) -> None:
        """Do what is interrupted."""

    def other(self) -> Callable[[], None] | None:
        """Return a call for another thread, which must get an answer; None: there is none."""

    def go_on(self, trial: Trial) -> None:
        """Do what ``trial.then`` says."""

    def leave(self, trial: Trial, error: BaseException) -> None:
        """Leave a ``with`` statement with what was raised."""

    def end(self, trial: Trial) -> None:
        """Do the next work, and close everything."""

    def check(self, *, verified: bool) -> Iterable[str]:
        """Yield what the log does not hold as it was told."""


class Actor(Protocol):
    """Makes plays."""

    @property
    def needs_own_log(self) -> bool:
        """Whether the log of a trial must not be a copy of others'."""

    def __str__(self) -> str:
        """Return what is called, and on what."""

    def play(self, world: World) -> Play:
        """Return a play, ready for the call."""


def points_of(actor: Actor, mode: Mode, stores: Stores, per_place: int = 2) -> list[Point] | list[Request]:
    """Return the points of a call."""
    points: list[Point] = []
    requests = 0
    for _ in range(2):  # the second time nothing is done for the first time
        inner = stores.new(is_own_log=actor.needs_own_log)
        store = SignallingStore(inner, signal.SIGUSR1)
        play = actor.play(World(store if mode is Mode.REQUEST else inner))
        store.arm(None, is_after=False)
        recording = record()

        def call(play: Play = play, recording: record = recording) -> None:
            with suppress(TxnLogError), recording:
                play.call()

        _in_thread(call) if mode is Mode.MEMORY else call()
        points, requests = recording.points, store.requests
        play.end(Trial("", Next.GO_ON, mode, Request(0, is_after=False)))
        stores.drop(inner)
    if mode is Mode.REQUEST:
        return [Request(nth, is_after) for nth in range(1, requests + 1) for is_after in (False, True)]
    return thinned(points, per_place)


def run_trial(actor: Actor, then: Next, mode: Mode, point: Point | Request, stores: Stores) -> Trial:
    """Interrupt a call at a point, go on, and check."""
    trial = Trial(str(actor), then, mode, point)
    store = stores.new(is_own_log=actor.needs_own_log)
    armed = _armed(store, mode, point)
    with _nothing_ignored(trial), watched():
        try:
            _run(trial, actor, armed)
        except _StuckError:
            pass
        except Hung as hung:
            trial.problems.append(f"hangs: {_where(hung.__traceback__)}")
        except Exception as failure:  # noqa: BLE001  # the log cannot even be opened
            trial.problems.append(f"fails: {failure!r:.200} at {_where(failure.__traceback__)}")
        gc.collect(0)
    if left := stores.drop(store):
        trial.problems.append(f"left behind: {', '.join(left)}")
    return trial


def _run(trial: Trial, actor: Actor, armed: _armed) -> None:
    play = actor.play(World(armed.store))
    _interrupted(trial, play, armed)
    if trial.is_hit:
        _others(trial, play)
        if trial.mode is Mode.TWICE:
            with suppress(Interruption), interrupt(None, Interruption):
                play.go_on(trial)
        play.go_on(trial)
    play.end(trial)
    settle_errands()  # what the interrupt left running ends before the check, not between two of its reads
    try:
        trial.problems += play.check(verified=sum(map(ord, str(trial.point))) % 8 == 0)
    except TxnLogError as error:
        trial.problems.append(f"cannot be read: {error}")


class _armed:
    """Runs a call with the interruption of a mode."""

    def __init__(self, store: ObjectStore, mode: Mode, point: Point | Request) -> None:
        self.store = SignallingStore(store, signal.SIGUSR1) if isinstance(point, Request) else store
        self._mode = mode
        self._point = point
        self.is_hit = False
        self.is_unnoticed = False

    def run(self, call: Callable[[], None]) -> None:
        """Call, and raise what it raises."""
        if isinstance(self.store, SignallingStore) and isinstance(self._point, Request):
            before = signal.signal(signal.SIGUSR1, _raise_interruption)
            self.store.arm(self._point.nth, is_after=self._point.is_after)
            try:
                call()
            finally:
                self.store.left()
                signal.signal(signal.SIGUSR1, before)
                self.is_hit, self.is_unnoticed = self.store.struck, self.store.is_unnoticed
            return
        assert isinstance(self._point, Point)
        armed = interrupt(self._point, NoMemory if self._mode is Mode.MEMORY else Interruption)

        def struck() -> None:
            with armed:
                call()

        try:
            _in_thread(struck) if self._mode is Mode.MEMORY else struck()
        finally:
            self.is_hit = armed.struck.hit


def _raise_interruption(number: int, frame: FrameType | None) -> None:
    raise Interruption


def _in_thread(call: Callable[[], None]) -> None:
    """Call in a thread of its own, and raise here what it raises there."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _interrupted(trial: Trial, play: Play, armed: _armed) -> None:
    raised: BaseException | None = None
    try:
        armed.run(play.call)
        trial.outcome = "returned"
    except (Interruption, NoMemory) as interruption:
        raised = interruption
        trial.outcome = "raised"
    except Hung:
        raise
    except TxnLogError as other:
        raised = other
        trial.outcome = other.kind
        if isinstance(other, InternalError):
            trial.problems.append(f"InternalError: {other}")
    except BaseException as other:  # noqa: BLE001  # that is what is looked for
        raised = other
        trial.outcome = type(other).__name__
        trial.problems.append(f"raised {other!r:.200} at {_where(other.__traceback__)}")
    trial.is_hit = armed.is_hit
    if armed.is_unnoticed:
        trial.outcome += ", late"
    if trial.then is Next.LEAVE and raised is not None:
        play.leave(trial, raised)


def _others(trial: Trial, play: Play) -> None:
    """Let another thread call: it must get an answer, whatever it is."""
    call = play.other()
    if call is None:
        return
    answered = threading.Event()

    def run() -> None:
        try:
            call()
        except TxnLogError:
            pass
        finally:
            answered.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    if not answered.wait(HUNG_SECONDS / 4):
        trial.problems.append(f"hangs others: {_where_is(thread)}")
        raise _StuckError
    thread.join()


class _StuckError(Exception):
    """Nothing more can be tried."""


@contextmanager
def watched(seconds: float = HUNG_SECONDS) -> Iterator[None]:
    """Raise Hung in the main thread when the block takes too long; a signal ends every wait."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGUSR2, stop)
    main = threading.main_thread().ident or 0
    timer = threading.Timer(seconds, lambda: signal.pthread_kill(main, signal.SIGUSR2))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR2, before)


@contextmanager
def _nothing_ignored(trial: Trial) -> Iterator[None]:
    """Note what is raised where nobody can catch it, and what is left: files, threads."""

    def unraisable(what: Any) -> None:
        if not isinstance(what.exc_value, Interruption | NoMemory | Hung):
            trial.problems.append(f"ignored in {what.object!r:.80}: {what.exc_value!r:.120}")

    def in_thread(what: Any) -> None:
        if not isinstance(what.exc_value, Interruption | NoMemory):
            trial.problems.append(f"in a thread: {what.exc_value!r:.120} at {_where(what.exc_traceback)}")

    before = sys.unraisablehook, threading.excepthook
    sys.unraisablehook, threading.excepthook = unraisable, in_thread
    files = open_files()
    try:
        yield
    finally:
        sys.unraisablehook, threading.excepthook = before
        end = time.monotonic() + ENDING_SECONDS_MAX
        while (left := open_files() - files) and time.monotonic() < end:
            gc.collect()
            time.sleep(0.001)  # what goes on without its caller comes to its end
        if left:
            trial.problems.append(f"left open: {', '.join(sorted(left))}")


def open_files() -> set[str]:
    """Return the files that this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():  # noqa: PTH208, PTH112
        try:
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")  # noqa: PTH115
        except OSError:
            continue
    return {name for name in found if not name.endswith("/fd")}


def _where(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)
    return " < ".join(
        f"{frame.filename.rsplit('/', 2)[-1]}:{frame.lineno} {frame.name}" for frame in frames[::-1][:6]
    )


def _where_is(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame) if frame is not None else []
    return " < ".join(f"{one.filename.rsplit('/', 2)[-1]}:{one.lineno} {one.name}" for one in stack[::-1][:6])
