"""LogCleanerTest and TransactionTest: compaction by key beside transactions."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from txnformat.admin.compaction import cleaning
from txnformat.core.invariants import check_whole
from txnformat.core.lifecycle.offset_map import SLOT_BYTES
from txnformat.core.records.state import PartitionState
from txnformat.keys import is_runs_key
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange, TopicPartition
from txnlog import Consumer, Producer, TxnLog
from writers.transaction import ProducerStatus

ISOLATIONS = ("read_committed", "read_uncommitted")
Record = tuple[int, bytes, bytes | None]
"""Offset, key, value."""


class Keyed:
    """A log with a topic of Kafka records that is compacted by key, in one partition."""

    def __init__(self, delete_retention_ms: int = 0) -> None:
        self.log = TxnLog.create(MemoryStore())
        settings: dict[str, int | str] = {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": 0,
            "delete.retention.ms": delete_retention_ms,
        }
        self.log.create_topic("t", "kafka", settings=settings)

    def producer(self, name: str) -> Producer:
        producer = Producer(self.log, name, buffer="inline")
        producer.init()
        return producer

    def send(self, producer: Producer, *keys: bytes, value: bytes | None = b"v") -> None:
        """Append records in the producer's transaction, which it begins if it must."""
        if producer.status is not ProducerStatus.IN_TRANSACTION:
            producer.begin()
        for key in keys:
            producer.send("t", key=key, value=value)
        producer.flush()

    @property
    def partition(self) -> PartitionState:
        (topic_id,) = self.log.refresh().topics
        return self.log.state.partition(TopicPartition(topic_id, 0))

    def clean(self) -> None:
        self.log.compact("t")
        assert check_whole(self.log.state) == []
        report = self.log.verify(deep=True)
        assert report.ok, report.problems

    def read(self, isolation: str = "read_committed") -> list[Record]:
        log = TxnLog.open(self.log.store)
        rows = log.read("t", isolation=isolation, columns=["_offset", "key", "value"]).read_all().to_pylist()
        return [(row["_offset"], row["key"], row["value"]) for row in rows]

    def markers(self) -> int:
        """Return how many markers the segments of the partition have."""
        state = self.log.refresh()
        (topic_id,) = state.topics
        key = TopicPartition(topic_id, 0)
        parts = self.log.sidecars.segments(state, key, OffsetRange(0, self.partition.sealed_end))
        assert all(not part.row["markers"] for part in parts if is_runs_key(part.record.index.key))
        return sum(int(part.row["markers"]) for part in parts)


