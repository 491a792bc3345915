"""Subscriptions on real stores: what is received, what is acknowledged, what comes again, in transactions and
at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import BUFFERS, NUMBERS, Plan, faulty, rows, unclear_commit
from tests.integration.consumers.subscribing import fill, made, received, unacknowledged, work
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    AckConflictError,
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    Producer,
    Subscription,
    TxnLog,
    TxnLogError,
)
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.faulty import FaultKind

# --- receive, acknowledge, give back ------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 3, 100])
def test_everything_is_received_once_in_order_and_again_by_the_next_instance(most: int) -> None:
    log = made()
    first = work(log)
    assert received(first, most) == list(range(10))
    assert received(first) == []
    assert received(work(log)) == list(range(10)), "nothing was acknowledged"


def test_every_partition_is_received_also_those_that_come_later() -> None:
    log = made(partitions=3)
    subscription = work(log)
    assert sorted(received(subscription)) == list(range(30))
    log.alter_topic("raw", partitions=4)
    with Producer(log) as producer:
        producer.send("raw", rows(77), partition=3)
    assert received(subscription) == [77]
    subscription.acknowledge([(3, 0)])
    assert unacknowledged(log) == 30


def test_what_is_acknowledged_is_never_received_again() -> None:
    log = made()
    first = work(log)
    batch = first.receive(4, timeout_ms=0)
    assert batch is not None
    first.acknowledge(batch)
    first.acknowledge([(0, 6), (0, 8)])
    assert received(work(log)) == [4, 5, 7, 9]
    (backlog,) = first.backlog()
    assert (backlog.mark, backlog.ranges, backlog.unacknowledged, backlog.pending) == (4, 2, 4, 0)
    first.acknowledge_cumulative((0, 8))
    assert received(work(log)) == [9]
    assert first.backlog()[0].mark == 9


def test_records_are_named_as_they_were_received() -> None:
    log = made()
    subscription = work(log)
    dicts = subscription.receive_dicts(3, timeout_ms=0)
    assert [one["n"] for one in dicts] == [0, 1, 2]
    assert dicts[0]["_partition"] == 0
    subscription.acknowledge(dicts[0])
    subscription.acknowledge(dicts[1:])
    batch = subscription.receive(2, timeout_ms=0)
    assert batch is not None
    subscription.acknowledge(pa.Table.from_batches([batch]))
    assert received(work(log)) == [5, 6, 7, 8, 9]


def test_what_is_given_back_comes_again_and_nothing_else() -> None:
    log = made()
    subscription = work(log)
    received(subscription)
    subscription.acknowledge([(0, 3)])
    entries = log.refresh().entry
    subscription.negative_acknowledge([(0, 2), (0, 5)])
    assert log.refresh().entry == entries, "nothing of it is in the log"
    assert received(subscription) == [2, 5]
    subscription.redeliver_unacknowledged()
    assert received(subscription) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_two_instances_receive_the_same_and_the_acknowledgement_decides() -> None:
    log = made()
    first, second = work(log), work(log)
    assert received(first) == received(second)
    first.acknowledge([(0, 1)])
    with pytest.raises(AckConflictError) as caught:
        second.acknowledge([(0, 0), (0, 1)])
    assert (caught.value.kind, caught.value.values["offset"]) == ("already-acknowledged", 1)
    assert unacknowledged(log) == 9, "nothing of the call was acknowledged"


def test_markers_and_aborted_records_need_no_acknowledgement() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("raw", NUMBERS)
    with Producer(log, "p", buffer="inline") as producer:
        for number in range(6):
            producer.begin()
            producer.send("raw", rows(number))
            producer.flush()
            producer.commit() if number % 2 else producer.abort()
    log.subscriptions.create("raw", "work")
    subscription = work(log)
    batch = subscription.receive(timeout_ms=0)
    assert batch is not None
    assert batch.column("n").to_pylist() == [1, 3, 5]
    subscription.acknowledge(batch.slice(2, 1))
    subscription.acknowledge(batch.slice(0, 2))
    (backlog,) = subscription.backlog()
    assert (backlog.mark, backlog.ranges, backlog.unacknowledged) == (11, 0, 0), (
        "one position is left of them"
    )
    for offset in (0, 1, 3):
        with pytest.raises((NotFoundError, AckConflictError)):
            subscription.acknowledge([(0, offset)])


def test_records_are_received_and_acknowledged_also_when_they_are_sealed() -> None:
    log = made()
    with Producer(log, "p", buffer="inline") as producer:
        for number in range(10, 14):
            producer.begin()
            producer.send("raw", rows(number))
            producer.flush()
            producer.commit() if number % 2 else producer.abort()
    log.maintain("seal")
    subscription = work(log)
    batch = subscription.receive(timeout_ms=0)
    assert batch is not None
    assert batch.column("n").to_pylist() == [*range(10), 11, 13]
    subscription.acknowledge(batch)
    assert subscription.backlog()[0].unacknowledged == 0
    assert len(log.refresh().subscriptions) == 1


def test_an_open_transaction_is_not_passed() -> None:
    log = made()
    producer = Producer(log, "p", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("raw", rows(10))
    producer.flush()
    subscription = work(log)
    assert received(subscription) == list(range(10))
    with pytest.raises(OffsetOutOfRangeError) as caught:
        subscription.acknowledge([(0, 10)])
    assert (caught.value.values["got"], caught.value.values["latest"]) == (
        10,
        9,
    )  # records, as they were named
    producer.commit()
    assert received(subscription) == [10]
    subscription.acknowledge([(0, 10)])
    producer.close()


# --- in transactions ----------------------------------------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize("flushes", [False, True])
def test_records_and_acknowledgements_come_together(buffer: str, flushes: bool) -> None:
    log = made()
    subscription = work(log)
    batch = subscription.receive(4, timeout_ms=0)
    assert batch is not None
    with Producer(log, "p", buffer=buffer) as producer:
        with producer.transaction() as txn:
            txn.send("out", rows(1))
            txn.acknowledge(subscription, batch)
            if flushes:
                txn.flush()
            assert unacknowledged(log) == 10
        assert unacknowledged(log) == 6
        assert len(log.read("out").read_all()) == 1
    assert received(work(log)) == [4, 5, 6, 7, 8, 9]


@BUFFERS
@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("cumulative", [False, True])
def test_after_an_abort_the_records_are_received_again(buffer: str, flushes: bool, cumulative: bool) -> None:
    log = made()
    subscription = work(log)
    batch = subscription.receive(4, timeout_ms=0)
    assert batch is not None
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("out", rows(1))
        if cumulative:
            producer.acknowledge_cumulative(subscription, batch)
        else:
            producer.acknowledge(subscription, batch)
        if flushes:
            producer.flush()
        assert received(subscription) == [4, 5, 6, 7, 8, 9]
        producer.abort()
        assert received(subscription) == [0, 1, 2, 3]
        assert unacknowledged(log) == 10
    assert len(log.read("out").read_all()) == 0


def test_nobody_acknowledges_or_gives_back_what_a_transaction_has_acknowledged() -> None:
    log = made()
    first, second = work(log), work(log)
    received(second)
    with Producer(log, "p", buffer="inline") as producer, Producer(log, "q") as other:
        producer.begin()
        producer.acknowledge(first, [(0, 2)])
        producer.flush()
        calls: list[Callable[[], None]] = [
            lambda: second.acknowledge([(0, 2)]),
            lambda: second.acknowledge_cumulative((0, 4)),
            lambda: second.negative_acknowledge([(0, 2)]),
            lambda: producer.acknowledge(first, [(0, 2)]),
        ]
        for call in calls:
            with pytest.raises(AckConflictError) as caught:
                call()
            assert (caught.value.kind, caught.value.values["transactional_id"]) == ("ack-pending", "p")
        assert received(work(log)) == [0, 1, 3, 4, 5, 6, 7, 8, 9], "it is left out meanwhile"
        with pytest.raises(AckConflictError), other.transaction() as txn:
            txn.acknowledge(second, [(0, 2)])
        producer.commit()
    assert unacknowledged(log) == 9


def test_what_another_instance_left_out_comes_when_its_transaction_is_aborted() -> None:
    log = made()
    first, second = work(log), work(log)
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.acknowledge(first, [(0, 2), (0, 3), (0, 9)])
        producer.flush()
        assert received(second) == [0, 1, 4, 5, 6, 7, 8]
        producer.abort()
        assert received(second) == [2, 3, 9]


def test_of_two_transactions_that_acknowledge_one_record_one_wins() -> None:
    log = made()
    first, second = Producer(log, "p"), Producer(log, "q")
    for producer in (first, second):
        producer.init()
        producer.begin()
        producer.send("out", rows(1))
        producer.acknowledge(work(log), [(0, 4)])
    first.commit()
    with pytest.raises(AckConflictError):
        second.commit()
    second.abort()
    first.close()
    second.close()
    assert len(log.read("out").read_all()) == 1
    assert unacknowledged(log) == 9


def test_a_transaction_cannot_acknowledge_in_another_log() -> None:
    log, other = made(), made()
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    with pytest.raises(InvalidInputError, match="another log"):
        producer.acknowledge(work(other), [(0, 1)])
    producer.close()


def test_a_prepared_transaction_keeps_its_acknowledgements() -> None:
    log = made()
    with Producer(log, "p") as producer:
        producer.begin()
        producer.acknowledge(work(log), [(0, 4)])
        token = str(producer.prepare())
    with pytest.raises(AckConflictError):
        work(log).acknowledge([(0, 4)])
    log.commit_prepared(token)
    assert unacknowledged(log) == 9


# --- seek, tools, requests, unknown outcomes ----------------------------------------------------------------


def test_a_seek_goes_back_and_forth() -> None:
    log = made()
    subscription = work(log)
    received(subscription)
    subscription.acknowledge_cumulative((0, 9))
    subscription.seek(7)
    assert received(subscription) == [7, 8, 9]
    subscription.seek("latest")
    assert received(subscription) == []
    subscription.seek({0: 2})
    assert received(subscription) == [2, 3, 4, 5, 6, 7, 8, 9]
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.acknowledge(subscription, [(0, 4)])
        producer.flush()
        with pytest.raises(AckConflictError):
            subscription.seek("earliest")
        producer.abort()
    subscription.seek("earliest")
    assert unacknowledged(log) == 10


def test_subscriptions_are_made_listed_and_deleted() -> None:
    log = made()
    log.subscriptions.create("raw", "late", start="latest")
    log.subscriptions.create("raw", "late", exist_ok=True)
    with pytest.raises(ConflictError) as caught:
        log.subscriptions.create("raw", "late")
    assert caught.value.kind == "subscription-exists"
    assert [one.subscription for one in log.subscriptions.list()] == ["late", "work"]
    assert log.subscriptions.list("out") == ()
    assert received(Subscription(log, "raw", "late")) == []
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.acknowledge(work(log), [(0, 4)])
        producer.flush()
        assert log.subscriptions.list("raw")[1].pending_transactions == ("p",)
        assert log.subscriptions.describe("raw", "work").partitions[0].pending == 1
        with pytest.raises(AckConflictError):
            log.subscriptions.delete("raw", "work")
    log.subscriptions.delete("raw", "work")
    with pytest.raises(NotFoundError):
        work(log).receive(timeout_ms=0)


def test_requests() -> None:
    store = CountingStore(MemoryStore())
    log = made(store)
    subscription = work(log)
    batch = subscription.receive(timeout_ms=0)
    assert batch is not None
    entry_get, entry_put = (
        RequestClass(RequestKind.GET, KeyClass.ENTRY),
        RequestClass(RequestKind.CREATE, KeyClass.ENTRY),
    )
    with store.measure() as measured:
        assert subscription.receive(timeout_ms=0) is None
    assert dict(measured.counts.requests) == {entry_get: 1}, "a look that finds nothing"
    with store.measure() as measured:
        subscription.acknowledge(batch)
    assert dict(measured.counts.requests) == {entry_get: 1, entry_put: 1}


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE])
def test_an_acknowledgement_with_an_unknown_outcome_is_repeated(kind: FaultKind) -> None:
    plan = Plan()
    log = faulty(plan)
    fill(log)
    subscription = work(log)
    batch = subscription.receive(4, timeout_ms=0)
    unclear_commit(plan, kind)
    plan.next(RequestKind.GET, KeyClass.ENTRY, None)  # the look before it
    with pytest.raises(CommitStateUnknownError):
        subscription.acknowledge(batch)
    plan.clear()
    subscription.acknowledge(batch)
    assert unacknowledged(log) == 6
    with pytest.raises(AckConflictError):
        subscription.acknowledge(batch)


BAD: list[tuple[type[TxnLogError], Callable[[Subscription], Any]]] = [
    (InvalidInputError, lambda one: one.acknowledge([])),
    (InvalidInputError, lambda one: one.acknowledge(7)),
    (InvalidInputError, lambda one: one.acknowledge("0:7")),
    (InvalidInputError, lambda one: one.acknowledge([(0, -1)])),
    (InvalidInputError, lambda one: one.acknowledge([(0, 1), (0, 1)])),
    (InvalidInputError, lambda one: one.acknowledge([{"n": 1}])),
    (InvalidInputError, lambda one: one.acknowledge(rows(1))),
    (InvalidInputError, lambda one: one.acknowledge(pa.table({"_partition": [0], "_offset": [1.5]}))),
    (InvalidInputError, lambda one: one.acknowledge(pa.table({"_partition": ["0"], "_offset": ["1"]}))),
    (InvalidInputError, lambda one: one.acknowledge(pa.table({"_partition": [0], "_offset": [-1]}))),
    (InvalidInputError, lambda one: one.acknowledge(pa.table({"_partition": [0, 0], "_offset": [1, None]}))),
    (NotFoundError, lambda one: one._log.subscriptions.create("raw", "other", start={7: 0})),
    (NotFoundError, lambda one: one.acknowledge([(7, 1)])),
    (OffsetOutOfRangeError, lambda one: one.acknowledge([(0, 10)])),
    (OffsetOutOfRangeError, lambda one: one.acknowledge_cumulative([(0, 10)])),
    (OffsetOutOfRangeError, lambda one: one.negative_acknowledge([(0, 10)])),
    (OffsetOutOfRangeError, lambda one: one.seek(11)),
    (InvalidInputError, lambda one: one.seek(-1)),
    (InvalidInputError, lambda one: one.seek("nowhere")),
    (NotFoundError, lambda one: one.seek({9: 0})),
    (InvalidInputError, lambda one: one.receive(0)),
    (InvalidInputError, lambda one: one.receive(1, -1)),
]


@pytest.mark.parametrize(("error", "call"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_bad_input_is_one_clear_error_and_changes_nothing(
    error: type[TxnLogError], call: Callable[[Subscription], Any]
) -> None:
    log = made()
    entries = log.refresh().entry
    with pytest.raises(error):
        call(work(log))
    assert log.refresh().entry == entries
    assert unacknowledged(log) == 10


def test_what_does_not_exist_is_said() -> None:
    log = made()
    for topic, name in (("nothing", "work"), ("raw", "nobody")):
        with pytest.raises(NotFoundError):
            Subscription(log, topic, name).receive(timeout_ms=0)
    with pytest.raises(InvalidInputError):
        Subscription(log, "raw", "_hidden")
    closed = work(log)
    closed.close()
    with pytest.raises(InvalidTransactionStateError):
        closed.receive(timeout_ms=0)
