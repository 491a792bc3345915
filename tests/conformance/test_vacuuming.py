"""ProducerStateManagerTest, TransactionIndexTest and UnifiedLogTest: snapshots and indexes that are not
needed any more are deleted."""

from __future__ import annotations

import datetime
import uuid

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.store.memory import MemoryStore
from txnformat.store.wrapped import WrappedStore
from txnlog import Producer, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])
GRACE = datetime.timedelta(hours=2)


class Stored:
    """A log with four snapshots, each after another append of a producer that goes on."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.log = TxnLog.create(self.store, clock=self.clock, embedding=False)
        self.log.create_topic("t", NUMBERS)
        self.producer = Producer(self.log)
        self.producer.init()
        for number in range(4):
            self.producer.send("t", [{"n": number}])
            self.producer.flush()
            self.log.committer._write_snapshot()

    def snapshots(self) -> list[str]:
        return [info.key for info in self.store.list(keys.SNAPSHOT_PREFIX)]

    def vacuum(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.sleep(GRACE.total_seconds() + 1)
            self.log.vacuum(GRACE)

    def check(self) -> None:
        """The producer's sequences go on, also by a process that opens the log anew."""
        opened = TxnLog.open(self.store, clock=self.clock)
        (partition,) = opened.state.partitions.values()
        assert len(partition.sequences) == 1
        self.producer.send("t", [{"n": 4}])
        self.producer.flush()
        assert [row["n"] for row in opened.read("t").read_all().to_pylist()] == [0, 1, 2, 3, 4]
        assert opened.verify().ok


@pytest.fixture
def stored() -> Stored:
    return Stored()


@case("ProducerStateManagerTest", "testDeleteSnapshotsBefore")
@case("ProducerStateManagerTest", "testRemoveAndMarkSnapshotForDeletion")
@case("UnifiedLogTest", "testRetentionDeletesProducerStateSnapshots")
@case("UnifiedLogTest", "testCompactionDeletesProducerStateSnapshots")
def test_snapshots_before_the_two_newest_are_deleted(stored: Stored) -> None:
    assert len(stored.snapshots()) == 4
    stored.log.delete_records("t", 0)
    stored.vacuum()
    assert stored.snapshots() == [one.key for one in stored.log.refresh().checkpoints]
    stored.check()


@case("ProducerStateManagerTest", "testRemoveStraySnapshotsKeepCleanShutdownSnapshot")
@case("ProducerStateManagerTest", "testRemoveAllStraySnapshots")
def test_snapshots_that_no_entry_names_are_deleted_and_the_newest_named_ones_stay(stored: Stored) -> None:
    for entry in (1, 2, 3):
        stored.store.create(keys.snapshot_key(entry, str(uuid.uuid4())), b"stray")
    stored.vacuum()
    assert stored.snapshots() == [one.key for one in stored.log.refresh().checkpoints]
    stored.check()


@case("ProducerStateManagerTest", "testRemoveAndMarkSnapshotForDeletionAlreadyDeleted")
def test_a_snapshot_that_somebody_else_has_deleted_is_no_error(stored: Stored) -> None:
    class Twice(WrappedStore):
        def delete(self, key: str) -> None:
            super().delete(key)
            super().delete(key)

    stored.clock.sleep(GRACE.total_seconds() + 1)
    TxnLog.open(Twice(stored.store), clock=stored.clock).vacuum(GRACE)
    assert len(stored.snapshots()) == 2
    stored.check()


@case("TransactionIndexTest", "testDeleteIfExists")
def test_the_abort_index_of_removed_segments_is_deleted_and_again_is_no_error(stored: Stored) -> None:
    with Producer(stored.log, "etl", buffer="inline") as producer:
        producer.begin()
        producer.send("t", [{"n": 100}])
        producer.flush()
        producer.abort()
    stored.log.maintain("seal")
    indexes = [info.key for info in stored.store.list("t-") if keys.parse_txnindex_key(info.key)]
    assert len(indexes) == 1
    stored.log.delete_records("t", -1)
    stored.log.create_topic("later", NUMBERS)
    stored.vacuum(4)
    assert not [info.key for info in stored.store.list("t-") if keys.parse_txnindex_key(info.key)]
    assert stored.log.verify().ok
