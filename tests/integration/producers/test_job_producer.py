"""A producer whose transaction others stage in: who they are does not matter, here they are another opened
log."""

from __future__ import annotations

import pytest

from tests.integration.clients.failing import ENTRY, NUMBERS, Plan, faulty, read, rows, unclear_commit
from tests.integration.producers.staging import stage
from txnformat.core.intents import AppRef, Write
from txnformat.core.transactions.state import TransactionStatus
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    InvalidTransactionStateError,
    ProducerFencedError,
    ProducerStatus,
    StaleAppVersionError,
    StorageError,
    TransactionTimedOutError,
)
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.faulty import Fault, FaultKind
from writers.job import JobProducer

APP = AppRef("test", "job", 1)
ENTRY_GET = (RequestKind.GET, KeyClass.ENTRY)
UNCLEAR = pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)


def new_log(partitions: int = 1) -> TxnLog:
    log = TxnLog.create(CountingStore(MemoryStore()))
    log.create_topic("t", NUMBERS, partitions=partitions)
    return log


def another(log: TxnLog) -> TxnLog:
    """The log as another process has it open."""
    return TxnLog.open(log.store, clock=log.committer.clock)


def status(log: TxnLog) -> TransactionStatus:
    return log.refresh().transactional_ids["job"].status


def test_what_others_staged_is_committed_with_the_version_in_one_entry() -> None:
    log = new_log()
    other = another(log)
    with JobProducer(log, "job") as producer:
        producer.begin()
        for number in range(7):  # more than the window of sequences remembers
            with producer.delegated() as (ref, _):
                stage(other, ref, number)
        before = log.state.entry
        assert read(log, "read_uncommitted") == []
        info, is_own = producer.commit_version(APP)
        assert (info.entry, is_own, info.offsets) == (before + 1, True, {("t", 0): 0})
        assert producer.status is ProducerStatus.READY
    assert read(log) == list(range(7))
    assert log.refresh().app_versions["test", "job"].version == 1
    assert log.verify(deep=True).ok


def test_a_commit_without_a_version_takes_it_too() -> None:
    log = new_log()
    with JobProducer(log, "job") as producer, producer.transaction(), producer.delegated() as (ref, _):
        stage(another(log), ref, 1, 2)
    assert read(log) == [1, 2]


def test_records_that_are_sent_before_and_after_have_their_place_and_their_numbers() -> None:
    log = new_log(partitions=2)
    other = another(log)
    with JobProducer(log, "job") as producer, producer.transaction() as txn:
        txn.send("t", rows(1, 2), partition=0)
        with producer.delegated() as (ref, _):
            stage(other, ref, 3, 4)
            stage(other, ref, 5, partition=1)
        txn.send("t", rows(6), partition=0)
        txn.flush()
        txn.send("t", rows(7), partition=1)
        with producer.delegated() as (ref, _):
            stage(other, ref, 8)
        txn.send("t", rows(9), partition=0)
    found = log.read("t", columns=["n", "_partition"]).read_all().to_pylist()
    for partition, numbers in ((0, [1, 2, 3, 4, 6, 8, 9]), (1, [5, 7])):
        assert [row["n"] for row in found if row["_partition"] == partition] == numbers
    assert log.verify(deep=True).ok


def test_an_abort_ends_what_only_others_have_staged() -> None:
    log = new_log()
    with JobProducer(log, "job") as producer:
        producer.begin()
        with producer.delegated() as (ref, _):
            stage(another(log), ref, 1)
        assert status(log) is TransactionStatus.ONGOING
        producer.abort()
        assert status(log) is TransactionStatus.COMPLETE_ABORT
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == [2]


def test_when_nothing_was_staged_an_abort_and_a_commit_make_no_entry() -> None:
    log = new_log()
    with JobProducer(log, "job") as producer:
        entry = log.refresh().entry
        for end in (producer.commit, producer.abort):
            producer.begin()
            with producer.delegated():
                pass
            end()
        assert log.refresh().entry == entry
        assert producer.epoch == 0


def test_without_anything_else_the_version_is_an_entry_and_the_producer_goes_on() -> None:
    log = new_log()
    with JobProducer(log, "job") as producer:
        entry = log.refresh().entry
        producer.begin()
        info, is_own = producer.commit_version(APP)
        assert (info.entry, is_own) == (entry + 1, True)
        with producer.transaction() as txn:
            txn.send("t", rows(1))
        assert producer.epoch == 1
    assert read(log) == [1]
    assert log.refresh().app_versions["test", "job"].version == 1


def test_a_block_that_fails_leaves_nothing_but_an_abort_and_that_makes_an_entry() -> None:
    log = new_log()
    with JobProducer(log, "job") as producer:
        producer.begin()
        with pytest.raises(ZeroDivisionError), producer.delegated() as (ref, _):
            raise ZeroDivisionError  # before anything is staged
        with pytest.raises(InvalidTransactionStateError):
            producer.commit_version(APP)
        producer.abort()
        # What it had begun may still be running, and comes too late.
        with pytest.raises((ProducerFencedError, InvalidTransactionStateError)):
            stage(another(log), ref, 1)
        assert log.refresh().transactional_ids["job"].staged == ()
    assert read(log) == []


def test_a_producer_that_is_fenced_meanwhile_notices() -> None:
    log = new_log()
    producer = JobProducer(log, "job")
    producer.init()
    producer.begin()
    with pytest.raises(ProducerFencedError), producer.delegated():
        JobProducer(another(log), "job").init()
    assert producer.status is ProducerStatus.FENCED
    with pytest.raises(ProducerFencedError):
        producer.commit_version(APP)


