"""Kafka's end-to-end tests of transactions, as appended and sealed into sidecars after every step."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.conformance.scenes import BUFFERS, INLINE, NUMBERS, Scene, open_often, read
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import TopicPartition
from txnlog import InvalidTransactionStateError, Producer, ProducerFencedError, ProducerStatus, TxnLog
from txnlog_testing.stores.counting import CountingStore

ONE, TWO = "topic1", "topic2"
PARTITIONS = 4


@pytest.fixture(params=[False, True], ids=["as-appended", "sealed"])
def seals(request: pytest.FixtureRequest) -> bool:
    """Whether all that is decided is sealed after every step: the counterpart of a tiered topic."""
    return bool(request.param)


@pytest.fixture
def scene(tmp_path: Path, seals: bool, buffer: str) -> Iterator[Scene]:
    scene = Scene(tmp_path, buffer, topics=(ONE, TWO), partitions=PARTITIONS, seals=seals)
    with closing(scene.log):
        yield scene


def send(producer: Producer, topic: str, partition: int | None, *numbers: int) -> None:
    """Send single records."""
    for number in numbers:
        producer.send(topic, [{"n": number}], partition)


def committed(scene: Scene) -> list[int]:
    """Return all that read_committed sees of both topics, as somebody who has just opened the log."""
    log = TxnLog.open(scene.log.store)
    return sorted(read(log, ONE) + read(log, TWO))


def everything(scene: Scene) -> list[int]:
    """Return all that read_uncommitted sees of both topics."""
    log = TxnLog.open(scene.log.store)
    return sorted(read(log, ONE, "read_uncommitted") + read(log, TWO, "read_uncommitted"))


# --- visibility ---------------------------------------------------------------------------------------------


@case("TransactionsTest", "testBasicTransactions")
@case("TransactionsWithTieredStoreTest", "testClassicBasicTransactions", "testAsyncBasicTransactions")
@BUFFERS
def test_an_abort_then_a_commit_over_two_topics(scene: Scene, buffer: str, seals: bool) -> None:
    producer = scene.opened("transactional-producer")
    producer.begin()
    send(producer, TWO, 2, 2)
    send(producer, ONE, 1, 4)
    producer.flush()
    producer.abort()
    scene.settle()
    producer.begin()
    send(producer, ONE, 1, 1)
    send(producer, TWO, 2, 3)
    producer.commit()
    scene.settle()
    assert committed(scene) == [1, 3]
    assert everything(scene) == ([1, 2, 3, 4] if buffer == INLINE else [1, 3])
    assert {ends.earliest for topic in (ONE, TWO) for ends in scene.log.offsets(topic)} == {0}
    assert (scene.log.refresh().extents == 0) is seals


@case("TransactionsTest", "testReadCommittedConsumerShouldNotSeeUndecidedData")
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicReadCommittedConsumerShouldNotSeeUndecidedData",
    "testAsyncReadCommittedConsumerShouldNotSeeUndecidedData",
)
@BUFFERS
def test_what_is_behind_an_undecided_record_is_not_seen_nor_found_by_time(scene: Scene, buffer: str) -> None:
    """The later transaction has committed; with inline buffers the older one's records hold it back."""
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])
    for topic in ("timed1", "timed2"):
        scene.log.create_topic(topic, schema, timestamp_column="at")
    visible = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    written = visible + datetime.timedelta(milliseconds=1)
    one, two = scene.opened("transactional-producer"), scene.opened("other")
    one.begin()
    two.begin()

    def send_at(producer: Producer, at: datetime.datetime, *numbers: int) -> None:
        for topic in ("timed1", "timed2"):
            producer.send(topic, [{"n": number, "at": at} for number in numbers])
        producer.flush()
        scene.settle()

    send_at(two, visible, 1)
    send_at(one, written, 10, 11)
    send_at(two, written, 2)
    two.commit()
    scene.settle()
    from_written = "at >= TIMESTAMP '2026-01-01 00:00:00.001Z'"
    for topic in ("timed1", "timed2"):
        ends = scene.log.offsets(topic)[0]
        if buffer != INLINE:  # the older transaction is not in the log: it blocks nobody
            assert read(scene.log, topic) == read(scene.log, topic, "read_uncommitted") == [1, 2]
            assert (ends.last_stable_offset, ends.log_end, ends.held_by) == (3, 3, None)
            continue
        assert read(scene.log, topic, "read_uncommitted") == [1, 10, 11, 2]
        assert read(scene.log, topic, "read_uncommitted", where=from_written) == [10, 11, 2]
        assert read(scene.log, topic) == [1]
        assert (ends.last_stable_offset, ends.log_end) == (1, 5)
        assert read(scene.log, topic, where=from_written) == []
    one.abort()
    assert read(scene.log, "timed1") == read(scene.log, "timed2") == [1, 2]


