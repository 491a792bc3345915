"""A log with entries that a truncation takes, and copies of it in which days pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from tests.integration.clients.failing import NUMBERS, rows
from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.core.snapshot.codec import state_digest
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

__all__ = ["BOUNDARY", "EIGHT_DAYS_S", "HOUR_S", "TruncationWorld", "append", "entries_in", "one_by_one"]

EIGHT_DAYS_S = 8 * 24 * 3_600
HOUR_S = 3_600
BOUNDARY = 100
"""The boundary that the log allows once its entries are old: it has a little more than two hundred of them.
"""
SNAPSHOTS_EVERY = 100


def append(log: TxnLog, *numbers: int) -> None:
    """Append each record with an entry of its own."""
    with Producer(log) as producer:
        for number in numbers:
            producer.send("t", rows(number), partition=0)
            producer.flush()


def entries_in(store: ObjectStore) -> list[int]:
    """Return the numbers of the entries that are in their slots."""
    found = (keys.parse_entry_key(info.key) for info in store.list(keys.LOG_PREFIX))
    return [number for number in found if number is not None]


_numbers = count()


def _name() -> str:
    """Return a store's name of its own: a process keeps the block of producer ids that it holds by log and
    place."""
    return f"truncated-{next(_numbers)}"


class TruncationWorld:
    """Objects and a clock. The log has two named snapshots, bundles, and transactions of one id, of which one
    was aborted."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock, _name())
        log = TxnLog.create(self.store, embedding=False, clock=self.clock)
        log.create_topic("t", NUMBERS)
        with Producer(log, "etl", buffer="inline") as producer:
            for outcome in ("commit", "abort", "commit"):
                producer.begin()
                producer.send("t", rows(1_000), partition=0)
                producer.flush()
                getattr(producer, outcome)()
        self.grow(log, range(2 * SNAPSHOTS_EVERY))

    def grow(self, log: TxnLog, numbers: range) -> None:
        """Append records, some seconds apart; return when snapshots and bundles are written."""
        with Producer(log) as producer:
            for number in numbers:
                producer.send("t", rows(number), partition=0)
                producer.flush()
                log.close()  # what a commit leaves to the background happens now: snapshots are of the same entries in each run
                self.clock.sleep(7)

    def copied(self) -> TruncationWorld:
        """Return another world with the same objects, all of them created now, and a clock of its own."""
        other = object.__new__(TruncationWorld)
        other.clock = ManualClock()
        other.clock.ms = self.clock.ms
        other.store = MemoryStore(other.clock, _name())
        for info in self.store.list(""):
            other.store.create(info.key, self.store.get(info.key) or b"")
        return other

    def opened(self, store: ObjectStore | None = None) -> TxnLog:
        """Return the log as another process opens it."""
        return TxnLog.open(self.store if store is None else store, clock=self.clock)

    def age(self) -> None:
        """Let all entries become old enough."""
        self.clock.sleep(EIGHT_DAYS_S)

    def truncate(self, store: ObjectStore | None = None) -> Any:
        """Run a truncation as another process does, after an hour."""
        self.clock.sleep(HOUR_S + 1)
        return self.opened(store).truncate()

    def shown(self) -> dict[str, Any]:
        """Return what somebody sees who knows nothing: the state, the records, the history."""
        log = self.opened()
        return {
            "digest": state_digest(log.state),
            "offsets": log.offsets("t"),
            "committed": log.read("t").read_all().to_pydict(),
            "uncommitted": log.read("t", isolation="read_uncommitted").read_all().to_pydict(),
            "version": log.read("t", version_as_of=60).read_all().to_pydict(),
            "history": [one.sha256 for one in log.history(limit=None)],
        }


@contextmanager
def one_by_one() -> Iterator[None]:
    """Let a truncation make one request at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.client.driver.REQUESTS_IN_FLIGHT_MAX", 1)
        patch.setattr("txnformat.verify.requests.THREADS", 1)
        yield
