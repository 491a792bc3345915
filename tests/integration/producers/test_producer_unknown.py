"""Producers after calls whose outcome is unknown: repeat, abort or close, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from txnformat.protocol.commit import CommitSettings
from txnformat.store.base import CreateOutcome
from txnformat.store.memory import MemoryStore
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidTransactionStateError,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

# --- unknown outcomes ---------------------------------------------------------------------------------------

UNCLEAR = pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)


def _unknown_commit(buffer: str, kind: FaultKind) -> tuple[TxnLog, Plan, Producer]:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "p", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(1, 2))
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        producer.commit()
    assert producer.status is ProducerStatus.UNKNOWN_OUTCOME
    for call in (producer.begin, producer.init, producer.flush, lambda: producer.send("t", rows(3))):
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == "outcome-unknown"
    with pytest.raises((CommitStateUnknownError, StorageError)):
        producer.commit()  # the store is still away
    assert producer.status is ProducerStatus.UNKNOWN_OUTCOME
    plan.clear()
    return log, plan, producer


@BUFFERS
@UNCLEAR
def test_a_repeated_commit_gives_the_original_result(buffer: str, kind: FaultKind, landed: bool) -> None:
    log, _, producer = _unknown_commit(buffer, kind)
    entry = TxnLog.open(log.store, clock=log.committer.clock).state.entry
    info = producer.commit()
    assert info.entry == (entry if landed else entry + 1)
    assert info.offsets == {("t", 0): 0}
    with producer.transaction() as txn:
        txn.send("t", rows(3))
    assert read(log) == [1, 2, 3]


@BUFFERS
@UNCLEAR
@pytest.mark.parametrize("close", [False, True])
def test_abort_and_close_settle_an_unknown_commit(
    buffer: str, kind: FaultKind, landed: bool, close: bool
) -> None:
    log, _, producer = _unknown_commit(buffer, kind)
    call = producer.close if close else producer.abort
    if landed:
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == "transaction-committed"
    else:
        call()
        assert log.outcome("p", 0).outcome == "abort"  # the late commit can never land any more
    assert producer.status is (ProducerStatus.CLOSED if close else ProducerStatus.READY)
    if not close:
        with producer.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == ([1, 2] if landed else []) + ([] if close else [3])


@BUFFERS
def test_a_commit_that_arrives_after_the_abort_is_lost(buffer: str) -> None:
    plan = Plan()
    log = faulty(plan)
    assert isinstance(log.store, FaultyStore)
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, FaultKind.APPLIED_LATE)
        with pytest.raises(CommitStateUnknownError):
            producer.commit()
        plan.clear()
        producer.abort()
        (landed,) = log.store.release()
        assert landed.result is not None
        assert landed.result.outcome is CreateOutcome.EXISTS
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == [2]


@UNCLEAR
def test_an_unknown_flush_of_a_transaction_can_be_repeated_or_aborted(kind: FaultKind, landed: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer="inline") as producer:
        for settle, expected in ((producer.flush, [1, 2]), (producer.abort, [1, 2])):
            producer.begin()
            producer.send("t", rows(1))
            unclear_commit(plan, kind)
            with pytest.raises(CommitStateUnknownError):
                producer.flush()
            with pytest.raises(InvalidTransactionStateError):
                producer.commit()
            plan.clear()
            settle()
            if settle == producer.flush:
                producer.send("t", rows(2))
                producer.commit()
            assert read(log) == expected


@pytest.mark.parametrize("idempotent", [True, False])
@UNCLEAR
def test_an_unknown_flush_is_repeated_with_the_same_sequences(
    idempotent: bool, kind: FaultKind, landed: bool
) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, enable_idempotence=idempotent, batch_bytes=1, linger_ms=10**9) as producer:
        producer.send("t", rows(1))
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            producer.send("t", rows(2))  # it had to flush first
        with pytest.raises((CommitStateUnknownError, StorageError)):
            producer.send("t", rows(2))
        plan.clear()
        producer.send("t", rows(2))
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            producer.flush()
        with pytest.raises(InvalidTransactionStateError):
            producer.send("t", rows(3))
        plan.clear()
        assert producer.flush().offsets == {("t", 0): 1}
        producer.send("t", rows(3))
    assert read(log) == [1, 2, 3]


@UNCLEAR
def test_an_unknown_init_is_repeated(kind: FaultKind, landed: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    for producer in (Producer(log, "p"), Producer(log)):
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            producer.init()
        with pytest.raises(InvalidTransactionStateError):
            producer.send("t", rows(1))
        plan.clear()
        producer.init()
        assert producer.epoch == 0
    Producer(log, "q").close()


def test_closing_after_an_unknown_init_is_possible() -> None:
    plan = Plan()
    producer = Producer(faulty(plan), "p")
    unclear_commit(plan, FaultKind.FAIL_BEFORE)
    with pytest.raises(CommitStateUnknownError):
        producer.init()
    producer.close()
    assert producer.status is ProducerStatus.CLOSED


def test_a_failed_abort_leaves_nothing_to_commit() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        producer.send("t", rows(2))
        plan.next(*ENTRY, Fault(FaultKind.DISK_FULL))
        with pytest.raises(StorageError):
            producer.abort()
        with pytest.raises(InvalidTransactionStateError):
            producer.commit()  # it would commit 1 without 2
        producer.abort()
    assert read(log) == []


def test_an_unknown_commit_that_a_new_instance_aborted_is_fenced() -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "p", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    producer.flush()
    unclear_commit(plan, FaultKind.FAIL_BEFORE)
    with pytest.raises(CommitStateUnknownError):
        producer.commit()
    plan.clear()
    Producer(TxnLog.open(log.store, clock=log.committer.clock), "p").init()
    with pytest.raises(ProducerFencedError):
        producer.commit()
    assert producer.status is ProducerStatus.FENCED
    assert read(log) == []


def test_an_error_inside_the_with_block_is_what_the_caller_sees() -> None:
    plan = Plan()
    log = faulty(plan)

    def work() -> None:
        with Producer(log, "p", buffer="inline") as producer, producer.transaction() as txn:
            txn.send("t", rows(1))
            txn.flush()
            plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        work()
    notes = " ".join(caught.value.__notes__)
    assert "could not be aborted" in notes
    assert "could not be closed" in notes


def test_a_log_that_went_on_far_does_not_make_a_new_commit_unclear() -> None:
    """Over 1,000 entries between the producer's view and the tip: the intent window begins after its first
    slot."""
    store = MemoryStore()
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    other = TxnLog.open(store)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        with Producer(other, "q", buffer="inline") as busy:
            busy.begin()
            for _ in range(1_100):
                busy.send("t", rows(0))
                busy.flush()
            busy.abort()
        producer.commit()
    other.close()
    assert read(log) == [1]


def _contended(plan: Plan) -> tuple[TxnLog, Callable[[], None]]:
    """Return a log that gives up at the first lost slot, and a call that takes the next slot from it."""
    log = faulty(plan)
    hasty = TxnLog.open(log.store, clock=log.committer.clock, settings=CommitSettings(attempts_max=1))
    assert isinstance(log.store, FaultyStore)
    inner = TxnLog.open(log.store._inner, clock=log.committer.clock)

    def take() -> None:
        Producer(inner, "other").init()

    return hasty, take


@BUFFERS
def test_an_unknown_commit_that_lost_its_slot_is_known_not_to_be_there(buffer: str) -> None:
    plan = Plan()
    log, take = _contended(plan)
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        with pytest.raises(CommitStateUnknownError):
            producer.commit()
        plan.clear()
        take()
        with pytest.raises(ConflictError):
            producer.commit()
        assert producer.status is ProducerStatus.IN_TRANSACTION
        producer.send("t", rows(2))
        producer.commit()
    assert read(log) == [1, 2]


def test_an_abort_that_lost_its_slot_leaves_the_commit_before_it_unknown() -> None:
    plan = Plan()
    log, take = _contended(plan)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        with pytest.raises(CommitStateUnknownError):
            producer.commit()
        plan.clear()
        take()
        with pytest.raises(ConflictError):
            producer.abort()
        assert producer.status is ProducerStatus.UNKNOWN_OUTCOME
        producer.abort()
    assert read(log) == []


def test_an_unknown_init_that_lost_its_slot_begins_anew() -> None:
    plan = Plan()
    log, take = _contended(plan)
    producer = Producer(log, "p")
    unclear_commit(plan, FaultKind.FAIL_BEFORE)
    with pytest.raises(CommitStateUnknownError):
        producer.init()
    plan.clear()
    take()
    with pytest.raises(ConflictError):
        producer.init()
    assert producer.status is ProducerStatus.UNINITIALISED
    producer.init()
    assert producer.epoch == 0


def test_an_unknown_abort_can_only_be_repeated() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
        with pytest.raises(CommitStateUnknownError):
            producer.abort()
        with pytest.raises(InvalidTransactionStateError):
            producer.commit()
        plan.clear()
        entry = TxnLog.open(log.store, clock=log.committer.clock).state.entry
        producer.abort()
        assert (log.refresh().entry, producer.epoch) == (entry, 1)
    assert read(log) == []


def test_after_an_unknown_commit_and_an_unknown_abort_the_commit_is_no_longer_possible() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        for call in (producer.commit, producer.abort):
            unclear_commit(plan, FaultKind.FAIL_BEFORE)
            with pytest.raises(CommitStateUnknownError):
                call()
        plan.clear()
        with pytest.raises(InvalidTransactionStateError):
            producer.commit()
        producer.abort()
    assert read(log) == []


def test_a_send_stays_possible_after_the_flush_that_repeats_it_is_unknown_too() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, batch_bytes=1, linger_ms=10**9) as producer:
        producer.send("t", rows(1))
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        with pytest.raises(CommitStateUnknownError):
            producer.send("t", rows(2))
        with pytest.raises(CommitStateUnknownError):
            producer.flush()
        plan.clear()
        producer.send("t", rows(2))
    assert read(log) == [1, 2]


def test_an_unknown_request_for_ids_is_repeated_and_not_made_twice() -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log)
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    with pytest.raises(CommitStateUnknownError):
        producer.init()
    plan.clear()
    producer.init()
    assert len(log.refresh().blocks) == 1


def test_an_interrupted_commit_is_unknown() -> None:
    interruptions: list[Any] = []

    def before_create(key: str) -> None:
        if interruptions:
            raise interruptions.pop()

    clock = QuickClock()
    log = TxnLog.create(FaultyStore(MemoryStore(clock), before_create=before_create), clock=clock)
    log.create_topic("t", NUMBERS)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interruptions.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            producer.commit()
        assert producer.status is ProducerStatus.UNKNOWN_OUTCOME
        producer.commit()
    assert read(log) == [1]


def test_being_fenced_inside_the_with_block_is_told_without_further_ado() -> None:
    log = faulty(Plan())

    def work() -> None:
        with Producer(log, "p", buffer="inline") as producer, producer.transaction() as txn:
            txn.send("t", rows(1))
            Producer(log, "p").init()
            txn.flush()

    with pytest.raises(ProducerFencedError) as caught:
        work()
    assert not hasattr(caught.value, "__notes__")
