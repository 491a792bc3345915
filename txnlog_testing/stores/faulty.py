"""A store in front of another that fails by plan: deterministic, with the real store behind it.

The plan is a function of (operation, key, number of this call among the calls of the same operation and key,
from 1). It is asked once per request; a streamed upload is one request. The kinds are named after what
happened at the store, not after what the caller sees, since the caller's difficulty is exactly that several
causes give the same answer.

A crash raises :class:`SimulatedCrash` and leaves the store dead for its process: every later call raises
again, ``abort`` of a writer does nothing, as for a process that is no more. A request that it had sent may
still arrive (:meth:`FaultyStore.release`).
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from txnformat.errors import InvalidInputError, StorageError, TxnLogError
from txnformat.store.base import CreateOutcome, CreateResult, ObjectStore, ObjectWriter
from txnformat.store.requests import RequestKind
from txnformat.store.uploads import Writer, object_exists
from txnformat.store.wrapped import WrappedStore

__all__ = [
    "FAULTS_OF",
    "Fault",
    "FaultCounter",
    "FaultKind",
    "FaultyStore",
    "Gate",
    "Landed",
    "Schedule",
    "SimulatedCrash",
    "no_faults",
]

Answer = TypeVar("Answer")

GATE_SECONDS_MAX = 120.0
"""Longest wait at a gate: a test that forgets to open it fails and does not hang."""


class SimulatedCrash(BaseException):
    """The process ended here. No ``except Exception`` may survive it."""


class FaultKind(StrEnum):
    """The faults of one request."""

    FAIL_BEFORE = "fail-before"
    """The connection broke before the request arrived: not applied, never will be; the caller cannot know."""
    APPLIED_LOST_ANSWER = "applied-lost-answer"
    """Applied, and the connection broke before the answer arrived."""
    APPLIED_LATE = "applied-late"
    """The caller timed out; the request is still on its way, and wins or loses when it arrives."""
    CONFLICT_409 = "conflict-409"
    """Not applied: S3's answer to conditional writes that overlap."""
    EXISTS_AFTER_OWN_SUCCESS = "exists-after-own-success"
    """Applied, answer lost, repeated by an SDK on its own, which reports the caller's own object as 412."""
    SERVER_ERROR = "server-error"
    """5xx; ``Fault.applied`` says whether the store did it nevertheless."""
    DISK_FULL = "disk-full"
    """Refused."""
    READ_ONLY = "read-only"
    """Refused."""
    PERMISSION_DENIED = "permission-denied"
    """Refused."""
    CRASH_BEFORE = "crash-before"
    """The process ends before the request leaves it."""
    CRASH_AFTER = "crash-after"
    """The process ends after the request was applied, before it sees the answer."""


_READ_FAULTS = frozenset(
    {
        FaultKind.FAIL_BEFORE,
        FaultKind.SERVER_ERROR,
        FaultKind.PERMISSION_DENIED,
        FaultKind.CRASH_BEFORE,
        FaultKind.CRASH_AFTER,
    }
)
_WRITE_FAULTS = _READ_FAULTS | {
    FaultKind.APPLIED_LOST_ANSWER,
    FaultKind.APPLIED_LATE,
    FaultKind.DISK_FULL,
    FaultKind.READ_ONLY,
}
FAULTS_OF: Mapping[RequestKind, frozenset[FaultKind]] = {
    RequestKind.GET: _READ_FAULTS,
    RequestKind.GET_RANGE: _READ_FAULTS,
    RequestKind.HEAD: _READ_FAULTS,
    RequestKind.LIST: _READ_FAULTS,
    RequestKind.CREATE: frozenset(FaultKind),
    RequestKind.PUT: _WRITE_FAULTS,
    RequestKind.OPEN_WRITE: _WRITE_FAULTS - {FaultKind.APPLIED_LATE} | {FaultKind.EXISTS_AFTER_OWN_SUCCESS},
    RequestKind.DELETE: _WRITE_FAULTS - {FaultKind.DISK_FULL},
}
"""The kinds that each operation can suffer; a plan that asks for another is refused."""

