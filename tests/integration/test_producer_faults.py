"""Producers on stores that fail: each record exactly once, or one clear error and the log unchanged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat.clock import Instant
from txnformat.store.base import CreateOutcome, ObjectStore
from txnformat.store.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, Operation, key_class
from txnlog import (
    CommitStateUnknownError,
    InvalidTransactionStateError,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TxnLog,
)

NUMBERS = pa.schema([("n", pa.int64())])
BUFFERS = pytest.mark.parametrize("buffer", ["auto", "inline"])
ROOT = Path(__file__).resolve().parents[2]


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers}, schema=NUMBERS)


def read(log: TxnLog, isolation: str = "read_committed") -> list[int]:
    log = TxnLog.open(log.store, clock=log.committer.clock)  # somebody else, who knows nothing
    found: list[int] = log.read("t", isolation=isolation).read_all().column("n").to_pylist()
    return found


class Plan:
    """A schedule that a test sets while it runs: the faults of the next requests of one class."""

    def __init__(self) -> None:
        self._coming: dict[tuple[Operation, KeyClass], list[Fault | None]] = {}
        self._always: dict[tuple[Operation, KeyClass], Fault] = {}
        self.seen: Counter[tuple[Operation, KeyClass]] = Counter()

    def next(self, operation: Operation, what: KeyClass, *faults: Fault | None) -> None:
        self._coming[operation, what] = list(faults)

    def always(self, operation: Operation, what: KeyClass, fault: Fault) -> None:
        self._always[operation, what] = fault

    def clear(self) -> None:
        self._coming.clear()
        self._always.clear()

    def __call__(self, operation: Operation, key: str, nth: int) -> Fault | None:
        request = (operation, key_class(key))
        self.seen[request] += 1
        coming = self._coming.get(request)
        return coming.pop(0) if coming else self._always.get(request)


ENTRY = (Operation.CREATE, KeyClass.ENTRY)


class QuickClock:
    """Time that passes only where somebody waits for it: deadlines come at once."""

    def __init__(self) -> None:
        self._ms = 1_800_000_000_000.0

    def now(self) -> Instant:
        return Instant(int(self._ms), int(self._ms))

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        self._ms += 1_000 * seconds


def faulty(plan: Plan) -> TxnLog:
    clock = QuickClock()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock).create_topic("t", NUMBERS)
    return TxnLog.open(FaultyStore(store, plan), clock=clock)


def unclear_commit(plan: Plan, kind: FaultKind) -> None:
    """Let the next create of an entry end as ``kind``; then the store is away."""
    plan.next(*ENTRY, Fault(kind))
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    plan.always(Operation.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))


# --- lost answers --------------------------------------------------------------------------------------------------------


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

    def schedule(operation: Operation, key: str, nth: int) -> Fault | None:
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
        (FaultKind.FAIL_BEFORE, False),
        (FaultKind.SERVER_ERROR, False),
    ],
)
def test_an_upload_that_loses_its_answer_is_looked_up(buffer: str, kind: FaultKind, lands: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        before = log.refresh().entry
        plan.next(Operation.OPEN_WRITE, KeyClass.DATA, Fault(kind))
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
        plan.next(Operation.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.DISK_FULL))
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
@pytest.mark.parametrize("where", [(Operation.OPEN_WRITE, KeyClass.DATA), ENTRY])
def test_a_refused_write_changes_nothing_and_the_commit_can_be_repeated(
    buffer: str, kind: FaultKind, where: tuple[Operation, KeyClass]
) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer=buffer) as producer:
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


# --- unknown outcomes ----------------------------------------------------------------------------------------------------

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
    with Producer(log, enable_idempotence=idempotent, linger_ms=0) as producer:
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
    """Over 1,000 entries between the producer's view and the tip: the intent window begins after its first slot."""
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


# --- crashes -------------------------------------------------------------------------------------------------------------


def _history(store: ObjectStore, buffer: str) -> None:
    log = TxnLog.open(store)
    producer = Producer(log, "p", buffer=buffer)
    producer.init()
    for number in range(2):
        producer.begin()
        producer.send("t", rows(10 * number))
        producer.flush()
        producer.send("t", rows(10 * number + 1))
        producer.commit()
    log.close()


@BUFFERS
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_a_crash_at_any_request_leaves_whole_transactions_and_a_successor_goes_on(
    buffer: str, kind: FaultKind
) -> None:
    crashes = 0
    while True:
        store = MemoryStore()
        TxnLog.create(store).create_topic("t", NUMBERS)
        plan = _CrashAt(crashes, kind)
        try:
            _history(FaultyStore(store, plan), buffer)
        except SimulatedCrash:
            crashes += 1
        else:
            break
        log = TxnLog.open(store)
        assert read(log) in ([], [0, 1], [0, 1, 10, 11])
        seen = read(log)
        with Producer(log, "p", buffer=buffer) as successor, successor.transaction() as txn:
            txn.send("t", rows(99))
        assert read(log) == [*seen, 99]
    assert crashes > 8


class _CrashAt:
    def __init__(self, request: int, kind: FaultKind) -> None:
        self._left = request
        self._kind = kind

    def __call__(self, operation: Operation, key: str, nth: int) -> Fault | None:
        self._left -= 1
        return Fault(self._kind) if self._left == -1 else None


CHILD = """
import signal, sys
import pyarrow as pa
from txnlog import Producer, TxnLog
producer = Producer(TxnLog.open(sys.argv[1]), "p", buffer="inline")
producer.init()
with producer.transaction() as txn:
    txn.send("t", pa.table({"n": [1]}))
    txn.flush()
    print("flushed", flush=True)
    signal.pause()
"""


def test_a_killed_process_holds_the_last_stable_offset_until_its_successor_opens(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "flushed\n"
        process.send_signal(signal.SIGKILL)
    with Producer(log, "other") as other, other.transaction() as txn:
        txn.send("t", rows(2))
    assert read(log) == []  # committed, but behind the open transaction
    assert log.offsets("t")[0].last_stable_offset == 0
    with Producer(log, "p") as successor:
        assert read(log) == [2]
        with successor.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == [2, 3]
    assert read(log, "read_uncommitted") == [1, 2, 3]
    assert log.outcome("p", 0).cause == "init"