@case("LogCleanerTest", "testMultiPassSegmentCleaningWithAbortedTransactions")
def test_several_passes_know_what_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that ends between the records of an aborted transaction and its marker."""
    monkeypatch.setattr(cleaning, "MAP_BYTES", 2 * SLOT_BYTES)
    keyed = Keyed()
    one, two = keyed.producer("1"), keyed.producer("2")
    keyed.send(one, b"2", b"3")
    keyed.send(two, b"4", b"5", b"3", b"2")
    one.abort()
    two.commit()
    keyed.send(one, b"4")
    one.commit()
    expected = [(3, b"5", b"v"), (4, b"3", b"v"), (5, b"2", b"v"), (8, b"4", b"v")]
    for _ in range(2):
        keyed.clean()
        assert [keyed.read(isolation) for isolation in ISOLATIONS] == [expected, expected]
    assert keyed.partition.cleaned_end == 10


@case("LogCleanerTest", "testCommitMarkerRemoval")
def test_a_committed_record_stays_committed_without_its_marker() -> None:
    """Kafka keeps the marker as long as a record of the transaction; here a record's commit is stored beside
    it, and the marker goes at once."""
    keyed = Keyed()
    producer = keyed.producer("p")
    keyed.send(producer, b"1", b"2")
    producer.commit()
    keyed.send(producer, b"2")
    producer.commit()
    keyed.log.maintain("seal")
    assert keyed.markers() == 2
    keyed.clean()
    assert keyed.markers() == 0
    assert keyed.read() == [(0, b"1", b"v"), (3, b"2", b"v")]
    keyed.send(producer, b"1")
    producer.commit()
    keyed.clean()
    assert keyed.read() == [(3, b"2", b"v"), (5, b"1", b"v")]


@case("LogCleanerTest", "testCommitMarkerRetentionWithEmptyBatch", "testEmptyBatchRemovalWithSequenceReuse")
def test_a_producer_whose_every_record_is_gone_goes_on_with_its_epoch_and_sequences() -> None:
    keyed = Keyed()
    producer, other = keyed.producer("p"), keyed.producer("other")
    keyed.send(producer, b"2", b"3")
    producer.commit()
    keyed.send(other, b"2", b"3")
    other.commit()
    known = keyed.log.refresh().transactional_ids["p"]
    keyed.clean()
    assert keyed.read() == [(3, b"2", b"v"), (4, b"3", b"v")]
    assert TxnLog.open(keyed.log.store).state.transactional_ids["p"] == known
    keyed.send(producer, b"1")  # its sequences begin at 0 again, in the next epoch
    producer.commit()
    keyed.clean()
    assert keyed.read() == [(3, b"2", b"v"), (4, b"3", b"v"), (6, b"1", b"v")]
    assert keyed.log.refresh().transactional_ids["p"].epoch == known.epoch + 1


@case("LogCleanerTest", "testAbortMarkerRemoval")
def test_aborted_records_go_with_their_marker_and_are_not_the_latest_of_their_keys() -> None:
    keyed = Keyed()
    producer, other = keyed.producer("p"), keyed.producer("other")
    keyed.send(other, b"1")
    other.commit()
    keyed.send(producer, b"1", b"2")
    producer.abort()
    keyed.send(other, b"3")
    other.commit()
    keyed.clean()
    assert keyed.markers() == 0
    assert [keyed.read(one) for one in ISOLATIONS] == [[(0, b"1", b"v"), (5, b"3", b"v")]] * 2


@case("LogCleanerTest", "testAbortMarkerRetentionWithEmptyBatch", "testCleanEmptyControlBatch")
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_segments_that_are_empty_after_a_compaction_are_compacted_and_read_again(isolation: str) -> None:
    keyed = Keyed()
    producer = keyed.producer("p")
    keyed.send(producer, b"2", b"3")
    producer.abort()
    for _ in range(2):
        keyed.clean()
        assert keyed.read(isolation) == []
        assert keyed.partition.log_end == 3
        keyed.log.maintain("seal")
    keyed.send(producer, b"1")
    producer.commit()
    keyed.clean()
    assert keyed.read(isolation) == [(3, b"1", b"v")]
    with Consumer(TxnLog.open(keyed.log.store), isolation=isolation) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 1)
        assert [row["_offset"] for row in consumer.poll_dicts()] == [3]
        assert consumer.lag() == {("t", 0): 0}


@case("LogCleanerTest", "testCleaningWithKeysConflictingWithTxnMarkerKeys")
def test_keys_with_the_bytes_of_a_marker_are_keys() -> None:
    abort, commit = bytes(4), b"\x00\x00\x00\x01"  # version 0 of Kafka's control records, and their types
    keyed = Keyed()
    producer = keyed.producer("p")
    keyed.send(producer, abort, commit, value=b"1")
    producer.commit()
    keyed.send(producer, abort, value=b"2")
    producer.abort()
    keyed.send(producer, commit, value=b"3")
    producer.commit()
    keyed.clean()
    assert keyed.read() == [(0, abort, b"1"), (5, commit, b"3")]


@case("TransactionTest", "testReadCommittedWithReadCompacted", "testReadCommittedWithCompaction")
def test_readers_get_the_latest_committed_record_of_each_key() -> None:
    """Also while a transaction is open that writes the same keys, and whatever it does then."""
    keyed = Keyed()
    producer, other = keyed.producer("p"), keyed.producer("other")
    keyed.send(other, b"K1", b"K2", b"K3", value=b"0")
    other.commit()
    keyed.send(producer, b"K1", value=b"1")
    producer.commit()
    keyed.send(producer, b"K2", value=b"2")  # open
    keyed.send(other, b"K3", value=b"3")
    other.commit()
    keyed.clean()
    before = [(1, b"K2", b"0"), (2, b"K3", b"0"), (4, b"K1", b"1")]
    assert keyed.read() == before, "nothing beyond the last stable offset is looked at"
    producer.abort()
    keyed.clean()
    assert keyed.read() == [(1, b"K2", b"0"), (4, b"K1", b"1"), (7, b"K3", b"3")]
    keyed.send(producer, b"K2", value=None)
    producer.commit()
    keyed.clean()
    keyed.clean()
    assert keyed.read() == [(4, b"K1", b"1"), (7, b"K3", b"3")]
