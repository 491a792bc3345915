"""The stream reader, driven as Spark drives it: where it begins, when it looks, what it asks for and what it
reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from spark_datasource.read.splits import Split
from spark_datasource.stream.reader import TxnLogStreamReader
from tests.integration.clients.failing import NUMBERS, rows
from tests.unit.spark_datasource.reading import (
    ALL,
    LIMITED,
    StillClock,
    append,
    batch,
    make_reader,
    offsets,
    read,
    run,
    schema_of,
    travelled,
)
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.latency import FarStore

Open = Callable[..., TxnLogStreamReader]


# --- where it begins ----------------------------------------------------------------------------------------


def test_a_new_query_begins_at_the_end_unless_it_is_told_otherwise(memory_log: TxnLog, start: Open) -> None:
    append(memory_log, 1, 2)
    assert offsets(start().initialOffset()) == [[2, 0]]
    assert offsets(start(startingOffsets="earliest").initialOffset()) == [[0, 0]]
    assert offsets(start(startingOffsets='{"0": 1}').initialOffset()) == [[1, 0]]
    assert offsets(start(startingOffsets='{"t": {"0": -1, "1": -2}}').initialOffset()) == [[2, 0]]
    at = memory_log.state.timestamp_ms
    assert offsets(start(startingTimestamp=at).initialOffset()) == [[0, 0]]
    assert offsets(start(startingTimestamp=at + 1).initialOffset()) == [[2, 0]]
    assert offsets(start(startingTimestamp=at + 10**9).initialOffset()) == [[2, 0]]


def test_in_commit_order_a_query_begins_at_an_entry(memory_log: TxnLog, start: Open) -> None:
    entry = append(memory_log, 1)
    append(memory_log, 2)
    at = memory_log.state.timestamp_ms
    for options, expected in (
        ({}, []),
        ({"startingOffsets": "earliest"}, [[1, 2]]),
        ({"startingOffsets": f'{{"entry": {entry}}}'}, [[1, 2]]),
        ({"startingOffsets": f'{{"entry": {entry + 1}}}'}, [[2]]),
        ({"startingOffsets": f'{{"entry": {entry + 2}}}'}, []),
        ({"startingTimestamp": at}, [[2]]),
        ({"startingTimestamp": 0}, [[1, 2]]),
        ({"startingTimestamp": at + 1}, []),
    ):
        assert run(start(order="commit", **options), memory_log) == expected, options


def test_the_first_batch_that_is_repeated_begins_where_it_began(memory_log: TxnLog, start: Open) -> None:
    """Spark writes no beginning of a query's first batch down: after a crash it asks for the initial offset
    again."""
    for order in ("offset", "commit"):
        append(memory_log, 1)
        reader = start(order=order)
        began = travelled(reader.initialOffset())
        append(memory_log, 2, 3)
        end = travelled(reader.latestOffset(began, ALL))
        append(memory_log, 4)
        again = start(order=order)  # killed before its first batch was done
        begin = travelled(again.initialOffset())
        assert begin != began
        assert read(again, memory_log, begin, end) == [2, 3]
        assert run(again, memory_log, end) == [[4]]


def test_a_first_batch_without_a_record_may_be_repeated(memory_log: TxnLog, start: Open) -> None:
    """Spark writes it down, too: killed in it, the query begins again, and what came meanwhile is the next
    batch's."""
    for order in ("offset", "commit"):
        append(memory_log, 1)
        reader = start(order=order)
        began = travelled(reader.initialOffset())
        end = travelled(reader.latestOffset(began, ALL))
        assert end == began
        append(memory_log, 2)
        again = start(order=order)
        assert read(again, memory_log, travelled(again.initialOffset()), end) == []
        assert run(again, memory_log, end) == [[2]]


def test_a_batch_begins_where_the_checkpoint_says_though_the_query_would_begin_later(
    memory_log: TxnLog, start: Open
) -> None:
    """pyspark 4.1 does not say that there is a checkpoint: the reader makes up a beginning, and a record
    comes after it."""
    for order in ("offset", "commit"):
        append(memory_log, 1)
        checkpoint = travelled(start(order=order).initialOffset())
        append(memory_log, 2)
        again = start(order=order)
        again.initialOffset()
        append(memory_log, 3)
        assert read(again, memory_log, checkpoint, travelled(again.latestOffset())) == [2, 3]


