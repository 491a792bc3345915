"""Ends of transactions that have acknowledged: the subscription may be in use, gone, or waited for by
somebody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.clients.failing import BUFFERS, QuickClock, rows
from tests.integration.consumers.subscribing import fill, made, received, work
from txnformat.store.memory import MemoryStore
from txnlog import NotFoundError, Producer, Subscription, TxnLog
from writers.transaction import Call


@BUFFERS
def test_an_abort_does_not_need_the_subscription(buffer: str) -> None:
    """Another thread may have it, or nobody any more: the transaction ends all the same."""
    log = made()
    subscription = work(log)
    batch = subscription.receive(4, timeout_ms=0)
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.acknowledge(subscription, batch)
        producer.flush()
        with held_elsewhere(subscription):
            producer.abort()
        assert log.transactions.list(states=["Ongoing"]) == ()
        assert received(subscription) == [*range(10)]
        producer.begin()
        producer.acknowledge(subscription, batch)
        log.subscriptions.delete("raw", "work")
        producer.abort()
        with producer.transaction() as txn:
            txn.send("out", rows(2))
    assert len(log.read("out").read_all()) == 1


@BUFFERS
def test_a_subscription_that_is_gone_at_the_commit_is_followed_by_the_abort(buffer: str) -> None:
    log = made()
    subscription = work(log)
    with Producer(log, "p", buffer=buffer) as producer:
        with pytest.raises(NotFoundError) as caught, producer.transaction() as txn:  # noqa: PT012  the exit raises
            txn.send("out", rows(1))
            txn.acknowledge(subscription, [(0, 1)])
            log.subscriptions.delete("raw", "work")
        assert caught.value.kind == "unknown-subscription"
        with producer.transaction() as txn:
            txn.send("out", rows(2))
    assert log.read("out").read_all().column("n").to_pylist() == [2]


@BUFFERS
def test_what_a_dead_instance_held_comes_again_when_its_time_is_over(buffer: str) -> None:
    """Also when nobody else ever commits anything: whoever waits for the records ends its transaction."""
    clock = QuickClock()
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    fill(log)
    dead = Producer(log, "dead", buffer=buffer)
    dead.init()
    dead.begin()
    dead.send("out", rows(1))
    dead.acknowledge_cumulative(work(log), [(0, 9)])
    dead._session.flush(Call.FLUSH)
    subscription = work(log)
    assert received(subscription) == []
    clock.set_back(-1_000 * (61 if buffer == "inline" else 24 * 3_600 + 1))
    assert received(subscription) == [*range(10)]
    assert log.outcome("dead", 0).cause == "timeout"


@contextmanager
def held_elsewhere(subscription: Subscription) -> Iterator[None]:
    """Let another thread be in the middle of a call of the subscription."""
    entered, leave = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        entered.set()
        leave.wait(300)

    def call() -> None:
        subscription._uncut.run("held", wait, breaks=False)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        assert entered.wait(300)
        yield
    finally:
        leave.set()
        thread.join()
