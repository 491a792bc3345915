"""A log in memory: intents in, verdicts out."""

from __future__ import annotations

from txnformat.core.assemble import Assembled, assemble
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import (
    Action,
    AllocateIds,
    Included,
    Intent,
    OpenProducer,
    ProducerRef,
    Rejected,
    TopicAppend,
    Verdict,
)
from txnformat.core.state import LogState
from txnformat.errors import (
    TxnLogError,
)
from txnformat.types import Outcome
from txnlog_testing.strategies import make_append, make_topic

__all__ = ["ABORT", "COMMIT", "NOW_MS", "ORDERS", "Log", "idempotent", "opened", "rows"]

NOW_MS = 1_700_000_000_000
ORDERS = make_topic("orders")
COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


class Log:
    """A log in memory: intents in, verdicts out."""

    def __init__(self, *actions: Action) -> None:
        self.state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
        self.count = 0
        for action in actions:
            assert isinstance(self.commit(action), Included)

    def intent(self, action: Action) -> Intent:
        self.count += 1
        return Intent(f"intent {self.count}", self.state.entry + 1, action)

    def assemble(self, *intents: Intent) -> Assembled:
        assembled = assemble(self.state, intents, store_time_ms=NOW_MS, write_id=f"write {self.count}")
        if assembled.entry is not None:
            self.state = apply(self.state, assembled.entry, assembled.sha256)
        return assembled

    def commit(self, action: Action) -> Verdict:
        intent = self.intent(action)
        return self.assemble(intent).verdicts[intent.intent_id]

    def refusal(self, action: Action) -> TxnLogError:
        before = self.state
        verdict = self.commit(action)
        assert isinstance(verdict, Rejected), verdict
        assert self.state is before, "a rejection changed the state"
        return verdict.error

    def producer(self, name: str = "etl") -> ProducerRef:
        known = self.state.transactional_ids[name]
        return ProducerRef(known.producer_id, known.epoch, name)


def rows(
    sequence: int = 0, records: int = 2, content: str = "rows", *partitions: int
) -> tuple[TopicAppend, ...]:
    return (make_append(ORDERS, dict.fromkeys(partitions or (0,), (sequence, records)), content=content),)


def opened() -> tuple[Log, ProducerRef]:
    """Return a log with a topic and a transactional producer."""
    log = Log(ORDERS, OpenProducer("etl"))
    return log, log.producer()


def idempotent() -> tuple[Log, ProducerRef]:
    """Return a log with a topic and a producer without a transactional id."""
    log = Log(ORDERS, AllocateIds("process"))
    return log, ProducerRef(0, 0)
