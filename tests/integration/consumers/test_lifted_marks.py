"""Maintenance lifts the marks of subscriptions over offsets that no reader gets. The specification, section
5.11."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.clients.failing import QuickClock, rows
from tests.integration.consumers.subscribing import made, received, work
from txnformat.admin.subscriptions import LiftedMark
from txnformat.core.invariants import check_whole
from txnformat.store.memory import MemoryStore
from txnlog import AckConflictError, Producer, Subscription, TxnLog
from txnlog_testing.stores.counting import CountingStore


def aborted(log: TxnLog, *numbers: int) -> None:
    """Leave aborted records and a marker at the end of the partition."""
    producer = Producer(log, "aborting", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("raw", rows(*numbers), partition=0)
    producer.flush()
    producer.abort()


def append(log: TxnLog, *numbers: int) -> None:
    with Producer(log) as producer:
        producer.send("raw", rows(*numbers), partition=0)


def mark(log: TxnLog) -> int:
    return log.subscriptions.describe("raw", "work").partitions[0].mark


def lifted(log: TxnLog) -> list[tuple[int, int]]:
    report = log.maintain("subscriptions")
    assert report.damaged == ()
    assert check_whole(log.refresh()) == []
    return [(one.previous_mark, one.mark) for one in report.lifted]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_mark_passes_what_lies_behind_the_last_record(is_sealed: bool) -> None:
    log = made()
    subscription = work(log)
    assert lifted(log) == [], "all ten records are wanted"
    subscription.acknowledge_cumulative((0, 9))
    assert lifted(log) == []
    aborted(log, 10, 11)
    assert mark(log) == 10
    if is_sealed:
        log.maintain("seal")
    assert lifted(log) == [(10, 13)]
    assert mark(TxnLog.open(log.store)) == 13
    assert lifted(log) == []
    append(log, 12)
    assert received(subscription) == [12]


def test_a_mark_stops_at_the_first_record_that_is_wanted_and_passes_what_is_acknowledged() -> None:
    log = made()
    subscription = work(log)
    aborted(log, 10)
    append(log, 11, 12)
    aborted(log, 13)
    log.maintain("seal")
    append(log, 14)
    subscription.acknowledge_cumulative((0, 9))
    subscription.acknowledge([(0, 12)])  # with the gap before it
    assert mark(log) == 13
    log.subscriptions.seek("raw", "work", 10)
    assert lifted(log) == [(10, 12)], "a record is wanted at 12"
    subscription.acknowledge([(0, 13)])
    assert lifted(log) == []
    subscription.acknowledge([(0, 12)])
    assert lifted(log) == [(14, 16)]
    assert received(subscription) == [14]


def test_a_mark_stops_at_what_is_pending_and_at_an_open_transaction() -> None:
    log = made()
    subscription = work(log)
    subscription.acknowledge_cumulative((0, 8))
    aborted(log, 10)
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.acknowledge(subscription, [(0, 9)])
    producer.flush()
    assert lifted(log) == []
    opened = Producer(log, "opened", buffer="inline")
    opened.init()
    opened.begin()
    opened.send("raw", rows(11), partition=0)
    opened.flush()
    producer.commit()
    assert lifted(log) == [(10, 12)]
    opened.abort()
    assert lifted(log) == [(12, 14)]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_client_that_acknowledges_meanwhile_does_not_notice(in_transaction: bool) -> None:
    """Its acknowledgement covers the gap before the record, which another client takes before it lands."""
    log = made()
    subscription = work(log)
    subscription.acknowledge_cumulative((0, 9))
    aborted(log, 10)
    append(log, 11)
    other = TxnLog.open(log.store)
    if in_transaction:
        with Producer(log, "p") as producer:
            producer.begin()
            producer.acknowledge(subscription, [(0, 12)])
            assert lifted(other) == [(10, 12)]
            producer.commit()
    else:
        during(subscription, lambda: lifted(other)).acknowledge([(0, 12)])
    assert mark(log) == 13
    with pytest.raises(AckConflictError):
        subscription.acknowledge([(0, 12)])


def during(subscription: Subscription, act: Callable[[], Any]) -> Subscription:
    """Let something happen between the look of the next acknowledgement and its commit."""
    original = subscription._acks

    def acks(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        act()
        return found

    subscription._acks = acks  # type: ignore[method-assign]
    return subscription


def test_a_seek_meanwhile_or_another_service_is_no_error() -> None:
    log = made()
    work(log).acknowledge_cumulative((0, 9))
    aborted(log, 10)
    assert lifted(TxnLog.open(log.store)) == [(10, 12)]
    assert lifted(log) == []
    log.subscriptions.seek("raw", "work", 9)
    assert lifted(log) == []


def test_pinned_records_go_once_nothing_is_left_to_read() -> None:
    """Without the lift the pin would hold for ever: no record comes that an acknowledgement could name."""
    clock = QuickClock()
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    log.create_topic("raw", rows(1).schema, settings={"retention.ms": 3_600_000, "retention.pinned.ms": -1})
    log.subscriptions.create("raw", "work")
    aborted(log, 1, 2)
    clock.sleep(datetime.timedelta(hours=3).total_seconds())
    log.maintain("seal")
    assert log.maintain("retention").removed == ()
    report = log.maintain()
    assert report.lifted == (LiftedMark("raw", "work", 0, 0, 3),)
    assert [one.earliest for one in report.removed] == [3]


def test_requests() -> None:
    """One look, one entry for a subscription whose mark moves; the sidecar of a segment is read once."""
    store = CountingStore(MemoryStore())
    log = made(store)
    log.maintain("seal")
    work(log).acknowledge_cumulative((0, 9))
    aborted(log, 10)
    log.maintain("seal")
    log = TxnLog.open(store)
    with store.measure() as measured:
        log.maintain("subscriptions")
    assert sum(measured.counts.requests.values()) <= 2 + 1 + 1 + 1
    with store.measure() as measured:
        log.maintain("subscriptions")
    assert sum(measured.counts.requests.values()) == 2
