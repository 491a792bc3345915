"""Product code that does its own IO, as part of the program of a simulated process: each request is one step
of the scheduler.

The code runs on a thread of its own, and only while the scheduler waits for it; so a history stays what its
seed says. A crash, or the end of the history, raises in the code at the request that it waits for.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, NamedTuple, Self, TypeVar, cast
from unittest import mock

from txnformat import keys
from txnformat.client import driver
from txnformat.client.background import Background
from txnformat.client.committer import Committer
from txnformat.client.driver import Driver
from txnformat.clock import Instant
from txnformat.core.intents import CommitResult, Intent
from txnformat.errors import FormatError, InternalError, StorageError, TxnLogError
from txnformat.protocol import follow
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.effects import (
    CreateObject,
    DrawId,
    DrawUniform,
    Effect,
    GetObject,
    MakeDurable,
    ReadClock,
    Sleep,
    Steps,
)
from txnformat.protocol.tail import HUNDREDS, Bundles
from txnformat.protocol.view import View
from txnformat.reading import open_files
from txnformat.segments import ahead as ahead_module
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.requests import RequestKind
from txnformat.store.wrapped import WrappedStore
from txnformat.verify import requests
from txnlog_testing.simulator.oracle import Oracle, is_definite
from txnlog_testing.simulator.world import HistoryViolation, Process, StoreCall, World
from txnlog_testing.stores.faulty import SimulatedCrash

__all__ = ["Program", "SimCommitter", "without_guesses", "without_pools"]

PAYLOADS_IN_FLIGHT = 4
"""Reads in flight of a store that has a latency. They are made one after another."""

T = TypeVar("T")


class _Message(NamedTuple):
    """A message of the thread to the scheduler: the next effect, or how the code has ended."""

    effect: Any = None
    has_ended: bool = False
    result: Any = None
    error: BaseException | None = None


class Program:
    """Runs blocking code of one process. ``ask`` is for its components, on the code's thread."""

    def __init__(self) -> None:
        self._told: SimpleQueue[_Message] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._is_dead = False

    def ask(self, effect: Any) -> Any:
        """Have the scheduler perform an effect, and return its answer or raise its error."""
        if self._is_dead:
            raise SimulatedCrash("the process has ended")
        self._told.put(_Message(effect))
        answer, error = self._answers.get()
        if error is not None:
            raise error
        return answer

    def steps(self, act: Callable[[], T]) -> Steps[T]:
        """Return ``act`` as steps. The steps raise every error of ``act``."""
        thread = threading.Thread(target=self._run, args=(act,), name="simulated", daemon=True)
        thread.start()
        told = self._told.get()
        try:
            while not told.has_ended:
                try:
                    answer = yield cast(Effect, told.effect)
                except TxnLogError as error:
                    self._answers.put((None, error))
                else:
                    self._answers.put((answer, None))
                told = self._told.get()
        finally:
            self._is_dead = True
            if not told.has_ended:
                self._answers.put((None, SimulatedCrash("the process has ended")))
            thread.join()
        if told.error is not None:
            raise told.error
        return cast(T, told.result)

    def _run(self, act: Callable[[], object]) -> None:
        try:
            self._told.put(_Message(has_ended=True, result=act()))
        except BaseException as error:  # noqa: BLE001  # it is raised where the scheduler is
            self._told.put(_Message(has_ended=True, error=error))


class _SteppedStore(WrappedStore):
    """A process's store; each request is a step."""

    def __init__(self, world: World, process: Process, program: Program, *, has_payloads: bool) -> None:
        super().__init__(world.store_of(process))
        self._process = process
        self._program = program
        self._in_flight = PAYLOADS_IN_FLIGHT if has_payloads else super().reads_in_flight

    @property
    def reads_in_flight(self) -> int:
        return self._in_flight

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Any]) -> Any:
        return self._program.ask(StoreCall(operation, key, call))

    def store_time_ms(self) -> int:
        return self._process.read_clock().store_ms

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        if keys.parse_entry_key(key) is None:
            return super().get(key, bytes_max)
        found: bytes | None = self._program.ask(GetObject(key))
        return found

    def create(self, key: str, data: bytes) -> CreateResult:
        result: CreateResult = self._program.ask(CreateObject(key, data))
        return result


class _SteppedClock:
    """The clocks of a process."""

    def __init__(self, process: Process, program: Program) -> None:
        self._process = process
        self._program = program

    def now(self) -> Instant:
        now = self._process.read_clock()
        return Instant(now.wall_ms, now.boot_ms)

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        self._program.ask(Sleep(1_000 * seconds))