def test_pyspark_4_1_says_no_start(memory_log: TxnLog, start: Open) -> None:
    for order in ("offset", "commit"):
        append(memory_log, 1)
        reader = start(order=order)
        first = travelled(reader.latestOffset())
        assert read(reader, memory_log, travelled(reader.initialOffset()), first) == []
        append(memory_log, 2)
        second = travelled(reader.latestOffset())
        assert read(reader, memory_log, first, second) == [2]
        assert travelled(reader.latestOffset()) == second
        append(memory_log, 3)
        again = start(order=order)  # from a checkpoint, which it is not told
        third = travelled(again.latestOffset())
        assert read(again, memory_log, second, third) == [3]
        assert travelled(again.latestOffset()) == third
        again = start(order=order, startingOffsets="earliest")
        assert read(again, memory_log, second, travelled(again.latestOffset())) == [3]


# --- when it looks ------------------------------------------------------------------------------------------


def test_an_idle_trigger_is_one_get_and_comes_a_second_after_the_one_before(
    memory_log: TxnLog, start: Open, clock: StillClock
) -> None:
    assert isinstance(memory_log.store, CountingStore)
    append(memory_log, 1)
    for order in ("offset", "commit"):
        reader = start(order=order)
        begin = travelled(reader.initialOffset())
        clock.slept.clear()
        for _ in range(3):
            reader.latestOffset(begin, ALL)
        assert clock.slept == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0], "the first look is at once, and waits double"
        clock.slept.clear()
        with memory_log.store.measure() as measured:
            for _ in range(20):
                assert travelled(reader.latestOffset(begin, ALL)) == begin
                reader.reportLatestOffset()
        assert measured.counts.count() == measured.counts.count(RequestKind.GET) == 20
        assert clock.slept == [1.0] * 20


