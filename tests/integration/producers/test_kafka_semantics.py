"""What people know from Kafka's producers, shown by what it does here: ids, epochs, restarts, and what waits
for what."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txnformat.core.intents import AllocateIds
from txnformat.core.operations import AllocateProducerIds
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

NUMBERS = pa.schema([("n", pa.int64())])


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(CountingStore(MemoryStore()))
    log.create_topic("t", NUMBERS, partitions=2)
    return log


def read(log: TxnLog, partition: int = 0, isolation: str = "read_committed") -> list[int]:
    found: list[int] = (
        log.read("t", isolation=isolation, partitions=[partition]).read_all().column("n").to_pylist()
    )
    return found


def opened(log: TxnLog, name: str) -> Producer:
    producer = Producer(log, name, buffer="inline")
    producer.init()
    return producer


def flush(producer: Producer, n: int, partition: int = 0) -> None:
    producer.send("t", [{"n": n}], partition=partition)
    producer.flush()


# --- ids ----------------------------------------------------------------------------------------------------


def blocks(log: TxnLog) -> list[tuple[str, int, int]]:
    return [(block.owner, block.first, block.last) for block in log.refresh().blocks.values()]


def allocate(log: TxnLog, owner: str) -> int:
    (operation,) = log.committer.commit(log.committer.intend(AllocateIds(owner))).operations
    assert isinstance(operation, AllocateProducerIds)
    return operation.first


def test_the_first_block_of_ids_is_0_to_999_and_says_whose_it_is(log: TxnLog) -> None:
    assert allocate(log, "one") == 0
    assert blocks(log) == [("one", 0, 999)]


def test_of_two_who_allocate_ids_at_once_one_repeats_and_no_id_is_given_twice(log: TxnLog) -> None:
    other = TxnLog.open(log.store)  # its view does not know of the first block
    assert isinstance(log.store, CountingStore)
    assert allocate(log, "one") == 0
    lost = log.store.counts.count()
    assert allocate(other, "two") == 1_000
    assert log.store.counts.count() - lost > 1, "it lost a slot and was decided again"
    assert blocks(log) == [("one", 0, 999), ("two", 1_000, 1_999)]
    Producer(log, "etl").init()
    assert log.refresh().transactional_ids["etl"].producer_id == 2_000


def test_the_same_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(log: TxnLog) -> None:
    found = [(producer.producer_id, producer.epoch) for producer in (opened(log, "etl") for _ in range(3))]
    assert found == [(0, 0), (0, 1), (0, 2)]


def test_to_begin_costs_no_request(log: TxnLog) -> None:
    assert isinstance(log.store, CountingStore)
    producer = opened(log, "etl")
    with log.store.measure() as measured:
        producer.begin()
        producer.send("t", [{"n": 1}])
    assert measured.counts.count() == 0


# --- restarts -----------------------------------------------------------------------------------------------


def test_a_plain_producer_that_starts_again_writes_its_records_again(log: TxnLog) -> None:
    for _ in range(2):  # it died before it learnt that the first was there
        with Producer(log) as plain:
            plain.send("t", [{"n": 1}], partition=0)
    assert read(log) == [1, 1]


def test_a_transactional_producer_that_starts_again_takes_back_what_was_not_committed(log: TxnLog) -> None:
    died = opened(log, "etl")
    died.begin()
    flush(died, 1)
    with Producer(log, "etl", buffer="inline") as again, again.transaction() as txn:
        txn.send("t", [{"n": 1}], partition=0)
    assert read(log) == [1]
    assert read(log, isolation="read_uncommitted") == [1, 1]


# --- how records materialise --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("buffer", "committed", "everything"),
    [
        ("inline", [0, 1, 2, 3, 5, 6], [0, 1, 2, 3, 4, 5, 6]),  # offsets are taken by flushes
        ("auto", [0, 3, 2, 6, 1, 5], [0, 3, 2, 6, 1, 5]),  # offsets are taken by commits
    ],
)
def test_of_three_interleaved_transactions_among_plain_records_two_commit(
    log: TxnLog, buffer: str, committed: list[int], everything: list[int]
) -> None:
    plain = Producer(log)
    plain.init()
    one, two, three = (Producer(log, name, buffer=buffer) for name in ("one", "two", "three"))
    for producer in (one, two, three):
        producer.init()
        producer.begin()
    for producer, n in ((plain, 0), (one, 1), (two, 2), (plain, 3), (three, 4), (one, 5)):
        flush(producer, n)
    two.commit()
    three.abort()
    flush(plain, 6)
    one.commit()
    for _ in ("as appended", "sealed"):
        assert read(log) == committed
        assert read(log, isolation="read_uncommitted") == everything
        log.maintain("seal")
    assert log.state.extents == 0