class _DrawnIds:
    """Ids and random numbers from the seed."""

    def __init__(self, world: World) -> None:
        self._world = world

    def new(self) -> str:
        return self._world.new_id()

    def uniform(self) -> float:
        return self._world.rng.random()


class _SteppedDriver(Driver):
    """Hands effects to the scheduler as they are."""

    def __init__(
        self, process: Process, program: Program, store: _SteppedStore, clock: _SteppedClock, ids: _DrawnIds
    ) -> None:
        super().__init__(store, clock, ids)
        self._process = process
        self._program = program

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case ReadClock():
                return self._process.read_clock()
            case DrawId():
                return self.ids.new()
            case DrawUniform():
                return self.ids.uniform()
            case MakeDurable():
                return None
            case CreateObject():
                try:
                    return self._program.ask(effect)
                except TxnLogError as error:
                    return CreateResult(CreateOutcome.AMBIGUOUS, error)  # type: ignore[arg-type]
            case _:
                return self._program.ask(effect)


class _NoBackground(Background):
    """Writes bundles at once where there are payload bundles, and drops all else: other processes of a
    history do it.
    """

    def __init__(self, clock: _SteppedClock, world: World, *, has_payloads: bool) -> None:
        super().__init__(clock)
        self._world = world
        self._has_payloads = has_payloads

    def start(self, name: str, job: Callable[[], object]) -> None:
        """Do it, or drop it."""
        if name == "bundle" and self._has_payloads:
            with contextlib.suppress(StorageError):
                job()
                self._world.hits["payload bundles by the product"] += 1


class SimCommitter(Committer):
    """The product's committer in a simulated process; the oracle judges its answers.

    Parameters
    ----------
    view : View or None
        Known before; None: the log is opened.
    has_payloads : bool
        Whether a request has a latency: so payload bundles are written, and rows come out of them.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        oracle: Oracle,
        program: Program,
        settings: CommitSettings,
        view: View | None,
        *,
        has_payloads: bool,
    ) -> None:
        store = _SteppedStore(world, process, program, has_payloads=has_payloads)
        clock, ids = _SteppedClock(process, program), _DrawnIds(world)
        super().__init__(store, clock, ids, settings)
        self._driver = _SteppedDriver(process, program, store, clock, ids)
        self._background = _NoBackground(clock, world, has_payloads=has_payloads)
        self._view = view
        self._name = process.name
        self._world = world
        self._oracle = oracle
        self.in_flight: list[Intent] = []

    @property
    def view(self) -> View | None:
        """Return the newest view."""
        return self._view

    def commit_together(self, intents: Sequence[Intent]) -> list[CommitResult | TxnLogError]:
        """Commit, and have the answers judged."""
        self.in_flight = list(intents)
        since = self._oracle.called(self._name, intents)
        answers = super().commit_together(intents)
        self.in_flight = []
        for intent, answer in zip(intents, answers, strict=True):
            if isinstance(answer, FormatError | InternalError):
                raise HistoryViolation(f"{self._name} calls a sound log corrupt: {answer}")
            self._world.note(
                f"{self._name:6} {type(intent.action).__name__} {intent.intent_id[:8]}: {answer}"
            )
            self._oracle.answered(intent, answer, since)
            if not isinstance(answer, CommitResult) and not is_definite(answer):
                self._oracle.abandoned(intent)
        return answers


class _OnePool:
    """In place of a pool of threads: the caller's thread does the work, in its order."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        """Call it when its result is asked for."""
        return map(function, items)

    def submit(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Call it now."""
        done: Future[T] = Future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  # it is raised where the result is asked for
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None:
        """Nothing is left to do."""


@contextlib.contextmanager
def without_guesses(*, tens: bool) -> Iterator[None]:
    """Let followers look one entry after the other, and writers try a slot at once, as those do that expect
    nothing: expectations only save requests.

    ``tens``: let them ask for small payload bundles all the same, as where they know the log to embed.
    """

    def sizes(view: View, ahead: int) -> Steps[dict[Bundles, int]]:
        yield from ()  # steps that ask for nothing
        return {HUNDREDS: view.state.entry + 1 + HUNDREDS.behind}

    with (
        mock.patch.object(follow, "_sizes", follow._sizes if tens else sizes),
        mock.patch.object(View, "is_behind", return_value=False),
    ):
        yield


@contextlib.contextmanager
def without_pools() -> Iterator[None]:
    """Let the product make its requests one after another: of several threads the machine would choose the
    order.
    """
    modules: tuple[Any, ...] = (requests, ahead_module, open_files, driver)
    before = [module.ThreadPoolExecutor for module in modules]
    try:
        for module in modules:
            module.ThreadPoolExecutor = _OnePool
        yield
    finally:
        for module, pool in zip(modules, before, strict=True):
            module.ThreadPoolExecutor = pool