def test_a_trigger_that_found_something_is_followed_by_the_next_at_once(
    memory_log: TxnLog, start: Open, clock: StillClock
) -> None:
    reader = start(startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    for number in range(2):  # of more commits the rhythm would count, which is the machine's
        append(memory_log, number)
        begin = travelled(reader.latestOffset(begin, ALL))
    assert clock.slept == []
    reader.latestOffset(begin, ALL)
    clock.now_ms += 30
    reader.latestOffset(begin, ALL)
    assert clock.slept[0] == 0.02, "50 ms after the look before"


def test_what_was_read_to_its_end_is_not_looked_at_again_in_commit_order(
    memory_log: TxnLog, start: Open
) -> None:
    """The floors of an offset say so, in whichever process: sealed segments below them are not opened."""
    assert isinstance(memory_log.store, CountingStore)
    for number in range(4):
        append(memory_log, 2 * number)
        append(memory_log, 2 * number + 1, partition=1)
        memory_log.maintain("seal")
    reader = start(order="commit", startingOffsets="earliest")
    begin = travelled(reader.latestOffset(travelled(reader.initialOffset()), ALL))
    append(memory_log, 8)
    memory_log.maintain("seal")
    end = travelled(start(order="commit").latestOffset(begin, ALL))
    again = start(order="commit")
    with memory_log.store.measure() as measured:
        assert read(again, memory_log, begin, end) == [8]
    assert measured.counts.count(RequestKind.GET, KeyClass.SIDECAR) == 1


def test_what_concerns_other_topics_is_no_news(memory_log: TxnLog, start: Open) -> None:
    """A query that writes to the log it reads would run for ever."""
    append(memory_log, 1)
    for order in ("offset", "commit"):
        reader = start(order=order)
        begin = travelled(reader.initialOffset())
        append(memory_log, 7, topic="u")
        memory_log.maintain("seal")
        assert travelled(reader.latestOffset(begin, ALL)) == begin


def test_a_partition_without_records_is_no_news(memory_log: TxnLog, start: Open) -> None:
    append(memory_log, 1)
    for order in ("offset", "commit"):
        reader = start(order=order)
        begin = travelled(reader.initialOffset())
        memory_log.alter_topic("t", partitions=memory_log.refresh().topic("t").partitions + 1)
        assert travelled(reader.latestOffset(begin, ALL)) == begin


def test_available_now_reads_what_was_there_when_it_began(memory_log: TxnLog, start: Open) -> None:
    for order in ("offset", "commit"):
        append(memory_log, 1, 2)
        reader = start(order=order, startingOffsets="earliest", maxRowsPerTrigger=1)
        begin = travelled(reader.initialOffset())
        reader.prepareForTriggerAvailableNow()
        expected = [
            n for read in run(start(order=order, startingOffsets="earliest"), memory_log) for n in read
        ]
        append(memory_log, 3)
        assert [n for read in run(reader, memory_log, begin, LIMITED) for n in read] == expected


def test_an_available_now_query_that_is_done_asks_for_nothing(memory_log: TxnLog, start: Open) -> None:
    assert isinstance(memory_log.store, CountingStore)
    append(memory_log, 1)
    reader = start(startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    reader.prepareForTriggerAvailableNow()
    with memory_log.store.measure() as measured:
        reader.latestOffset(begin, ALL)
    assert measured.counts.count() == 0


# --- what it reads ------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_offset_order_back_and_not_commit_order(
    memory_log: TxnLog, start: Open
) -> None:
    readers = {order: start(order=order, startingOffsets="earliest") for order in ("offset", "commit")}
    dirty = start(isolation="read_uncommitted", startingOffsets="earliest")
    with Producer(memory_log, "slow", buffer="inline") as slow:
        slow.begin()
        slow.send("t", rows(1), partition=0)
        slow.flush()
        append(memory_log, 2)
        append(memory_log, 3, partition=1)
        assert run(readers["offset"], memory_log) == [[3]]
        assert run(readers["commit"], memory_log) == [[2, 3]]
        assert run(dirty, memory_log) == [[1, 2, 3]]
        slow.commit()
    assert run(start(startingOffsets="earliest"), memory_log) == [[1, 2, 3]]
    assert run(start(order="commit", startingOffsets="earliest"), memory_log) == [[2, 1, 3]]


def test_end_expired_ends_what_holds_the_stream_back(memory_log: TxnLog, start: Open) -> None:
    with Producer(memory_log, "slow", buffer="inline", transaction_timeout_ms=1_000) as slow:
        slow.begin()
        slow.send("t", rows(1), partition=0)
        slow.flush()
        append(memory_log, 2)
        reader = start(startingOffsets="earliest", endExpired="true")
        begin = travelled(reader.initialOffset())
        assert travelled(reader.latestOffset(begin, ALL)) == begin
        assert isinstance(memory_log.store, CountingStore)
        far = memory_log.store._inner
        assert isinstance(far, FarStore)
        inner = far._inner
        assert isinstance(inner, MemoryStore)
        later = inner.store_time_ms() + 60_000
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryStore, "store_time_ms", lambda self: later)
            reader._followed._clock.now_ms = later  # type: ignore[union-attr]
            end = travelled(reader.latestOffset(begin, ALL))
        assert read(reader, memory_log, begin, end) == [2]


def test_new_partitions_and_topics_are_read_from_their_first_record(memory_log: TxnLog, start: Open) -> None:
    for order in ("offset", "commit"):
        reader = start(order=order, subscribePattern=f"t|new-{order}.*", columns="n")
        begin = travelled(reader.initialOffset())
        memory_log.alter_topic("t", partitions=memory_log.refresh().topic("t").partitions + 1)
        append(memory_log, 1, partition=memory_log.state.topic("t").partitions - 1)
        memory_log.create_topic(f"new-{order}-1", NUMBERS)
        append(memory_log, 2, topic=f"new-{order}-1")
        end = travelled(reader.latestOffset(begin, ALL))
        assert sorted(read(reader, memory_log, begin, end)) == [1, 2]
        again = start(order=order, subscribePattern=f"t|new-{order}.*", columns="n")
        assert sorted(read(again, memory_log, travelled(again.initialOffset()), end)) == [1, 2]


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_task_gets_the_topics_that_it_reads_and_no_others(
    memory_log: TxnLog, start: Open, order: str
) -> None:
    """Each task's split is pickled by itself: with the schemas of all topics, hundreds of them made splits of
    megabytes."""
    names = [f"many-{number}" for number in range(12)]
    for name in names:
        memory_log.create_topic(name, NUMBERS)
    for number, name in enumerate(names):
        append(memory_log, number, topic=name)
    memory_log.maintain("seal")
    for number, name in enumerate(names):
        append(memory_log, 100 + number, topic=name)
    reader = start(
        subscribePattern="many-.*",
        order=order,
        startingOffsets="earliest",
        columns="n,_topic",
        minPartitions=6,
    )
    begin = travelled(reader.initialOffset())
    end = travelled(reader.latestOffset(begin, ALL))
    splits = [split for split in reader.partitions(begin, end) if isinstance(split, Split)]
    assert len(splits) >= 6
    assert max(len(split.topics) for split in splits) <= 4
    found = batch(reader, memory_log, begin, end)
    assert sorted(row["n"] for row in found) == [*range(12), *range(100, 112)]
    assert all(row["_topic"] == f"many-{row['n'] % 100}" for row in found)