_REFUSALS = {
    FaultKind.DISK_FULL: ("disk-full", "no space left", "free space or raise the quota, then try again"),
    FaultKind.READ_ONLY: ("read-only-store", "the store is read-only", "use a writable one"),
    FaultKind.PERMISSION_DENIED: ("permission-denied", "permission denied", "give this user the right"),
}
_CRASHES = frozenset({FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER})
_APPLIED_FIRST = frozenset(
    {FaultKind.APPLIED_LOST_ANSWER, FaultKind.EXISTS_AFTER_OWN_SUCCESS, FaultKind.CRASH_AFTER}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault."""

    kind: FaultKind
    applied: bool = False
    """SERVER_ERROR: whether the request was applied nevertheless."""
    status: int = 503
    """SERVER_ERROR: the HTTP status, shown in the error's values."""
    late_by: int | None = None
    """APPLIED_LATE: arrives just before the n-th further request of this store (at least 1). If None, at
    `release`."""
    after_bytes: int | None = None
    """OPEN_WRITE: strikes in the write that reaches this many bytes, 0 in ``open_write``. If None, in
    ``close``."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A late request that has arrived."""

    operation: RequestKind
    key: str
    result: CreateResult | None
    """The store's answer to a create; no client received it."""


Schedule = Callable[[RequestKind, str, int], Fault | None]
"""A plan: operation, key (of a listing: the prefix), number of the call from 1 → the fault, or None."""


def no_faults(operation: RequestKind, key: str, nth: int) -> Fault | None:
    """Plan nothing."""
    return None


class FaultCounter:
    """How often each kind struck; one may serve many stores and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits: Counter[FaultKind] = Counter()

    def add(self, kind: FaultKind) -> None:
        """Count one hit."""
        with self._lock:
            self._hits[kind] += 1

    @property
    def hits(self) -> dict[FaultKind, int]:
        """Hits of every kind, those that never struck included."""
        with self._lock:
            return {kind: self._hits[kind] for kind in FaultKind}


class Gate:
    """Holds back the first create until it is opened (pass it as ``before_create``); later ones pass."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._arrived = threading.Event()
        self._opened = threading.Event()

    def __call__(self, key: str) -> None:
        """Wait if this is the first create."""
        with self._lock:
            first, self._taken = not self._taken, True
        if first:
            self._arrived.set()
            _wait(self._opened, f"no test opened the gate that holds {key}")

    def wait_until_held(self) -> None:
        """Wait until a create is held back."""
        _wait(self._arrived, "no create came to the gate")

    def open(self) -> None:
        """Let the held create go."""
        self._opened.set()


def _wait(event: threading.Event, otherwise: str) -> None:
    if not event.wait(GATE_SECONDS_MAX):
        raise TimeoutError(otherwise)


@dataclass(slots=True)
class _Pending:
    operation: RequestKind
    key: str
    apply: Callable[[], object]
    requests_left: int | None

    def land(self) -> Landed:
        result: object = None
        with contextlib.suppress(TxnLogError):  # no client receives this answer
            result = self.apply()
        return Landed(self.operation, self.key, result if isinstance(result, CreateResult) else None)


class FaultyStore(WrappedStore):
    """Passes requests to ``inner``, except where the plan says otherwise. One instance is one process.

    Parameters
    ----------
    inner : ObjectStore
        The real store; several instances may share it.
    schedule : Schedule, optional
        The plan.
    counter : FaultCounter, optional
        Counts the hits; may be shared.
    before_create : callable, optional
        Called with the key before every create, outside all locks: a :class:`Gate`, or a test's own hook.
    """

    def __init__(
        self,
        inner: ObjectStore,
        schedule: Schedule = no_faults,
        counter: FaultCounter | None = None,
        before_create: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self._schedule = schedule
        self._counter = counter or FaultCounter()
        self._before_create = before_create
        self._lock = threading.Lock()
        self._calls: Counter[tuple[RequestKind, str]] = Counter()
        self._pending: list[_Pending] = []
        self._crashed = False

    @property
    def counter(self) -> FaultCounter:
        """The hits so far."""
        return self._counter

    @property
    def crashed(self) -> bool:
        """Whether this store's process has ended."""
        return self._crashed

    @property
    def pending(self) -> int:
        """Number of late requests on their way."""
        with self._lock:
            return len(self._pending)

    def release(self) -> list[Landed]:
        """Let all late requests arrive, oldest first; also after a crash."""
        with self._lock:
            arriving, self._pending = self._pending, []
        return [late.land() for late in arriving]

    def create(self, key: str, data: bytes) -> CreateResult:
        if self._before_create is not None:
            self._before_create(key)
        fault = self._begin(RequestKind.CREATE, key)
        if fault is None:
            return self._inner.create(key, data)
        if fault.kind in _REFUSALS:
            return CreateResult(CreateOutcome.REFUSED, self._error(fault, RequestKind.CREATE, key))
        self.strike(fault, RequestKind.CREATE, key, lambda: self._inner.create(key, data))
        if fault.kind is FaultKind.EXISTS_AFTER_OWN_SUCCESS:
            return CreateResult(CreateOutcome.EXISTS)
        return CreateResult(CreateOutcome.AMBIGUOUS, self._error(fault, RequestKind.CREATE, key))

    def open_write(self, key: str) -> Writer:
        """Start a streamed upload; its fault may strike here, in a write, or in ``close``."""
        fault = self._begin(RequestKind.OPEN_WRITE, key)
        if fault is not None and fault.after_bytes == 0:
            self.fail(fault, key)
        return _FaultyWriter(self, key, self._inner.open_write(key), fault)

    def make_durable(self, keys: Sequence[str]) -> None:
        self.check_alive()
        super().make_durable(keys)

    def check_alive(self) -> None:
        """Raise SimulatedCrash when this store's process has ended."""
        if self._crashed:
            raise SimulatedCrash("the process has ended")

    def fail(self, fault: Fault, key: str) -> NoReturn:
        """Crash, or raise the error of a streamed upload's fault."""
        if fault.kind in _CRASHES:
            self._crash()
        if fault.kind is FaultKind.EXISTS_AFTER_OWN_SUCCESS:
            raise object_exists(self.url, key)
        raise self._error(fault, RequestKind.OPEN_WRITE, key)

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        fault = self._begin(operation, key)
        if fault is None:
            return call()
        self.strike(fault, operation, key, call)
        raise self._error(fault, operation, key)

    def strike(self, fault: Fault, operation: RequestKind, key: str, apply: Callable[[], object]) -> None:
        """Do at the store what the fault says, which may be nothing; crash if it says so."""
        if fault.kind is FaultKind.CRASH_BEFORE:
            self._crash()
        if fault.kind in _APPLIED_FIRST or (fault.kind is FaultKind.SERVER_ERROR and fault.applied):
            with contextlib.suppress(TxnLogError):  # no client receives this answer
                apply()
        if fault.kind is FaultKind.CRASH_AFTER:
            self._crash()
        if fault.kind is FaultKind.APPLIED_LATE:
            with self._lock:
                self._pending.append(_Pending(operation, key, apply, fault.late_by))

    def _crash(self) -> NoReturn:
        self._crashed = True
        raise SimulatedCrash("the process ends here")

    def _error(self, fault: Fault, operation: RequestKind, key: str) -> StorageError:
        where: dict[str, Any] = {"store": self.url, "operation": str(operation), "key": key}
        if fault.kind in _REFUSALS:
            kind, what, hint = _REFUSALS[fault.kind]
            return StorageError(what, kind=kind, hint=hint, **where)
        hint = "try again; if it was a write, read back first what is there"
        if fault.kind is FaultKind.CONFLICT_409:
            return StorageError(
                "conditional writes overlapped",
                kind="conflict",
                hint=hint,
                transient=True,
                status=409,
                **where,
            )
        if fault.kind is FaultKind.SERVER_ERROR:
            return StorageError(
                "the store failed",
                kind="server-error",
                hint=hint,
                transient=True,
                status=fault.status,
                **where,
            )
        return StorageError("no answer came", kind="no-answer", hint=hint, transient=True, **where)

    def _begin(self, operation: RequestKind, key: str) -> Fault | None:
        """Let late requests that are due arrive, then ask the plan."""
        self.check_alive()
        with self._lock:
            due: list[_Pending] = []
            for late in self._pending:
                if late.requests_left is not None:
                    late.requests_left -= 1
                    if late.requests_left <= 0:
                        due.append(late)
            self._pending = [late for late in self._pending if late not in due]
            self._calls[operation, key] += 1
            nth = self._calls[operation, key]
        for late in due:
            late.land()
        fault = self._schedule(operation, key, nth)
        if fault is None:
            return None
        if fault.kind not in FAULTS_OF[operation]:
            raise InvalidInputError(
                f"a request of kind {operation} cannot suffer {fault.kind}", kind="invalid-fault", key=key
            )
        self._counter.add(fault.kind)
        return fault


class _FaultyWriter(Writer):
    def __init__(self, store: FaultyStore, key: str, inner: ObjectWriter, fault: Fault | None) -> None:
        self._store = store
        self._key = key
        self._inner = inner
        self._fault = fault
        self._size = 0

    def write(self, data: bytes | memoryview) -> int:
        self._store.check_alive()
        fault, view = self._fault, memoryview(data).cast("B")
        if fault is not None and fault.after_bytes is not None:
            room = fault.after_bytes - self._size
            if view.nbytes >= room:
                self._fault = None
                # The bytes before the fault did reach the store, so that a torn upload is really there.
                self._inner.write(view[:room])
                if fault.kind not in _CRASHES:
                    self._inner.abort()
                self._store.fail(fault, self._key)
        self._size += view.nbytes
        return self._inner.write(data)

    def close(self) -> None:
        self._store.check_alive()
        fault, self._fault = self._fault, None
        if fault is None:
            self._inner.close()
            return
        self._store.strike(fault, RequestKind.OPEN_WRITE, self._key, self._inner.close)
        self._inner.abort()
        self._store.fail(fault, self._key)

    def abort(self) -> None:
        if not self._store.crashed:
            self._inner.abort()
