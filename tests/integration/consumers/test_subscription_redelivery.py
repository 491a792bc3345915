"""What a subscription receives again, and what it does not: after ends of transactions, seeks, and
acknowledgements of others."""

from __future__ import annotations

import random
import threading

import pytest

from tests.integration.clients.failing import NUMBERS, Plan, faulty, rows, unclear_commit
from tests.integration.consumers.subscribing import fill, made, received, unacknowledged, work
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    AckConflictError,
    CommitStateUnknownError,
    Producer,
    StorageError,
    Subscription,
    TxnLog,
    TxnLogError,
)
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.faulty import Fault, FaultKind

DATA_GET = RequestClass(RequestKind.GET_RANGE, KeyClass.DATA)


def open_transaction(log: TxnLog, subscription: Subscription, name: str = "p", *, flushes: bool) -> Producer:
    """Return a producer whose open transaction has acknowledged the records 0 to 3."""
    producer = Producer(log, name, buffer="inline")
    producer.init()
    producer.begin()
    producer.send("out", rows(1))
    producer.acknowledge(subscription, [(0, number) for number in range(4)])
    if flushes:
        producer.flush()
    return producer


def abort_elsewhere(log: TxnLog, name: str = "p") -> None:
    """Abort a transaction as another process does; its producer does not learn of it."""
    TxnLog.open(log.store).transactions.abort(name)


# --- ends of transactions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [False, True])
def test_what_somebody_else_has_aborted_is_received_again_though_its_producer_never_learns(
    looks: bool,
) -> None:
    log = made()
    subscription = work(log)
    assert received(subscription) == list(range(10))
    producer = open_transaction(log, subscription, flushes=True)
    if looks:
        assert received(subscription) == []
    abort_elsewhere(log)
    assert received(subscription) == [0, 1, 2, 3]
    subscription.acknowledge([(0, 0)])
    with pytest.raises(TxnLogError):
        producer.commit()
    producer.close()
    assert received(subscription) == [], "what it learns gives nothing back a second time"
    assert unacknowledged(log) == 9


def test_what_an_instance_had_received_comes_again_when_the_transaction_of_another_one_is_aborted() -> None:
    log = made()
    first, second = work(log), work(log)
    assert received(first) == received(second) == list(range(10))
    open_transaction(log, first, flushes=True)
    assert received(second) == []
    with pytest.raises(AckConflictError):
        second.acknowledge([(0, 1)])
    abort_elsewhere(log)
    assert received(second) == [0, 1, 2, 3], "the first one may be gone"


def test_an_abort_goes_through_though_the_subscription_is_deleted() -> None:
    log = made()
    subscription = work(log)
    producer = open_transaction(log, subscription, flushes=False)
    log.subscriptions.delete("raw", "work")
    producer.abort()
    with producer.transaction() as txn:
        txn.send("out", rows(2))
    assert log.read("out").read_all().column("n").to_pylist() == [2]
    producer.close()


