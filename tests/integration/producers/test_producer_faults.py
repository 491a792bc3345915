"""Producers on stores that fail: each record exactly once, or one clear error and the log unchanged."""

from __future__ import annotations

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
)
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import (
    InvalidTransactionStateError,
    Producer,
    ProducerIdConflictError,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

# --- lost answers -------------------------------------------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.FAIL_BEFORE,
        FaultKind.APPLIED_LOST_ANSWER,
        FaultKind.EXISTS_AFTER_OWN_SUCCESS,
        FaultKind.CONFLICT_409,
        FaultKind.SERVER_ERROR,
    ],
)
def test_any_create_may_lose_its_answer_and_each_record_is_there_once(buffer: str, kind: FaultKind) -> None:
    """Every entry of a whole history gets the fault once, at its first attempt."""
    clock = QuickClock()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock).create_topic("t", NUMBERS)

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        return Fault(kind) if (operation, key_class(key)) == ENTRY and nth == 1 else None

    log = TxnLog.open(FaultyStore(store, schedule), clock=clock)
    with Producer(log, "p", buffer=buffer) as producer:
        for number in range(3):
            with producer.transaction() as txn:
                txn.send("t", rows(10 * number))
                txn.flush()
                txn.send("t", rows(10 * number + 1))
        producer.begin()
        producer.send("t", rows(99))
        producer.flush()
        producer.abort()
    with Producer(log) as plain:
        plain.send("t", rows(100))
        plain.flush()
        plain.send("t", rows(101))
    assert read(log) == [0, 1, 10, 11, 20, 21, 100, 101]


@BUFFERS
@pytest.mark.parametrize(
    ("kind", "lands"),
    [
        (FaultKind.APPLIED_LOST_ANSWER, True),
        (FaultKind.EXISTS_AFTER_OWN_SUCCESS, True),
        (FaultKind.FAIL_BEFORE, True),
        (FaultKind.SERVER_ERROR, True),
        (FaultKind.PERMISSION_DENIED, False),
    ],
)
def test_an_upload_that_loses_its_answer_is_looked_up(buffer: str, kind: FaultKind, lands: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer=buffer, embed_bytes=0) as producer:
        producer.begin()
        producer.send("t", rows(1))
        before = log.refresh().entry
        plan.next(RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(kind))
        if not lands:
            with pytest.raises(StorageError):
                producer.commit()
            assert log.refresh().entry == before
            assert producer.status is ProducerStatus.IN_TRANSACTION
            producer.send("t", rows(2))
        producer.commit()
    assert read(log) == ([1] if lands else [1, 2])


def test_a_file_with_earlier_records_fails_and_only_abort_is_possible() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        plan.next(RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.DISK_FULL))
        producer.flush()  # into the open file
        producer.send("t", rows(2))
        with pytest.raises(StorageError):
            producer.commit()
        assert producer.status is ProducerStatus.ABORT_REQUIRED
        for call in (producer.commit, producer.flush, lambda: producer.send("t", rows(3))):
            with pytest.raises(InvalidTransactionStateError) as caught:
                call()
            assert caught.value.kind == "abort-required"
        producer.abort()
        with producer.transaction() as txn:
            txn.send("t", rows(4))
    assert read(log, "read_uncommitted") == [4]


@BUFFERS
@pytest.mark.parametrize("kind", [FaultKind.DISK_FULL, FaultKind.READ_ONLY, FaultKind.PERMISSION_DENIED])
@pytest.mark.parametrize(
    ("where", "embed_bytes"),
    [((RequestKind.OPEN_WRITE, KeyClass.DATA), 0), (ENTRY, 0), (ENTRY, 65_536)],
    ids=["file", "entry", "embedded"],
)
def test_a_refused_write_changes_nothing_and_the_commit_can_be_repeated(
    buffer: str, kind: FaultKind, where: tuple[RequestKind, KeyClass], embed_bytes: int
) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer=buffer, embed_bytes=embed_bytes) as producer:
        producer.begin()
        producer.send("t", rows(1))
        before = log.refresh()
        plan.next(*where, Fault(kind))
        with pytest.raises(StorageError) as caught:
            producer.commit()
        assert not caught.value.transient
        assert log.refresh() == before
        producer.send("t", rows(2))
        producer.commit()
    assert read(log) == [1, 2]


def test_a_file_that_fails_at_its_first_records_loses_nothing() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        plan.next(RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.DISK_FULL, after_bytes=1))
        with pytest.raises(StorageError):
            producer.flush()
        producer.send("t", rows(2))
        producer.commit()
    assert read(log) == [1, 2]


def test_two_processes_with_one_identity_are_found_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log = faulty(Plan())
    one, two = Producer(log), Producer(log)
    one.init()
    two.init()
    two._session.at = replace(
        two._session.at, ref=one._session.at.ref
    )  # what a fork or a cloned machine does
    one.send("t", rows(1))
    one.flush()
    two.send("t", rows(2))
    with pytest.raises(ProducerIdConflictError):
        two.flush()
    with pytest.raises(ProducerIdConflictError):
        two.send("t", rows(3))
    two.close()
    assert read(log) == [1]
