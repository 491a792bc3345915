"""Topics that grow under their producers and readers: nothing lost, nothing twice, every key in its
partition."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import BUFFERS, Plan, QuickClock, unclear_commit
from txnformat.core.intents import Write
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    Producer,
    ProducerStatus,
    StorageError,
    TxnLog,
    TxnLogError,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore
from writers.partitioner import encode_keys, partition_for_keys

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int32())])
KEYS = 7
"""Few keys, so that each has many records."""


def rows(start: int, end: int) -> pa.Table:
    numbers = list(range(start, end))
    return pa.table({"k": [number % KEYS for number in numbers], "n": numbers}, schema=SCHEMA)


def somebody_else(log: TxnLog) -> TxnLog:
    """Return the same log as another process has it."""
    return TxnLog.open(log.store, clock=log.committer.clock)


def placed(log: TxnLog, isolation: str = "read_committed") -> list[dict[str, Any]]:
    columns = ["k", "n", "_partition", "_offset"]
    found: list[dict[str, Any]] = (
        somebody_else(log).read("t", isolation=isolation, columns=columns).read_all().to_pylist()
    )
    return found


def assert_once_and_in_order(found: list[dict[str, Any]], expected: range) -> None:
    """Every record once, and each key's in the order in which they were sent, in each of its partitions."""
    assert sorted(row["n"] for row in found) == list(expected)
    last: dict[tuple[int, int], int] = {}
    for row in found:  # partition by partition, in offset order
        place = (row["_partition"], row["k"])
        assert row["n"] > last.get(place, -1)
        last[place] = row["n"]


def assert_by_key(found: list[dict[str, Any]], partitions: int) -> None:
    keys = pa.array([row["k"] for row in found], pa.int64())
    assert [row["_partition"] for row in found] == partition_for_keys(
        encode_keys([keys]), partitions
    ).tolist()


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", SCHEMA, partitions=2, key_columns=["k"])
    return log


# --- partitions under a producer ----------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"batch_bytes": 1}, {"roll_bytes": 1, "batch_bytes": 1}], ids=str)
def test_a_transaction_that_is_in_files_already_is_distributed_anew(
    log: TxnLog, settings: dict[str, Any]
) -> None:
    """Files that the log does not know are read back: the commit that finds more partitions uses all of
    them.
    """
    with Producer(log, "p", **settings) as producer, producer.transaction() as txn:
        for start in range(0, 100, 20):
            txn.send("t", rows(start, start + 20))
            txn.flush()
        somebody_else(log).alter_topic("t", partitions=5)
        txn.send("t", rows(100, 120))
    found = placed(log)
    assert_once_and_in_order(found, range(120))
    assert_by_key(found, 5)
    assert len({row["_partition"] for row in found}) > 2
    assert producer.status is ProducerStatus.CLOSED


@pytest.mark.parametrize("transactional", [True, False])
def test_what_the_log_has_stays_and_what_it_has_not_is_distributed_anew(
    log: TxnLog, transactional: bool
) -> None:
    producer = Producer(
        log, "p" if transactional else None, buffer="inline" if transactional else "auto", linger_ms=600_000
    )
    producer.init()
    if transactional:
        producer.begin()
    producer.send("t", rows(0, 50))
    producer.flush()
    somebody_else(log).alter_topic("t", partitions=5)
    producer.send("t", rows(50, 100))
    info = producer.commit() if transactional else producer.flush()
    assert len(info.offsets) > 2
    producer.close()
    found = placed(log)
    assert_once_and_in_order(found, range(100))
    assert_by_key([row for row in found if row["n"] < 50], 2)
    assert_by_key([row for row in found if row["n"] >= 50], 5)


def test_what_is_only_buffered_is_distributed_anew_in_memory(log: TxnLog) -> None:
    """The producer's own process learns of it between two sends; single records among them."""
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(0, 30))
        for number in range(30, 40):
            txn.send("t", [{"k": number % KEYS, "n": number}])
        log.alter_topic(
            "t", partitions=5, widen={"n": pa.int64()}, add_columns=[pa.field("note", pa.string())]
        )
        for number in range(40, 50):
            txn.send("t", [{"k": number % KEYS, "n": number, "note": "new"}])
        txn.send("t", rows(50, 60))
    found = placed(log)
    assert_once_and_in_order(found, range(60))
    assert_by_key(found, 5)
    assert len(log.state.files) == 1
    notes = log.read("t", columns=["note"]).read_all().column("note").to_pylist()
    assert Counter(notes) == {None: 50, "new": 10}


