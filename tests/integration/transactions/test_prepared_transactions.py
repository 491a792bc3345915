"""Two-phase commit: what is prepared waits for an outcome that is decided elsewhere, whoever dies
meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.clients.failing import (
    BUFFERS,
    ENTRY,
    NUMBERS,
    Plan,
    QuickClock,
    faulty,
    read,
    rows,
    unclear_commit,
)
from tests.integration.transactions.preparing import again, prepared, refused
from txnformat.protocol.commit import CommitSettings
from txnformat.store.memory import MemoryStore
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidTransactionStateError,
    Outcome,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

ROOT = Path(__file__).resolve().parents[3]
HOUR = 3_600_000

UNCLEAR = pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    return log


def _stands(
    producer: Producer, status: ProducerStatus, epoch: int, named: PreparedTransaction | None
) -> None:
    assert (producer.status, producer.epoch, producer.prepared) == (status, epoch, named)


# --- the producer that prepares -----------------------------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize("outcome", Outcome)
def test_a_prepared_transaction_waits_and_is_ended_by_its_producer(
    log: TxnLog, buffer: str, outcome: Outcome
) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        producer.send("t", rows(2))
        token = producer.prepare()
        assert token == PreparedTransaction(log.log_id, "p", 0, 0)
        _stands(producer, ProducerStatus.PREPARED, 0, token)
        assert read(log) == []
        refused(
            "transaction-prepared",
            InvalidTransactionStateError,
            producer.begin,
            producer.flush,
            producer.prepare,
            lambda: producer.send("t", rows(3)),
        )
        (producer.commit if outcome is Outcome.COMMIT else producer.abort)()
        _stands(producer, ProducerStatus.READY, 1, None)
        with producer.transaction() as txn:
            txn.send("t", rows(4))
    assert read(log) == ([1, 2, 4] if outcome is Outcome.COMMIT else [4])
    assert log.verify(deep=True).ok


def test_what_auto_and_deferred_have_prepared_holds_nobody_up(log: TxnLog) -> None:
    for buffer in ("auto", "deferred"):
        token = prepared(log, buffer, buffer)
        before = log.refresh().partitions
        with Producer(log) as other:
            other.send("t", rows(7))
        (offsets,) = log.offsets("t")
        assert offsets.last_stable_offset == offsets.log_end
        assert log.refresh().partitions != before
        log.abort_prepared(token)


def test_nothing_can_be_prepared_that_was_never_sent(log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        refused("no-transaction", InvalidTransactionStateError, producer.prepare)
        producer.begin()
        before = log.refresh()
        refused("no-transaction", InvalidTransactionStateError, producer.prepare)
        assert (log.refresh(), producer.status) == (before, ProducerStatus.IN_TRANSACTION)
        producer.send("t", rows(1))
        producer.commit()
    refused("not-transactional", InvalidTransactionStateError, Producer(log).prepare)
    assert read(log) == [1]


def test_a_block_that_prepares_leaves_it_so_and_closing_too(log: TxnLog) -> None:
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(1))
        token = txn.prepare()
    assert producer.status is ProducerStatus.CLOSED
    assert log.refresh().transactional_ids["p"].status == "Prepared"

    def fail() -> None:
        with Producer(log, "q") as failing, failing.transaction() as txn:
            txn.send("t", rows(2))
            txn.prepare()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert log.refresh().transactional_ids["q"].status == "Prepared", "whoever decides has heard that it is"
    log.commit_prepared(token)
    assert read(log) == [1]


@BUFFERS
@UNCLEAR
@pytest.mark.parametrize("settle", ["repeat", "abort", "close"])
def test_an_unknown_prepare_is_repeated_or_aborted(
    buffer: str, kind: FaultKind, landed: bool, settle: str
) -> None:
    """No coordinator was told that it is prepared, so none decides: close aborts it."""
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "p", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        producer.prepare()
    refused("outcome-unknown", InvalidTransactionStateError, producer.commit, producer.flush)
    plan.clear()
    if settle == "repeat":
        producer.prepare()
        assert producer.status is ProducerStatus.PREPARED
        producer.commit()
    elif settle == "abort":
        producer.abort()
        assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
    else:
        producer.close()
    assert log.refresh().undecided == frozenset()
    assert read(log) == ([1] if settle == "repeat" else [])


@UNCLEAR
@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("settle", ["repeat", "close"])
def test_an_unknown_end_is_repeated_and_closing_never_turns_it_round(
    kind: FaultKind, landed: bool, outcome: Outcome, settle: str
) -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    token = producer.prepare()
    end = producer.commit if outcome is Outcome.COMMIT else producer.abort
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        end()
    plan.clear()
    if settle == "repeat":
        end()
        assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
    else:
        producer.close()
        found = log.refresh().transactional_ids["p"].status
        assert found == (
            {"commit": "CompleteCommit", "abort": "CompleteAbort"}[outcome] if landed else "Prepared"
        )
        (log.commit_prepared if outcome is Outcome.COMMIT else log.abort_prepared)(token)
    assert read(log) == ([1] if outcome is Outcome.COMMIT else [])


def test_an_unknown_end_that_lost_its_slot_leaves_it_prepared() -> None:
    plan = Plan()
    log = faulty(plan)
    assert isinstance(log.store, FaultyStore)
    inner = TxnLog.open(log.store._inner, clock=log.committer.clock)
    hasty = TxnLog.open(log.store, clock=log.committer.clock, settings=CommitSettings(attempts_max=1))
    with Producer(hasty, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.prepare()
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        with pytest.raises(CommitStateUnknownError):
            producer.commit()
        plan.clear()
        Producer(inner, "other").init()
        with pytest.raises(ConflictError):
            producer.commit()
        assert producer.status is ProducerStatus.PREPARED
        producer.commit()
    assert read(log) == [1]


def test_an_end_that_fails_leaves_it_prepared() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.prepare()
        for end in (producer.commit, producer.abort):
            plan.next(*ENTRY, Fault(FaultKind.DISK_FULL))
            with pytest.raises(StorageError):
                end()
            assert producer.status is ProducerStatus.PREPARED
        producer.commit()
    assert read(log) == [1]


# --- the instance that comes after --------------------------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize("outcome", Outcome)
def test_a_successor_takes_over_what_is_prepared_and_opens_anew_after_its_end(
    log: TxnLog, buffer: str, outcome: Outcome
) -> None:
    token = prepared(log, "p", buffer)
    before = log.refresh()
    with Producer(again(log), "p") as successor:
        assert log.refresh() == before, "opening changes nothing while it is prepared"
        assert (successor.status, str(successor.prepared)) == (ProducerStatus.PREPARED, token)
        refused("transaction-prepared", InvalidTransactionStateError, successor.begin, successor.flush)
        info = (successor.commit if outcome is Outcome.COMMIT else successor.abort)()
        assert info is None or info.offsets == ({} if buffer == "inline" else {("t", 0): 0})
        _stands(successor, ProducerStatus.READY, 2, None)
        with successor.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == ([1, 2, 3] if outcome is Outcome.COMMIT else [3])


def test_of_two_successors_that_both_commit_only_the_last_that_opened_can_go_on(log: TxnLog) -> None:
    prepared(log)
    one, two = Producer(again(log), "p"), Producer(again(log), "p")
    one.init()
    two.init()
    assert one.prepared == two.prepared
    assert one.commit().entry == two.commit().entry
    assert (one.epoch, two.epoch) == (2, 3)
    one.begin()
    one.send("t", rows(8))
    with pytest.raises(ProducerFencedError):
        one.commit()
    with two.transaction() as txn:
        txn.send("t", rows(9))
    assert read(log) == [1, 2, 9]
    one.close()
    two.close()


def test_the_instance_that_prepared_is_fenced_once_a_successor_has_ended_it(log: TxnLog) -> None:
    first = Producer(log, "p")
    first.init()
    first.begin()
    first.send("t", rows(1))
    first.prepare()
    with Producer(again(log), "p") as successor:
        successor.commit()
        assert first.commit().entry is not None, "it was committed, as asked"
        first.begin()
        first.send("t", rows(2))
        with pytest.raises(ProducerFencedError):
            first.commit()
    assert read(log) == [1]


def test_a_successor_that_cannot_open_anew_has_ended_it_all_the_same() -> None:
    plan = Plan()
    log = faulty(plan)
    prepared(log)
    successor = Producer(log, "p")
    successor.init()
    plan.next(*ENTRY, None, Fault(FaultKind.DISK_FULL))
    assert successor.commit().offsets == {("t", 0): 0}
    assert successor.status is ProducerStatus.UNINITIALISED
    refused("not-initialised", InvalidTransactionStateError, successor.begin)
    successor.init()
    with successor.transaction() as txn:
        txn.send("t", rows(3))
    assert read(log) == [1, 2, 3]


def test_no_time_ends_it() -> None:
    clock = QuickClock()
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", NUMBERS)
    token = prepared(log, "p", "inline")
    clock.set_back(-365 * 24 * HOUR)
    other = again(log)
    assert other.committer.end_expired() == []
    with Producer(other) as plain:
        plain.send("t", rows(7))
    assert read(log) == []
    log.commit_prepared(token)
    assert read(log) == [1, 2, 7]
