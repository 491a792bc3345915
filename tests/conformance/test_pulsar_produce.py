"""Pulsar's tests of producing in transactions: what consumers get of it, when, and in which order.

Consumers of Pulsar are readers here. What a case acknowledges besides is in ``test_pending_acks.py``.
"""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.conformance.pulsar import (
    AT_COMMIT,
    BUFFERS,
    NUMBERS,
    again,
    new_log,
    opened,
    plain,
    read,
    send,
    stable,
)
from tests.integration.clients.failing import Plan, faulty
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    InvalidInputError,
    InvalidTransactionStateError,
    Producer,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind
from writers.settings import Buffer

# --- commit and abort ---------------------------------------------------------------------------------------


@BUFFERS
@case("TransactionEndToEndTest", "produceCommitTest")
@case("TransactionProduceTest", "produceAndCommitTest")
@case("TransactionStablePositionTest", "commitTxnTest")
@case("V5TransactionScalableTest", "testMultiSegmentTransactionCommit")
def test_messages_over_several_partitions_come_all_at_once_with_the_commit(buffer: Buffer) -> None:
    log = new_log(partitions=3)
    producer = opened(log, "one", buffer)
    for n in range(9):
        send(producer, n, partition=n % 3)
        assert read(log) == []
    producer.commit()
    assert sorted(read(log)) == list(range(9))
    entries = log.read("t", columns=["_commit_entry"]).read_all().column(0)
    assert len(entries.unique()) == 1, "one entry made all of it visible"


@BUFFERS
@case("TransactionEndToEndTest", "produceAbortTest")
@case("TransactionProduceTest", "produceAndAbortTest")
@case("TransactionStablePositionTest", "abortTxnTest")
def test_messages_of_an_aborted_transaction_never_come(buffer: Buffer) -> None:
    log = new_log(partitions=2)
    plain(log, 1)
    producer = opened(log, "one", buffer)
    send(producer, 10, 11)
    send(producer, 12, partition=1)
    producer.abort()
    assert read(log) == [1]
    plain(log, 2)
    for _ in ("as appended", "sealed"):
        assert read(log) == [1, 2]
        log.maintain("seal")
    with producer.transaction() as txn:  # the same producer goes on
        txn.send("t", [{"n": 3}], partition=0)
    assert read(log) == [1, 2, 3]


@BUFFERS
@case("TransactionEndToEndTest", "produceTxnMessageOrderTest")
@case("TopicTransactionBufferTest", "testMessagePublishInOrder")
def test_messages_of_one_partition_keep_the_order_in_which_they_were_sent(buffer: Buffer) -> None:
    """Through many small flushes, several transactions of one producer, and sends before and after a
    flush.
    """
    log = new_log()
    with Producer(log, "one", buffer=buffer, batch_bytes=64, buffer_bytes=512) as producer:
        for first in range(0, 600, 200):
            producer.begin()
            for n in range(first, first + 200):
                producer.send("t", [{"n": n}])
                if n == first + 50:
                    producer.flush()
            assert read(log) == list(range(first))
            producer.commit()
            assert read(log) == list(range(first + 200))


@BUFFERS
@case("V5TransactionScalableTest", "testLargeTransaction")
def test_every_message_of_a_large_transaction_comes_exactly_once(buffer: Buffer) -> None:
    """Five hundred sends over fifty keys and two partitions."""
    log = new_log(MemoryStore())
    keyed = pa.schema([("key", pa.string()), ("n", pa.int64())])
    log.create_topic("keyed", keyed, partitions=2, key_columns=["key"])
    producer = opened(log, "one", buffer, batch_bytes=256)
    for n in range(500):
        producer.send("keyed", [{"key": f"k-{n % 50}", "n": n}])
    assert again(log).read("keyed").read_all().num_rows == 0
    producer.commit()
    found = again(log).read("keyed").read_all().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(500))
    of_one_key = [row["n"] for row in found if row["key"] == "k-7"]
    assert of_one_key == list(range(7, 500, 50))


@BUFFERS
@case("TransactionTest", "testSendAndAckWithSchema")
def test_one_transaction_sends_with_several_schemas(buffer: Buffer) -> None:
    """Pulsar sends with a schema per message; here each topic has its own, and a transaction spans them."""
    log = new_log()
    log.create_topic("events", "kafka")
    log.create_topic("prices", pa.schema([("what", pa.string()), ("price", pa.float64())]))
    producer = opened(log, "one", buffer)
    producer.send("t", pa.table({"n": [1, 2]}, schema=NUMBERS))
    producer.send("events", key=b"k", value=b"v")
    producer.send("prices", [{"what": "tea", "price": 2.5}])
    with pytest.raises(InvalidInputError) as caught:
        producer.send("prices", [{"what": "tea", "price": "free"}])
    assert caught.value.kind == "schema-mismatch"
    producer.commit()
    assert read(log) == [1, 2]
    assert log.read("events", columns=["value"]).read_all().column(0).to_pylist() == [b"v"]
    assert log.read("prices").read_all().to_pylist() == [{"what": "tea", "price": 2.5}]