def test_what_is_only_buffered_is_uploaded_once_when_its_process_knows_of_the_change(log: TxnLog) -> None:
    with Producer(log, "p", embed_bytes=0) as producer, producer.transaction() as txn:
        txn.send("t", rows(0, 30))
        log.alter_topic("t", partitions=5)
    assert_by_key(placed(log), 5)
    assert len([found for found in log.store.list("t-") if found.key.endswith(".parquet")]) == 1


@pytest.mark.parametrize("batch_bytes", [1, 2**20])
def test_a_file_has_one_version_of_the_schema(log: TxnLog, batch_bytes: int) -> None:
    """A file that takes more batches is closed when records of a newer version come."""
    with Producer(log, "p", batch_bytes=batch_bytes) as producer, producer.transaction() as txn:
        txn.send("t", rows(0, 10))
        txn.flush()
        log.alter_topic("t", add_columns=[pa.field("note", pa.string())])
        txn.send("t", [{"k": 1, "n": number, "note": "new"} for number in range(10, 12)])
        txn.flush()
        txn.send("t", rows(12, 20))
    assert_once_and_in_order(placed(log), range(20))
    notes = log.read("t", columns=["note"]).read_all().column("note").to_pylist()
    assert Counter(notes) == {None: 18, "new": 2}
    assert [file.schema_id for file in somebody_else(log).state.files] == [0, 1]


def test_a_send_that_first_makes_room_and_finds_more_partitions_is_distributed_by_them(log: TxnLog) -> None:
    with Producer(log, "p", buffer="inline", batch_bytes=1) as producer, producer.transaction() as txn:
        txn.send("t", rows(0, 30))
        somebody_else(log).alter_topic("t", partitions=5, add_columns=[pa.field("note", pa.string())])
        txn.send("t", rows(30, 60))  # writes the first ones before it takes these in
        txn.send("t", [{"k": 1, "n": 60, "note": "new"}])
    found = placed(log)
    assert_once_and_in_order(found, range(61))
    assert_by_key(found, 5)


@pytest.mark.parametrize("in_own_process", [True, False])
@pytest.mark.parametrize("streamed", [True, False])
def test_records_whose_partition_was_named_stay_there(
    log: TxnLog, streamed: bool, in_own_process: bool
) -> None:
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(0, 20))
        txn.send("t", rows(20, 40), partition=1)
        txn.send("t", rows(40, 60))
        txn.send("t", [{"k": 3, "n": 60}], partition=0)
        if streamed:
            txn.flush()
        (log if in_own_process else somebody_else(log)).alter_topic("t", partitions=6)
    found = placed(log)
    assert sorted(row["n"] for row in found) == list(range(61))
    named = {row["n"]: row["_partition"] for row in found if 20 <= row["n"] < 40 or row["n"] == 60}
    assert named == {**dict.fromkeys(range(20, 40), 1), 60: 0}
    assert_by_key([row for row in found if row["n"] not in named], 6)


def test_without_key_columns_nothing_is_read_back(log: TxnLog) -> None:
    log.create_topic("free", SCHEMA, partitions=2)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("free", rows(0, 10))
        txn.flush()
        somebody_else(log).alter_topic("free", partitions=3)
    assert sorted(log.read("free").read_all().column("n").to_pylist()) == list(range(10))
    assert len(somebody_else(log).state.files) == 1
    assert len([found for found in log.store.list("free-") if found.key.endswith(".parquet")]) == 1


@BUFFERS
@pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)
def test_an_unclear_commit_that_is_repeated_on_a_grown_topic_is_there_once(
    buffer: str, kind: FaultKind, landed: bool
) -> None:
    """A repeat of what landed is done; of what did not, distributed anew."""
    plan, clock = Plan(), QuickClock()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock).create_topic("t", SCHEMA, partitions=2, key_columns=["k"])
    log = TxnLog.open(FaultyStore(store, plan), clock=clock)
    producer = Producer(log, "p", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(0, 40))
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        producer.commit()
    plan.clear()
    somebody_else(log).alter_topic("t", partitions=5)
    producer.commit()
    found = placed(log)
    assert_once_and_in_order(found, range(40))
    assert_by_key(found, 2 if landed else 5)
    with producer.transaction() as txn:
        txn.send("t", rows(40, 60))
    assert_once_and_in_order(placed(log), range(60))


