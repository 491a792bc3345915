"""Counters of a process's commits: cheap, and safe for many threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from txnformat.core.intents import CommitResult
from txnformat.errors import CommitStateUnknownError, ConflictError, StorageError, TxnLogError
from txnformat.forking import renew_after_fork
from txnformat.store.requests import KeyClass, RequestKind, key_class

__all__ = ["CommitCounter", "CommitCounts", "CommitOutcome", "Summary", "outcome_of"]


class CommitOutcome(StrEnum):
    """The outcome of a commit, as its caller was told."""

    COMMITTED = "committed"
    """This call put it into the log."""
    ALREADY_DONE = "already-done"
    """It was in the log before: a repeat."""
    CONFLICT = "conflict"
    """Lost a race for good."""
    REJECTED = "rejected"
    """The rules forbid it: fenced, out of order, an invalid state."""
    UNKNOWN = "unknown"
    """It may or may not have landed."""
    FAILED = "failed"
    """The store failed, and nothing was committed."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Count, sum and largest of a measured value."""

    count: int = 0
    sum: int = 0
    max: int = 0

    def with_value(self, value: int) -> Summary:
        """Return the summary with one more value."""
        return Summary(self.count + 1, self.sum + value, max(self.max, value))


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """Everything that one process has done to one log since it opened it."""

    outcomes: Mapping[CommitOutcome, int] = field(default_factory=dict)
    """Commits by what became of them."""
    wait_ms: Summary = field(default_factory=Summary)
    """Time from the call of commit to its answer, ms; over all outcomes."""
    group_size: Summary = field(default_factory=Summary)
    """Commits that were decided together, per group."""
    requests: Mapping[tuple[RequestKind, KeyClass], int] = field(default_factory=dict)
    """Requests of the protocol: all but those for segment files. Each attempt counts."""

    @property
    def attempts(self) -> int:
        """Return how often an entry was sent to a slot."""
        return self.requests.get((RequestKind.CREATE, KeyClass.ENTRY), 0)


class CommitCounter:
    """Counts; one per opened log and process."""

    def __init__(self) -> None:
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Begin from zero."""
        self._lock = threading.Lock()
        self._outcomes: Counter[CommitOutcome] = Counter()
        self._wait_ms = Summary()
        self._group_size = Summary()
        self._requests: Counter[tuple[RequestKind, KeyClass]] = Counter()

    def request(self, operation: RequestKind, key: str) -> None:
        """Count one request."""
        counted = (operation, key_class(key))
        with self._lock:
            self._requests[counted] += 1

    def group(self, size: int) -> None:
        """Count one group of ``size`` commits."""
        with self._lock:
            self._group_size = self._group_size.with_value(size)

    def answered(self, answer: CommitResult | TxnLogError, wait_ms: int) -> None:
        """Count one commit that got its answer after ``wait_ms``."""
        outcome = outcome_of(answer)
        with self._lock:
            self._outcomes[outcome] += 1
            self._wait_ms = self._wait_ms.with_value(max(0, wait_ms))

    @property
    def counts(self) -> CommitCounts:
        """The counts so far, as a value."""
        with self._lock:
            return CommitCounts(dict(self._outcomes), self._wait_ms, self._group_size, dict(self._requests))


def outcome_of(answer: CommitResult | TxnLogError) -> CommitOutcome:
    """Return the outcome that an answer tells."""
    match answer:
        case CommitResult(repeated=repeated):
            return CommitOutcome.ALREADY_DONE if repeated else CommitOutcome.COMMITTED
        case CommitStateUnknownError():
            return CommitOutcome.UNKNOWN
        case ConflictError():
            return CommitOutcome.CONFLICT
        case StorageError():
            return CommitOutcome.FAILED
        case _:
            return CommitOutcome.REJECTED
