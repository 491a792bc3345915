"""UnifiedLogTest and FetcherTest: what a compaction leaves of producers and of positions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from txnformat.core.invariants import check_whole
from txnformat.core.snapshot.codec import encode_snapshot
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnlog import Consumer, Producer, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])


def _log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    return log


def _compact(log: TxnLog) -> int:
    """Compact everything; returns the records that are left."""
    log.compact(min_lag_ms=0)
    assert check_whole(log.state) == []
    return int(log.read("t").read_all().num_rows)


def _sequences(log: TxnLog) -> object:
    (topic_id,) = log.state.topics
    return log.state.partition(TopicPartition(topic_id, 0)).sequences


@case(
    "UnifiedLogTest", "testRebuildProducerIdMapWithCompactedData", "testUpdateProducerIdMapWithCompactedData"
)
def test_the_sequences_of_producers_outlive_the_batches_that_were_compacted() -> None:
    """Kafka keeps a batch's header for it, and a follower takes the sequence from there; here they are in the
    state."""
    log = _log()
    follower = TxnLog.open(log.store)
    with Producer(log) as producer:
        for number in range(4):
            producer.send("t", [{"n": number}])
            producer.flush()
        before = _sequences(log)
        assert before
        assert _compact(log) == 4
        follower.refresh()
        opened = TxnLog.open(log.store)
        assert _sequences(log) == _sequences(follower) == _sequences(opened) == before
        assert encode_snapshot(opened.state) == encode_snapshot(follower.state) == encode_snapshot(log.state)
        producer.send("t", [{"n": 4}])
    assert _compact(log) == 5


@case("UnifiedLogTest", "testRebuildProducerStateWithEmptyCompactedBatch")
def test_a_producer_goes_on_whose_every_record_was_compacted_away() -> None:
    log = _log()
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", [{"n": 1}])
        producer.flush()
        producer.abort()
        known = log.refresh().transactional_ids["p"]
        assert _compact(log) == 0
        opened = TxnLog.open(log.store)
        assert opened.state.transactional_ids["p"] == known
        (offsets,) = opened.offsets("t")
        assert (offsets.earliest, offsets.last_stable_offset, offsets.log_end) == (0, 2, 2)
        with producer.transaction():
            producer.send("t", [{"n": 2}])
    assert log.read("t", columns=["n", "_offset"]).read_all().to_pylist() == [{"n": 2, "_offset": 2}]


@case("FetcherTest", "testUpdatePositionWithLastRecordMissingFromBatch")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_position_moves_past_records_that_are_missing_at_the_end_of_what_was_compacted(
    isolation: str,
) -> None:
    log = _log()
    with Producer(log, "p", buffer="inline") as producer:
        with producer.transaction():
            producer.send("t", [{"n": 0}, {"n": 1}])
        producer.begin()
        producer.send("t", [{"n": 2}])
        producer.flush()
        producer.abort()
    assert _compact(log) == 2
    with Consumer(TxnLog.open(log.store), isolation=isolation) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek_to_beginning()
        assert [row["_offset"] for row in consumer.poll_dicts()] == [0, 1]
        assert consumer.position("t", 0) == 5, "behind both markers and the aborted record"
        assert consumer.poll(0) is None
        assert consumer.lag() == {("t", 0): 0}