def test_a_transaction_that_was_over_too_early_says_so_and_the_next_one_goes_on() -> None:
    log = new_log()
    with JobProducer(log, "job", deferred_timeout_ms=1) as producer:
        producer.begin()

        def staged_and_ended() -> None:
            with producer.delegated() as (ref, _):
                stage(other, ref, 1)
                while not other.transactions.end_expired():
                    pass

        other = another(log)
        with pytest.raises(TransactionTimedOutError):
            staged_and_ended()
        producer.abort()
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == [2]


def test_nobody_stages_outside_a_transaction() -> None:
    log = new_log()
    with (
        JobProducer(log, "job") as producer,
        pytest.raises(InvalidTransactionStateError, match="no transaction is open"),
        producer.delegated(),
    ):
        pytest.fail("begun")


# --- versions that others commit ----------------------------------------------------------------------------


def test_a_version_that_a_newer_instance_committed_is_done_and_leaves_the_older_fenced() -> None:
    log = new_log()
    producer = JobProducer(log, "job")
    producer.init()
    producer.begin()
    with producer.delegated() as (ref, _):
        stage(another(log), ref, 1)
    producer.send_offsets("g", positions={"p": "old"})
    with JobProducer(another(log), "job") as newer:
        newer.begin()
        newer.send("t", rows(2))
        theirs, _ = newer.commit_version(APP)
    info, is_own = producer.commit_version(APP)
    assert (info.entry, is_own) == (theirs.entry, False)
    assert producer.status is ProducerStatus.FENCED
    assert read(log) == [2]
    assert "g" not in log.refresh().groups
    assert log.verify(deep=True).ok


def test_a_version_that_somebody_else_committed_is_done_and_nothing_stays_open() -> None:
    log = new_log()
    with JobProducer(log, "job") as producer:
        producer.begin()
        with producer.delegated() as (ref, _):
            stage(another(log), ref, 1)
        with JobProducer(another(log), "another job") as other:
            other.begin()
            other.send("t", rows(2))
            theirs, _ = other.commit_version(APP)
        info, is_own = producer.commit_version(APP)
        assert (info.entry, is_own) == (theirs.entry, False)
        assert status(log) is TransactionStatus.COMPLETE_ABORT
        with producer.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == [2, 3]
    assert log.verify(deep=True).ok


def test_a_later_version_is_refused_and_the_transaction_can_be_aborted() -> None:
    log = new_log()
    with JobProducer(log, "job") as producer:
        producer.begin()
        producer.send("t", rows(1))
        other = another(log)
        other.committer.commit(other.committer.intend(Write(app=replace(APP, version=2))))
        with pytest.raises(StaleAppVersionError):
            producer.commit_version(APP)
        producer.abort()
    assert read(log) == []
    assert log.refresh().undecided == frozenset()


# --- unknown outcomes ---------------------------------------------------------------------------------------


@UNCLEAR
@pytest.mark.parametrize("what", ["staged", "sent", "nothing"])
def test_a_commit_whose_outcome_is_unknown_is_repeated(kind: FaultKind, landed: bool, what: str) -> None:
    plan = Plan()
    log = faulty(plan)
    with JobProducer(log, "job") as producer:
        producer.begin()
        if what == "staged":
            with producer.delegated() as (ref, _):
                stage(another(log), ref, 1)
        elif what == "sent":
            producer.send("t", rows(1))
        entry = log.refresh().entry
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            producer.commit_version(APP)
        plan.clear()
        info, is_own = producer.commit_version(APP)
        assert info.entry == entry + 1
        # Of a version alone nobody can tell whose it is; there is nothing of it to lose.
        assert is_own or (what == "nothing" and landed)
        assert log.refresh().entry == entry + 1
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == ([2] if what == "nothing" else [1, 2])
    assert log.verify(deep=True).ok


@UNCLEAR
def test_what_is_staged_before_a_block_is_settled_before_it_begins(kind: FaultKind, landed: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    with JobProducer(log, "job") as producer, producer.transaction() as txn:
        txn.send("t", rows(1))
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            txn.flush()
        plan.clear()
        with pytest.raises(InvalidTransactionStateError, match="not known"), producer.delegated():
            pytest.fail("begun")
        txn.flush()
        with producer.delegated() as (ref, _):
            stage(another(log), ref, 2)
    assert read(log) == [1, 2]


def test_when_the_log_cannot_be_asked_what_was_staged_only_an_abort_is_left() -> None:
    plan = Plan()
    log = faulty(plan)
    with JobProducer(log, "job") as producer:
        producer.begin()

        def staged() -> None:
            with producer.delegated() as (ref, _):
                stage(another(log), ref, 1)
                plan.always(*ENTRY_GET, Fault(FaultKind.FAIL_BEFORE))

        with pytest.raises(StorageError):
            staged()
        plan.clear()
        assert producer.status is ProducerStatus.ABORT_REQUIRED
        producer.abort()
        assert status(log) is TransactionStatus.COMPLETE_ABORT
    assert read(log) == []


# --- what it costs ------------------------------------------------------------------------------------------


def test_a_block_costs_one_look_at_each_entry_since() -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    with JobProducer(log, "job") as producer:
        producer.begin()
        with store.measure() as measured, producer.delegated():
            pass
        assert dict(measured.counts.requests) == {RequestClass(*ENTRY_GET): 1}
        other = another(log)
        with store.measure() as staging, producer.delegated() as (ref, _):
            stage(other, ref, 1)
        # Of whoever stages: a look; of the producer: the entry, what may be behind it, and a look.
        assert staging.counts.requests[RequestClass(*ENTRY_GET)] == 1 + 3
        with store.measure() as measured:
            producer.commit_version(APP)
        assert dict(measured.counts.requests) == {RequestClass(*ENTRY): 1}