@case("TransactionsTest", "testDelayedFetchIncludesAbortedTransaction")
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicDelayedFetchIncludesAbortedTransaction",
    "testAsyncDelayedFetchIncludesAbortedTransaction",
)
@BUFFERS
def test_a_reader_that_follows_the_end_sees_committed_records_between_aborted_ones(
    scene: Scene, buffer: str
) -> None:
    """x and y are interleaved, y aborts: who polled all the time, and who comes late, get x at its
    offsets.
    """
    log = TxnLog.open(scene.log.store)
    followed: list[tuple[int, int]] = []
    position = 0

    def records(start: int) -> list[tuple[int, int]]:
        found = log.read(ONE, partitions=[0], start=start, columns=["n", "_offset"]).read_all().to_pylist()
        return [(row["n"], row["_offset"]) for row in found]

    def poll() -> None:
        nonlocal position
        scene.settle()
        end = log.offsets(ONE)[0].last_stable_offset
        followed.extend(records(position))
        position = end

    x, y = scene.opened("other"), scene.opened("transactional-producer")
    x.begin()
    y.begin()
    for producer, numbers in ((x, [1]), (y, [101, 102]), (x, [2])):
        send(producer, ONE, 0, *numbers)
        producer.flush()
        poll()
    assert followed == []
    y.abort()
    poll()
    assert followed == []
    x.commit()
    poll()
    assert followed == records(0) == ([(1, 0), (2, 3)] if buffer == INLINE else [(1, 0), (2, 1)])
    assert position == (6 if buffer == INLINE else 3)


@case("TransactionsTest", "testMultipleMarkersOneLeader")
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicMultipleMarkersOneLeader",
    "testAsyncMultipleMarkersOneLeader",
)
@BUFFERS
def test_twenty_partitions_are_aborted_and_committed_by_one_entry_each(
    tmp_path: Path, buffer: str, seals: bool
) -> None:
    store = CountingStore(LocalStore(str(tmp_path / "log")))
    log = TxnLog.create(store)
    topics = ("large", "large-too")
    for topic in topics:
        log.create_topic(topic, NUMBERS, partitions=10)

    def send_range(topic: str, first: int, end: int) -> None:
        for partition in range(10):
            numbers = pa.array(range(first + partition, end, 10))
            producer.send(topic, pa.table({"n": numbers}, schema=NUMBERS), partition)

    producer = Producer(log, "transactional-producer", buffer=buffer)
    producer.init()
    producer.begin()
    send_range("large", 0, 5_000)
    send_range("large-too", 5_000, 10_000)
    producer.flush()
    with store.measure() as aborting:
        producer.abort()
    assert aborting.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == (0 if buffer == "auto" else 1)
    if seals:
        log.maintain("seal")
    producer.begin()
    send_range("large", 10_000, 11_000)
    with store.measure() as committing:
        producer.commit()
    assert committing.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
    if seals:
        log.maintain("seal")
    found = [number for topic in topics for number in read(log, topic)]
    assert sorted(found) == list(range(10_000, 11_000))
    found = [number for topic in topics for number in read(log, topic, "read_uncommitted")]
    assert sorted(found) == list(range(0 if buffer == INLINE else 10_000, 11_000))


@case("TransactionsWithMaxInFlightOneTest", "testTransactionalProducerSingleBrokerMaxInFlightOne")
@BUFFERS
def test_an_abort_and_a_commit_of_a_producer_with_one_request_at_a_time(scene: Scene, buffer: str) -> None:
    """Four records, unpartitioned: two aborted, two committed."""
    with scene.opened("transactional-producer") as producer:
        producer.begin()
        send(producer, TWO, None, 2)
        send(producer, ONE, None, 4)
        producer.flush()
        producer.abort()
        producer.begin()
        send(producer, ONE, None, 1)
        send(producer, TWO, None, 3)
        producer.commit()
        scene.settle()
    assert committed(scene) == [1, 3]
    assert everything(scene) == ([1, 2, 3, 4] if buffer == INLINE else [1, 3])


