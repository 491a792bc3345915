"""OffsetFetcherTest, PartitionTest, ReplicaManagerTest, RemoteLogManagerTest: where reads end, and what they
look up."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, ORDERS, Chain
from tests.conformance.scenes import NUMBERS, Scene, read, rows
from tests.integration.clients.failing import QuickClock
from txnformat.errors import OffsetOutOfRangeError
from txnformat.protocol.sealing import LISTED_SEGMENTS, sealable
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import IsolationLevel, OffsetRange, TopicPartition
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
KEY = TopicPartition(ORDERS.topic_id, 0)


def latest(log: TxnLog, isolation: IsolationLevel) -> int:
    """Return where a reader of partition 0 of ``t`` stands that begins at the latest offset."""
    return log.plan("t", isolation=isolation, partitions=[0]).partitions[0].range.end


@case(
    "OffsetFetcherTest",
    "testListOffsetSendsReadUncommitted",
    "testListOffsetSendsReadCommitted",
    "testListOffsetsSendsIsolationLevel",
)
@case("PartitionTest", "testListOffsetIsolationLevels")
@pytest.mark.parametrize("commits", [True, False])
def test_the_latest_offset_is_the_isolation_levels_own_and_the_earliest_is_the_same(commits: bool) -> None:
    scene = Scene()
    scene.plain([0])
    scene.begin("p", rows(1, 3))  # 1-3
    scene.plain([4])
    (ends,) = scene.log.offsets("t")
    assert (ends.earliest, ends.last_stable_offset, ends.log_end) == (0, 1, 5)
    assert (latest(scene.log, COMMITTED), latest(scene.log, UNCOMMITTED)) == (1, 5)
    for isolation, end in ((COMMITTED, 1), (UNCOMMITTED, 5)):
        plan = scene.log.plan("t", isolation=isolation)
        assert plan.partitions[0].range == OffsetRange(0, end)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            read(scene.log, isolation=isolation, start=end + 1)
        values = caught.value.values
        assert (values["earliest"], values["latest"], values["isolation"]) == (0, end, str(isolation))
    (scene.commit if commits else scene.abort)("p")  # 5
    assert latest(scene.log, COMMITTED) == latest(scene.log, UNCOMMITTED) == 6


@case("FetchRequestTest", "testFetchRequestV4WithReadCommitted")
def test_a_record_that_is_larger_than_a_batch_may_be_is_read_at_read_committed() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("value", pa.string())]))
    with Producer(log, batch_bytes=200) as producer:
        producer.send("t", [{"value": "\0" * 201}])
        producer.flush()
    assert log.offsets("t")[0].last_stable_offset == 1
    assert log.read("t").read_all()["value"].to_pylist() == ["\0" * 201]


@case("ReplicaManagerTest", "testReadCommittedFetchLimitedAtLSO")
def test_nothing_of_an_open_transaction_is_read_and_all_of_it_from_the_entry_on_that_commits_it() -> None:
    scene = Scene()
    reader = TxnLog.open(scene.log.store)
    scene.begin("p")
    for n in range(3):
        scene.go_on("p", [n])
        plan = reader.plan("t")
        assert (plan.partitions[0].range, len(plan.partitions[0].rows)) == (OffsetRange(0, 0), 0)
        assert read(reader) == []
        assert reader.offsets("t")[0].last_stable_offset == 0
    scene.commit("p")
    assert read(reader) == [0, 1, 2], "there is no time in which the marker is there, and not yet durable"
    (ends,) = reader.offsets("t")
    assert (ends.last_stable_offset, ends.aborted_transactions) == (4, 0)


@case("ReplicaManagerTest", "testDelayedFetchIncludesAbortedTransactions")
@pytest.mark.parametrize("seals", [False, True], ids=["in the state", "sealed"])
def test_a_read_that_waits_and_one_that_is_consumed_late_leave_out_what_was_aborted_meanwhile(
    seals: bool,
) -> None:
    scene = Scene(seals=seals)
    scene.plain([100])
    scene.begin("p", rows(0, 3))
    reader = TxnLog.open(scene.log.store)
    early = reader.read("t")
    position = latest(reader, COMMITTED)
    assert (position, read(reader, start=position)) == (1, [])
    scene.abort("p")
    late = reader.read("t")
    scene.plain([200])
    assert read(reader, start=position) == [200]
    assert reader.offsets("t")[0].aborted_transactions == 1
    for begun in (early, late):
        assert begun.read_all()["n"].to_pylist() == [100], "pinned to the entry at which it began"


@case("ReplicaManagerTest", "testPartitionsWithLateTransactionsCount")
def test_partitions_are_counted_whose_transactions_are_late_until_they_are_ended() -> None:
    clock = QuickClock()
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    log.create_topic("t", NUMBERS, partitions=3)

    def counted() -> tuple[int, int]:
        found = log.metrics()
        return sum(part.late_transactions > 0 for part in found.partitions), found.late_transactions

    assert counted() == (0, 0)
    producer = Producer(log, "p", buffer="inline", transaction_timeout_ms=60_000)
    producer.init()
    producer.begin()
    for partition in (0, 2):
        producer.send("t", [{"n": 1}], partition=partition)
    producer.flush()
    started = log.refresh().transactional_ids["p"].started_ms
    assert started is not None
    clock.sleep((started + 60_000 - clock.now().wall_ms - 1) / 1000)
    assert counted() == (0, 0)
    clock.sleep(0.001)
    assert counted() == (2, 1)
    log.maintain("timeouts")
    assert counted() == (0, 0)
    producer.close()


def store_of_segments(outcomes: str) -> tuple[CountingStore, list[int]]:
    """Return a log with a sealed segment of two records for each letter: c for committed, a for aborted."""
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    committed = []
    with Producer(log, "p", buffer="inline") as producer:
        for number, outcome in enumerate(outcomes):
            producer.begin()
            producer.send("t", [{"n": 2 * number}, {"n": 2 * number + 1}])
            producer.flush()
            if outcome == "c":
                producer.commit()
                committed += [2 * number, 2 * number + 1]
            else:
                producer.abort()
            assert log.maintain("seal").segments == 1
    return store, committed


@case("RemoteLogManagerTest", "testFetchNextSegmentWithTxnIndex")
def test_a_reader_asks_for_no_abort_index_and_for_nothing_of_what_was_aborted_whole() -> None:
    """In Kafka every fetch searches the segments behind it for abort indexes. Here each ``.index`` has the
    outcomes."""
    store, committed = store_of_segments("cacaac")
    for start in range(0, 18, 3):
        log = TxnLog.open(store)
        with store.measure() as measured:
            assert read(log, start=start) == [n for n in committed if n >= start // 3 * 2]
        segments = sum(outcome == "c" for outcome in "cacaac"[start // 3 :])
        assert measured.counts.count(key_class=KeyClass.SIDECAR) == segments
        assert measured.counts.count(RequestKind.GET, KeyClass.SIDECAR) == segments


@case("RemoteLogManagerTest", "testFindNextSegmentWithTxnIndex")
def test_a_segment_has_an_abort_index_exactly_when_something_in_it_was_aborted() -> None:
    chain = Chain("p")
    outcomes = (COMMIT, ABORT, COMMIT, ABORT)
    for outcome in outcomes:
        chain.send("p", 2)
        chain.end("p", outcome)
        chain.seal()
    indexed = [record.txnindex is not None for record in chain.state.segments]
    assert indexed == [outcome is ABORT for outcome in outcomes]
    assert chain.partition().segments.array()["aborted"].tolist() == [0, 1, 0, 1]
    assert chain.offsets() == [0, 1, 6, 7]


@case("RemoteLogManagerTest", "testFindNextSegmentWithTxnIndexTraversesNextEpoch")
def test_an_aborted_transaction_over_segments_of_every_age_is_hidden_in_all_of_them() -> None:
    """Each holder ends later than the transaction, and lets one more piece of it be sealed."""
    holders = [f"holder {number}" for number in range(LISTED_SEGMENTS + 4)]
    chain = Chain("long", *holders)
    for name in holders:
        chain.send("long", 1)
        chain.send(name, 1)
    chain.send("long", 1)
    chain.end("long", ABORT)
    kept = list(range(1, 2 * len(holders), 2))
    for name in holders[:-1]:
        chain.seal()
        chain.end(name, COMMIT)
    state = chain.state
    assert state.segment_lists, "the oldest"
    assert 0 < chain.partition().listed_end < chain.partition().sealed_end < chain.stable()
    assert chain.offsets() == kept[:-1]
    assert chain.offsets(start=chain.partition().sealed_end) == kept[-2:-1]
    chain.end(holders[-1], COMMIT)
    assert chain.offsets() == kept
    for start in range(2 * len(holders)):
        assert chain.offsets(start=start) == [offset for offset in kept if offset >= start]


@case("RemoteLogManagerTest", "testCandidateLogSegmentsSkipsSegmentsAfterLastStableOffset")
def test_what_can_be_sealed_ends_at_the_last_stable_offset_at_every_moment() -> None:
    chain = Chain("a", "b")
    for step in range(24):
        name = "ab"[step % 2]
        chain.send(name, 2)
        chain.do(chain.write(None, 1))
        if step % 5 == 4:
            chain.end(name, (COMMIT, ABORT)[step % 2])
        ranges = sealable(chain.state)
        expected = OffsetRange(chain.partition().sealed_end, chain.stable())
        assert ranges.get(KEY) == (expected if expected.start < expected.end else None)
        if ranges:
            before = chain.offsets()
            chain.seal()
            assert chain.partition().sealed_end == expected.end
            assert chain.offsets() == before
    assert 0 < chain.partition().sealed_end < chain.partition().log_end


@case("RemoteLogManagerTest", "testCandidateLogSegmentsSkipsSegmentsAfterLastStableOffset")
def test_maintenance_leaves_undecided_records_out_of_the_sidecars() -> None:
    scene = Scene()
    scene.plain([0, 1])
    scene.begin("p", [2])
    scene.plain([3])
    scene.log.maintain("seal")
    partition = scene.log.state.partition(TopicPartition(scene.log.state.topic_ids["t"], 0))
    assert (partition.sealed_end, partition.last_stable_offset, partition.log_end) == (2, 2, 4)
    scene.commit("p")
    scene.check_sealed()
