"""librdkafka's tests of a transactional producer: what its calls do, and what they refuse."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.conformance.scenes import BUFFERS, INLINE, NUMBERS, read, rows
from tests.integration.clients.failing import Plan, faulty, unclear_commit
from txnformat.core.intents import CommitResult, ProducerRef, Write
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    InvalidInputError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    Producer,
    ProducerFencedError,
    ProducerIdConflictError,
    ProducerStatus,
    StorageError,
    TxnLog,
    UnsupportedStoreError,
)
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import FaultKind
from txnlog_testing.strategies import make_append


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(CountingStore(MemoryStore()))
    log.create_topic("t", NUMBERS, partitions=4)
    return log


def opened(log: TxnLog, buffer: str = INLINE, name: str = "p") -> Producer:
    producer = Producer(log, name, buffer=buffer)
    producer.init()
    return producer


def send(producer: Producer, *numbers: int, partition: int | None = None) -> None:
    producer.send("t", [{"n": number} for number in numbers], partition)


def all_rows(log: TxnLog, isolation: str = "read_committed") -> list[int]:
    return sorted(read(TxnLog.open(log.store), isolation=isolation))


# --- 0103 ---------------------------------------------------------------------------------------------------


@case(
    "librdkafka-0103-transactions",
    "do_test_basic_producer_txn (without compression)",
    "do_test_basic_producer_txn (with compression)",
)
@BUFFERS
@pytest.mark.parametrize("compressible", [False, True])
def test_transactions_of_many_records_are_seen_whole_or_not_at_all(buffer: str, compressible: bool) -> None:
    """100 and 1,000 records committed, 500 and 5,000 aborted, flushed one by one or left to the buffer."""
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("n", pa.int64()), ("text", pa.string())]), partitions=4)
    producer = opened(log, buffer)
    committed = 0
    for count, aborts, flushes in (
        (100, False, True),
        (1_000, False, False),
        (500, True, True),
        (5_000, True, False),
    ):
        producer.begin()
        for number in range(count):
            text = "x" * 200 if compressible else f"{number * 2_654_435_761 % 2**32:x}"
            producer.send("t", [{"n": number, "text": text}])
            if flushes and number % 50 == 0:
                producer.flush()
        producer.abort() if aborts else producer.commit()
        committed += 0 if aborts else count
        assert len(read(log)) == committed
    assert sorted(read(log)) == sorted(rows(0, 100) + rows(0, 1_000))


@case("librdkafka-0103-transactions", "do_test_misuse_txn")
def test_init_is_called_until_it_succeeds_and_then_never_again() -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "p")
    for _ in range(50):
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        with pytest.raises((CommitStateUnknownError, StorageError)):
            producer.init()
        with pytest.raises(InvalidTransactionStateError):
            producer.begin()
    plan.clear()
    producer.init()
    for _ in range(2):  # outside and inside a transaction
        with pytest.raises(InvalidTransactionStateError) as caught:
            producer.init()
        assert caught.value.kind == "already-initialised"
        if producer.status is ProducerStatus.READY:
            producer.begin()
    producer.send("t", [{"n": 1}])
    producer.commit()
    assert read(log) == [1]


@case(
    "librdkafka-0103-transactions",
    "do_test_fenced_txn (no produce after fencing)",
    "do_test_fenced_txn (produce after fencing)",
)
@BUFFERS
@pytest.mark.parametrize("produces", [False, True])
def test_a_fenced_producer_commits_nothing_and_stays_fenced(log: TxnLog, buffer: str, produces: bool) -> None:
    first = opened(log, buffer)
    first.begin()
    send(first, *rows(0, 10))
    first.flush()
    opened(log, buffer)

    def go_on() -> None:
        if produces:
            send(first, *rows(10, 10))
        first.commit()

    for _ in range(2):
        with pytest.raises(ProducerFencedError):
            go_on()
    assert first.status is ProducerStatus.FENCED
    assert all_rows(log) == []


@case("librdkafka-0103-transactions", "do_test_empty_txn (commit)", "do_test_empty_txn (abort)")
@BUFFERS
@pytest.mark.parametrize("commits", [False, True])
def test_a_transaction_without_records_ends_without_a_request(
    log: TxnLog, buffer: str, commits: bool
) -> None:
    with Producer(log) as plain:
        send(plain, *rows(0, 10))
    producer = opened(log, buffer)
    assert isinstance(log.store, CountingStore)
    with log.store.measure() as measured:
        for _ in range(3):
            producer.begin()
            producer.flush()
            producer.commit() if commits else producer.abort()
    assert measured.counts.count() == 0
    assert all_rows(log) == rows(0, 10)
    producer.begin()
    send(producer, 10)
    producer.commit()
    assert all_rows(log) == rows(0, 11)


@case("librdkafka-0103-transactions", "do_test_wmark_isolation_level")
@BUFFERS
def test_the_end_of_a_partition_depends_on_the_isolation_level(log: TxnLog, buffer: str) -> None:
    with Producer(log) as plain:
        send(plain, *rows(0, 100), partition=0)
    with opened(log, buffer) as producer:
        producer.begin()
        send(producer, *rows(100, 100), partition=0)
        producer.flush()
        ends = log.offsets("t")[0]
        assert (ends.last_stable_offset, ends.log_end) == (100, 200 if buffer == INLINE else 100)
        producer.commit()
    opened(log, buffer).close()
    ends = log.offsets("t")[0]
    assert ends.last_stable_offset == ends.log_end == 201


@case("librdkafka-0103-transactions", "do_test_txn_local")
def test_without_an_id_there_are_no_transactions_and_without_a_store_no_init() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log) as plain:
        for call in (plain.begin, plain.commit, plain.abort):
            with pytest.raises(InvalidTransactionStateError) as caught:
                call()
            assert caught.value.kind == "not-transactional"
    with pytest.raises(InvalidInputError):
        Producer(log, "")
    unclear_commit(plan, FaultKind.FAIL_BEFORE)
    producer = Producer(log, "test")
    with pytest.raises(CommitStateUnknownError):
        producer.init()


# --- 0105 ---------------------------------------------------------------------------------------------------


@case("librdkafka-0105-transactions_mock", "do_test_txns_not_supported")
def test_a_store_without_conditional_writes_takes_no_transaction(tmp_path: Path) -> None:
    """It is found out before anything is written, also where the log was made by other means."""

    class Overwriting(LocalStore):
        def create(self, key: str, data: bytes) -> CreateResult:
            self.put(key, data)
            return CreateResult(CreateOutcome.CREATED)

    with pytest.raises(UnsupportedStoreError):
        TxnLog.create(Overwriting(str(tmp_path / "new")))
    TxnLog.create(tmp_path / "made").create_topic("t", NUMBERS)
    shutil.copytree(tmp_path / "made", tmp_path / "log")  # a place that this process has not tried
    before = TxnLog.open(tmp_path / "log").state.entry
    with pytest.raises(UnsupportedStoreError):
        Producer(TxnLog.open(Overwriting(str(tmp_path / "log"))), "p").init()
    assert TxnLog.open(tmp_path / "log").state.entry == before


@case("librdkafka-0105-transactions_mock", "do_test_txn_addparts_req_multi")
@BUFFERS
def test_partitions_join_an_open_transaction_one_by_one_each_with_its_first_append(
    log: TxnLog, buffer: str
) -> None:
    producer = opened(log, buffer)
    with producer.transaction() as txn:
        txn.send("t", [{"n": -1}])  # the producer knows the topic
    assert isinstance(log.store, CountingStore)
    producer.begin()
    for partition in range(4):
        send(producer, partition, partition=partition)
        with log.store.measure() as measured:
            producer.flush()
        entries = measured.counts.count(RequestKind.CREATE, KeyClass.ENTRY)
        assert entries == (0 if buffer == "auto" else 1), "joining costs nothing of its own"
        joined = log.refresh().transactional_ids["p"].partitions
        assert len(joined) == (partition + 1 if buffer == INLINE else 0)
        assert all_rows(log) == [-1]
    with log.store.measure() as measured:
        producer.commit()
    assert measured.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
    assert all_rows(log) == [-1, 0, 1, 2, 3]


def forged(log: TxnLog, producer: Producer, first: int, count: int = 1) -> CommitResult:
    """Append as ``producer`` from another process, with sequences from ``first``."""
    created = log.refresh().topic("t").created
    ref = ProducerRef(producer.producer_id or 0, producer.epoch or 0, "p")
    append = make_append(created, {0: (first, count)}, content=f"forged {first}")
    return log.committer.commit(log.committer.intend(Write(ref, (append,))))


@case("librdkafka-0105-transactions_mock", "do_test_out_of_order_seq")
def test_a_gap_in_the_sequence_is_refused_and_the_transaction_is_as_before(log: TxnLog) -> None:
    """Neither is the epoch bumped nor the transaction ended: the owner goes on. The right number is taken."""
    producer = opened(log)
    producer.begin()
    send(producer, 1, partition=0)
    producer.flush()
    before = log.refresh()
    for first, count in ((2, 1), (7, 1), (0, 2)):  # 1 is next: two gaps and a partial overlap
        with pytest.raises(OutOfOrderSequenceError) as caught:
            forged(log, producer, first, count)
        assert (caught.value.values["expected"], caught.value.values["got"]) == (1, first)
        assert log.refresh() == before
    send(producer, 2, partition=0)
    producer.commit()
    assert (all_rows(log), producer.epoch) == ([1, 2], 1)


@case("librdkafka-0105-transactions_mock", "do_test_txn_fatal_idempo_errors")
def test_numbers_that_clash_with_another_process_end_the_producer_and_its_next_instance_recovers(
    log: TxnLog,
) -> None:
    """Nothing of the transaction that two processes wrote to becomes visible."""
    producer = opened(log)
    producer.begin()
    send(producer, 1, partition=0)
    producer.flush()
    forged(log, producer, 1)
    send(producer, 2, partition=0)
    with pytest.raises(ProducerIdConflictError):
        producer.flush()
    for call in (producer.commit, producer.abort, producer.begin):
        with pytest.raises(ProducerIdConflictError):
            call()
    producer.close()
    again = opened(log)
    assert again.epoch == 1
    with again.transaction() as txn:
        txn.send("t", [{"n": 3}], partition=0)
    assert all_rows(log) == [3]


@case(
    "librdkafka-0105-transactions_mock",
    "do_test_txn_concurrent_operations (commit)",
    "do_test_txn_concurrent_operations (abort)",
)
@BUFFERS
@pytest.mark.parametrize("commits_first", [True, False])
def test_of_many_threads_that_end_one_transaction_one_does_and_the_others_find_none(
    log: TxnLog, buffer: str, commits_first: bool
) -> None:
    producer = opened(log, buffer)
    producer.begin()
    send(producer, 1)
    producer.flush()
    start = threading.Barrier(6)
    done: list[str] = []
    refused: list[str] = []

    def end(call: str) -> None:
        start.wait()
        try:
            (producer.commit if call == "commit" else producer.abort)()
            done.append(call)
        except InvalidTransactionStateError as error:
            refused.append(error.kind)

    calls = ["commit", "abort"] * 3 if commits_first else ["abort", "commit"] * 3
    threads = [threading.Thread(target=end, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["no-transaction"] * 5
    assert all_rows(log) == ([1] if done == ["commit"] else [])
    with producer.transaction() as txn:
        txn.send("t", [{"n": 2}])
    assert all_rows(log)[-1] == 2