@case(
    "OffloadAndTxnConsumeFromLeaderTest",
    "testOffloadAndTxnConsumeFromLeaderWithClassicGroupProtocol",
    "testOffloadAndTxnConsumeFromLeaderWithConsumerGroupProtocol",
)
def test_a_committed_read_fetches_one_index_for_each_sealed_segment_that_it_touches(tmp_path: Path) -> None:
    """Aborted and committed transactions in turn, a segment for each; what was aborted whole is not even
    looked up."""
    store = CountingStore(LocalStore(str(tmp_path / "log")))
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    with Producer(log, "p", buffer=INLINE) as producer:
        for number in range(6):
            producer.begin()
            send(producer, "t", 0, number)
            producer.flush()
            producer.commit() if number % 2 else producer.abort()
            log.maintain("seal")
    expected = {0: ([1, 3, 5], 3), 4: ([3, 5], 2), 10: ([5], 1), 12: ([], 0)}
    for start, (found, segments) in expected.items():
        fresh = TxnLog.open(store)
        with store.measure() as measured:
            assert read(fresh, start=start) == found
        assert measured.counts.count(RequestKind.GET, KeyClass.SIDECAR) == segments
        assert measured.counts.count(key_class=KeyClass.SIDECAR) == segments, "no list, no index of aborts"
    with store.measure() as measured:
        assert read(TxnLog.open(store), isolation="read_uncommitted") == list(range(6))
    assert measured.counts.count(key_class=KeyClass.SIDECAR) == 6


# --- fencing ------------------------------------------------------------------------------------------------


@case("TransactionsTest", "testFencingOnCommit")
@case("TransactionsWithTieredStoreTest", "testClassicFencingOnCommit", "testAsyncFencingOnCommit")
@BUFFERS
def test_the_commit_of_an_older_instance_is_refused_and_the_newer_ones_stands(
    scene: Scene, buffer: str
) -> None:
    older = scene.opened("transactional-producer")
    older.begin()
    send(older, ONE, None, 1)
    send(older, TWO, None, 3)
    older.flush()
    newer = scene.opened("transactional-producer")
    newer.begin()
    send(newer, ONE, None, 24)
    send(newer, TWO, None, 25)
    scene.settle()
    with pytest.raises(ProducerFencedError):
        older.commit()
    newer.commit()
    scene.settle()
    assert committed(scene) == [24, 25]
    assert older.status is ProducerStatus.FENCED


@case("TransactionsTest", "testFencingOnSend")
@case("TransactionsWithTieredStoreTest", "testClassicFencingOnSend", "testAsyncFencingOnSend")
@BUFFERS
def test_records_of_an_older_instance_do_not_reach_the_log(scene: Scene, buffer: str) -> None:
    older = scene.opened("transactional-producer")
    older.begin()
    send(older, ONE, None, 1)
    send(older, TWO, None, 3)
    newer = scene.opened("transactional-producer")
    newer.begin()
    send(newer, ONE, None, 24)
    send(newer, TWO, None, 25)
    newer.flush()
    scene.settle()

    def go_on() -> None:
        send(older, ONE, None, 5)
        older.flush()
        older.commit()  # with other buffers it is the first to meet the log

    with pytest.raises(ProducerFencedError):
        go_on()
    newer.commit()
    scene.settle()
    assert committed(scene) == everything(scene) == [24, 25]


@case("TransactionsTest", "testFencingOnAddPartitions")
@case(
    "TransactionsWithTieredStoreTest", "testClassicFencingOnAddPartitions", "testAsyncFencingOnAddPartitions"
)
@BUFFERS
def test_an_older_instance_can_begin_but_add_no_partition(scene: Scene, buffer: str) -> None:
    older = scene.opened("transactional-producer")
    older.begin()
    send(older, ONE, None, 1)
    send(older, TWO, None, 3)
    older.abort()
    newer = scene.opened("transactional-producer")
    newer.begin()
    send(newer, ONE, None, 24)
    send(newer, TWO, None, 25)
    newer.flush()
    scene.settle()
    older.begin()

    def add() -> None:
        send(older, ONE, None, 5)
        older.flush()
        older.commit()

    with pytest.raises(ProducerFencedError):
        add()
    newer.commit()
    scene.settle()
    assert committed(scene) == everything(scene) == [24, 25]