# --- among plain messages and other transactions ------------------------------------------------------------


@case("TransactionConsumeTest", "noSortedTest")
@case("V5TransactionScalableTest", "testOpenTransactionPinsLaterNonTransactionalWrites")
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_an_open_inline_transaction_holds_later_plain_messages_back(commits: bool) -> None:
    """Consumers get the messages before it at once; those after it wait, and come by offset, not by time of
    decision."""
    log = new_log()
    plain(log, *range(10))
    producer = opened(log, "one")
    send(producer, *range(10, 20))
    plain(log, *range(20, 30))
    assert read(log) == list(range(10))
    if commits:
        producer.commit()
    else:
        producer.abort()
    assert read(log) == [*range(10), *(range(10, 20) if commits else ()), *range(20, 30)]


@AT_COMMIT
@case("TransactionConsumeTest", "noSortedTest")
@case("V5TransactionScalableTest", "testOpenTransactionPinsLaterNonTransactionalWrites")
def test_with_offsets_at_the_commit_plain_messages_wait_for_nobody(buffer: Buffer) -> None:
    """What PIP-31 chose its sidecar for, and Pulsar does not have: the transaction comes where it
    committed.
    """
    log = new_log()
    plain(log, *range(10))
    producer = opened(log, "one", buffer)
    send(producer, *range(10, 20))
    plain(log, *range(20, 30))
    assert read(log) == [*range(10), *range(20, 30)]
    producer.commit()
    assert read(log) == [*range(10), *range(20, 30), *range(10, 20)]


@BUFFERS
@case("TransactionConsumeTest", "sortedTest")
def test_what_commits_before_later_plain_messages_stands_before_them(buffer: Buffer) -> None:
    log = new_log()
    plain(log, *range(10))
    producer = opened(log, "one", buffer)
    send(producer, *range(10, 20))
    producer.commit()
    plain(log, *range(20, 30))
    assert read(log) == list(range(30))


@BUFFERS
@case("V5TransactionScalableTest", "testConcurrentTransactionsMixedCommitAbort")
def test_of_many_interleaved_transactions_exactly_the_committed_are_read(buffer: Buffer) -> None:
    log = new_log(partitions=2)
    producers = [opened(log, f"txn-{number}", buffer) for number in range(6)]
    for n in range(4):
        for number, producer in enumerate(producers):
            send(producer, 10 * number + n, partition=number % 2)
    assert read(log) == []
    for number, producer in enumerate(producers):
        if number % 3 == 0:
            producer.commit()
        else:
            producer.abort()
    for _ in ("as appended", "sealed"):
        assert sorted(read(log)) == [0, 1, 2, 3, 30, 31, 32, 33]
        log.maintain("seal")


@BUFFERS
@case("V5TransactionScalableTest", "testAbortSpansSplit")
def test_an_abort_of_a_transaction_that_saw_its_topic_grow_leaves_nothing(buffer: Buffer) -> None:
    log = new_log()
    producer = opened(log, "one", buffer)
    for n in range(5):
        producer.send("t", [{"n": n}])
    producer.flush()
    log.alter_topic("t", partitions=2)
    for n in range(5, 10):
        producer.send("t", [{"n": n}], partition=n % 2)
        producer.flush()
    producer.abort()
    plain(log, 100)
    assert read(log) == [100]
    assert {stable(log, 0), stable(log, 1)} == {each.log_end for each in log.offsets("t")}


@BUFFERS
@case("TransactionProduceTest", "testUpdateLastMaxReadPositionMovedForwardTimestampForTransactionalPublish")
def test_sending_moves_nothing_that_readers_see_and_the_commit_does(buffer: Buffer) -> None:
    log = new_log()
    plain(log, 1)
    before = stable(log)
    producer = opened(log, "one", buffer)
    send(producer, 2)
    assert stable(log) == before
    producer.commit()
    assert stable(log) == log.offsets("t")[0].log_end > before


