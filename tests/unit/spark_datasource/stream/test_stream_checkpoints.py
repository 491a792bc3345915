"""Checkpoints of streaming reads: their offsets, what is loss and what is none, what changes under a query,
bad options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_datasource.stream.offsets import VERSION, TopicPosition, parse_stream_offset
from spark_datasource.stream.progress import without_loss
from spark_datasource.stream.reader import TxnLogStreamReader
from tests.integration.clients.failing import NUMBERS, rows
from tests.unit.spark_datasource.reading import (
    ALL,
    StillClock,
    append,
    batch,
    make_reader,
    make_source,
    read,
    run,
    schema_of,
    travelled,
)
from txnformat.core.records.state import PartitionState
from txnformat.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageError,
    TxnLogError,
    UnsupportedFeatureError,
)
from txnformat.keys import SNAPSHOT_PREFIX, boundary_key, entry_key, parse_snapshot_key
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange, TopicPartition
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from writers.bulk import BulkAppend

Open = Callable[..., TxnLogStreamReader]


# --- checkpoints --------------------------------------------------------------------------------------------


def test_an_offset_is_canonical_and_small(memory_log: TxnLog, start: Open) -> None:
    append(memory_log, 1)
    offset = start(startingOffsets="earliest").initialOffset()
    topic_id = memory_log.state.topic_ids["t"]
    assert offset == {
        "version": VERSION,
        "log_id": memory_log.log_id,
        "order": "offset",
        "entry": memory_log.state.entry,
        "topics": {topic_id: {"name": "t", "offsets": [0, 0]}},
        "seen": {"entry": memory_log.state.entry, "sha256": memory_log.state.entry_sha256},
        "initial": True,
    }
    assert json.dumps(parse_stream_offset(travelled(offset)).to_json()) == json.dumps(offset)
    memory_log.create_topic("wide", NUMBERS, partitions=1_000)
    wide = make_reader(memory_log.store, schema_of(memory_log, "wide"), topic="wide").initialOffset()
    assert len(json.dumps(wide)) < 10_000


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_query_goes_on_after_seals_and_without_the_old_entries(
    memory_log: TxnLog, start: Open, clock: StillClock, order: str
) -> None:
    """What a bundle and a snapshot have taken over may be deleted: a checkpoint needs none of it, opened anew
    or not."""
    store = memory_log.store
    reader = start(order=order, startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    append(memory_log, 0)
    middle = travelled(reader.latestOffset(begin, ALL))
    for number in range(1, 130):
        append(memory_log, number)
    memory_log.maintain("seal")
    memory_log.close()  # a snapshot that is on its way
    snapshots = [parse_snapshot_key(one.key) for one in store.list(SNAPSHOT_PREFIX)]
    newest = max(one.born for one in snapshots if one is not None)
    assert newest > parse_stream_offset(middle).entry
    store.create(boundary_key(newest), b"{}")
    for number in range(newest):
        store.delete(entry_key(number))
    clock.now_ms += 3_600_000  # nothing is deleted sooner
    for opened in (reader, start(order=order, startingOffsets="earliest")):
        assert [n for read in run(opened, memory_log, begin) for n in read] == list(range(130))
        assert [n for read in run(opened, memory_log, middle) for n in read] == list(range(1, 130))


OFFSET = {"version": VERSION, "log_id": "x", "order": "offset", "entry": 1, "topics": {}}


@pytest.mark.parametrize(
    "value",
    [
        None,
        17,
        "text",
        [],
        {},
        {"orders": {"0": 5}},  # of the Kafka source
        {**OFFSET, "version": True},
        {**OFFSET, "version": 1},
        {name: value for name, value in OFFSET.items() if name != "version"},
        {**OFFSET, "order": "time"},
        {**OFFSET, "entry": -2},
        {**OFFSET, "entry": 1.5},
        {**OFFSET, "log_id": 7},
        {**OFFSET, "topics": []},
        {**OFFSET, "topics": {"t": {"name": "t", "offsets": [-1]}}},
        {**OFFSET, "topics": {"t": {"name": "t", "offsets": [2**63]}}},
        {**OFFSET, "topics": {"t": {"1": 4}}},
        {**OFFSET, "seen": {"entry": 1, "sha256": 7}},
    ],
)
def test_what_is_no_offset_is_one_clear_error(start: Open, value: Any) -> None:
    assert parse_stream_offset(OFFSET).to_json() == OFFSET
    with pytest.raises(InvalidInputError, match="not an offset of txnlog") as caught:
        start().latestOffset(value if value is not None else {}, ALL)
    assert caught.value.kind == "invalid-checkpoint"


def test_an_offset_that_is_nested_too_deep_is_no_offset() -> None:
    value = OFFSET
    for _ in range(100_000):
        value = {**OFFSET, "began": value}
    with pytest.raises(InvalidInputError, match="not an offset of txnlog"):
        parse_stream_offset(value)


def test_a_newer_format_asks_for_an_upgrade(start: Open) -> None:
    offset = {**travelled(start().initialOffset()), "version": VERSION + 1}
    with pytest.raises(UnsupportedFeatureError, match="newer version"):
        start().latestOffset(offset, ALL)


def test_a_checkpoint_of_another_log_order_or_state_is_refused(memory_log: TxnLog, start: Open) -> None:
    append(memory_log, 1)
    offset = travelled(start(startingOffsets="earliest").initialOffset())
    for other in ({"log_id": "0" * 36}, {"entry": memory_log.state.entry + 1}):
        with pytest.raises(ConflictError) as caught:
            start().latestOffset({**offset, **other}, ALL)
        assert caught.value.kind == "checkpoint-of-other-log"
        with pytest.raises(ConflictError):
            start().partitions(offset, {**offset, **other})
    with pytest.raises(InvalidInputError, match=r'option\("order", "offset"\)') as refused:
        start(order="commit").latestOffset(offset, ALL)
    assert refused.value.kind == "checkpoint-of-other-order"


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_log_that_was_restored_and_has_grown_past_the_checkpoint_is_another_history(order: str) -> None:
    """Its id, its entries' numbers and its offsets fit: records of the new history would be taken for
    read.
    """
    store = MemoryStore()
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    append(log, 1)
    backup = {info.key: store.get(info.key) for info in store.list("")}
    append(log, 2, 3)
    schema = schema_of(log, "t")
    reader = make_reader(store, schema, topic="t", order=order, startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    end = travelled(reader.latestOffset(begin, ALL))
    restored = MemoryStore()
    for key, data in backup.items():
        restored.put(key, data or b"")
    log = TxnLog.open(restored)
    for numbers in ((4, 5), (6,), (7,)):
        again = make_reader(restored, schema, topic="t", order=order, startingOffsets="earliest")
        with pytest.raises(ConflictError, match="older state") as caught:
            again.latestOffset(end, ALL)
        assert caught.value.kind == "checkpoint-of-other-log"
        with pytest.raises(ConflictError, match="older state"):
            again.partitions(begin, end)
        append(log, *numbers)


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_an_offset_from_a_checkpoint_is_recognized_with_one_request(
    memory_log: TxnLog, start: Open, order: str
) -> None:
    assert isinstance(memory_log.store, CountingStore)
    append(memory_log, 1)
    begin = travelled(start(order=order, startingOffsets="earliest").latestOffset())
    append(memory_log, 2)
    reader, other = start(order=order), start(order=order)
    with memory_log.store.measure() as measured:
        end = travelled(reader.latestOffset(begin, ALL))
        reader.partitions(begin, end)
    assert measured.counts.count() == 1 + 1
    with memory_log.store.measure() as measured:
        reader.latestOffset(end, ALL)
    assert measured.counts.count() == 1
    # An entry that a bundle and a snapshot have taken over may be gone: then it cannot be told any more.
    memory_log.store.delete(entry_key(begin["seen"]["entry"]))
    assert read(other, memory_log, begin, end) == [2]


# --- loss ---------------------------------------------------------------------------------------------------


def lost(log: TxnLog, log_start: int, log_end: int) -> Any:
    """Return a state whose topic t begins and ends elsewhere, as after a truncation."""
    key = TopicPartition(log.state.topic_ids["t"], 0)
    partition = replace(log.state.partitions.get(key, PartitionState()), log_start=log_start, log_end=log_end)
    return replace(log.state, partitions={**log.state.partitions, key: partition})


@pytest.mark.parametrize(("log_start", "log_end", "clipped"), [(3, 9, 3), (0, 1, 1)])
def test_real_loss_is_an_alarm_and_may_be_allowed(
    memory_log: TxnLog, start: Open, log_start: int, log_end: int, clipped: int
) -> None:
    append(memory_log, 1, 2)
    offset = parse_stream_offset(travelled(start().initialOffset()))
    state = lost(memory_log, log_start, log_end)
    chosen = [state.topic("t")]
    with pytest.raises(OffsetOutOfRangeError) as caught:
        without_loss(state, offset, chosen, fail_on_data_loss=True)
    assert caught.value.kind == "data-loss"
    kept = without_loss(state, offset, chosen, fail_on_data_loss=False)
    assert kept.offsets(chosen[0].topic_id) == (clipped, 0)


@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("read_to", [[3, 0], [0, 0, 1]], ids=["beyond the end", "a partition too many"])
def test_offsets_that_are_not_in_the_log_are_an_alarm_also_when_a_batch_is_repeated(
    memory_log: TxnLog, start: Open, order: str, read_to: list[int]
) -> None:
    append(memory_log, 1, 2)
    end = travelled(start(order=order, startingOffsets="earliest").latestOffset())
    del end["began"]
    begin = {
        **end,
        "entry": 1,
        "topics": {key: {**one, "offsets": read_to} for key, one in end["topics"].items()},
    }
    append(memory_log, 3, partition=1)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(order=order).latestOffset(begin, ALL)
    assert caught.value.kind == "data-loss"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        start(order=order).partitions(begin, end)
    assert caught.value.kind == "data-loss"
    lossy = start(order=order, failOnDataLoss="false")
    repeated, *rest = read(lossy, memory_log, begin, end), *run(lossy, memory_log, end)
    assert (repeated, rest) == ([] if read_to == [3, 0] else [1, 2], [[3]])


def test_a_plan_goes_on_with_what_is_there_where_loss_is_allowed(memory_log: TxnLog, start: Open) -> None:
    append(memory_log, 1, 2)
    state = lost(memory_log, 1, 2)
    topic = state.topic("t")
    for allowed, expected in (("false", OffsetRange(1, 1)), ("true", OffsetRange(0, 0))):
        reader = start(failOnDataLoss=allowed)
        assert reader._ranges(state, topic, [1, 0], [0, 0])[0] == expected


def test_a_topic_that_is_gone_is_an_alarm_and_one_that_is_not_read_any_more_is_none(
    memory_log: TxnLog, start: Open
) -> None:
    offset = parse_stream_offset(travelled(start().initialOffset()))
    other = memory_log.state.topic("u")
    kept = without_loss(memory_log.state, offset, [other], fail_on_data_loss=True)
    assert kept.topics == {other.topic_id: TopicPosition("u", (0,))}
    topic_id = memory_log.state.topic_ids["t"]
    gone = replace(
        memory_log.state,
        topics={key: topic for key, topic in memory_log.state.topics.items() if key != topic_id},
        topic_ids={"u": memory_log.state.topic_ids["u"]},
    )
    with pytest.raises(NotFoundError, match="deleted or recreated") as caught:
        without_loss(gone, offset, [], fail_on_data_loss=True)
    assert caught.value.kind == "topic-gone"
    assert without_loss(gone, offset, [], fail_on_data_loss=False).topics == {}


def test_offsets_without_a_committed_record_are_no_loss(memory_log: TxnLog, start: Open) -> None:
    reader = start(startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    with Producer(memory_log, "gone", buffer="inline") as gone:
        gone.begin()
        gone.send("t", rows(1, 2, 3), partition=0)
        gone.flush()
        gone.abort()
    assert [n for read in run(reader, memory_log, begin) for n in read] == []
    append(memory_log, 4)
    assert [n for read in run(start(), memory_log, begin) for n in read] == [4]


def test_from_read_uncommitted_to_read_committed_nothing_is_lost_or_read_twice(
    memory_log: TxnLog, start: Open
) -> None:
    with Producer(memory_log, "slow", buffer="inline") as slow:
        slow.begin()
        slow.send("t", rows(1), partition=0)
        slow.flush()
        dirty = start(isolation="read_uncommitted", startingOffsets="earliest")
        begin = travelled(dirty.initialOffset())
        end = travelled(dirty.latestOffset(begin, ALL))
        assert read(dirty, memory_log, begin, end) == [1]
        clean = start()
        assert travelled(clean.latestOffset(end, ALL)) == end
        slow.commit()
    append(memory_log, 2)
    assert run(start(), memory_log, end) == [[2]]


# --- what changes under it ----------------------------------------------------------------------------------


def test_added_columns_do_not_concern_a_query_and_other_types_stop_it(
    memory_log: TxnLog, start: Open
) -> None:
    memory_log.create_topic("s", pa.schema([("n", pa.int32())]))
    reader = make_reader(memory_log.store, schema_of(memory_log, "s"), topic="s", startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    memory_log.alter_topic("s", add_columns=pa.schema([("more", pa.string())]))
    with BulkAppend(memory_log) as bulk:
        bulk.send("s", pa.table({"n": pa.array([1], pa.int32())}), 0)
        bulk.commit()
    middle = travelled(reader.latestOffset(begin, ALL))
    assert batch(reader, memory_log, begin, middle) == [{"n": 1}]
    memory_log.alter_topic("s", widen={"n": pa.int64()})
    with pytest.raises(
        InvalidInputError, match=r"load\(\) it again and start from the same checkpoint"
    ) as caught:
        reader.latestOffset(middle, ALL)
    assert caught.value.kind == "schema-mismatch"
    append(memory_log, 2**40, topic="s")
    again = make_reader(memory_log.store, schema_of(memory_log, "s", "n"), topic="s", columns="n")
    assert run(again, memory_log, middle) == [[2**40]]


def test_a_log_with_news_is_not_asked_whether_it_is_the_same(
    memory_log: TxnLog, start: Open, clock: StillClock
) -> None:
    assert isinstance(memory_log.store, CountingStore)
    reader = start(startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    for number in range(4):
        append(memory_log, number)
        clock.now_ms += 40_000
        begin = travelled(reader.latestOffset(begin, ALL))
        clock.now_ms += 40_000
        with memory_log.store.measure() as measured:
            reader.latestOffset(begin, ALL)
        assert measured.counts.count() == 1


class _Failing(CountingStore):
    """Fails reads for a while, as a store does that is overloaded."""

    failures = 0
    transient = True

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        if self.failures:
            self.failures -= 1
            raise StorageError("the store is busy", transient=self.transient)
        return super().get(key, bytes_max)


def test_reads_that_fail_for_now_are_repeated_for_a_minute(clock: StillClock) -> None:
    store = _Failing(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    reader = make_reader(store, schema_of(log, "t"), clock, topic="t", startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    append(log, 1)
    store.failures = 6
    end = travelled(reader.latestOffset(begin, ALL))
    assert end != begin
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    store.failures = 1_000
    clock.slept.clear()
    with pytest.raises(StorageError, match="busy"):
        reader.latestOffset(end, ALL)
    assert 60 <= sum(clock.slept) < 70
    store.failures = 0
    assert travelled(reader.latestOffset(end, ALL)) == end, "and goes on once the store is back"
    store.failures, store.transient = 1, False
    clock.slept.clear()
    with pytest.raises(StorageError, match="busy"):
        reader._open.follow()
    assert clock.slept == [], "what will not pass is not waited for"


def test_a_task_waits_while_the_store_fails_for_now(clock: StillClock) -> None:
    store = _Failing(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    append(log, 1)
    log.maintain("seal")  # its sidecar is fetched by the task
    reader = make_reader(store, schema_of(log, "t"), clock, topic="t", startingOffsets="earliest")
    begin = travelled(reader.initialOffset())
    end = travelled(reader.latestOffset(begin, ALL))
    store.failures = 2
    assert read(reader, log, begin, end) == [1]
    assert store.failures == 0


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"startingOffsets": '{"0": 99}'}, OffsetOutOfRangeError, "got=`99`"),
        ({"startingOffsets": '{"7": 0}'}, NotFoundError, "no such partition"),
        ({"startingOffsets": '{"entry": 99}', "order": "commit"}, OffsetOutOfRangeError, "got=`99`"),
        ({"startingOffsets": '{"0": 1}', "order": "commit"}, InvalidInputError, "with order commit use"),
        ({"topic": "t,nowhere"}, NotFoundError, "nowhere"),
        ({"topic": "t", "subscribePattern": "u"}, InvalidInputError, "topic or subscribePattern, not both"),
        ({"endingOffsets": "latest"}, InvalidInputError, "endingOffsets is for batch reads only"),
        ({"versionAsOf": "1"}, InvalidInputError, "versionAsOf is for batch reads only"),
        ({"startingOffsets": '{"ordres": {"0": 1}}', "subscribePattern": "t|u"}, NotFoundError, "ordres"),
        ({"subscribePattern": "t{9999999999}"}, InvalidInputError, "not a regular expression"),
        ({"subscribePattern": "(" * 10_000}, InvalidInputError, "not a regular expression"),
        ({"startingOffsets": f'{{"{"1" * 5_000}": 1}}'}, InvalidInputError, "no partition and offset"),
        ({"maxBytesPerTrigger": "1" * 5_000}, InvalidInputError, "use a number of bytes"),
        ({"isolation": "snapshot"}, InvalidInputError, "read_committed or read_uncommitted"),
        (
            {"isolation": "read_uncommitted", "order": "commit"},
            InvalidInputError,
            "reads committed records only",
        ),
        ({"maxRowsPerTrigger": 5, "maxOffsetsPerTrigger": 6}, InvalidInputError, "mean the same, but"),
    ],
)
def test_bad_options_are_one_clear_error_when_spark_asks_for_an_offset(
    memory_log: TxnLog, options: dict[str, Any], error: type[TxnLogError], text: str
) -> None:
    given = options if "subscribePattern" in options else {"topic": "t", **options}
    with pytest.raises(error, match=text):
        make_reader(memory_log.store, schema_of(memory_log, "t"), **given).initialOffset()


def test_a_batch_read_refuses_what_only_streams_know(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS)
    source = make_source(str(tmp_path / "log"), topic="t", maxRowsPerTrigger=5)
    with pytest.raises(InvalidInputError, match="maxRowsPerTrigger is for streaming reads only"):
        source.reader(source.schema())


def test_topics_that_are_read_together_have_the_same_columns(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("a", pa.schema([("n", pa.int64()), ("x", pa.string())]))
    log.create_topic("b", pa.schema([("n", pa.int64()), ("x", pa.int32())]))
    with pytest.raises(InvalidInputError, match="column 'x' is string in a, int in b"):
        make_source(str(tmp_path / "log"), topic="a,b").schema()
    assert make_source(str(tmp_path / "log"), topic="a,b", columns="n,_topic").schema().names == [
        "n",
        "_topic",
    ]


def test_nothing_is_raised_or_looked_up_before_spark_asks_for_an_offset() -> None:
    """What a constructor raises, Spark hides behind an error of its own."""
    source = make_source("/nowhere/at/all", topic="t")
    reader = source.streamReader(StructType())
    with pytest.raises(NotFoundError) as caught:
        reader.initialOffset()
    assert caught.value.kind == "no-log"
