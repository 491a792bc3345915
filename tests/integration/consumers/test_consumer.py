"""Consumer: what it reads, in which order, and where it then stands."""

from __future__ import annotations

import datetime
from random import Random

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS, rows
from tests.integration.consumers.consuming import World, drained, numbers, refuses
from txnformat.reading.visible import count_records
from txnformat.types import IsolationLevel, OffsetRange, TopicPartition
from txnlog import Consumer, InternalError, Producer, TxnLog

OWN = ["n", "_topic", "_partition", "_offset", "_timestamp"]


def test_batches_have_the_topics_columns_and_say_where_each_record_stands() -> None:
    world = World(partitions=2)
    world.append(1, 2, partition=1)
    batch = world.consumer().poll()
    assert batch is not None
    assert batch.schema.names == OWN
    assert batch.select(OWN[:-1]).to_pylist() == [
        {"n": 1, "_topic": "t", "_partition": 1, "_offset": 0},
        {"n": 2, "_topic": "t", "_partition": 1, "_offset": 1},
    ]
    assert batch.schema.field("_timestamp").type == pa.timestamp("us", tz="UTC")
    whole = world.log.read("t", columns=OWN).read_all()
    assert pa.Table.from_batches([batch]).equals(whole)


@pytest.mark.parametrize("columns", [["_offset", "n"], ["n"], ["_producer_id", "_entry"], ["_partition"]])
def test_columns_are_those_that_are_asked_for_and_positions_move_without_the_offset(
    columns: list[str],
) -> None:
    world = World()
    world.append(1, 2, 3)
    with world.consumer(columns=columns) as consumer:
        first = consumer.poll(max_records=2)
        assert consumer.position("t", 0) == 2
        second = consumer.poll()
        assert first is not None
        assert second is not None
        assert first.schema.names == columns
        assert pa.Table.from_batches([first, second]).equals(
            world.log.read("t", columns=columns).read_all().combine_chunks()
        )


def test_records_as_dicts() -> None:
    world = World()
    with world.consumer(columns=["n", "_offset"]) as consumer:
        assert consumer.poll_dicts(0) == []
        world.append(7, 8)
        assert consumer.poll_dicts(0, max_records=1) == [{"n": 7, "_offset": 0}]
        assert consumer.poll_dicts(0) == [{"n": 8, "_offset": 1}]


# --- isolation ----------------------------------------------------------------------------------------------


def test_read_committed_stops_at_an_open_transaction_and_goes_on_when_it_is_decided() -> None:
    world = World(partitions=2)
    world.append(1)
    first = world.begin(10, producer="first")
    world.append(2)
    world.append(3, partition=1)
    with world.consumer(0) as consumer:
        assert drained(consumer) == [1]
        assert consumer.position("t", 0) == 2
        assert consumer.lag() == {("t", 0): 0}, "what is undecided is no lag"
        first.commit()
        assert drained(consumer) == [10, 2]
    with world.consumer(1) as consumer:
        assert drained(consumer) == [3], "the other partition was never held back"


def test_read_uncommitted_reads_what_is_open_and_what_was_aborted() -> None:
    world = World()
    world.append(1)
    world.abort(2)
    world.begin(3)
    with world.consumer(isolation="read_uncommitted") as consumer:
        assert drained(consumer) == [1, 2, 3]
        assert consumer.lag() == {("t", 0): 0}
        consumer.seek_to_beginning()
        assert consumer.lag() == {("t", 0): 3}


def test_positions_move_past_markers_and_aborted_batches_and_polling_for_them_ends() -> None:
    world = World()
    world.append(1)
    with world.consumer() as consumer:
        assert numbers(consumer.poll(0)) == [1]
        assert consumer.position("t", 0) == 2, "behind the marker"
        world.abort(2, 3)
        assert consumer.poll(0) is None
        assert consumer.position("t", 0) == 5
        world.abort(4)
        world.append(5)
        assert numbers(consumer.poll(0)) == [5], "what was aborted is passed within the same poll"
        assert consumer.position("t", 0) == 9


def test_a_position_inside_a_batch_is_that_of_the_next_record() -> None:
    world = World()
    world.append(1, 2, 3, 4)
    with world.consumer(max_poll_records=3) as consumer:
        assert numbers(consumer.poll()) == [1, 2, 3]
        assert consumer.position("t", 0) == 3
        assert numbers(consumer.poll()) == [4]
        assert consumer.position("t", 0) == 5


# --- turns --------------------------------------------------------------------------------------------------


