"""A producer whose caller is interrupted: what is acknowledged is there once, and every answer is true.

The signal comes from the store, in the middle of a request: the main thread waits, and its handler raises.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.integration.clients.interrupting import (  # noqa: F401  # fixtures
    BUFFERS,
    Interrupt,
    InterruptingStore,
    interrupted,
    interrupting_store,
    kind_of,
    log_in_store,
    next_transaction_counts,
    numbers,
    rows,
)
from txnformat.core.intents import AppRef
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import InvalidTransactionStateError
from txnformat.log import TxnLog
from txnformat.shield import Errand
from writers.job import JobProducer
from writers.producer import Producer
from writers.transaction import ProducerStatus


@BUFFERS
def test_a_commit_that_was_interrupted_is_told_by_the_abort(
    store: InterruptingStore, log: TxnLog, buffer: str
) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.commit)
        assert producer.status is ProducerStatus.UNKNOWN_OUTCOME
        assert kind_of(producer.abort) == "transaction-committed"
        assert numbers(log) == [1]
        next_transaction_counts(log, producer, 2)


@BUFFERS
def test_a_commit_that_was_interrupted_is_answered_when_it_is_repeated(
    store: InterruptingStore, log: TxnLog, buffer: str
) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.commit)
        info = producer.commit()
        assert info.entry == log.refresh().entry
        assert sum(info.offsets.values()) == 0
        assert len(info.offsets) == 1
        next_transaction_counts(log, producer, 2)


def test_after_an_interrupted_commit_nothing_goes_on_before_it_is_settled(
    store: InterruptingStore, log: TxnLog
) -> None:
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.commit)
        assert kind_of(producer.begin) == "call-interrupted"
        assert kind_of(lambda: producer.send("t", rows(2))) == "call-interrupted"
        assert kind_of(producer.prepare) == "call-interrupted"
        assert producer.commit().entry is not None
        assert numbers(log) == [1]


def test_a_close_after_an_interrupted_commit_says_that_it_landed(
    store: InterruptingStore, log: TxnLog
) -> None:
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    interrupted(store, producer.commit)
    assert kind_of(producer.close) == "transaction-committed"
    assert producer.status is ProducerStatus.CLOSED
    assert numbers(log) == [1]


def test_a_close_that_was_interrupted_as_the_commit_before_it_is_answered_when_it_is_repeated(
    store: InterruptingStore, log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    interrupted(store, producer.commit)
    stop = producer._linger.stop

    def stop_and_interrupt() -> None:
        stop()
        store.interrupt()

    with monkeypatch.context() as patch:
        patch.setattr(producer._linger, "stop", stop_and_interrupt)
        with pytest.raises(Interrupt):
            producer.close()
    assert kind_of(producer.close) == "transaction-committed"
    producer.close()
    assert numbers(log) == [1]


def test_a_close_that_never_began_does_not_hide_the_commit_before_it(
    store: InterruptingStore, log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    interrupted(store, producer.commit)

    def never_begins(errand: Errand[Any]) -> None:
        raise Interrupt

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(Errand, "run", never_begins)
            patch.setattr(Errand, "settle", lambda errand: errand.is_ended)
            with pytest.raises(Interrupt):
                producer.close()
    assert kind_of(producer.close) == "transaction-committed"
    producer.close()
    assert numbers(log) == [1]


def test_an_interrupt_that_leaves_a_with_block_tells_what_became_of_the_transaction(
    store: InterruptingStore, log: TxnLog
) -> None:
    with Producer(log, "p") as producer:

        def write() -> None:
            with producer.transaction() as txn:
                txn.send("t", rows(1))
                store.interrupts = 1

        with pytest.raises(Interrupt):
            write()
        assert numbers(log) == [1]
        assert kind_of(producer.abort) == "transaction-committed"
        next_transaction_counts(log, producer, 2)


def test_an_interrupted_flush_inside_a_transaction_can_be_repeated_or_aborted(
    store: InterruptingStore, log: TxnLog
) -> None:
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.flush)
        assert producer.flush().entry == log.refresh().entry
        producer.send("t", rows(2))
        interrupted(store, producer.flush)
        producer.abort()
        assert numbers(log) == []
        next_transaction_counts(log, producer, 3)


def test_an_interrupted_prepare_can_be_aborted(store: InterruptingStore, log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.prepare)
        producer.abort()
        assert log.refresh().transactional_ids["p"].status is TransactionStatus.COMPLETE_ABORT
        next_transaction_counts(log, producer, 2)


def test_an_interrupted_abort_is_done(store: InterruptingStore, log: TxnLog) -> None:
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        interrupted(store, producer.abort)
        producer.abort()  # the same, and its answer
        assert kind_of(producer.abort) == "no-transaction"
        next_transaction_counts(log, producer, 2)
        assert numbers(log) == [2]


@pytest.mark.parametrize("idempotent", [True, False])
def test_an_interrupted_flush_without_transactions_is_in_the_log_once(
    store: InterruptingStore, log: TxnLog, idempotent: bool
) -> None:
    with Producer(log, enable_idempotence=idempotent, linger_ms=3_600_000) as producer:
        producer.send("t", rows(1, 2))
        interrupted(store, producer.flush)
        assert kind_of(lambda: producer.send("t", rows(3))) == "call-interrupted"
        assert producer.flush().entry == log.refresh().entry
        producer.send("t", rows(3))
        interrupted(store, producer.flush)
    assert numbers(log) == [1, 2, 3]


def test_an_interrupted_init_is_repeated_without_another_epoch(store: InterruptingStore, log: TxnLog) -> None:
    producer = Producer(log, "p")
    interrupted(store, producer.init)
    producer.init()
    assert producer.epoch == log.state.transactional_ids["p"].epoch
    producer.begin()
    producer.send("t", rows(1))
    producer.commit()
    producer.close()
    assert numbers(log) == [1]


def test_an_interrupted_send_that_had_to_make_room_leaves_only_the_abort(
    store: InterruptingStore, log: TxnLog
) -> None:
    with Producer(log, "p", buffer="inline", batch_bytes=1, buffer_bytes=1) as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, lambda: producer.send("t", rows(2)))
        assert kind_of(lambda: producer.send("t", rows(2))) == "call-interrupted"
        assert kind_of(producer.commit) == "call-interrupted"
        producer.abort()
        next_transaction_counts(log, producer, 3)
        assert numbers(log) == [3]


def test_other_threads_go_on_while_the_caller_was_interrupted(store: InterruptingStore, log: TxnLog) -> None:
    told: list[object] = []
    with Producer(log, linger_ms=3_600_000) as producer:
        producer.send("t", rows(1))
        interrupted(store, producer.flush)

        def go_on() -> None:
            producer.send("t", rows(2))
            told.append(producer.flush().entry)

        thread = threading.Thread(target=go_on)
        thread.start()
        thread.join()
    assert told == [log.refresh().entry]
    assert numbers(log) == [1, 2]


def test_a_call_without_a_transaction_is_told_that_the_last_one_is_committed(log: TxnLog) -> None:
    """All that a caller can learn who was interrupted when the commit had ended, and before it had the
    answer."""
    with Producer(log, "p") as producer:
        next_transaction_counts(log, producer, 1)
        for call in (producer.commit, producer.abort):
            with pytest.raises(InvalidTransactionStateError) as caught:
                call()
            assert caught.value.values["last_transaction"] == "committed"
        producer.begin()
        producer.abort()
        with pytest.raises(InvalidTransactionStateError) as caught:
            producer.abort()
        assert "last_transaction" not in caught.value.values


def test_an_abort_that_never_began_leaves_no_other_call_legal(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_begins(errand: Errand[Any]) -> None:
        raise Interrupt

    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        with monkeypatch.context() as patch:
            patch.setattr(Errand, "run", never_begins)
            with pytest.raises(Interrupt):
                producer.abort()
        assert kind_of(producer.commit) == "call-interrupted"
        producer.abort()
        next_transaction_counts(log, producer, 2)
    assert numbers(log) == [2]


def test_a_send_without_transactions_is_not_forgotten_before_its_flush_is_due(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(log, linger_ms=3_600_000)
    producer.init()

    def interrupt() -> None:
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(producer._linger, "arm", interrupt)
        with pytest.raises(Interrupt):
            producer.send("t", rows(1))
    assert kind_of(lambda: producer.send("t", rows(1))) == "call-interrupted"
    producer.close()
    assert numbers(log) == [1]


def test_a_commit_of_a_job_that_was_interrupted_is_told_by_the_abort(
    store: InterruptingStore, log: TxnLog
) -> None:
    with JobProducer(log, "job") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.commit)
        assert kind_of(producer.abort) == "transaction-committed"
        next_transaction_counts(log, producer, 2)


def test_a_version_that_was_interrupted_answers_for_no_other_one(
    store: InterruptingStore, log: TxnLog
) -> None:
    first, second = AppRef("app", "job", 1), AppRef("app", "job", 2)
    with JobProducer(log, "job") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, lambda: producer.commit_version(first))
        assert kind_of(lambda: producer.commit_version(second)) == "call-interrupted"
        assert kind_of(producer.commit) == "call-interrupted"
        info, is_own = producer.commit_version(first)
        assert (info.entry, is_own) == (log.refresh().entry, True)
        producer.begin()
        producer.send("t", rows(2))
        interrupted(store, lambda: producer.commit_version(second))
        assert kind_of(producer.abort) == "transaction-committed"
    assert numbers(log) == [1, 2]
