"""Topics that are deleted: nothing of their transactions, producers and acknowledgements is left, and other
topics go on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from txnformat.core.invariants import check_whole
from txnformat.core.snapshot.state import encode_state
from txnformat.store.memory import MemoryStore
from txnlog import NotFoundError, Producer, Subscription, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])


def _log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    for topic in ("t", "u"):
        log.create_topic(topic, NUMBERS)
    return log


def _numbers(log: TxnLog, topic: str) -> list[int]:
    found: list[int] = log.read(topic, columns=["n"]).read_all()["n"].to_pylist()
    return found


@case("TransactionEndToEndTest", "testAfterDeleteTopicOtherTopicCanRecover")
@pytest.mark.parametrize("buffer", ["inline", "deferred"])
def test_another_topic_is_there_with_its_transactions_when_the_log_is_opened_anew(buffer: str) -> None:
    log = _log()
    with Producer(log, "both", buffer=buffer) as producer:
        producer.begin()
        for topic in ("t", "u"):
            producer.send(topic, [{"n": 1}])
        producer.commit()
    later = Producer(log, "later", buffer=buffer)
    later.init()
    later.begin()
    later.send("u", [{"n": 2}])
    later.flush()
    log.delete_topic("t")
    opened = TxnLog.open(log.store)
    assert _numbers(opened, "u") == [1]
    later.commit()
    later.close()
    assert _numbers(opened, "u") == [1, 2]


@case("SegmentAbortedTxnProcessorTest", "testClearSnapshotSegments")
@case("TopicTransactionBufferRecoverTest", "clearTransactionBufferSnapshotTest")
@pytest.mark.parametrize("sealed", [True, False])
def test_nothing_of_aborted_transactions_is_kept_once_their_topic_is_deleted(sealed: bool) -> None:
    log = _log()
    with Producer(log, "etl", buffer="inline") as producer:
        for number in range(3):
            producer.begin()
            producer.send("t", [{"n": number}])
            producer.flush()
            producer.abort()
    if sealed:
        log.maintain("seal")
    topic_id = log.refresh().topic_ids["t"]
    log.delete_topic("t")
    state = TxnLog.open(log.store).state
    assert str(encode_state(state)).count(topic_id) == 1, "of the directory that no other topic gets"
    assert not state.partitions
    assert not len(state.segments)
    assert check_whole(state) == []


@case("PendingAckPersistentTest", "testDeleteTopicThenDeletePendingAckManagedLedger")
def test_pending_acknowledgements_go_with_their_topic() -> None:
    log = _log()
    with Producer(log) as plain:
        plain.send("t", [{"n": 0}, {"n": 1}])
    log.subscriptions.create("t", "work")
    subscription = Subscription(log, "t", "work")
    with Producer(log, "etl") as producer:
        producer.begin()
        batch = subscription.receive(2, timeout_ms=0)
        assert batch is not None
        producer.acknowledge(subscription, batch)
        producer.flush()
        log.delete_topic("t", force=True)
        assert not log.refresh().subscriptions
        assert not log.state.transactional_ids["etl"].subscriptions
        producer.abort()
    with pytest.raises(NotFoundError) as caught:
        subscription.receive(1, timeout_ms=0)
    assert caught.value.kind == "topic-gone"


@case("UnifiedLogTest", "testProducerExpireCheckAfterDelete")
def test_no_producer_of_a_deleted_topic_is_left_to_expire() -> None:
    log = _log()
    producers = [Producer(log), Producer(log)]
    for producer, topics in zip(producers, ("t", "tu"), strict=True):
        producer.init()
        for topic in topics:
            producer.send(topic, [{"n": 0}])
        producer.flush()
    assert len(log.refresh().producers) == 2
    log.delete_topic("t")
    assert len(log.refresh().producers) == 1
    assert log.maintain("expire").expired_producers == 0
    for producer in producers:
        producer.send("u", [{"n": 1}])
        producer.close()
    assert _numbers(log, "u") == [0, 1, 1]
