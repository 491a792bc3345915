"""The acknowledgements of Pulsar's tests whose messages are in ``test_pulsar_*.py``: after an end, by
threads, by schema."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.conformance.pulsar import BUFFERS, NUMBERS, again, opened, read
from tests.conformance.subscribers import SUB, acks_of, figures, numbers, received, subscribed, worker
from tests.integration.clients.failing import QuickClock
from txnformat.core.operations import TIMEOUT_MS
from txnformat.core.subscriptions.state import PartitionAcks
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog import InvalidTransactionStateError, Producer, Subscription, TransactionTimedOutError, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash
from writers.settings import Buffer

READS = (RequestKind.GET, RequestKind.GET_RANGE, RequestKind.HEAD, RequestKind.LIST)


@case("TransactionEndToEndTest", "produceAndConsumeCloseStateTxnTest")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_nothing_is_acknowledged_in_a_transaction_that_has_ended(end: str) -> None:
    log = subscribed(2)
    instance = worker(log)
    first, second = received(instance)
    producer = opened(log, "one")
    producer.acknowledge(instance, first)
    getattr(producer, end)()
    entry = log.refresh().entry
    for acknowledge in (producer.acknowledge, producer.acknowledge_cumulative):
        with pytest.raises(InvalidTransactionStateError) as caught:
            acknowledge(instance, second)
        assert caught.value.kind == "no-transaction"
    assert log.refresh().entry == entry
    assert figures(log) == (1 if end == "commit" else 2, 0)


@case("TransactionEndToEndTest", "testTxnTimeOutInClient")
@pytest.mark.parametrize("flushed", [True, False])
def test_nothing_is_acknowledged_in_a_transaction_that_has_timed_out(flushed: bool) -> None:
    """Others do so at once; what the late one had acknowledged is not held for it."""
    clock = QuickClock()
    log = subscribed(3, clock=clock)
    instance = worker(log)
    messages = received(instance)
    producer = opened(log, "one")
    producer.send("t", [{"n": 3}], partition=0)
    if flushed:
        producer.acknowledge(instance, messages[0])
    producer.flush()
    clock.sleep((TIMEOUT_MS + 1_000) / 1_000)
    again(log).committer.end_expired()
    producer.acknowledge(instance, messages[1])  # buffered: it comes with the commit
    with pytest.raises(TransactionTimedOutError):
        producer.commit()
    worker(log).acknowledge(messages[:2])
    producer.abort()
    assert figures(log) == (1, 0)
    producer.begin()
    producer.acknowledge(instance, messages[2])
    producer.commit()
    assert figures(log) == (0, 0)


@case("TransactionTest", "testSendAndAckWithSchema")
def test_one_transaction_acknowledges_in_topics_with_several_schemas() -> None:
    """And sends what came of them to a third."""
    log = subscribed(2)
    log.create_topic("events", "kafka")
    log.create_topic("prices", pa.schema([("what", pa.string()), ("price", pa.float64())]))
    log.subscriptions.create("events", SUB)
    with Producer(log) as source:
        source.send("events", key=b"k", value=b"v")
    instances = [worker(log), Subscription(log, "events", SUB)]
    with Producer(log, "one") as producer, producer.transaction() as txn:
        for instance in instances:
            messages = received(instance)
            assert [each["_topic"] for each in messages] == [instance.topic] * len(messages)
            txn.acknowledge(instance, messages)
        txn.send("prices", [{"what": "tea", "price": 2.5}])
    assert figures(log) == (0, 0)
    assert log.subscriptions.describe("events", SUB).unacknowledged == 0
    assert log.read("prices").read_all().num_rows == 1
    (entry,) = log.read("prices", columns=["_commit_entry"]).read_all().column(0).to_pylist()
    assert next(log.history(1)).entry == entry, "all of it is in one entry"


@case("TransactionTest", "testAsyncSendOrAckForSingleFuture")
def test_many_threads_acknowledge_in_one_transaction_and_each_message_once() -> None:
    """An instance is of one thread; the producer is shared."""
    log = subscribed(100)
    messages = received(worker(log))
    producer = opened(log, "one")
    instances = [worker(log) for _ in range(10)]

    def work(thread: int) -> None:
        for message in messages[thread::10]:
            producer.acknowledge(instances[thread], message)
            producer.send("t", [{"n": message["n"]}], partition=0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert acks_of(log) == PartitionAcks()
    producer.commit()
    assert acks_of(log) == PartitionAcks(100)
    assert sorted(read(log)) == sorted([*range(100), *range(100)])
    assert sorted(numbers(worker(log))) == list(range(100)), "what the transaction sent"


@BUFFERS
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_56_a_crash_at_any_write_leaves_messages_and_acknowledgements_or_neither(
    buffer: Buffer, kind: FaultKind
) -> None:
    """Messages to two partitions, acknowledgements in two partitions of two subscriptions; the successor does
    the rest."""
    crashes = 0
    while True:
        store = MemoryStore()
        log = subscribed(2, store, partitions=2)
        log.subscriptions.create("t", "second")
        log.create_topic("out", NUMBERS, partitions=2)
        left = [crashes]

        def crash(operation: RequestKind, key: str, nth: int, left: list[int] = left) -> Fault | None:
            if left[0] < 0:
                return Fault(FaultKind.CRASH_BEFORE)  # it is dead: also for what a with block does at its end
            if operation not in READS:  # before a read it is as before the write that follows
                left[0] -= 1
            return Fault(kind) if left[0] < 0 else None

        crashed = False
        try:
            _work(TxnLog.open(FaultyStore(store, crash)), buffer)
        except SimulatedCrash:
            crashed = True
        found = TxnLog.open(store)
        seen = sorted(found.read("out").read_all().column("n").to_pylist())
        left_over = [figures(found, name)[0] for name in (SUB, "second")]
        assert (seen, left_over) in (([], [4, 4]), ([0, 1, 2, 3], [0, 0])), crashes
        _work(found, buffer)
        assert sorted(found.read("out").read_all().column("n").to_pylist()) == [0, 1, 2, 3], crashes
        assert figures(found) == figures(found, "second") == (0, 0)
        if not crashed:
            break
        crashes += 1
    assert crashes >= 3


def _work(log: TxnLog, buffer: Buffer) -> None:
    """Process what there is, in one transaction."""
    with Producer(log, "etl", buffer=buffer) as producer:
        instances = [Subscription(log, "t", name) for name in (SUB, "second")]
        first, second = (received(instance) for instance in instances)
        if not first:
            return
        with producer.transaction() as txn:
            for number, messages in enumerate((first[:2], first[2:])):
                for message in messages:
                    txn.send("out", [{"n": message["n"]}], partition=number)
                txn.acknowledge(instances[0], messages)
                txn.flush()
            txn.acknowledge(instances[1], second)
    log.close()