def test_a_store_that_fails_while_records_are_read_back_loses_nothing() -> None:
    plan, clock = Plan(), QuickClock()
    store = MemoryStore(clock)
    TxnLog.create(store, clock=clock, embedding=False).create_topic(
        "t", SCHEMA, partitions=2, key_columns=["k"]
    )
    log = TxnLog.open(FaultyStore(store, plan), clock=clock)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(0, 40))
        producer.flush()
        somebody_else(log).alter_topic("t", partitions=5)
        plan.always(RequestKind.GET_RANGE, KeyClass.DATA, Fault(FaultKind.FAIL_BEFORE))
        with pytest.raises(StorageError):
            producer.commit()
        assert producer.status is ProducerStatus.IN_TRANSACTION
        plan.clear()
        assert placed(log, "read_uncommitted") == []
        plan.always(RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.FAIL_BEFORE))
        with pytest.raises(StorageError):
            producer.commit()
        plan.clear()
        assert placed(log, "read_uncommitted") == []
        producer.commit()
    found = placed(log)
    assert_once_and_in_order(found, range(40))
    assert_by_key(found, 5)


def test_a_stale_append_is_refused_and_nothing_of_it_is_visible(log: TxnLog) -> None:
    """What no producer can distribute anew: an intent from elsewhere."""
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(0, 10))
        txn.flush()
        producer._staging.finish()
        stale = Write(appends=producer._staging.appends(numbered=False))
    other = somebody_else(log)
    other.alter_topic("t", partitions=3)
    before = other.state.entry
    with pytest.raises(ConflictError) as caught:
        log.committer.commit(log.committer.intend(stale))
    assert caught.value.kind == "partition-count-changed"
    assert other.refresh().entry == before
    assert len(placed(log, "read_uncommitted")) == 10


