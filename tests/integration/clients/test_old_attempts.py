"""Producers whose attempt is older than the window of intent ids: what its sequences or its epoch prove is
not asked of the window."""

from __future__ import annotations

import pytest

from tests.integration.clients.failing import Plan, faulty, read, rows, unclear_commit
from txnformat.core.intents import AllocateIds
from txnformat.core.state import INTENT_WINDOW_ENTRIES
from txnformat.errors import CommitStateUnknownError
from txnlog import Producer, TxnLog
from txnlog_testing.stores.faulty import FaultKind

KINDS = pytest.mark.parametrize("kind", [FaultKind.FAIL_BEFORE, FaultKind.APPLIED_LOST_ANSWER])


def _others_go_on(log: TxnLog) -> None:
    """Let others commit more entries than the window keeps."""
    other = TxnLog.open(log.store, clock=log.committer.clock)
    for _ in range(INTENT_WINDOW_ENTRIES + 5):
        other.committer.commit(other.committer.intend(AllocateIds("others", 1)))
    other.close()


@KINDS
@pytest.mark.parametrize("then", ["flush", "close"])
def test_an_idempotent_producer_is_not_stuck_with_an_old_attempt(kind: FaultKind, then: str) -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, linger_ms=10**9)
    producer.init()
    producer.send("t", rows(1))
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        producer.flush()
    plan.clear()
    _others_go_on(log)
    if then == "flush":
        producer.flush()
        producer.send("t", rows(2))
    producer.close()
    assert read(log) == ([1, 2] if then == "flush" else [1])


@KINDS
def test_a_commit_whose_epoch_has_not_ended_is_repeated_however_late(kind: FaultKind) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            producer.commit()
        plan.clear()
        _others_go_on(log)
        producer.commit()
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == [1, 2]
