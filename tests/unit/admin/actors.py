"""A log whose producers leave transactions open."""

from __future__ import annotations

from tests.integration.clients.failing import QuickClock
from tests.unit.core.memory_log import ORDERS, rows
from tests.unit.core.transactions.staging import staged
from txnformat.admin.transactions import EndedTransaction
from txnformat.core.intents import Action, CommitResult, OpenProducer, ProducerRef, Write
from txnformat.core.transactions.state import TransactionStatus
from txnformat.store.memory import MemoryStore
from txnformat.types import Outcome
from txnlog import (
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore

__all__ = ["DAY", "MINUTE", "Actors", "outcomes"]

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


class Actors:
    """A log, and those who use it."""

    def __init__(self) -> None:
        self.clock = QuickClock()
        self.store = CountingStore(MemoryStore(self.clock))
        self.log = TxnLog.create(self.store, clock=self.clock)
        self.tools = self.log.transactions
        self.commit(ORDERS)

    def commit(self, action: Action) -> CommitResult:
        return self.log.committer.commit(self.log.committer.intend(action))

    def wait(self, milliseconds: int) -> None:
        self.clock.set_back(-milliseconds)

    def init(self, name: str, timeout_ms: int = MINUTE) -> ProducerRef:
        self.commit(OpenProducer(name, timeout_ms))
        return self.producer(name)

    def producer(self, name: str) -> ProducerRef:
        known = self.log.state.transactional_ids[name]
        return ProducerRef(known.producer_id, known.epoch, name)

    def begin(self, name: str, *partitions: int, timeout_ms: int = MINUTE) -> ProducerRef:
        """Open an id, and append two records to each partition."""
        producer = self.init(name, timeout_ms)
        self.commit(Write(producer, rows(0, 2, f"{name} {producer.epoch}", *partitions)))
        return producer

    def stage(self, name: str) -> ProducerRef:
        producer = self.init(name)
        self.commit(Write(producer, staged(0, 3, name), deferred=True))
        return producer

    def prepare(self, name: str) -> ProducerRef:
        producer = self.begin(name)
        self.commit(Write(producer, prepare=True))
        return producer

    def end(self, producer: ProducerRef, outcome: Outcome = Outcome.COMMIT) -> None:
        self.commit(Write(producer, end=outcome))

    def status(self, name: str) -> TransactionStatus:
        return self.log.state.transactional_ids[name].status


def outcomes(done: tuple[EndedTransaction, ...]) -> dict[str, str]:
    return {one.transactional_id: one.outcome.value for one in done}