def test_partitions_take_turns_and_one_batch_holds_as_many_of_them_as_fit() -> None:
    world = World(partitions=3)
    for partition in range(3):
        world.append(*range(10 * partition, 10 * partition + 4), partition=partition)
    with world.consumer(max_poll_records=3) as consumer:
        found = [numbers(batch) for batch in consumer.batches()]
    assert found == [[0, 1, 2], [10, 11, 12], [20, 21, 22], [3, 13, 23]]
    with world.consumer(max_poll_records=100) as consumer:
        assert numbers(consumer.poll(0)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


def test_a_batch_holds_one_topic_and_topics_take_turns() -> None:
    world = World(partitions=2)
    world.writing.create_topic("u", NUMBERS)
    for number in range(3):
        world.append(number, partition=number % 2)
        world.append(100 + number, topic="u")
    with Consumer(world.log, max_poll_records=1) as consumer:
        consumer.subscribe(["t", "u"])
        found = [numbers(batch) for batch in consumer.batches()]
        assert found == [[0], [1], [100], [2], [101], [102]]
    with Consumer(world.log) as consumer:
        consumer.subscribe(["u", "t"])
        assert [numbers(batch) for batch in consumer.batches()] == [[100, 101, 102], [0, 2, 1]]


def test_a_partition_with_much_to_read_does_not_keep_newer_records_of_another_waiting() -> None:
    world = World(partitions=2)
    world.append(*range(1_000), partition=0)
    with world.consumer(max_poll_records=1) as consumer:
        assert numbers(consumer.poll(0)) == [0]
        world.append(5_000, partition=1)
        world.clock.sleep(1)
        assert [numbers(consumer.poll(0)) for _ in range(2)] == [[5_000], [1]]


def test_a_topic_that_has_changed_begins_a_batch_of_its_own() -> None:
    world = World(partitions=2)
    world.append(1)
    with world.consumer(columns=["n"]) as consumer, world.consumer() as wide:
        assert numbers(wide.poll(0, max_records=1)) == [1]
        world.append(2, 3)
        assert numbers(wide.poll(0, max_records=1)) == [2]
        world.writing.alter_topic("t", add_columns=[pa.field("note", pa.string())])
        world.append(4, partition=1)
        world.append(5)
        wide.lag()  # a look
        found = [wide.poll(0), wide.poll(0), wide.poll(0)]
        assert [numbers(batch) for batch in found] == [[4], [3], [5]]
        assert [batch.schema.names[1] for batch in found if batch] == ["note", "_topic", "note"]
        assert drained(consumer) == [1, 2, 3, 5, 4]


def test_partitions_that_a_topic_gets_are_read_from_their_beginning() -> None:
    world = World()
    world.append(1)
    with world.consumer(auto_offset_reset="latest") as consumer, world.consumer(0) as fixed:
        assert consumer.poll(0) is None
        world.writing.alter_topic("t", partitions=3)
        world.append(2, partition=2)
        world.append(3)
        assert sorted(drained(consumer)) == [2, 3]
        assert consumer.assignment() == [("t", 0), ("t", 1), ("t", 2)]
        assert drained(fixed) == [1, 3]
        assert fixed.assignment() == [("t", 0)]


# --- where --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "found"), [("earliest", [1, 2]), ("latest", [2])])
def test_where_a_partition_without_a_position_is_begun(policy: str, found: list[int]) -> None:
    world = World()
    world.append(1)
    with world.consumer(auto_offset_reset=policy) as consumer:
        world.append(2)
        world.log.refresh()  # somebody else of this process looks
        assert drained(consumer) == found


def test_seeking() -> None:
    world = World(partitions=2)
    world.append(0, 1, 2)
    world.append(10, 11, partition=1)
    world.begin(99, partition=1)
    with world.consumer() as consumer:
        assert consumer.position("t", 0) == 0
        consumer.seek("t", 0, 2)
        assert drained(consumer) == [2, 10, 11]
        consumer.seek_to_beginning(("t", 1))
        assert drained(consumer) == [10, 11]
        consumer.seek_to_beginning()
        assert numbers(consumer.poll(0, max_records=1)) == [0]
        consumer.seek("t", 0, 0)
        assert numbers(consumer.poll(0, max_records=4)) == [10, 11, 0, 1], "and not what was fetched before"
        consumer.seek_to_beginning()
        consumer.seek_to_end(("t", 0))
        assert consumer.positions() == {("t", 0): 4, ("t", 1): 0}
        consumer.seek_to_end()
        assert consumer.positions() == {("t", 0): 4, ("t", 1): 3}, "at read_committed the last stable offset"
        assert consumer.poll(0) is None
        world.append(3)
        consumer.seek("t", 0, 6)  # an offset that only a look shows
        assert consumer.poll(0) is None


def test_seeking_by_time() -> None:
    world = World(partitions=2)
    times = []
    for number in range(4):
        world.clock.sleep(10)
        times.append(world.clock.now().wall_ms)
        world.append(number) if number != 2 else world.abort(number)
    moment = datetime.datetime.fromtimestamp(times[1] / 1_000, datetime.UTC)
    with world.consumer(0) as consumer:
        for when in (times[1], moment, moment.replace(tzinfo=None), moment.isoformat(), times[0] + 5_000):
            consumer.seek_to_time(when)
            assert consumer.position("t", 0) == 2
            assert drained(consumer) == [1, 3]
        consumer.seek_to_beginning()
        logged = consumer.poll_dicts()
        assert consumer.offsets_for_times({("t", 0): logged[1]["_timestamp"]}) == {("t", 0): 2}
        half_ms = datetime.timedelta(microseconds=500)
        assert consumer.offsets_for_times({("t", 0): logged[1]["_timestamp"] + half_ms}) == {("t", 0): 4}
        consumer.seek_to_time(times[2], ("t", 0))
        assert consumer.position("t", 0) == 4, "an aborted record is a place in the log"
        for far in (times[3] + 60_000, 2**80):
            consumer.seek_to_time(far)
            assert consumer.position("t", 0) == 8
        consumer.seek_to_time(-(2**80))
        assert consumer.position("t", 0) == 0
        world.clock.sleep(10)
        world.begin(100)
        found = consumer.offsets_for_times({("t", 0): times[3] + 1_000, ("t", 1): times[0]})
        assert found == {("t", 0): None, ("t", 1): None}, (
            "what is undecided cannot be read, and does not count"
        )
    with world.consumer(0, isolation="read_uncommitted") as consumer:
        assert consumer.offsets_for_times({("t", 0): times[3] + 1_000}) == {("t", 0): 8}


def test_seeking_by_the_time_that_records_say(log: TxnLog) -> None:
    epoch = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    late = datetime.timedelta(seconds=1)
    with Producer(log) as producer:
        for seconds in ([3, None, 5], [4, 1], [7.0007]):
            values = [None if at is None else epoch + at * late for at in seconds]
            producer.send("timed", pa.table({"at": pa.array(values, pa.timestamp("us", tz="UTC"))}))
            producer.flush()
    with Consumer(log) as consumer:
        half_ms = datetime.timedelta(microseconds=500)
        for when, offset in [(0, 0), (3, 0), (4, 2), (5, 2)]:
            assert consumer.offsets_for_times({("timed", 0): epoch + when * late}) == {("timed", 0): offset}
        assert consumer.offsets_for_times({("timed", 0): epoch + 3 * late + half_ms}) == {("timed", 0): 2}
        assert consumer.offsets_for_times({("timed", 0): epoch + 5 * late + half_ms}) == {("timed", 0): 5}
        assert consumer.offsets_for_times({("timed", 0): epoch + 7 * late + half_ms}) == {("timed", 0): 5}
        assert consumer.offsets_for_times({("timed", 0): epoch + 8 * late}) == {("timed", 0): None}
        assert consumer.offsets_for_times({("timed", 0): 2**80}) == {("timed", 0): None}
        assert consumer.offsets_for_times({("timed", 0): -(2**80)}) == {("timed", 0): 0}


@pytest.fixture
def log() -> TxnLog:
    world = World()
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    world.writing.create_topic("timed", schema, timestamp_column="at")
    return world.writing


def test_pausing_keeps_positions_and_what_is_fetched() -> None:
    world = World(partitions=2)
    world.append(0, 1, 2)
    world.append(10, 11, 12, partition=1)
    with world.consumer(max_poll_records=1) as consumer:
        assert numbers(consumer.poll(0)) == [0]
        consumer.pause(("t", 0))
        assert consumer.paused() == [("t", 0)]
        assert drained(consumer) == [10, 11, 12]
        assert consumer.position("t", 0) == 1
        with world.store.measure() as measured:
            consumer.resume()
            assert drained(consumer, 5) == [1, 2]
        assert measured.counts.bytes_read() == 0
        assert consumer.paused() == []
        consumer.pause()
        world.append(3)
        assert consumer.poll(0) is None
        consumer.resume(("t", 1))
        assert consumer.poll(0) is None
        consumer.resume(("t", 0))
        assert drained(consumer) == [3]


def test_assigning_again_goes_on_where_it_was_and_forgets_the_others() -> None:
    world = World(partitions=2)
    world.append(0, 1)
    world.append(10, 11, partition=1)
    with world.consumer(0, 1, max_poll_records=1) as consumer:
        assert [numbers(consumer.poll(0)) for _ in range(2)] == [[0], [10]]
        consumer.assign([("t", 0)])
        assert consumer.assignment() == [("t", 0)]
        consumer.assign([("t", 1), ("t", 0)])
        assert sorted(drained(consumer)) == [1, 10, 11]
        consumer.unsubscribe()
        assert consumer.assignment() == []
        consumer.subscribe(["t"])
        assert sorted(drained(consumer)) == [0, 1, 10, 11]


# --- lag ----------------------------------------------------------------------------------------------------


def test_lag_counts_what_can_be_read_and_nothing_else() -> None:
    world = World(partitions=2)
    world.append(0, 1, 2)
    world.abort(3, 4)
    world.append(5, 6)
    with world.consumer() as consumer:
        assert consumer.lag() == {("t", 0): 5, ("t", 1): 0}
        for offset, left in enumerate([5, 4, 3, 2, 2, 2, 2, 2, 1, 0, 0]):
            consumer.seek("t", 0, min(offset, 10))
            assert consumer.lag()["t", 0] == left, offset
        consumer.seek_to_beginning()
        world.begin(7)
        assert consumer.lag() == {("t", 0): 5, ("t", 1): 0}
        world.log.maintain("seal")
        for offset, left in enumerate([5, 4, 3, 2, 2, 2, 2, 2, 1, 0, 0]):
            consumer.seek("t", 0, offset)
            assert consumer.lag()["t", 0] == left, offset


def test_what_may_still_be_aborted_is_never_counted() -> None:
    world = World()
    world.append(1)
    world.begin(2)
    state = world.log.refresh()
    key = TopicPartition(state.topic_ids["t"], 0)
    assert count_records(world.log.sidecars, state, key, OffsetRange(0, 2)) == 1
    refuses(
        InternalError, "internal", lambda: count_records(world.log.sidecars, state, key, OffsetRange(0, 3))
    )
    level = IsolationLevel.READ_UNCOMMITTED
    assert count_records(world.log.sidecars, state, key, OffsetRange(0, 3), level) == 2


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_whatever_happens_each_record_comes_once_and_in_order(seed: int, isolation: str) -> None:
    """Random histories and calls; what is read is what ``log.read`` gives, and lag what is left of it."""
    random = Random(seed)
    world = World(partitions=3)
    consumer = world.consumer(isolation=isolation)
    got: dict[int, list[tuple[int, int]]] = {0: [], 1: [], 2: []}
    opened: list[Producer] = []
    written = 0
    for _ in range(60):
        step = random.random()
        partition = random.randrange(3)
        if step < 0.3:
            world.append(*range(written, written + 3), partition=partition, commit=random.random() < 0.7)
            written += 3
        elif step < 0.4 and len(opened) < 2:
            opened.append(world.begin(written, partition=partition, producer=f"open-{written}"))
            written += 1
        elif step < 0.5 and opened:
            random.choice([Producer.commit, Producer.abort])(opened.pop(random.randrange(len(opened))))
        elif step < 0.55:
            world.writing.maintain("seal")
        elif step < 0.6:
            offset = consumer.position("t", partition)
            back = random.randrange(offset + 1)
            consumer.seek("t", partition, back)
            got[partition] = [record for record in got[partition] if record[0] < back]
        elif (batch := consumer.poll(0, random.choice([1, 2, 7, 100]))) is not None:
            for row in batch.to_pylist():
                got[row["_partition"]].append((row["_offset"], row["n"]))
                assert row["_offset"] < consumer.position("t", row["_partition"])
    left = consumer.lag()
    for partition, records in got.items():
        read = world.writing.read(
            "t", isolation=isolation, partitions=[partition], columns=["_offset", "n"]
        ).read_all()
        wanted = [(row["_offset"], row["n"]) for row in read.to_pylist()]
        assert records == wanted[: len(records)]
        assert left["t", partition] == len(wanted) - len(records)
    assert len(drained(consumer)) == sum(left.values())


def test_large_sends_over_many_partitions_come_whole() -> None:
    """Batch tables, several files, and chunks that are read as they are asked for."""
    world = World(partitions=2)
    with (
        Producer(world.writing, "big", batch_bytes=64 * 1024, roll_bytes=100_000) as producer,
        producer.transaction() as txn,
    ):
        for start in range(0, 400_000, 100_000):
            txn.send("t", rows(*range(start, start + 100_000)))
    with world.consumer(max_poll_records=70_001) as consumer:
        assert sorted(drained(consumer)) == list(range(400_000))
