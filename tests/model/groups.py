"""What the state machine knows: groups of numbers, the processes that send them, and what readers may see of
them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st

from txnformat.client.background import Background
from txnformat.clock import Clock, Instant, SystemClock
from txnformat.store.base import ObjectStore
from txnlog import Producer, ProducerStatus, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind
from writers.settings import Buffer

__all__ = [
    "FAULTS",
    "KINDS",
    "OPEN",
    "TIMEOUT_MS",
    "Client",
    "DrawnIds",
    "Group",
    "JumpingClock",
    "ManualClock",
    "Readers",
    "WhenAsked",
]

TIMEOUT_MS = 60_000
OPEN = ("open", "aborting", "prepared")
KINDS = ("plain", "idempotent", *(buffer.value for buffer in Buffer))
FAULTS = st.sampled_from(
    [
        *5 * [None],
        Fault(FaultKind.APPLIED_LOST_ANSWER),
        Fault(FaultKind.FAIL_BEFORE),
        Fault(FaultKind.APPLIED_LATE),
        Fault(FaultKind.SERVER_ERROR, applied=True),
        Fault(FaultKind.EXISTS_AFTER_OWN_SUCCESS),
        Fault(FaultKind.DISK_FULL),
    ]
)


class ManualClock:
    """Time that passes where somebody waits for it, or the test says so."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000.0

    def now(self) -> Instant:
        return Instant(int(self.ms), int(self.ms))

    def sleep(self, seconds: float, wake: object = None) -> None:
        self.ms += 1_000 * seconds


class DrawnIds:
    """Ids and randomness that follow from a number which Hypothesis has drawn.

    How long a commit waits for its next attempt is random. It moves the clock of a test, and so what has
    timed out: with the machine's randomness the same rules would lead now to one state, now to another.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def new(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def uniform(self) -> float:
        return self._rng.random()


class WhenAsked(Background):
    """Does background work in the thread that waits for it: another would meet faults and moments of its own
    choice."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self._jobs: dict[str, Callable[[], object]] = {}

    def is_running(self, name: str) -> bool:
        return name in self._jobs

    def start(self, name: str, job: Callable[[], object]) -> None:
        self._jobs.setdefault(name, job)

    def wait(self) -> None:
        while self._jobs:
            name = next(iter(self._jobs))
            self._run(name, self._jobs.pop(name))


class JumpingClock:
    """The real clocks, but the one that proves timeouts can be put forward."""

    def __init__(self, real: Clock) -> None:
        self._real = real
        self.ms = 0.0

    def now(self) -> Instant:
        wall, boot = self._real.now()
        return Instant(wall, (boot or 0) + int(self.ms))

    def sleep(self, seconds: float, wake: object = None) -> None:
        self.ms += 1_000 * seconds


@dataclass(eq=False)
class Group:
    """Numbers that become visible together, or never."""

    name: str | None
    numbers: list[int] = field(default_factory=list)
    state: str = "open"
    """``open``, ``prepared``, ``aborting`` (nobody knows whether it still is), ``doubt``, ``committed`` or
    ``aborted``."""
    is_settled: bool = False
    """In doubt, but nothing of it can land any more."""
    token: str | None = None
    first_ms: int | None = None
    """When the first of it can have been written."""
    last_ms: int | None = None


@dataclass(eq=False)
class Client:
    """One process with one producer."""

    kind: str
    name: str | None
    store: ObjectStore
    log: TxnLog
    producer: Producer
    group: Group | None = None
    unsettled: str = ""
    """The call whose outcome is unknown."""
    may_fail: bool = False
    """Somebody else has done something to it, or may have."""

    @property
    def status(self) -> ProducerStatus:
        """Where its producer stands."""
        return self.producer.status

    @property
    def is_transactional(self) -> bool:
        """Whether it sends in transactions."""
        return self.name is not None


class Readers:
    """What was seen by readers so far."""

    def __init__(self) -> None:
        self._stable: dict[int, int] = {}
        self._seen: set[int] = set()
        self.removed: set[int] = set()
        """Committed numbers that a deletion of records has taken."""

    def check(self, fresh: TxnLog, following: TxnLog, groups: list[Group]) -> None:
        """Compare what a new reader and an old one see with what there must be, and learn what was in
        doubt.
        """
        committed, everything = _read(fresh, "read_committed"), _read(fresh, "read_uncommitted")
        assert committed == _read(following, "read_committed")
        assert len(set(everything.values())) == len(everything), "a number is in the log twice"
        stable = {one.partition: one.last_stable_offset for one in fresh.offsets("t")}
        for partition, offset in self._stable.items():
            assert stable[partition] >= offset, "the last stable offset went back"
        self._stable = stable
        below = {number for (partition, offset), number in everything.items() if offset < stable[partition]}
        there, visible = set(everything.values()), set(committed.values())
        assert self._seen - self.removed <= visible, "a committed record is gone"
        assert not self.removed & there, "a record that was deleted is back"
        self._seen = visible
        for group in groups:
            self._check(group, there, below, visible)
            mine = set(group.numbers)
            for partition in stable:
                own = [
                    number
                    for (at, _), number in sorted(everything.items())
                    if at == partition and number in mine
                ]
                assert all(one < other for one, other in pairwise(own)), (
                    "records of a transaction out of order"
                )

    def _check(self, group: Group, there: set[int], below: set[int], visible: set[int]) -> None:
        mine = set(group.numbers) - self.removed
        if group.state == "doubt" and mine & visible:
            group.state = "committed"
        elif group.state == "doubt" and group.is_settled and not mine - below:
            group.state = "aborted"
        if group.state == "committed":
            assert mine <= there, f"committed, but not there: {mine - there}"
            assert mine & below == mine & visible, "a committed transaction is torn"
        else:
            assert not mine & visible, f"{group.state}, but visible: {mine & visible}"


def _read(log: TxnLog, isolation: str) -> dict[tuple[int, int], int]:
    table = log.read("t", isolation=isolation, columns=["_partition", "_offset", "n"]).read_all()
    columns = [table.column(name).to_pylist() for name in ("_partition", "_offset", "n")]
    return {(partition, offset): number for partition, offset, number in zip(*columns, strict=True)}
