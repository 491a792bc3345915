"""UnifiedLogTest and LogLoaderTest: what a log start does to the last stable offset and to producers."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from txnformat.core.invariants import check_whole
from txnformat.store.memory import MemoryStore
from txnlog import OffsetOutOfRangeError, Producer, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])


def _log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.upgrade()
    log.create_topic("t", NUMBERS)
    return log


@case("UnifiedLogTest", "testLastStableOffsetDoesNotExceedLogStartOffsetMidSegment")
@case("UnifiedLogTest", "testLastStableOffsetDoesNotExceedLogStartOffsetAfterSegmentDeletion")
@pytest.mark.parametrize("segments", [1, 3])
def test_the_log_start_does_not_pass_the_first_record_of_an_open_transaction(segments: int) -> None:
    log = _log()
    with Producer(log) as plain:
        for number in range(6):
            plain.send("t", [{"n": number}])
            plain.flush()
            if number < segments - 1:
                log.maintain("seal")
    producer = Producer(log, "open", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", [{"n": 6}])
    producer.flush()
    with Producer(log) as plain:
        plain.send("t", [{"n": 7}])
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records("t", 7)
    for start in (3, 5, 6):
        log.delete_records("t", start)
        (found,) = TxnLog.open(log.store).offsets("t")
        assert (found.earliest, found.last_stable_offset, found.log_end) == (start, 6, 8)
        assert check_whole(log.state) == []
    producer.commit()
    assert [row["n"] for row in log.read("t").read_all().to_pylist()] == [6, 7]


@case("LogLoaderTest", "testLoadProducersAfterDeleteRecordsMidSegment")
@case("LogLoaderTest", "testLoadProducersAfterDeleteRecordsOnSegment")
@pytest.mark.parametrize("one_segment", [True, False])
def test_a_producer_goes_on_after_its_records_were_removed_and_the_log_was_opened_anew(
    one_segment: bool,
) -> None:
    log = _log()
    producers = [Producer(log), Producer(log)]
    for number, producer in enumerate(producers):
        producer.init()
        producer.send("t", [{"n": number}])
        producer.flush()
        if not one_segment:
            log.maintain("seal")
    log.delete_records("t", 1)
    opened = TxnLog.open(log.store).refresh()
    (partition,) = opened.partitions.values()
    assert len(partition.sequences) == 2, (
        "a producer is known for a day after its last append, whatever was removed"
    )
    for number, producer in enumerate(producers, 2):
        producer.send("t", [{"n": number}])
        producer.close()
    assert [row["n"] for row in log.read("t").read_all().to_pylist()] == [1, 2, 3]


@case("UnifiedLogTest", "testProducerIdExpirationOnSegmentDeletion")
def test_producers_are_remembered_although_retention_has_removed_all_their_records() -> None:
    log = _log()
    log.alter_topic("t", settings={"retention.bytes": 0})
    producers = [Producer(log), Producer(log)]
    for number, producer in enumerate(producers):
        producer.init()
        producer.send("t", [{"n": number}])
        producer.flush()
    assert [one.earliest for one in log.maintain().removed] == [2]
    (partition,) = TxnLog.open(log.store).state.partitions.values()
    assert (partition.log_start, len(partition.sequences)) == (2, 2)
    for producer in producers:
        producer.close()


@case("TopicTransactionBufferRecoverTest", "testTopicTransactionBufferDeleteAbort")
def test_aborted_transactions_leave_with_the_segments_that_retention_removes() -> None:
    log = _log()
    log.alter_topic("t", settings={"retention.bytes": 0})
    with Producer(log, "etl", buffer="inline") as producer:
        for number in range(4):
            producer.begin()
            producer.send("t", [{"n": number}])
            producer.flush()
            producer.commit() if number % 2 else producer.abort()
    log.maintain()
    opened = TxnLog.open(log.store)
    (partition,) = opened.state.partitions.values()
    assert (len(partition.aborted), len(partition.extents), partition.sealed.size) == (0, 0, 0)
    assert check_whole(opened.state) == []
    assert opened.read("t", isolation="read_uncommitted").read_all().num_rows == 0
    assert opened.verify(deep=True).ok
