"""One trial: a log, a producer, one interrupted call, what a user does next, and whether all that was told is true."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from tests.interrupts.calls import Scenario
from tests.interrupts.user import Stores, User, World
from txnformat.errors import InternalError, TxnLogError
from txnformat.store.base import ObjectStore
from txnformat.testing.interrupts import Point, interrupt, record, thinned
from txnformat.testing.signalling_store import SignallingStore
from txnlog import ProducerStatus

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
    """"returned", "raised", or the kind of the error that was raised in place of the interruption."""
    told: list[str] = field(default_factory=list)
    """What the calls after it told, in their order."""
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = "; ".join(self.told)
        return (
            f"{self.scenario} {self.mode} then {self.then} @ {self.point}: {self.outcome}; {told}: "
            f"{' | '.join(self.problems)}"
        )


def points_of(
    scenario: Scenario, mode: Mode, stores: Stores, per_place: int = 2
) -> list[Point] | list[Request]:
    """Return the points of a scenario's call."""
    points: list[Point] = []
    requests = 0
    for _ in range(2):  # the second time nothing is done for the first time
        inner = stores.new()
        store = SignallingStore(inner, signal.SIGUSR1)
        user = scenario.user(World(store if mode is Mode.REQUEST else inner))
        for step in scenario.before:
            step(user)
        store.arm(None, is_after=False)
        recording = record()

        def call(user: User = user, recording: record = recording) -> None:
            with recording:
                scenario.call(user)

        _in_thread(call) if mode is Mode.MEMORY else call()
        points, requests = recording.points, store.requests
        user.close()
        stores.drop(inner)
    if mode is Mode.REQUEST:
        return [Request(nth, is_after) for nth in range(1, requests + 1) for is_after in (False, True)]
    return thinned(points, per_place)


def run_trial(
    scenario: Scenario,
    then: Next,
    mode: Mode,
    point: Point | Request,
    stores: Stores,
) -> Trial:
    """Interrupt a call at a point, go on, and check."""
    trial = Trial(str(scenario), then, mode, point)
    store = stores.new()
    armed = _armed(store, mode, point)
    world = World(armed.store)
    user = scenario.user(world)
    for step in scenario.before:
        step(user)
    with _nothing_ignored(trial), watched():
        try:
            _interrupted(trial, scenario, user, armed)
            if trial.is_hit:
                _others(trial, user)
                if mode is Mode.TWICE:
                    with interrupt(None, Interruption):
                        _go_on(trial, scenario, user)
                _go_on(trial, scenario, user)
            _end(trial, user)
            _check(trial, world)
        except _Stuck:
            pass
        except Hung as hung:
            trial.problems.append(f"hangs: {_where(hung.__traceback__)}")
        except Exception as failure:  # noqa: BLE001  # the log cannot even be opened
            trial.problems.append(f"fails: {failure!r:.200} at {_where(failure.__traceback__)}")
        user.producer = None  # type: ignore[assignment]
        del user
        gc.collect(0)
    if left := stores.drop(store):
        trial.problems.append(f"left behind: {', '.join(left)}")
    return trial


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


def _interrupted(trial: Trial, scenario: Scenario, user: User, armed: _armed) -> None:
    raised: BaseException | None = None
    try:
        armed.run(lambda: scenario.call(user))
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
        trial.problems.append("the interrupt did not reach the caller")
    if trial.then is Next.LEAVE and raised is not None:
        _try(trial, "leave", lambda: user.leave(raised))


def _others(trial: Trial, user: User) -> None:
    """Let another thread call the producer: it must get an answer, whatever it is."""
    answered = threading.Event()

    def call() -> None:
        try:
            user.producer.init()  # nobody needs it; it takes its turn like others
        except TxnLogError:
            pass
        finally:
            answered.set()

    if user.status is ProducerStatus.UNINITIALISED:
        return
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    if not answered.wait(HUNG_SECONDS / 4):
        trial.problems.append(f"hangs others: {_where_is(thread)}")
        raise _Stuck
    thread.join()


class _Stuck(Exception):
    """Nothing more can be tried."""


def _go_on(trial: Trial, scenario: Scenario, user: User) -> None:
    match trial.then:
        case Next.REPEAT:
            _try(trial, scenario.name, lambda: scenario.call(user))
        case Next.ABORT if scenario.is_transactional:
            _try(trial, "abort", user.abort)
        case Next.CLOSE | Next.ABORT:
            _try(trial, "close", user.close)
        case Next.GO_ON | Next.LEAVE:
            pass


def _end(trial: Trial, user: User) -> None:
    """Do the next work with the same producer if it can be had, then with a new one of the same name."""
    if user.status is not ProducerStatus.CLOSED:
        _work(trial, user)
    for _ in range(3):
        if user.status is ProducerStatus.CLOSED or _try(trial, "close", user.close):
            break
    else:
        trial.problems.append(f"cannot be closed: {user.status}")
    user.renew()
    if not _try(trial, "init", user.init):
        trial.problems.append("a new instance cannot be initialised")
        return
    if user.status is ProducerStatus.PREPARED and not _try(trial, "abort", user.abort):
        trial.problems.append("what is prepared cannot be aborted")
    if not _work(trial, user):
        trial.problems.append("a new instance cannot write")
    if not _try(trial, "close", user.close):
        trial.problems.append("a new instance cannot be closed")


def _work(trial: Trial, user: User) -> bool:
    """Write two records, and have them acknowledged."""
    if user.status is ProducerStatus.UNINITIALISED:
        _try(trial, "init", user.init)
    if not user.is_transactional:
        return _try(trial, "send", user.send) and _try(trial, "flush", user.flush)
    if not _try(trial, "begin", user.begin) and not (
        _try(trial, "abort", user.abort) and _try(trial, "begin", user.begin)
    ):
        return False
    return _try(trial, "send", user.send) and _try(trial, "commit", user.commit)


def _check(trial: Trial, world: World) -> None:
    try:
        seen = world.seen(verified=sum(map(ord, str(trial.point))) % 8 == 0)
    except TxnLogError as error:
        trial.problems.append(f"cannot be read: {error}")
        return
    trial.problems += world.ledger.check(seen)
    if seen.undecided:
        trial.problems.append(f"left undecided: {', '.join(seen.undecided)}")


def _try(trial: Trial, name: str, call: Callable[[], None]) -> bool:
    """Call; return whether it returned. What is no error of the project's is a problem."""
    try:
        call()
    except Hung:
        raise
    except InternalError as error:
        trial.problems.append(f"{name}: InternalError: {error}")
        trial.told.append(f"{name}: {error.kind}")
        return False
    except TxnLogError as error:
        trial.told.append(f"{name}: {error.kind}")
        return False
    except (Interruption, NoMemory):
        trial.told.append(f"{name}: interrupted")
        return False
    except BaseException as error:  # noqa: BLE001  # that is what is looked for
        trial.problems.append(f"{name}: {error!r:.200} at {_where(error.__traceback__)}")
        return False
    trial.told.append(f"{name}: done")
    return True


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
        if left := open_files() - files:
            gc.collect()
            if left := open_files() - files:
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
