"""The simulated world: virtual time, processes, and the scheduler that lets one of them do one effect at a
time.

Everything that happens follows from one seed: the world draws from one ``random.Random`` and nothing else,
reads no clock of the machine, and never lets an order depend on hashes. Each effect and its answer go into
the trace; two runs of one seed have the same :attr:`World.trace_hash`.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from txnformat import keys
from txnformat.clock import Instant
from txnformat.errors import NotFoundError, StorageError, TxnLogError
from txnformat.protocol.effects import (
    CreateObject,
    DrawId,
    DrawUniform,
    Effect,
    GetObject,
    ListObjects,
    MakeDurable,
    PutObject,
    ReadClock,
    Simultaneous,
    Sleep,
    Steps,
    Times,
)
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.requests import RequestKind
from txnlog_testing.simulator.store import FaultPlan, SimStore, VirtualTime
from txnlog_testing.stores.faulty import FaultyStore, SimulatedCrash

__all__ = ["Actor", "HistoryViolation", "Process", "Sender", "StoreCall", "World"]

LATE_PROBABILITY = 0.08
"""Probability of each late request, per step, to arrive."""
WALL_OFFSET_MS_MAX = 25_000
"""How far a clock that is kept right may be off."""


class HistoryViolation(Exception):
    """Something happened that must never happen; the message says what, the seed shows how."""


class Actor(Protocol):
    """The program of a process."""

    def main(self) -> Steps[None]:
        """Return the program, from the start of the process to its end."""
        ...

    def crashed(self) -> None:
        """Forget what the process knew: it is gone, and ``main`` is called again when it restarts."""
        ...


class StoreCall(NamedTuple):
    """A request of a process that no effect of the protocol stands for, such as a deletion or a ranged
    read.
    """

    operation: RequestKind
    key: str
    make: Callable[[], Any]
    """Makes it, on the process's own store."""


class Sender(NamedTuple):
    """The process that sent the bytes of an entry, and the times of its clocks."""

    process: str
    is_skewed: bool
    store_times: tuple[int, ...]
    """The last readings of store time before the bytes were first sent."""
    latest_ms: int = 0
    """The latest store time that the process ever read."""
    sent_ms: int = 0
    """True time at which they were first sent."""
    counts_suspended_time: bool = True
    """Whether the process has a clock to watch others by."""


class Process:
    """One process: its program, what it waits for, and its clocks."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.actor: Actor | None = None
        self.offset_ms = 0
        """Offset of the wall clock from true time."""
        self.is_skewed = False
        """Whether the offset is beyond what a writer may have, for the whole of the history."""
        self.jump: tuple[int, int] | None = None
        """Step at which the wall clock goes wrong for good, and its offset from then on."""
        self.counts_suspended_time = True
        self.program: Steps[None] | None = None
        self.effect: Effect | None = None
        self.answers: list[Any] = []
        self.unanswered: list[int] = []
        """Requests of a Simultaneous that were not made yet."""
        self.wake_ms = 0
        self.suspended_until = 0
        """Step."""
        self.store_times: list[int] = []
        self.latest_ms = 0
        self.slot_sent: tuple[str, bytes, CreateOutcome] | None = None
        """The last create of an entry, for as long as its outcome is open."""

    def now(self) -> Times:
        """Read this process's clocks."""
        time = self._world.time.now_ms
        wall = time + self.offset_ms
        boot = time - 1_699_999_000_000 if self.counts_suspended_time else None
        return Times(wall, boot, wall if self._world.own_clock_is_store_time else time)

    def read_clock(self) -> Times:
        """Read the clocks, and remember what the process knows of the store's time."""
        now = self.now()
        self.store_times = [*self.store_times[-3:], now.store_ms]
        self.latest_ms = max(self.latest_ms, now.store_ms)
        return now


