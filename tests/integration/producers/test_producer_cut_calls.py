"""A producer in which a call is cut by an error that no code raises on purpose, and one that many threads use
at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.clients.interrupting import (  # noqa: F401  # fixtures
    BUFFERS,
    interrupted,
    interrupting_store,
    kind_of,
    log_in_store,
    next_transaction_counts,
    numbers,
    rows,
)
from txnformat.errors import InvalidTransactionStateError
from txnformat.log import TxnLog
from writers.producer import Producer
from writers.rows import RowFormat
from writers.transaction import ProducerStatus


class _Fails(MemoryError):
    """A lack of memory, at a place that a test chooses."""


@BUFFERS
@pytest.mark.parametrize("place", ["accept", "finish", "landed", "appends", "discard"])
def test_a_transaction_in_which_a_call_was_cut_can_only_be_aborted(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch, buffer: str, place: str
) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        target: Any = producer._staging.buffered if place == "accept" else producer._staging

        def fail(*args: object, **named: object) -> None:
            raise _Fails

        with monkeypatch.context() as patch:
            patch.setattr(target, place, fail)
            with pytest.raises(_Fails):
                producer.commit()
        landed = numbers(log) == [1]
        assert landed == (place in ("landed", "discard"))
        assert producer.status in (ProducerStatus.ABORT_REQUIRED, ProducerStatus.UNKNOWN_OUTCOME)
        assert kind_of(producer.begin) in ("call-interrupted", "outcome-unknown")
        assert kind_of(lambda: producer.send("t", rows(2))) in ("call-interrupted", "outcome-unknown")
        if landed:
            assert kind_of(producer.abort) == "transaction-committed"
        else:
            producer.abort()
        next_transaction_counts(log, producer, 3)
        assert numbers(log) == ([1, 3] if landed else [3])


@pytest.mark.parametrize("place", ["accept", "finish", "appends"])
def test_a_close_says_that_records_may_be_missing_when_a_flush_was_cut(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    producer = Producer(log, linger_ms=3_600_000)
    producer.init()
    producer.send("t", rows(1))
    producer.flush()
    producer.send("t", rows(2))
    target: Any = producer._staging.buffered if place == "accept" else producer._staging

    def fail(*args: object, **named: object) -> None:
        raise _Fails

    with monkeypatch.context() as patch:
        patch.setattr(target, place, fail)
        with pytest.raises(_Fails):
            producer.flush()
    for call in (producer.flush, lambda: producer.send("t", rows(3))):
        assert kind_of(call) == "call-interrupted"
    assert kind_of(producer.close) == "records-dropped"
    assert producer.status is ProducerStatus.CLOSED
    producer.close()
    assert numbers(log) == [1]


def test_a_flush_that_was_cut_after_the_answer_is_settled_by_the_close(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(log, linger_ms=3_600_000)
    producer.init()
    producer.send("t", rows(1))

    def fail(*args: object) -> None:
        raise _Fails

    with monkeypatch.context() as patch:
        patch.setattr(producer._staging, "landed", fail)
        with pytest.raises(_Fails):
            producer.flush()
    producer.close()
    assert numbers(log) == [1]


def test_records_whose_conversion_fails_stay_in_the_buffer(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(log, "p") as producer:
        producer.begin()
        for n in range(10):
            producer.send("t", rows(n))
        producer._staging.take_in()
        held = producer._staging.buffered

        def fail(*args: object) -> None:
            raise _Fails

        with monkeypatch.context() as patch:
            patch.setattr(RowFormat, "table", fail)
            with pytest.raises(_Fails):
                held.settle()
        size = held.size
        held.settle()
        assert held.size >= size > 0
        producer.commit()
    assert numbers(log) == list(range(10))


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_sends_of_many_threads_are_each_in_the_log_once_while_others_flush(log: TxnLog) -> None:
    threads, each = 6, 150
    with Producer(log, linger_ms=0, batch_bytes=400, buffer_bytes=2_000) as producer:

        def send(number: int) -> None:
            for n in range(each):
                producer.send("t", rows(number * each + n))
                if n % 40 == number:
                    producer.flush()

        running = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert numbers(log) == list(range(threads * each))


@pytest.mark.usefixtures("restless")
def test_a_send_that_returned_before_a_commit_is_in_a_transaction_and_one_that_was_refused_is_not(
    log: TxnLog,
) -> None:
    """Threads send while another one ends transaction after transaction: what is accepted is in exactly one
    of them."""
    accepted: list[int] = []
    ended = threading.Event()
    with Producer(log, "p") as producer:

        def send(number: int) -> None:
            n = number * 1_000_000
            while not ended.is_set():
                try:
                    producer.send("t", rows(n))
                except InvalidTransactionStateError:
                    pass
                else:
                    accepted.append(n)
                n += 1

        running = [threading.Thread(target=send, args=(number,)) for number in range(3)]
        for thread in running:
            thread.start()
        for _ in range(60):
            producer.begin()
            producer.commit()
        ended.set()
        for thread in running:
            thread.join()
    assert numbers(log) == sorted(accepted)
