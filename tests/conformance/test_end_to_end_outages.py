"""Transactions while the store fails: Kafka's timeouts and broken sends, and librdkafka's injected errors.

Upstream brokers go away or answer with errors; here the store does. Time passes only where somebody waits
(:class:`tests.integration.clients.failing.QuickClock`), so that every deadline comes at once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.cases import case
from tests.conformance.scenes import BUFFERS, INLINE
from tests.integration.clients.failing import ENTRY, Plan, faulty, read, rows, unclear_commit
from txnformat.store.base import CreateOutcome
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    InvalidTransactionStateError,
    Outcome,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

AWAY = (CommitStateUnknownError, StorageError)
UNCLEAR = pytest.mark.parametrize("kind", [FaultKind.FAIL_BEFORE, FaultKind.APPLIED_LOST_ANSWER])
SEALED = pytest.mark.parametrize("seals", [False, True], ids=["as-appended", "sealed"])
DATA = (RequestKind.OPEN_WRITE, KeyClass.DATA)


def opened(log: TxnLog, buffer: str, name: str = "p") -> Producer:
    producer = Producer(log, name, buffer=buffer)
    producer.init()
    return producer


def broken(plan: Plan, *, seals: bool = False) -> TxnLog:
    """Return a log on a store that fails as ``plan`` says, with one committed record."""
    log = faulty(plan, embedding=False)
    with Producer(log, "seed") as producer, producer.transaction() as txn:
        txn.send("t", rows(0))
    if seals:
        log.maintain("seal")
    return log


def away(plan: Plan) -> None:
    """Let no entry be written or read."""
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))


def begin(producer: Producer, *numbers: int) -> None:
    """Begin, send, flush."""
    producer.begin()
    producer.send("t", rows(*numbers))
    producer.flush()


# --- calls that end without an answer -----------------------------------------------------------------------


@case("TransactionsTest", "testInitTransactionsTimeout")
@case("TransactionsWithTieredStoreTest", "testInitTransactionsTimeout")
@SEALED
def test_init_without_a_store_ends_with_an_error_and_the_producer_can_be_closed(seals: bool) -> None:
    plan = Plan()
    log = broken(plan, seals=seals)
    producer = Producer(log, "p")
    away(plan)
    with pytest.raises(AWAY):
        producer.init()
    producer.close()
    assert producer.status is ProducerStatus.CLOSED
    plan.clear()
    assert opened(log, INLINE).epoch == 0


@case("TransactionsTest", "testCommitTransactionTimeout", "testAbortTransactionTimeout")
@case("TransactionsWithTieredStoreTest", "testCommitTransactionTimeout", "testAbortTransactionTimeout")
@SEALED
@pytest.mark.parametrize("call", [Producer.commit, Producer.abort])
def test_an_end_without_a_store_ends_with_an_error_and_the_producer_can_be_closed(
    call: Callable[[Producer], object], seals: bool
) -> None:
    """Close says that the transaction is still open, and closes once the store is back; nothing is
    committed.
    """
    plan = Plan()
    log = broken(plan, seals=seals)
    producer = opened(log, INLINE)
    begin(producer, 1)
    away(plan)
    with pytest.raises(AWAY):
        call(producer)
    with pytest.raises(AWAY):
        producer.close()
    plan.clear()
    producer.close()
    assert producer.status is ProducerStatus.CLOSED
    assert read(log) == [0]
    assert log.outcome("p", 0).outcome is Outcome.ABORT


@case("librdkafka-0105-transactions_mock", "do_test_txn_resumable_init")
@UNCLEAR
def test_init_is_repeated_until_it_is_known_and_takes_one_epoch(kind: FaultKind) -> None:
    plan = Plan()
    log = broken(plan)
    producer = Producer(log, "p")
    for _ in range(3):
        unclear_commit(plan, kind)
        with pytest.raises(AWAY):
            producer.init()
        with pytest.raises(InvalidTransactionStateError) as caught:
            producer.begin()
        assert caught.value.kind == "outcome-unknown"
    plan.clear()
    producer.init()
    assert producer.epoch == 0


@case(
    "librdkafka-0105-transactions_mock",
    "do_test_txn_resumable_calls_timeout (commit)",
    "do_test_txn_resumable_calls_timeout (abort)",
    "do_test_txn_endtxn_timeout",
    "do_test_txns_no_timeout_crash",
)
@BUFFERS
@UNCLEAR
@pytest.mark.parametrize("commits", [True, False])
def test_an_end_is_repeated_until_it_is_known_and_happens_once(
    buffer: str, kind: FaultKind, commits: bool
) -> None:
    """Flushes too, in front of it; other calls are refused meanwhile."""
    plan = Plan()
    log = broken(plan)
    producer = opened(log, buffer)
    producer.begin()
    producer.send("t", rows(1))
    if buffer == INLINE:
        for _ in range(2):
            unclear_commit(plan, kind)
            with pytest.raises(AWAY):
                producer.flush()
        plan.clear()
        producer.flush()
    end = producer.commit if commits else producer.abort
    if buffer == INLINE or commits:
        for _ in range(3):
            unclear_commit(plan, kind)
            with pytest.raises(AWAY):
                end()
            for call in (producer.begin, producer.flush, lambda: producer.send("t", rows(9))):
                with pytest.raises(InvalidTransactionStateError):
                    call()
    plan.clear()
    end()
    with producer.transaction() as txn:
        txn.send("t", rows(2))
    assert read(log) == ([0, 1, 2] if commits else [0, 2])


@case(
    "librdkafka-0105-transactions_mock",
    "do_test_txn_resumable_calls_timeout_error (commit)",
    "do_test_txn_resumable_calls_timeout_error (abort)",
    "do_test_txn_fenced_abort (INVALID_PRODUCER_EPOCH)",
    "do_test_txn_fenced_abort (PRODUCER_FENCED)",
)
@pytest.mark.parametrize("is_repeat", [False, True])
@pytest.mark.parametrize("call", [Producer.commit, Producer.abort])
def test_an_end_after_a_newer_instance_has_opened_is_fenced_for_good(
    call: Callable[[Producer], object], is_repeat: bool
) -> None:
    plan = Plan()
    log = broken(plan)
    producer = opened(log, INLINE)
    begin(producer, 1)
    if is_repeat:
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        with pytest.raises(AWAY):
            call(producer)
        plan.clear()
    opened(TxnLog.open(log.store, clock=log.committer.clock), INLINE)
    for again in (call, Producer.commit, Producer.abort, Producer.begin):
        with pytest.raises(ProducerFencedError):
            again(producer)
    assert producer.status is ProducerStatus.FENCED
    assert read(log) == [0]


@case("librdkafka-0105-transactions_mock", "do_test_txn_endtxn_timeout_inflight")
@BUFFERS
@pytest.mark.parametrize("settle", ["repeat", "abort", "release first"])
def test_an_end_that_arrives_late_counts_once_or_never(buffer: str, settle: str) -> None:
    plan = Plan()
    log = broken(plan)
    assert isinstance(log.store, FaultyStore)
    producer = opened(log, buffer)
    producer.begin()
    producer.send("t", rows(1))
    unclear_commit(plan, FaultKind.APPLIED_LATE)
    with pytest.raises(CommitStateUnknownError):
        producer.commit()
    plan.clear()
    if settle == "release first":
        (landed,) = log.store.release()
        assert landed.result is not None
        assert landed.result.outcome is CreateOutcome.CREATED
    (producer.abort if settle == "abort" else producer.commit)()
    for late in log.store.release():
        assert late.result is not None
        assert late.result.outcome is CreateOutcome.EXISTS
    with producer.transaction() as txn:
        txn.send("t", rows(2))
    assert read(log) == ([0, 2] if settle == "abort" else [0, 1, 2])


@case("librdkafka-0105-transactions_mock", "do_test_txn_endtxn_infinite")
@BUFFERS
@pytest.mark.parametrize("call", [Producer.commit, Producer.abort])
def test_an_end_goes_on_by_itself_through_errors_that_pass(
    call: Callable[[Producer], object], buffer: str
) -> None:
    plan = Plan()
    log = broken(plan)
    producer = opened(log, buffer)
    begin(producer, 1)
    plan.next(
        *ENTRY,
        *(Fault(FaultKind.SERVER_ERROR), Fault(FaultKind.FAIL_BEFORE), Fault(FaultKind.CONFLICT_409)) * 3,
    )
    call(producer)
    plan.clear()
    assert read(log) == ([0, 1] if call is Producer.commit else [0])
    begin(producer, 2)
    producer.commit()
    assert read(log)[-1] == 2


ENDS: list[tuple[list[Fault], type[Exception] | None]] = [
    ([Fault(FaultKind.SERVER_ERROR)] * 2, None),
    ([Fault(FaultKind.SERVER_ERROR, applied=True)], None),
    ([Fault(FaultKind.CONFLICT_409)] * 3, None),
    ([Fault(FaultKind.FAIL_BEFORE)], None),
    ([Fault(FaultKind.APPLIED_LOST_ANSWER)], None),
    ([Fault(FaultKind.EXISTS_AFTER_OWN_SUCCESS)], None),
    ([Fault(FaultKind.PERMISSION_DENIED)], StorageError),
    ([Fault(FaultKind.READ_ONLY)], StorageError),
    ([Fault(FaultKind.DISK_FULL)], StorageError),
]


@case("librdkafka-0105-transactions_mock", "do_test_txn_endtxn_errors")
@BUFFERS
@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize(("faults", "error"), ENDS)
def test_an_end_recovers_by_itself_or_says_that_nothing_happened(
    faults: list[Fault], error: type[Exception] | None, commits: bool, flushes: bool, buffer: str
) -> None:
    plan = Plan()
    log = broken(plan)
    producer = opened(log, buffer)
    producer.begin()
    producer.send("t", rows(1))
    if flushes:
        producer.flush()
    end = producer.commit if commits else producer.abort
    meets_the_log = commits or (flushes and buffer != "auto")
    plan.next(*ENTRY, *faults)
    if error is not None and meets_the_log:
        before = log.refresh().entry
        with pytest.raises(error):
            end()
        assert log.refresh().entry == before
    end()
    plan.clear()
    with producer.transaction() as txn:
        txn.send("t", rows(2))
    assert read(log) == ([0, 1, 2] if commits else [0, 2])


# --- sends that fail ----------------------------------------------------------------------------------------


@case("TransactionsTest", "testBumpTransactionalEpochWithTV2Disabled")
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicBumpTransactionalEpochWithTV2Disabled",
    "testAsyncBumpTransactionalEpochWithTV2Disabled",
)
@case("librdkafka-0105-transactions_mock", "do_test_commit_after_msg_timeout")
@SEALED
def test_after_lost_records_only_abort_is_possible_and_the_next_transaction_is_whole(seals: bool) -> None:
    """Records that were in a file went down with it, after every repeat of the upload: no commit may leave
    them out."""
    plan = Plan()
    log = broken(plan, seals=seals)
    producer = opened(log, "auto")
    identity = (producer.producer_id, producer.epoch)
    plan.always(*DATA, Fault(FaultKind.FAIL_BEFORE))
    begin(producer, 1)  # into an open file
    producer.send("t", rows(2))
    with pytest.raises(StorageError):
        producer.commit()
    plan.clear()
    for call in (producer.commit, producer.flush, lambda: producer.send("t", rows(3))):
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == "abort-required"
    producer.abort()
    begin(producer, 4, 5)
    producer.commit()
    if seals:
        log.maintain("seal")
    assert read(log) == read(log, "read_uncommitted") == [0, 4, 5]
    assert (producer.producer_id, producer.epoch) == (identity[0], (identity[1] or 0) + 1)


@case("TransactionsTest", "testBumpTransactionalEpochWithTV2Enabled")
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicBumpTransactionalEpochWithTV2Enabled",
    "testAsyncBumpTransactionalEpochWithTV2Enabled",
)
@SEALED
@UNCLEAR
def test_after_a_failed_append_and_an_abort_the_next_transaction_has_a_later_epoch(
    kind: FaultKind, seals: bool
) -> None:
    plan = Plan()
    log = broken(plan, seals=seals)
    producer = opened(log, INLINE)
    begin(producer, 4)
    producer.commit()
    begin(producer, 2)
    identity = (producer.producer_id, producer.epoch)
    unclear_commit(plan, kind)
    producer.send("t", rows(3))
    with pytest.raises(AWAY):
        producer.flush()
    plan.clear()
    producer.abort()
    if seals:
        log.maintain("seal")
    assert (producer.producer_id, producer.epoch) == (identity[0], (identity[1] or 0) + 1)
    begin(producer, 1, 3)
    producer.commit()
    assert read(log) == [0, 4, 1, 3]


@case("TransactionsTest", "testFailureToFenceEpochWithTV1")
@case("TransactionsWithTieredStoreTest", "testFailureToFenceEpochWithTV1")
@SEALED
def test_a_fence_that_failed_burns_no_epoch(seals: bool) -> None:
    plan = Plan()
    log = broken(plan, seals=seals)
    first = opened(log, INLINE)
    begin(first, 4)
    first.commit()
    epoch = first.epoch or 0
    away(plan)
    second = Producer(log, "p")
    with pytest.raises(AWAY):
        second.init()
    second.close()
    plan.clear()
    first.begin()
    third = opened(log, INLINE)
    assert third.epoch == epoch + 1
    begin(third, 5)
    third.commit()
    assert read(log) == [0, 4, 5]


@case("TransactionsTest", "testFailureToFenceEpochWithTV2")
@case("TransactionsWithTieredStoreTest", "testFailureToFenceEpochWithTV2")
@SEALED
def test_a_fence_whose_answer_was_lost_burns_one_epoch_however_often_it_is_repeated(seals: bool) -> None:
    plan = Plan()
    log = broken(plan, seals=seals)
    first = opened(log, INLINE)
    begin(first, 4)
    first.commit()
    epoch = first.epoch or 0
    second = Producer(log, "p", buffer=INLINE)
    for _ in range(3):
        unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
        with pytest.raises(AWAY):
            second.init()
    plan.clear()
    second.init()
    assert second.epoch == epoch + 1
    with pytest.raises(ProducerFencedError):
        begin(first, 6)
    third = opened(log, INLINE)
    assert third.epoch == epoch + 2
    begin(third, 5)
    third.commit()
    assert read(log) == [0, 4, 5]


@case("librdkafka-0105-transactions_mock", "do_test_txn_recoverable_errors")
@BUFFERS
def test_requests_of_every_kind_may_fail_once_and_the_transaction_commits(buffer: str) -> None:
    plan = Plan()
    log = broken(plan)
    passing = Fault(FaultKind.SERVER_ERROR)
    plan.next(*ENTRY, passing)
    producer = opened(log, buffer)
    plan.next(*ENTRY, passing, Fault(FaultKind.APPLIED_LOST_ANSWER))
    begin(producer, 1)
    plan.next(*DATA, Fault(FaultKind.APPLIED_LOST_ANSWER))
    producer.send("t", rows(2))
    producer.flush()
    plan.next(*ENTRY, passing, passing, Fault(FaultKind.CONFLICT_409))
    producer.commit()
    assert read(log) == [0, 1, 2]


@case(
    "librdkafka-0105-transactions_mock",
    "do_test_txn_broker_down_in_txn (coordinator)",
    "do_test_txn_broker_down_in_txn (leader)",
    "do_test_txn_flush_timeout",
)
@BUFFERS
@pytest.mark.parametrize("down", [ENTRY, DATA])
def test_a_store_that_comes_back_lets_the_transaction_go_on_or_abort(
    down: tuple[RequestKind, KeyClass], buffer: str
) -> None:
    plan = Plan()
    log = broken(plan)
    producer = opened(log, buffer)
    for number in range(2):
        producer.begin()
        producer.send("t", rows(10 + number))
        plan.always(*down, Fault(FaultKind.DISK_FULL))
        with pytest.raises(StorageError):
            producer.commit()
        assert producer.status is ProducerStatus.IN_TRANSACTION
        plan.clear()
        producer.commit() if number else producer.abort()
    begin(producer, 20)
    producer.commit()
    assert read(log) == [0, 11, 20]


@case("librdkafka-0105-transactions_mock", "do_test_txn_requires_abort_errors")
@BUFFERS
def test_a_send_without_the_right_to_write_is_refused_and_after_an_abort_all_is_well(buffer: str) -> None:
    plan = Plan()
    log = broken(plan)
    producer = opened(log, buffer)
    producer.begin()
    producer.send("t", rows(1))
    plan.next(*DATA, Fault(FaultKind.PERMISSION_DENIED))
    with pytest.raises(StorageError) as caught:
        producer.commit()
    assert (caught.value.kind, caught.value.transient) == ("permission-denied", False)
    producer.abort()
    begin(producer, 2)
    producer.commit()
    assert read(log) == read(log, "read_uncommitted") == [0, 2]


@case(
    "librdkafka-0105-transactions_mock",
    "do_test_txn_auth_failure (InitProducerId)",
    "do_test_txn_auth_failure (FindCoordinator)",
)
@pytest.mark.parametrize("request_class", [ENTRY, (RequestKind.GET, KeyClass.ENTRY)])
def test_init_without_rights_says_so_at_once(request_class: tuple[RequestKind, KeyClass]) -> None:
    plan = Plan()
    log = broken(plan)
    plan.always(*request_class, Fault(FaultKind.PERMISSION_DENIED))
    if request_class != ENTRY:
        plan.next(*ENTRY, Fault(FaultKind.FAIL_BEFORE))  # reading is asked for after an unclear answer only
    producer = Producer(log, "p")
    with pytest.raises(AWAY) as caught:
        producer.init()
    assert "permission" in str(caught.value)
    plan.clear()
    producer.init()
    assert producer.epoch == 0
    assert read(log) == [0]