@pytest.mark.parametrize("flushes", [False, True])
def test_an_abort_asks_nothing_of_the_store_for_its_subscriptions(flushes: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    fill(log)
    subscription = work(log)
    assert received(subscription) == list(range(10))
    producer = open_transaction(log, subscription, flushes=flushes)
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    producer.abort()
    plan.clear()
    assert received(subscription) == [0, 1, 2, 3]
    producer.close()


def test_an_abort_in_another_thread_while_a_subscription_receives() -> None:
    log = made()
    subscription = work(log)
    assert received(subscription) == list(range(10))
    producer = open_transaction(log, subscription, flushes=True)

    def aborted(_: object) -> None:
        thread = threading.Thread(target=producer.abort)
        thread.start()
        thread.join()

    subscription._uncut.run("held", aborted, breaks=False)  # as while it receives
    assert producer.status.value == "ready"
    assert received(subscription) == [0, 1, 2, 3]
    producer.close()


# --- seeks and other subscriptions of the name --------------------------------------------------------------


def test_a_seek_of_another_instance_brings_back_what_was_acknowledged() -> None:
    log = made()
    subscription = work(log)
    assert received(subscription) == list(range(10))
    subscription.acknowledge_cumulative((0, 7))
    subscription.acknowledge([(0, 9)])
    work(log).seek(3)
    assert received(subscription) == [3, 4, 5, 6, 7, 9], "8 was received, and is not acknowledged"


def test_a_subscription_that_was_made_anew_is_received_anew() -> None:
    log = made()
    subscription = work(log)
    assert received(subscription) == list(range(10))
    log.subscriptions.delete("raw", "work")
    log.subscriptions.create("raw", "work", start=4)
    assert received(subscription) == [4, 5, 6, 7, 8, 9]
    subscription.acknowledge([(0, 4), (0, 6)])
    assert [one.unacknowledged for one in subscription.backlog()] == [4]


def test_an_acknowledgement_after_a_seek_is_not_the_one_before_it() -> None:
    plan = Plan()
    log = faulty(plan)
    fill(log)
    subscription = work(log)
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    plan.next(RequestKind.GET, KeyClass.ENTRY, None)  # the look before it
    with pytest.raises(CommitStateUnknownError):
        subscription.acknowledge((0, 0))
    plan.clear()
    subscription.seek(0)
    subscription.acknowledge((0, 0))
    assert unacknowledged(log) == 9


# --- nothing is read twice ----------------------------------------------------------------------------------


def wide_log() -> tuple[TxnLog, CountingStore]:
    """Return a log with 3,000 records in one batch, a little more than a mebibyte."""
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("raw", "kafka", partitions=1)
    log.create_topic("out", NUMBERS)
    with Producer(log) as producer:
        values = [{"value": bytes(random.Random(number).randbytes(500))} for number in range(3_000)]
        producer.send("raw", values)
    log.subscriptions.create("raw", "work")
    return log, store


def test_records_that_others_acknowledge_in_between_are_passed_without_reading_anew() -> None:
    log, store = wide_log()
    subscription, other = work(log), work(log)
    other.acknowledge([(0, offset) for offset in range(1, 3_000, 30)])
    with store.measure() as measured:
        found = [
            offset
            for _ in range(1_000)
            if (batch := subscription.receive(1, timeout_ms=0)) is not None
            for offset in batch.column("_offset").to_pylist()
        ]
    assert found == [offset for offset in range(1_100) if offset % 30 != 1][:1_000]
    assert sum(measured.counts.bytes.values()) < 3 * 2**20


def test_what_was_handed_out_is_not_read_again_for_one_that_was_given_back() -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("raw", "kafka", partitions=1)
    log.subscriptions.create("raw", "work")
    with Producer(log, "p", buffer="inline") as producer:
        for number in range(24):
            with producer.transaction() as txn:
                txn.send("raw", value=random.Random(number).randbytes(2**19))
                txn.send("raw", value=random.Random(-number).randbytes(2**19))
    subscription = work(log)
    while subscription.receive(1, timeout_ms=0) is not None:
        pass
    subscription.negative_acknowledge([(0, 0)])
    with store.measure() as measured:
        assert [one["_offset"] for one in subscription.receive_dicts(1, timeout_ms=0)] == [0]
        assert subscription.receive(1, timeout_ms=0) is None
    assert measured.counts.requests[DATA_GET] < 12, "a chunk; what comes behind it is passed, markers too"


def test_an_acknowledgement_in_a_transaction_is_taken_back_by_a_seek_of_another_instance() -> None:
    log = made()
    subscription = work(log)
    assert received(subscription) == list(range(10))
    producer = open_transaction(log, subscription, flushes=True)
    producer.commit()
    work(log).seek(2)
    assert received(subscription) == [2, 3]
    producer.close()


def test_an_acknowledgement_stays_unknown_when_the_store_refuses_to_repeat_it() -> None:
    plan = Plan()
    log = faulty(plan)
    fill(log)
    subscription = work(log)
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    plan.next(RequestKind.GET, KeyClass.ENTRY, None)  # the look before it
    with pytest.raises(CommitStateUnknownError):
        subscription.acknowledge([(0, 0), (0, 1)])
    plan.clear()
    plan.always(RequestKind.CREATE, KeyClass.ENTRY, Fault(FaultKind.DISK_FULL))
    with pytest.raises(StorageError):
        subscription.acknowledge([(0, 0), (0, 1)])
    plan.clear()
    subscription.acknowledge([(0, 0), (0, 1)])
    assert unacknowledged(log) == 8, "it was its own"
