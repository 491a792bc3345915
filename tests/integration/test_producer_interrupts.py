"""A producer whose caller is interrupted, or whose call is cut off inside: what is acknowledged is there once, and every answer is true.

The signal comes from the store, in the middle of a request: the main thread waits, and its handler raises. What is cut
off inside are errors that no code of the library raises on purpose, such as a lack of memory.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from txnformat.errors import InvalidTransactionStateError, TxnLogError
from txnformat.intents import AppRef
from txnformat.log import TxnLog
from txnformat.shield import Errand
from txnformat.store.base import CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.transactions import TransactionStatus
from writers.job import JobProducer
from writers.producer import Producer
from writers.rows import RowFormat
from writers.transaction import ProducerStatus

ROWS = pa.schema([("n", pa.int64())])
BUFFERS = pytest.mark.parametrize("buffer", ["auto", "deferred", "inline"])


class _Interrupt(Exception):
    """As a task queue's soft limit: an exception like any other."""


class _Store(MemoryStore):
    """Raises a signal in the main thread when an entry is created, and ends the request when the handler has run."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = 0
        self.handled = threading.Event()

    def create(self, key: str, data: bytes) -> CreateResult:
        result = super().create(key, data)
        if self.interrupts and "/log/" in f"/{key}":
            self.interrupts -= 1
            self.interrupt()
        return result

    def interrupt(self) -> None:
        """Interrupt the main thread, and wait until its handler has run."""
        self.handled.clear()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        assert self.handled.wait(60)


@pytest.fixture
def store() -> Iterator[_Store]:
    store = _Store()

    def interrupt(number: int, frame: object) -> None:
        store.handled.set()
        raise _Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield store
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def log(store: _Store) -> TxnLog:
    log = TxnLog.create(store)
    log.create_topic("t", ROWS, partitions=3)
    return log


def numbers(log: TxnLog) -> list[int]:
    log.refresh()
    return sorted(row["n"] for row in log.read("t").read_all().to_pylist())


def rows(*ns: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in ns]


def interrupted(store: _Store, call: Callable[[], object]) -> None:
    """Do a call whose entry lands, and whose caller never hears of it."""
    store.interrupts = 1
    with pytest.raises(_Interrupt):
        call()
    assert store.interrupts == 0


def kind_of(call: Callable[[], object]) -> str:
    with pytest.raises(TxnLogError) as caught:
        call()
    return caught.value.kind


def next_transaction_counts(log: TxnLog, producer: Producer, n: int) -> None:
    before = numbers(log)
    with producer.transaction() as txn:
        txn.send("t", rows(n))
    assert numbers(log) == sorted([*before, n])


@BUFFERS
def test_a_commit_that_was_interrupted_is_told_by_the_abort(store: _Store, log: TxnLog, buffer: str) -> None:
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
    store: _Store, log: TxnLog, buffer: str
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


def test_after_an_interrupted_commit_nothing_goes_on_before_it_is_settled(store: _Store, log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.commit)
        assert kind_of(producer.begin) == "call-interrupted"
        assert kind_of(lambda: producer.send("t", rows(2))) == "call-interrupted"
        assert kind_of(producer.prepare) == "call-interrupted"
        assert producer.commit().entry is not None
        assert numbers(log) == [1]


def test_a_close_after_an_interrupted_commit_says_that_it_landed(store: _Store, log: TxnLog) -> None:
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    interrupted(store, producer.commit)
    assert kind_of(producer.close) == "transaction-committed"
    assert producer.status is ProducerStatus.CLOSED
    assert numbers(log) == [1]


def test_a_close_that_was_interrupted_as_the_commit_before_it_is_answered_when_it_is_repeated(
    store: _Store, log: TxnLog, monkeypatch: pytest.MonkeyPatch
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
        with pytest.raises(_Interrupt):
            producer.close()
    assert kind_of(producer.close) == "transaction-committed"
    producer.close()
    assert numbers(log) == [1]


def test_a_close_that_never_began_does_not_hide_the_commit_before_it(
    store: _Store, log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(log, "p")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    interrupted(store, producer.commit)

    def never_begins(errand: Errand[Any]) -> None:
        raise _Interrupt

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(Errand, "run", never_begins)
            patch.setattr(Errand, "settle", lambda errand: errand.is_ended)
            with pytest.raises(_Interrupt):
                producer.close()
    assert kind_of(producer.close) == "transaction-committed"
    producer.close()
    assert numbers(log) == [1]


def test_an_interrupt_that_leaves_a_with_block_tells_what_became_of_the_transaction(
    store: _Store, log: TxnLog
) -> None:
    with Producer(log, "p") as producer:

        def write() -> None:
            with producer.transaction() as txn:
                txn.send("t", rows(1))
                store.interrupts = 1

        with pytest.raises(_Interrupt):
            write()
        assert numbers(log) == [1]
        assert kind_of(producer.abort) == "transaction-committed"
        next_transaction_counts(log, producer, 2)


def test_an_interrupted_flush_inside_a_transaction_can_be_repeated_or_aborted(
    store: _Store, log: TxnLog
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


def test_an_interrupted_prepare_can_be_aborted(store: _Store, log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.prepare)
        producer.abort()
        assert log.refresh().transactional_ids["p"].status is TransactionStatus.COMPLETE_ABORT
        next_transaction_counts(log, producer, 2)


def test_an_interrupted_abort_is_done(store: _Store, log: TxnLog) -> None:
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
    store: _Store, log: TxnLog, idempotent: bool
) -> None:
    with Producer(log, enable_idempotence=idempotent, linger_ms=3_600_000) as producer:
        producer.send("t", rows(1, 2))
        interrupted(store, producer.flush)
        assert kind_of(lambda: producer.send("t", rows(3))) == "call-interrupted"
        assert producer.flush().entry == log.refresh().entry
        producer.send("t", rows(3))
        interrupted(store, producer.flush)
    assert numbers(log) == [1, 2, 3]


def test_an_interrupted_init_is_repeated_without_another_epoch(store: _Store, log: TxnLog) -> None:
    producer = Producer(log, "p")
    interrupted(store, producer.init)
    producer.init()
    assert producer.epoch == log.state.transactional_ids["p"].epoch
    producer.begin()
    producer.send("t", rows(1))
    producer.commit()
    producer.close()
    assert numbers(log) == [1]


def test_an_interrupted_send_that_had_to_make_room_leaves_only_the_abort(store: _Store, log: TxnLog) -> None:
    with Producer(log, "p", buffer="inline", batch_bytes=1, buffer_bytes=1) as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, lambda: producer.send("t", rows(2)))
        assert kind_of(lambda: producer.send("t", rows(2))) == "call-interrupted"
        assert kind_of(producer.commit) == "call-interrupted"
        producer.abort()
        next_transaction_counts(log, producer, 3)
        assert numbers(log) == [3]


def test_other_threads_go_on_while_the_caller_was_interrupted(store: _Store, log: TxnLog) -> None:
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


def test_an_abort_that_never_began_leaves_no_other_call_legal(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_begins(errand: Errand[Any]) -> None:
        raise _Interrupt

    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        with monkeypatch.context() as patch:
            patch.setattr(Errand, "run", never_begins)
            with pytest.raises(_Interrupt):
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
        raise _Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(producer._linger, "arm", interrupt)
        with pytest.raises(_Interrupt):
            producer.send("t", rows(1))
    assert kind_of(lambda: producer.send("t", rows(1))) == "call-interrupted"
    producer.close()
    assert numbers(log) == [1]


def test_a_commit_of_a_job_that_was_interrupted_is_told_by_the_abort(store: _Store, log: TxnLog) -> None:
    with JobProducer(log, "job") as producer:
        producer.begin()
        producer.send("t", rows(1))
        interrupted(store, producer.commit)
        assert kind_of(producer.abort) == "transaction-committed"
        next_transaction_counts(log, producer, 2)


def test_a_version_that_was_interrupted_answers_for_no_other_one(store: _Store, log: TxnLog) -> None:
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
    """Threads send while another one ends transaction after transaction: what is accepted is in exactly one of them."""
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