def test_a_pattern_without_a_topic_yet_has_no_schema(memory_log: TxnLog) -> None:
    with pytest.raises(NotFoundError, match="no topic matches the pattern"):
        make_reader(memory_log.store, schema_of(memory_log, "t"), subscribePattern="z.*").initialOffset()


def test_a_where_that_does_not_fit_is_told_of_as_such(memory_log: TxnLog, start: Open) -> None:
    reader = start(where="nowhere > 1")
    with pytest.raises(InvalidInputError, match="nowhere") as caught:
        reader.latestOffset(reader.initialOffset(), ALL)
    assert caught.value.kind == "invalid-where"
    assert "load() it again" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ReadAllAvailable()),
        ({"maxRowsPerTrigger": 5}, ReadMaxRows(5)),
        ({"maxOffsetsPerTrigger": 5}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
    ],
)
def test_the_limit_that_spark_is_told(start: Open, options: dict[str, Any], expected: object) -> None:
    assert start(**options).getDefaultReadLimit() == expected


def test_limits_count_unless_spark_wants_all(memory_log: TxnLog, start: Open) -> None:
    append(memory_log, 1, 2, 3, 4)
    reader = start(startingOffsets="earliest", maxRowsPerTrigger=3)
    assert run(reader, memory_log, limit=LIMITED) == [[1, 2, 3], [4]]
    assert run(reader, memory_log, limit=ALL) == [[1, 2, 3, 4]]  # Trigger.Once


def test_a_transaction_larger_than_the_limit_comes_whole_in_commit_order(
    memory_log: TxnLog, start: Open
) -> None:
    append(memory_log, 1, 2, 3, 4)
    append(memory_log, 5)
    append(memory_log, 6)
    reader = start(order="commit", startingOffsets="earliest", maxRowsPerTrigger=2)
    assert run(reader, memory_log, limit=LIMITED) == [[1, 2, 3, 4], [5, 6]]


def test_the_report_says_how_far_behind_the_query_is(memory_log: TxnLog, start: Open) -> None:
    append(memory_log, 1, 2, 3)
    reader = start(startingOffsets="earliest", maxRowsPerTrigger=1)
    assert reader.reportLatestOffset() is None, "before the first trigger nothing is known"
    reader.latestOffset(travelled(reader.initialOffset()), LIMITED)
    report = reader.reportLatestOffset()
    assert report is not None
    assert (offsets(report), report["lag"]) == ([[3, 0]], {"offsets": 2, "topics": {"t": 2}})
    by_commit = start(order="commit", startingOffsets="earliest")
    by_commit.latestOffset(travelled(by_commit.initialOffset()), ALL)
    append(memory_log, 4)
    by_commit._open.follow()
    found = by_commit.reportLatestOffset()
    assert found is not None
    assert found["lag"] == {"entries": 1}


def test_what_a_batch_says_of_open_transactions_stays_when_it_is_repeated(
    memory_log: TxnLog, start: Open
) -> None:
    with Producer(memory_log, "slow", buffer="inline") as slow:
        slow.begin()
        slow.send("t", rows(1), partition=0)
        slow.flush()
        dirty = start(isolation="read_uncommitted", columns="n,_commit_entry", startingOffsets="earliest")
        begin = travelled(dirty.initialOffset())
        end = travelled(dirty.latestOffset(begin, ALL))
        expected = [{"n": 1, "_commit_entry": None}]
        assert batch(dirty, memory_log, begin, end) == expected
        slow.commit()
    again = start(isolation="read_uncommitted", columns="n,_commit_entry", startingOffsets="earliest")
    assert batch(again, memory_log, begin, end) == expected
    memory_log.maintain("seal")
    again = start(isolation="read_uncommitted", columns="n,_commit_entry", startingOffsets="earliest")
    assert batch(again, memory_log, begin, end) == expected
