"""UnifiedLogTest, LogLoaderTest and others: what a log start does to the last stable offset and to
producers.
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.model.groups import ManualClock
from txnformat.core.invariants import check_whole
from txnformat.store.memory import MemoryStore
from txnlog import OffsetOutOfRangeError, Producer, TxnLog

NUMBERS = pa.schema([("n", pa.int64())])
GRACE = datetime.timedelta(hours=2)


def _log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
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


@case("librdkafka-0103-transactions", "do_test_fatal_idempo_error_without_kip360")
@pytest.mark.parametrize("buffer", ["inline", "auto", "deferred"])
def test_a_transactional_producer_goes_on_although_all_its_records_were_removed(buffer: str) -> None:
    """A broker of before KIP-360 has forgotten the producer by then, and its next append is a fatal error."""
    log = _log()
    other = TxnLog.open(log.store)
    with Producer(log, "etl", buffer=buffer) as producer:
        for number in range(3):
            producer.begin()
            producer.send("t", [{"n": 2 * number}])
            producer.flush()
            other.maintain("seal")
            other.delete_records("t", -1)
            producer.send("t", [{"n": 2 * number + 1}])
            producer.commit()
            assert log.read("t").read_all()["n"].to_pylist() == [2 * number, 2 * number + 1]
            assert (producer.producer_id, producer.epoch) == (0, number + 1), (
                "each commit takes one epoch, an opening would take more"
            )
    assert other.verify(deep=True).ok


@case("MetadataTransactionBufferTest", "pruneTrimmedAborted_dropsBelowFirstValid_retainsAbove")
def test_of_aborted_transactions_those_below_the_log_start_are_dropped_and_the_others_stay_known() -> None:
    clock = ManualClock()
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    log.create_topic("t", NUMBERS)
    with Producer(log, "etl", buffer="inline") as producer:
        for number in range(4):
            for commits in (False, True):
                producer.begin()
                producer.send("t", [{"n": number if commits else 100 + number}])
                producer.flush()
                producer.commit() if commits else producer.abort()
            log.maintain("seal")
    per_round = log.offsets("t")[0].log_end // 4
    assert _indexes(log) == 4
    log.delete_records("t", 2 * per_round)
    (partition,) = log.state.partitions.values()
    assert partition.sealed.aborted_records == 2
    for _ in range(3):
        clock.sleep(GRACE.total_seconds() + 1)
        log.create_topic(f"tick-{log.refresh().entry}", NUMBERS)
        log.vacuum(GRACE)
    assert _indexes(log) == 2, "the abort indexes above the log start"
    opened = TxnLog.open(log.store, clock=clock)
    numbers = opened.read("t").read_all()["n"].to_pylist()
    assert numbers == [2, 3], "what was aborted above it is filtered"
    uncommitted = opened.read("t", isolation="read_uncommitted").read_all()["n"].to_pylist()
    assert uncommitted == [102, 2, 103, 3]
    assert opened.verify(deep=True).ok


def _indexes(log: TxnLog) -> int:
    """Return the number of abort indexes in the store."""
    return sum(info.key.endswith(".txnindex") for info in log.store.list(""))