# --- the life of a producer ---------------------------------------------------------------------------------


@case("TransactionsTest", "testConsecutivelyRunInitTransactions")
@case("TransactionsWithTieredStoreTest", "testConsecutivelyRunInitTransactions")
def test_a_producer_is_initialised_once() -> None:
    scene = Scene()
    producer = scene.opened("normalProducer")
    before = scene.log.refresh().entry
    with pytest.raises(InvalidTransactionStateError) as caught:
        producer.init()
    assert caught.value.kind == "already-initialised"
    assert (scene.log.refresh().entry, producer.epoch) == (before, 0)


@case("TransactionsTest", "testEmptyAbortAfterCommit")
@case(
    "TransactionsWithTieredStoreTest", "testEmptyAbortAfterCommitWithTV1", "testEmptyAbortAfterCommitWithTV2"
)
@BUFFERS
def test_a_transaction_without_records_may_be_aborted_after_a_commit(scene: Scene, buffer: str) -> None:
    producer = scene.opened("transactional-producer")
    producer.begin()
    send(producer, ONE, 1, 4)
    producer.commit()
    scene.settle()
    before = scene.log.refresh().entry
    producer.begin()
    producer.abort()
    assert scene.log.refresh().entry == before
    producer.begin()
    send(producer, ONE, 1, 5)
    producer.commit()
    assert committed(scene) == [4, 5]


@case("TransactionsTest", "testRecoveryFromEpochOverflow")
@case("TransactionsWithTieredStoreTest", "testRecoveryFromEpochOverflow")
def test_producers_go_on_where_epochs_of_16_bits_end() -> None:
    """Same producer id, one epoch more per transaction: no rotation, no number that comes twice."""
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    open_often(log, "test-overflow", 32_765)
    with Producer(log, "test-overflow", buffer=INLINE) as producer:
        assert producer.epoch == 32_765
        for number in range(5):
            producer.begin()
            send(producer, "t", 0, number)
            producer.flush()
            producer.commit() if number % 2 else producer.abort()
        assert (producer.producer_id, producer.epoch) == (0, 32_770)
        with Producer(log, "test-overflow") as newer:
            assert (newer.producer_id, newer.epoch) == (0, 32_771)
            for call in (producer.begin, lambda: send(producer, "t", 0, 11)):
                call()
            with pytest.raises(ProducerFencedError):
                producer.commit()
            with newer.transaction() as txn:
                txn.send("t", [{"n": 10}])
            assert newer.epoch == 32_772
    assert read(log) == [1, 3, 10]
    log.maintain("seal")
    assert read(log) == [1, 3, 10]


@case(
    "TransactionsExpirationTest",
    "testTransactionAfterProducerIdExpiresWithTV1",
    "testTransactionAfterProducerIdExpiresWithTV2",
)
@BUFFERS
def test_a_partition_forgets_a_producer_with_its_transaction_and_the_id_lives_on(
    scene: Scene, buffer: str
) -> None:
    """The next instance has the same producer id, a later epoch, and sequences that begin at 0."""
    with scene.opened("transactionalProducer") as producer:
        producer.begin()
        send(producer, ONE, 0, 2)
        producer.flush()
        key = TopicPartition(scene.log.refresh().topic(ONE).topic_id, 0)
        first = (producer.producer_id, producer.epoch)
        assert list(scene.log.state.partition(key).sequences) == ([first] if buffer == INLINE else [])
        producer.abort()
        scene.settle()
        assert list(scene.log.refresh().partition(key).sequences) == []
    with scene.opened("transactionalProducer") as producer:
        producer.begin()
        send(producer, ONE, 0, 4)
        send(producer, ONE, 3, 3)
        producer.commit()
        scene.settle()
        assert producer.producer_id == first[0]
        assert (producer.epoch or 0) >= (first[1] or 0) + 2
    assert list(scene.log.refresh().partition(key).sequences) == []
    assert committed(scene) == [3, 4]
