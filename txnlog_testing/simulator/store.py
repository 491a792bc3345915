"""The simulated object store: one memory shared by all processes, virtual time, and a plan of faults from the
seed.

Each process sees it through a :class:`~txnlog_testing.stores.faulty.FaultyStore` of its own, so that a crash
ends one process, while what it had sent may still arrive.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from txnformat import keys
from txnformat.clock import Instant
from txnformat.errors import StorageError
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog_testing.stores.faulty import FAULTS_OF, Fault, FaultKind

__all__ = ["EPOCH_MS", "FaultPlan", "SimStore", "VirtualTime"]

EPOCH_MS = 1_700_000_000_000
"""Store time when a history begins."""

_CRASHES = (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER)
_RARE = frozenset({*_CRASHES, FaultKind.PERMISSION_DENIED, FaultKind.DISK_FULL, FaultKind.READ_ONLY})
"""Kinds that end an attempt for good: too many of them, and nothing interesting follows."""

KINDS_OF: dict[RequestKind, tuple[FaultKind, ...]] = {
    operation: tuple(kind for kind in FaultKind if kind in kinds for _ in range(1 if kind in _RARE else 4))
    for operation, kinds in FAULTS_OF.items()
}
"""The kinds from which a fault of an operation is drawn: a kind that is here four times is four times as
likely."""


class VirtualTime:
    """The true time of a history; it only moves when the scheduler moves it."""

    def __init__(self) -> None:
        self.now_ms = EPOCH_MS

    def now(self) -> Instant:
        """Return the true time, as the clock of the store."""
        return Instant(self.now_ms, self.now_ms)

    def sleep(self, seconds: float, wake: object = None) -> None:
        """Not used: the store never waits."""
        raise NotImplementedError


class SimStore(MemoryStore):
    """The memory behind all processes; tells the world of every entry that lands.

    Parameters
    ----------
    on_entry : callable
        Called with slot and bytes right after an entry was created, for any client and however late.
    """

    def __init__(self, time: VirtualTime, on_entry: Callable[[int, bytes], None]) -> None:
        super().__init__(time, name="simulated")
        self._on_entry = on_entry
        self.damaged: set[str] = set()
        """Keys of payload bundles that do not hold what was written."""
        self.on_payloads: Callable[[str, bytes], None] | None = None
        """Called with key and bytes right after a payload bundle was created."""
        self.fail_fsync = False
        """The next create becomes visible and then reports an error that no repeat can mend."""

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create the object if the key is free."""
        result = super().create(key, data)
        if result.outcome is not CreateOutcome.CREATED:
            return result
        self.damaged.discard(key)
        if self.on_payloads is not None and key.startswith(keys.PAYLOAD_PREFIX):
            self.on_payloads(key, data)
        slot = keys.parse_entry_key(key)
        if slot is not None:
            self._on_entry(slot, data)
        if self.fail_fsync:
            self.fail_fsync = False
            error = StorageError("the directory could not be synced", kind="fsync", store=self.url, key=key)
            return CreateResult(CreateOutcome.AMBIGUOUS, error)
        return result


class FaultPlan:
    """Draws the fault of each request.

    Parameters
    ----------
    rate : float
        How likely a request fails: a write three times, a read 0.4 times this (there are many more reads).
        With 0 all is well.
    hits : Counter
        Counts what was drawn, by name of the kind.
    """

    def __init__(self, rng: random.Random, rate: float, hits: Counter[str]) -> None:
        self._rng = rng
        self.rate = rate
        self._hits = hits

    def __call__(self, operation: RequestKind, key: str, nth: int) -> Fault | None:
        """Return the fault of one request, or None."""
        weight = 3.0 if operation in (RequestKind.CREATE, RequestKind.PUT) else 0.4
        if self._rng.random() >= self.rate * weight:
            return None
        kind = self._rng.choice(KINDS_OF[operation])
        applied = kind is FaultKind.SERVER_ERROR and self._rng.random() < 0.5
        name = f"{kind}, applied" if applied else str(kind)
        self._hits[f"fault {name}"] += 1
        if operation in (RequestKind.GET, RequestKind.LIST):
            self._hits[f"fault of a {operation}"] += 1
        return Fault(kind, applied=applied, status=self._rng.choice((500, 503)))

    def fsync_fails(self) -> bool:
        """Return whether a create that succeeds shall report a failed fsync."""
        fails = self._rng.random() < self.rate / 10
        self._hits["fault fsync after the link"] += fails
        return fails