def test_producers_in_threads_go_on_while_a_topic_grows_again_and_again(tmp_path: Path) -> None:
    """Every transaction is there whole and once, whatever it met."""
    root, turns = tmp_path / "log", 12
    TxnLog.create(root).create_topic("t", SCHEMA, partitions=1, key_columns=["k"])
    failures: list[BaseException] = []

    def guarded(work: Callable[[TxnLog], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                with TxnLog.open(root) as log:
                    work(log)
            except (TxnLogError, AssertionError) as error:
                failures.append(error)

        return run

    def produce(number: int) -> Callable[[TxnLog], None]:
        def work(log: TxnLog) -> None:
            with Producer(log, f"p-{number}", buffer="inline" if number % 2 else "auto") as producer:
                for turn in range(turns):
                    with producer.transaction() as txn:
                        first = 1_000 * number + 20 * turn
                        txn.send("t", rows(first, first + 10))
                        txn.flush()
                        txn.send("t", rows(first + 10, first + 20))

        return work

    def grow(log: TxnLog) -> None:
        for partitions in range(2, 10):
            log.alter_topic("t", partitions=partitions, add_columns=[pa.field(f"c{partitions}", pa.int8())])

    threads = [threading.Thread(target=guarded(work)) for work in (produce(0), produce(1), produce(2), grow)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with TxnLog.open(root) as log:
        found = placed(log)
        assert log.state.topic("t").partitions == 9
        assert log.verify().ok
    expected = [1_000 * number + index for number in range(3) for index in range(20 * turns)]
    assert sorted(row["n"] for row in found) == expected


# --- changes ------------------------------------------------------------------------------------------------


def test_two_that_race_are_decided_one_after_the_other(tmp_path: Path) -> None:
    """Of two equal changes one wins; of two that differ both happen, the second on what the first left."""
    TxnLog.create(tmp_path / "log").create_topic("t", SCHEMA, partitions=2)
    logs = [TxnLog.open(tmp_path / "log") for _ in range(4)]
    changes: list[dict[str, Any]] = [
        {"partitions": 8},
        {"partitions": 8},
        {"add_columns": [pa.field("a", pa.int8())]},
        {"add_columns": [pa.field("b", pa.string())], "widen": {"n": pa.int64()}},
    ]
    barrier, answers = threading.Barrier(len(logs)), [""] * len(logs)

    def alter(number: int) -> None:
        barrier.wait()
        try:
            logs[number].alter_topic("t", **changes[number])
        except InvalidInputError as error:
            answers[number] = error.problems[0]

    threads = [threading.Thread(target=alter, args=(number,)) for number in range(len(logs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers[2:] == ["", ""]
    assert sorted(answers[:2]) == [
        "",
        "the topic has 8 partitions and cannot have 8: they only grow, to at most 10000",
    ]
    topic = logs[0].refresh().topic("t")
    assert (topic.partitions, topic.schema.schema_id) == (8, 2)
    assert set(topic.schema.arrow_schema.names) == {"k", "n", "a", "b"}
    assert logs[0].state.entry == 4  # features, topic, and three changes
    for log in logs:
        log.close()


def test_a_bad_change_writes_nothing(log: TxnLog) -> None:
    before = log.refresh().entry
    with pytest.raises(InvalidInputError) as caught:
        log.alter_topic(
            "t", partitions=1, add_columns=[pa.field("K", pa.int8())], widen={"k": pa.int64(), "x": pa.int8()}
        )
    assert len(caught.value.problems) == 4
    assert caught.value.values["topic"] == "t"
    with pytest.raises(InvalidInputError, match="nothing to change"):
        log.alter_topic("t")
    with pytest.raises(NotFoundError):
        log.alter_topic("nowhere", partitions=3)
    assert somebody_else(log).state.entry == before


def test_a_script_that_creates_its_topic_goes_on_when_the_topic_has_grown(log: TxnLog) -> None:
    grown = log.alter_topic("t", partitions=4, add_columns=pa.schema([("note", pa.string())]))
    again = log.create_topic("t", SCHEMA, partitions=2, key_columns=["k"], exist_ok=True)
    assert again == grown
    now = grown.schema.arrow_schema
    assert log.create_topic("t", now, partitions=4, key_columns=["k"], exist_ok=True) == grown
    with pytest.raises(ConflictError):
        log.create_topic("t", now, partitions=2, key_columns=["k"], exist_ok=True)


# --- columns ------------------------------------------------------------------------------------------------


def test_three_versions_are_read_as_one_table(log: TxnLog) -> None:
    with Producer(log) as producer:
        producer.send("t", [{"k": 1, "n": 1}])
        producer.flush()
        log.alter_topic(
            "t", add_columns=[pa.field("price", pa.decimal128(6, 2)), pa.field("tags", pa.list_(pa.string()))]
        )
        producer.send("t", [{"k": 1, "n": 2, "price": 1, "tags": ["a"]}])
        producer.send("t", [{"k": 1, "n": 3}])  # a program that does not know the new columns
        producer.flush()
        log.alter_topic("t", widen={"n": pa.int64(), "price": pa.decimal128(12, 3)})
        producer.send("t", [{"k": 1, "n": 2**40, "price": 123_456_789, "tags": None}])
    table = log.read("t").read_all()
    topic = log.state.topic("t")
    assert table.schema.equals(topic.schema.arrow_schema)
    assert table.column("n").to_pylist() == [1, 2, 3, 2**40]
    assert [value and float(value) for value in table.column("price").to_pylist()] == [
        None,
        1,
        None,
        123_456_789,
    ]
    assert table.column("tags").to_pylist() == [None, ["a"], None, None]
    assert {file.schema_id for file in log.state.files} == {0, 1, 2}
    only = log.read("t", columns=["_offset", "tags"]).read_all()
    assert only.to_pylist()[:2] == [{"_offset": 0, "tags": None}, {"_offset": 1, "tags": ["a"]}]
    assert log.read("t", columns=["price"], start={0: 1}).read_all().num_rows == 3
    assert log.verify(deep=True).ok


def test_a_reader_keeps_the_schema_that_it_began_with(log: TxnLog) -> None:
    with Producer(log, "p") as producer:
        with producer.transaction() as txn:
            txn.send("t", rows(0, 5))
        reader, plan = log.read("t"), log.plan("t")
        log.alter_topic(
            "t", partitions=3, add_columns=[pa.field("note", pa.string())], widen={"n": pa.int64()}
        )
        with producer.transaction() as txn:
            txn.send("t", [{"k": 1, "n": 5, "note": "x"}])
    assert reader.schema.equals(SCHEMA)
    assert reader.read_all().num_rows == 5
    assert plan.topic.schema.arrow_schema.equals(SCHEMA)
    assert len(plan.partitions) == 2


def test_records_by_key_and_value_go_on_in_a_topic_that_got_a_column(log: TxnLog) -> None:
    log.create_topic("events", "kafka")
    log.alter_topic("events", add_columns=[pa.field("source", pa.string())])
    with Producer(log) as producer:
        producer.send("events", key="a", value="b")
    (row,) = log.read("events").read_all().to_pylist()
    assert (row["key"], row["value"], row["source"]) == (b"a", b"b", None)


def test_columns_that_the_topic_began_with_are_still_asked_for(log: TxnLog) -> None:
    log.alter_topic("t", add_columns=[pa.field("note", pa.string())])
    with Producer(log) as producer, pytest.raises(InvalidInputError) as caught:
        producer.send("t", [{"n": 1, "note": "x", "noet": 1}])
    assert len(caught.value.problems) == 2


def test_a_partition_that_another_process_has_just_added_is_sent_to() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    with Producer(TxnLog.open(log.store)) as producer:
        producer.send("t", [{"n": 0}])
        log.alter_topic("t", partitions=2)
        producer.send("t", [{"n": 1}], partition=1)
    assert sorted(log.read("t").read_all().column("n").to_pylist()) == [0, 1]
