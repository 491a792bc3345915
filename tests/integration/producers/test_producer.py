"""Producers on real stores: what becomes visible when, and what each call may be followed by."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnlog import (
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    Outcome,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    TxnLog,
)
from txnlog_testing.stores.faulty import FaultyStore, Gate
from writers.partitioner import murmur2

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])
BUFFERS = pytest.mark.parametrize("buffer", ["auto", "inline", "deferred"])


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]}, schema=NUMBERS)


def read(log: TxnLog, topic: str = "t", isolation: str = "read_committed") -> list[int]:
    found: list[int] = log.read(topic, isolation=isolation, columns=["n"]).read_all().column("n").to_pylist()
    return found


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    log.create_topic("u", NUMBERS, partitions=3)
    return log


# --- visibility ---------------------------------------------------------------------------------------------


@BUFFERS
def test_a_committed_transaction_is_read_back_as_it_was_sent(tmp_path: Path, buffer: str) -> None:
    with TxnLog.create(tmp_path / "log") as log:
        log.create_topic("t", NUMBERS)
        with Producer(log, "p", buffer=buffer) as producer, producer.transaction() as txn:
            txn.send("t", rows(1, 2))
            txn.send("t", [{"n": 3, "text": None}])
            txn.send("t", rows(4).to_batches()[0])
    expected = pa.concat_tables([rows(1, 2), pa.table({"n": [3], "text": [None]}, schema=NUMBERS), rows(4)])
    assert TxnLog.open(tmp_path / "log").read("t").read_all().equals(expected)


def test_an_inline_flush_is_uncommitted_and_holds_the_last_stable_offset(log: TxnLog) -> None:
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1, 2))
        flushed = producer.flush()
        assert flushed.offsets == {("t", 0): 0}
        assert read(log) == []
        assert read(log, isolation="read_uncommitted") == [1, 2]
        (offsets,) = log.offsets("t")
        assert (offsets.last_stable_offset, offsets.log_end) == (0, 2)
        assert offsets.held_by is not None
        assert offsets.held_by.transactional_id == "p"
        producer.send("t", rows(3))
        committed = producer.commit()
        assert committed.offsets == {("t", 0): 2}
    assert read(log) == [1, 2, 3]
    assert log.offsets("t")[0].log_end == 4  # three records and a marker
    assert log.outcome("p", 0).outcome is Outcome.COMMIT


@BUFFERS
def test_an_exception_aborts(log: TxnLog, buffer: str) -> None:
    with Producer(log, "p", buffer=buffer) as producer:

        def fail() -> None:
            with producer.transaction() as txn:
                txn.send("t", rows(1))
                txn.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with producer.transaction() as txn:
            txn.send("t", rows(2))
        assert txn.info is not None
        assert txn.info.entry == log.refresh().entry
    assert read(log) == [2]
    assert read(log, isolation="read_uncommitted") == ([1, 2] if buffer == "inline" else [2])


def test_an_aborted_one_shot_leaves_nothing_in_the_log(log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        before = log.refresh().entry
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        producer.abort()
        assert (log.refresh().entry, producer.epoch) == (before, 0)
        producer.begin()
        assert producer.commit().entry is None
        assert (log.refresh().entry, producer.epoch) == (before, 0)


@BUFFERS
def test_several_topics_become_visible_in_one_step(log: TxnLog, buffer: str) -> None:
    with Producer(log, "p", buffer=buffer) as producer, producer.transaction() as txn:
        txn.send("t", rows(1))
        for number in range(3):
            txn.send("u", rows(10 + number), partition=number)
        txn.flush()
        assert read(log, "t") == read(log, "u") == []
    assert (read(log, "t"), read(log, "u")) == ([1], [10, 11, 12])
    entries = log.read("u", columns=["_commit_entry"]).read_all().column(0).unique().to_pylist()
    assert entries == log.read("t", columns=["_commit_entry"]).read_all().column(0).to_pylist()


@BUFFERS
def test_each_end_begins_an_epoch_and_sequences_start_again(log: TxnLog, buffer: str) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        for number in range(4):
            producer.begin()
            producer.send("t", rows(2 * number, 2 * number + 1))
            producer.commit()
            assert producer.epoch == number + 1
    assert read(log) == list(range(8))


# --- what a send does ---------------------------------------------------------------------------------------


def test_equal_keys_go_where_kafka_puts_them_and_keep_their_order(log: TxnLog) -> None:
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    log.create_topic("keyed", schema, partitions=5, key_columns=["key"])
    keys = [f"key {number % 17}" for number in range(400)]
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("keyed", pa.table({"key": keys[:200], "n": range(200)}))
        for number in range(200, 300):
            txn.send("keyed", [{"key": keys[number], "n": number}])
        txn.send("keyed", pa.table({"key": keys[300:], "n": range(300, 400)}))
    found = log.read("keyed", columns=["key", "n", "_partition"]).read_all().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(400))
    for partition in range(5):
        mine = [row for row in found if row["_partition"] == partition]
        assert [row["n"] for row in mine] == sorted(row["n"] for row in mine)
        assert {(murmur2(row["key"].encode()) & 0x7FFFFFFF) % 5 for row in mine} <= {partition}


def test_sends_without_a_key_stay_in_one_partition_and_batches_take_turns(log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        for first in range(0, 12, 4):
            with producer.transaction() as txn:
                txn.send("u", rows(first, first + 1))
                txn.send("u", rows(first + 2, first + 3))
    found = log.read("u", columns=["n", "_partition"]).read_all().to_pylist()
    batches = [[row["n"] for row in found if row["_partition"] == partition] for partition in range(3)]
    assert sorted(batches) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_kafka_records_by_key_and_value(log: TxnLog) -> None:
    log.create_topic("k", "kafka", partitions=2)
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, datetime.UTC)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("k", key=b"a", value="b", headers=[("h", b"1")], timestamp=at)
        txn.send("k", value=b"no key", partition=1)
        with pytest.raises(InvalidInputError, match="key= and value= are for topics"):
            txn.send("t", key=b"a")
        with pytest.raises(InvalidInputError, match="takes either data, or"):
            txn.send("k", [], key=b"a")
    found = {row["value"]: row for row in log.read("k").read_all().to_pylist()}
    assert found[b"b"]["key"] == b"a"
    assert found[b"b"]["timestamp"] == at
    assert found[b"b"]["headers"] == [{"key": "h", "value": b"1"}]
    assert found[b"no key"]["key"] is None


def _bad_sends() -> list[tuple[Callable[[Producer], None], type[Exception], str]]:
    return [
        (lambda p: p.send("nowhere", rows(1)), NotFoundError, "unknown-topic"),
        (lambda p: p.send("t", rows(1), partition=1), NotFoundError, "unknown-partition"),
        (lambda p: p.send("t", rows(1), partition=-1), NotFoundError, "unknown-partition"),
        (lambda p: p.send("t", pa.table({"n": ["x"], "z": [1]})), InvalidInputError, "schema-mismatch"),
        (lambda p: p.send("t", [{"n": "x", "text": "y"}]), InvalidInputError, "schema-mismatch"),
        (lambda p: p.send("t", [{"n": 1}]), InvalidInputError, "schema-mismatch"),
        (lambda p: p.send("t", [{"n": 2**63, "text": None}]), InvalidInputError, "schema-mismatch"),
        (lambda p: p.send("t", [{"n": 1, "text": "\ud800"}]), InvalidInputError, "schema-mismatch"),
    ]


@BUFFERS
def test_a_bad_send_keeps_nothing_and_the_transaction_goes_on(log: TxnLog, buffer: str) -> None:
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        for send, error, kind in _bad_sends():
            with pytest.raises(error) as caught:
                send(producer)
            assert getattr(caught.value, "kind", None) == kind
        producer.send("t", rows(2))
        producer.commit()
    assert read(log) == [1, 2]


def test_a_mismatch_lists_every_difference_and_an_unknown_topic_names_what_there_is(log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        producer.begin()
        with pytest.raises(InvalidInputError) as caught:
            producer.send("t", pa.table({"n": ["x"], "z": [1]}))
        assert len(caught.value.problems) == 3
        with pytest.raises(NotFoundError) as missing:
            producer.send("T", rows(1))
        assert missing.value.values["topics"] == ["t", "u"]


def test_a_topic_that_another_process_has_just_made_is_found(log: TxnLog) -> None:
    other = TxnLog.open(log.store)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        other.create_topic("new", NUMBERS)
        txn.send("new", rows(1))
    assert read(log, "new") == [1]


def test_a_record_is_kept_as_it_was_when_it_was_sent(log: TxnLog) -> None:
    record = {"n": 1, "text": "a"}
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", [record])
        record["n"] = 2
        txn.send("t", [record])
    assert read(log) == [1, 2]


def test_many_single_sends_become_a_handful_of_row_groups(log: TxnLog) -> None:
    with Producer(log, "p") as producer, producer.transaction() as txn:
        for number in range(100_000):
            txn.send("u", [{"n": number, "text": "x"}])
    plan = log.plan("u")
    assert sum(len(part.rows) for part in plan.partitions) == 1
    assert sorted(read(log, "u")) == list(range(100_000))


# --- the bounds of the buffer -------------------------------------------------------------------------------


@BUFFERS
def test_a_full_partition_leaves_the_buffer_at_the_next_send(log: TxnLog, buffer: str) -> None:
    table = rows(*range(1_000))
    with (
        Producer(log, "p", buffer=buffer, batch_bytes=table.nbytes) as producer,
        producer.transaction() as txn,
    ):
        for _ in range(3):
            txn.send("t", table)
        assert len(read(log, isolation="read_uncommitted")) == (2_000 if buffer == "inline" else 0)
    plan = log.plan("t")
    assert plan.partitions[0].rows["take"].tolist() == [1_000, 1_000, 1_000]
    assert read(log) == 3 * list(range(1_000))


def test_the_largest_partition_leaves_the_buffer_first(log: TxnLog) -> None:
    small, large = rows(*range(10)), rows(*range(1_000))
    limit = small.nbytes + large.nbytes + 8
    with Producer(log, "p", buffer_bytes=limit) as producer, producer.transaction() as txn:
        txn.send("u", small, partition=0)
        txn.send("u", large, partition=1)
        txn.send("u", small, partition=0)
    parts = log.plan("u").partitions
    assert parts[0].rows["take"].tolist() == [20]
    assert parts[1].rows["row_group"][0] < parts[0].rows["row_group"][0]


def test_files_roll_and_all_of_them_are_one_transaction(log: TxnLog) -> None:
    table = rows(*range(1_000))
    with Producer(log, "p", batch_bytes=1, roll_bytes=1) as producer, producer.transaction() as txn:
        for _ in range(4):
            txn.send("t", table)
    assert len(log.refresh().files) == 4
    assert read(log) == 4 * list(range(1_000))


# --- fencing ------------------------------------------------------------------------------------------------


def test_a_new_instance_fences_the_old_one_and_aborts_what_it_left_open(log: TxnLog) -> None:
    old = Producer(log, "p", buffer="inline")
    old.init()
    old.begin()
    old.send("t", rows(1))
    old.flush()
    old.send("t", rows(2))
    with Producer(TxnLog.open(log.store), "p", buffer="inline") as new:
        assert log.offsets("t")[0].last_stable_offset == 2  # a record and its ABORT marker
        for call in (old.flush, old.commit, old.abort, old.begin, old.init, lambda: old.send("t", rows(3))):
            with pytest.raises(ProducerFencedError):
                call()
        assert old.status is ProducerStatus.FENCED
        old.close()
        with pytest.raises(ProducerFencedError):
            old.begin()
        with new.transaction() as txn:
            txn.send("t", rows(4))
    assert read(log) == [4]
    assert read(log, isolation="read_uncommitted") == [1, 4]


def test_a_one_shot_commit_after_the_fence_leaves_nothing(log: TxnLog) -> None:
    old, new = Producer(log, "p"), Producer(log, "p")
    old.init()
    old.begin()
    old.send("t", rows(1))
    new.init()
    with pytest.raises(ProducerFencedError):
        old.commit()
    assert read(log, isolation="read_uncommitted") == []


def test_closing_a_fenced_producer_with_an_open_transaction_is_no_error(log: TxnLog) -> None:
    with Producer(log, "p", buffer="inline") as old:
        old.begin()
        old.send("t", rows(1))
        old.flush()
        Producer(log, "p").init()
    assert old.status is ProducerStatus.CLOSED
    assert read(log) == []


# --- what may follow what -----------------------------------------------------------------------------------


def _refused(kind: str, *calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == kind


def test_illegal_calls_say_why(log: TxnLog) -> None:
    producer = Producer(log, "p")
    _refused("not-initialised", producer.begin, producer.flush, producer.commit, producer.abort)
    _refused("not-initialised", lambda: producer.send("t", rows(1)))
    producer.init()
    _refused("already-initialised", producer.init)
    _refused("no-transaction", producer.flush, producer.commit, producer.abort)
    _refused("no-transaction", lambda: producer.send("t", rows(1)))
    producer.begin()
    _refused("transaction-open", producer.begin)
    _refused("already-initialised", producer.init)
    producer.close()
    producer.close()
    _refused(
        "producer-closed", producer.init, producer.begin, producer.flush, producer.commit, producer.abort
    )
    plain = Producer(log)
    _refused("not-transactional", plain.begin, plain.commit, plain.abort)
    _refused("not-initialised", plain.flush)
    assert read(log) == []


def test_the_constructor_does_nothing_and_reports_all_problems() -> None:
    log = TxnLog(MemoryStore())  # there is no log: whoever asks it fails
    Producer(log, "p")
    with pytest.raises(InvalidInputError) as caught:
        Producer(log, "", enable_idempotence=False, buffer="sidecar", linger_ms=-1, batch_bytes=0)
    assert len(caught.value.problems) == 5
    with pytest.raises(InvalidInputError, match="needs a transactional_id"):
        Producer(log, buffer="inline")


# --- without transactions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
def test_each_flush_is_one_append(log: TxnLog, idempotent: bool) -> None:
    with Producer(log, enable_idempotence=idempotent, linger_ms=10**9) as producer:
        producer.send("t", rows(1, 2))
        producer.send("u", rows(3), partition=2)
        assert producer.flush().offsets == {("t", 0): 0, ("u", 2): 0}
        assert producer.flush().entry is None
        producer.send("t", rows(4))
    assert (read(log, "t"), read(log, "u")) == ([1, 2, 4], [3])
    ids = log.read("t", columns=["_producer_id"]).read_all().column(0).to_pylist()
    assert ids == ([producer.producer_id] * 3 if idempotent else [None] * 3)


def test_one_entry_of_producer_ids_serves_a_process(log: TxnLog) -> None:
    entry = log.refresh().entry
    producers = [Producer(log) for _ in range(5)]
    for producer in producers:
        producer.init()
    Producer(TxnLog.open(log.store)).init()
    assert log.refresh().entry == entry + 1
    assert len({producer.producer_id for producer in producers}) == 5


# --- many threads -------------------------------------------------------------------------------------------


def test_64_commits_that_wait_together_take_at_most_8_entries(tmp_path: Path) -> None:
    armed = threading.Event()
    held = Gate()

    def before_create(key: str) -> None:
        if armed.is_set() and "/log/" in key:
            held(key)

    log = TxnLog.create(FaultyStore(LocalStore(str(tmp_path)), before_create=before_create))
    log.create_topic("t", NUMBERS)
    producers = [Producer(log, f"p{number}") for number in range(64)]
    for number, producer in enumerate(producers):
        producer.init()
        producer.begin()
        producer.send("t", rows(number))
    before = log.refresh().entry
    armed.set()
    threads = [threading.Thread(target=producer.commit) for producer in producers]
    for thread in threads:
        thread.start()
    held.wait_until_held()
    for _ in range(100_000):
        if len(log.committer._queue) == 64:
            break
        threading.Event().wait(0.001)
    assert len(log.committer._queue) == 64
    held.open()
    for thread in threads:
        thread.join()
    assert sorted(read(log)) == list(range(64))
    assert log.refresh().entry - before <= 8


def test_threads_share_one_producer(log: TxnLog) -> None:
    with Producer(log, batch_bytes=2_000, linger_ms=10**9) as producer:

        def work(first: int) -> None:
            for number in range(first, first + 50):
                producer.send("t", rows(number))

        threads = [threading.Thread(target=work, args=(100 * index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(read(log)) == sorted(100 * index + step for index in range(4) for step in range(50))