class World:
    """Time, store and processes of one history.

    Parameters
    ----------
    seed : int
        Decides everything.
    on_entry : callable
        Called with slot and bytes of every entry that lands.
    keep_lines : bool
        Keep the trace as text besides its hash.
    """

    def __init__(
        self, seed: int, on_entry: Callable[[int, bytes], None], *, keep_lines: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.time = VirtualTime()
        self.step = 0
        self.bad_bundles: set[str] = set()
        """Keys of bundles that do not hold what they should."""
        self.hits: Counter[str] = Counter()
        self.lines: list[str] = []
        self.is_finishing = False
        self.own_clock_is_store_time = False
        self.naps = (20, 80, 300)
        """Steps for which a process may be suspended."""
        self.sleepiness = 0.04
        """How likely it is just before a create."""
        self.store = SimStore(self.time, on_entry)
        self.plan = FaultPlan(self.rng, 0.0, self.hits)
        self.processes: list[Process] = []
        self.senders: dict[bytes, Sender] = {}
        self._keep_lines = keep_lines
        self._hash = hashlib.sha256()
        self._stores: dict[str, FaultyStore] = {}
        self._orphans: list[FaultyStore] = []
        """Stores of crashed processes that still have requests on their way."""

    @property
    def trace_hash(self) -> str:
        """Return the hash over all effects and answers so far."""
        return self._hash.hexdigest()

    def new_id(self) -> str:
        """Return a fresh uuid, from the seed."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def note(self, text: str) -> None:
        """Put a line into the trace."""
        line = f"{self.step:5d} {self.time.now_ms - 1_700_000_000_000:>10d} {text}"
        self._hash.update(line.encode())
        if self._keep_lines:
            self.lines.append(line)

    def start(self, name: str) -> Process:
        """Add a process; it runs once it has an actor."""
        process = Process(self, name)
        self.processes.append(process)
        self._stores[name] = FaultyStore(self.store, self.plan)
        return process

    def store_of(self, process: Process) -> FaultyStore:
        """Return the store as a process sees it, until it crashes."""
        return self._stores[process.name]

    def leap(self, milliseconds: int) -> None:
        """Let time pass in which no process does anything; no request is on its way for so long."""
        self._let_late_requests_arrive(1.0)
        self.time.now_ms += milliseconds
        self.note(f"-- {milliseconds / 3_600_000:.1f} hours pass")

    def calm_down(self) -> None:
        """From here on nothing goes wrong any more, and sleeping processes wake up."""
        self.is_finishing = True
        self.plan.rate = 0.0
        self.store.fail_fsync = False
        self._let_late_requests_arrive(1.0)
        for process in self.processes:
            process.suspended_until = 0
            process.is_skewed = False
            process.offset_ms = 0
        self.note("-- no more faults")

    def run_step(self) -> bool:
        """Let one process do one effect; return whether any process is left that runs."""
        self.step += 1
        self._let_late_requests_arrive(LATE_PROBABILITY)
        alive = [process for process in self.processes if process.actor is not None]
        if not alive:
            return False
        awake = [process for process in alive if process.suspended_until <= self.step]
        if not awake:
            awake = [min(alive, key=lambda one: one.suspended_until)]
            awake[0].suspended_until = 0
        ready = [process for process in awake if process.wake_ms <= self.time.now_ms]
        if not ready:
            self.time.now_ms = min(process.wake_ms for process in awake)
            ready = [process for process in awake if process.wake_ms <= self.time.now_ms]
        process = self.rng.choice(ready)
        if not self.is_finishing:
            if self.rng.random() < _suspend_probability(process, self.sleepiness):
                process.suspended_until = self.step + self.rng.choice(self.naps)
                self.hits["suspended"] += 1
                self.note(f"{process.name} is suspended until step {process.suspended_until}")
                return True
            if process.jump is not None:
                if process.jump[0] <= self.step and process.offset_ms != process.jump[1]:
                    process.offset_ms = process.jump[1]
                    self.hits["clock years ahead"] += 1
            elif self.rng.random() < 0.005 and not process.is_skewed:
                process.offset_ms = self.rng.randint(-WALL_OFFSET_MS_MAX, WALL_OFFSET_MS_MAX)
                self.hits["clock jumped"] += 1
        try:
            self._advance(process)
        except SimulatedCrash:
            self._crash(process)
        return True

    def _advance(self, process: Process) -> None:
        if process.program is None:
            if process.actor is None:
                return
            process.program = process.actor.main()
            self._resume(process, None, None)
            return
        effect = process.effect
        answer: Any = None
        if isinstance(effect, Simultaneous) and process.unanswered:
            index = process.unanswered.pop(self.rng.randrange(len(process.unanswered)))
            try:
                process.answers[index] = self._perform(process, effect.requests[index])
            except StorageError as error:
                process.answers[index] = error
            self._trace(process, effect.requests[index], process.answers[index])
            if process.unanswered:
                return
            answer = process.answers
        elif effect is not None:
            try:
                answer = self._perform(process, effect)
            except (StorageError, NotFoundError) as error:
                self._trace(process, effect, error)
                self._resume(process, None, error)
                return
            self._trace(process, effect, answer)
        self._resume(process, answer, None)

    def _resume(self, process: Process, answer: Any, failure: TxnLogError | None) -> None:
        assert process.program is not None
        process.effect = None
        try:
            if failure is not None:
                process.effect = process.program.throw(failure)
            else:
                process.effect = process.program.send(answer)
        except StopIteration:
            process.program = process.actor = None
            self.note(f"{process.name} has ended")
            return
        if isinstance(process.effect, MakeDurable):  # the simulated store shows nothing that is not
            self._resume(process, None, None)
            return
        if isinstance(process.effect, Simultaneous):
            process.unanswered = list(range(len(process.effect.requests)))
            process.answers = [None] * len(process.unanswered)
        elif isinstance(process.effect, Sleep):
            process.wake_ms = self.time.now_ms + max(1, round(process.effect.milliseconds))

    def _perform(self, process: Process, effect: Effect) -> Any:
        match effect:
            case Sleep():
                return None
            case ReadClock():
                return process.read_clock()
            case DrawId():
                return self.new_id()
            case DrawUniform():
                return self.rng.random()
            case _:
                self.time.now_ms += self.rng.randint(1, 30)
                return self._request(process, effect)

    def _request(self, process: Process, effect: Effect) -> Any:
        store = self._stores[process.name]
        request: Any = effect
        if isinstance(request, StoreCall):
            made = request.make()
            if request.operation is RequestKind.GET and request.key.startswith(keys.PAYLOAD_PREFIX) and made:
                bad = " bad" * (request.key in self.store.damaged)
                self.hits[f"rows looked for in a{bad} payload bundle"] += 1
            return made
        match effect:
            case GetObject(key):
                found = store.get(key)
                self._settle(process, key, found)
                if found is not None and key.startswith(keys.BUNDLE_PREFIX):
                    self.hits["read a bad bundle" if key in self.bad_bundles else "read a bundle"] += 1
                if found is not None and key.startswith(keys.PAYLOAD_PREFIX):
                    bad = " bad" * (key in self.store.damaged)
                    self.hits[f"read a{bad} payload bundle"] += 1
                return found
            case CreateObject(key, data):
                return self._create(process, store, key, data)
            case PutObject(key, data):
                return store.put(key, data)
            case ListObjects(prefix, start_after):
                return [info.key for info in store.list(prefix, start_after)]
            case _:
                raise NotImplementedError(effect)

    def _create(self, process: Process, store: FaultyStore, key: str, data: bytes) -> CreateResult:
        is_entry = keys.parse_entry_key(key) is not None
        if is_entry:
            sender = Sender(
                process.name,
                process.is_skewed,
                tuple(process.store_times),
                process.latest_ms,
                self.time.now_ms,
                process.counts_suspended_time,
            )
            self.senders.setdefault(data, sender)
        self.store.fail_fsync = self.plan.fsync_fails()
        try:
            result = store.create(key, data)
        finally:
            self.store.fail_fsync = False
        if is_entry:
            match result.outcome:
                case CreateOutcome.CREATED:
                    self.hits["slot ours"] += 1
                case CreateOutcome.REFUSED:
                    self.hits["slot refused"] += 1
                case _:
                    process.slot_sent = (key, data, result.outcome)
        return result

    def _settle(self, process: Process, key: str, found: bytes | None) -> None:
        """Count what a slot's outcome was, as its read-back shows it."""
        if process.slot_sent is None or process.slot_sent[0] != key:
            return
        _, data, outcome = process.slot_sent
        process.slot_sent = None
        if found is None:
            self.hits["slot gone" if outcome is CreateOutcome.EXISTS else "slot absent after no answer"] += 1
        else:
            self.hits["slot ours, read back" if found == data else "slot lost"] += 1

    def _crash(self, process: Process) -> None:
        assert process.actor is not None
        self.note(f"{process.name} CRASHES")
        self.hits["crashed"] += 1
        if process.program is not None:
            process.program.close()
        process.program = process.effect = process.slot_sent = None
        process.wake_ms = self.time.now_ms + self.rng.randint(1, 500)
        self._orphans.append(self._stores[process.name])
        self._stores[process.name] = FaultyStore(self.store, self.plan)
        process.actor.crashed()

    def _let_late_requests_arrive(self, probability: float) -> None:
        for store in (*self._stores.values(), *self._orphans):
            if store.pending and self.rng.random() < probability:
                for landed in store.release():
                    won = landed.result is None or landed.result.outcome is CreateOutcome.CREATED
                    self.hits["late request " + ("applied" if won else "came too late")] += 1
                    self.note(
                        f"-- late {landed.operation} {_short(landed.key)} {'applied' if won else 'lost'}"
                    )

    def _trace(self, process: Process, effect: Effect, answer: Any) -> None:
        self.note(f"{process.name:6} {_shown(effect)} -> {_answered(answer)}")


def _short(key: str) -> str:
    return key.removeprefix("_txnlog/").lstrip("0") if len(key) < 60 else key[-60:]


def _shown(effect: Effect) -> str:
    request: Any = effect
    if isinstance(request, StoreCall):
        return f"{request.operation} {_short(request.key)}"
    match effect:
        case GetObject(key):
            return f"get {_short(key)}"
        case CreateObject(key, data):
            return f"create {_short(key)} {crc32(data):08x}"
        case PutObject(key, data):
            return f"put {_short(key)} {crc32(data):08x}"
        case ListObjects(prefix, start_after):
            return f"list {prefix} after {_short(start_after or '')}"
        case Sleep(milliseconds):
            return f"sleep {milliseconds:.3f}"
        case _:
            return type(effect).__name__


def _answered(answer: Any) -> str:
    match answer:
        case bytes():
            return f"{len(answer)} bytes {crc32(answer):08x}"
        case CreateResult(outcome, error):
            return f"{outcome}" + (f" ({error.kind})" if error else "")
        case TxnLogError():
            return f"error {answer.kind}"
        case Times() | Instant():
            return " ".join(map(str, answer))
        case list():
            last = answer[-1] if answer else ""
            return f"{len(answer)} keys {_short(last if isinstance(last, str) else last.key)}"
        case str() | int() | None:
            return str(answer)
        case _:
            return type(answer).__name__


def _suspend_probability(process: Process, sleepiness: float) -> float:
    """Return how likely a process falls asleep now: most of all where a long sleep hurts.

    That is just before a create, and between a create whose answer was not plain and its read-back.
    """
    if process.slot_sent is not None:
        return 0.1
    return sleepiness if isinstance(process.effect, CreateObject) else 0.004