@BUFFERS
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@case("TransactionConsumeTest", "testFirstTnxBufferSnapshotAndRecoveryConcurrently")
def test_many_processes_begin_the_first_transactions_of_a_topic_at_once(
    buffer: Buffer, commits: bool
) -> None:
    """And others open the log meanwhile. The topic needs no preparation for transactions."""
    log = new_log()
    clients = [again(log) for _ in range(10)]
    producers = [Producer(client, f"txn-{number}", buffer=buffer) for number, client in enumerate(clients)]
    seen: list[list[int]] = []

    def first(number: int) -> None:
        producers[number].init()
        producers[number].begin()
        send(producers[number], number)
        seen.append(read(log))

    threads = [threading.Thread(target=first, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[]] * 10
    for producer in producers:
        if commits:
            producer.commit()
        else:
            producer.abort()
    assert sorted(read(log)) == (list(range(10)) if commits else [])


# --- calls in the wrong state, and sends that fail ----------------------------------------------------------


@BUFFERS
@pytest.mark.parametrize("end", ["commit", "abort"])
@case("TransactionEndToEndTest", "produceAndConsumeCloseStateTxnTest")
def test_nothing_can_be_done_in_a_transaction_that_has_ended(buffer: Buffer, end: str) -> None:
    log = new_log()
    producer = opened(log, "one", buffer)
    send(producer, 1)
    getattr(producer, end)()
    before = log.refresh().entry
    for call in (lambda: producer.send("t", [{"n": 2}]), producer.flush, producer.commit, producer.abort):
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == "no-transaction"
    assert log.refresh().entry == before
    assert read(log) == ([1] if end == "commit" else [])


@BUFFERS
@case("TransactionEndToEndTest", "testSendTxnMessageTimeout")
def test_after_a_send_without_an_answer_the_transaction_can_be_aborted_and_closed(buffer: Buffer) -> None:
    plan = Plan()
    log = faulty(plan, embedding=False)
    producer = opened(log, "one", buffer)
    producer.send("t", [{"n": 1}])
    plan.always(RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.FAIL_BEFORE))
    with pytest.raises(StorageError):
        producer.commit()
    plan.clear()
    producer.abort()
    with producer.transaction() as txn:
        txn.send("t", [{"n": 2}])
    producer.close()
    assert read(log) == [2]


@BUFFERS
@case("TransactionProduceTest", "testCommitFailure")
def test_a_transaction_of_which_a_message_was_lost_does_not_commit(buffer: Buffer) -> None:
    """Either all of it can be tried again, or nothing of it is ever committed.

    Pulsar aborts the transaction when any send has failed. Here that is so only when earlier records went
    down with the file that failed; otherwise nothing is lost, and the same commit is tried again.
    """
    plan = Plan()
    log = faulty(plan, embedding=False)
    producer = opened(log, "one", buffer)
    plan.next(RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.DISK_FULL))

    def fail() -> None:
        send(producer, 1)
        producer.send("t", [{"n": 2}])
        producer.commit()

    with pytest.raises(StorageError):
        fail()
    if producer.status is ProducerStatus.ABORT_REQUIRED:
        for call in (producer.commit, lambda: producer.send("t", [{"n": 3}])):
            with pytest.raises(InvalidTransactionStateError) as caught:
                call()
            assert caught.value.kind == "abort-required"
        producer.abort()
        assert read(log) == []
    else:
        producer.commit()
        assert read(log) == [1]
    assert stable(log) == log.offsets("t")[0].log_end


@BUFFERS
@case("TransactionTest", "testAsyncSendOrAckForSingleFuture")
def test_many_threads_send_in_one_transaction_and_each_message_is_there_once(buffer: Buffer) -> None:
    log = new_log(partitions=2)
    producer = opened(log, "one", buffer, batch_bytes=128)

    def work(thread: int) -> None:
        for number in range(10):
            producer.send("t", [{"n": 100 * thread + number}], partition=thread % 2)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(log) == []
    producer.commit()
    found = read(log)
    assert sorted(found) == sorted(100 * thread + number for thread in range(30) for number in range(10))
    of_one_thread = [n for n in found if n // 100 == 7]
    assert of_one_thread == sorted(of_one_thread)


# --- names --------------------------------------------------------------------------------------------------


@case("TransactionTest", "testCreateTransactionSystemTopic", "brokerNotInitTxnManagedLedgerTopic")
@case("PendingAckPersistentTest", "testGetSubPatternTopicFilterTxnInternalTopic")
def test_topics_are_those_of_users_alone() -> None:
    """What transactions need besides has no topic: it cannot be listed, and its names cannot be taken."""
    log = new_log()
    producer = opened(log, "one")
    send(producer, 1)
    producer.commit()
    log.maintain("seal")
    assert again(log).topics() == ["t"]
    for name in ("_txnlog", "__transaction_log_0", "__transaction_buffer_snapshot"):
        with pytest.raises(InvalidInputError):
            log.create_topic(name, NUMBERS)
    assert TxnLog.open(log.store).topics() == ["t"]
