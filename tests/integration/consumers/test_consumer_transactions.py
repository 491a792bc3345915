"""Consumers and transactions: positions that are pending, that come with what is written, and that another
log has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.clients.failing import NUMBERS, Plan, QuickClock, unclear_commit
from tests.integration.consumers.consuming import (
    T0,
    World,
    committed,
    drained,
    numbers,
    reading,
    refuses,
    subscribed,
)
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    Consumer,
    InvalidInputError,
    InvalidTransactionStateError,
    Producer,
    TxnLog,
)
from txnlog_testing.stores.faulty import FaultKind, FaultyStore

# --- pending positions --------------------------------------------------------------------------------------


def pending(world: World, offset: int, **settings: Any) -> Producer:
    """Leave a transaction open that has a position of the group pending."""
    producer = Producer(world.writing, "etl", buffer="inline", **settings)
    producer.init()
    producer.begin()
    producer.send_offsets("g", {T0: offset})
    producer.flush()
    return producer


def test_a_position_that_is_pending_is_waited_for() -> None:
    world = World()
    world.append(0, 1, 2)
    producer = pending(world, 2)
    consumer = reading(world, default_api_timeout_ms=10_000)
    start = world.clock.now().wall_ms
    error = refuses(ConflictError, "offsets-pending", lambda: consumer.subscribe(["t"]))
    assert error.values["transactional_id"] == "etl"
    assert 10_000 <= world.clock.now().wall_ms - start < 10_100
    refuses(ConflictError, "offsets-pending", lambda: consumer.committed(*T0))
    assert consumer.assignment() == []
    producer.commit()
    consumer.subscribe(["t"])
    assert consumer.group_metadata.generation == 1, "it was the member all the time"
    assert drained(consumer) == [2]


def test_waiting_looks_once_a_second_and_ends_with_the_transaction() -> None:
    class Deciding(QuickClock):
        """Lets the transaction be committed while the consumer waits."""

        def sleep(self, seconds: float, wake: Any = None) -> None:
            super().sleep(seconds, wake)
            if self.now().wall_ms - began >= 8_000 and producer.status.value == "in-transaction":
                producer.commit()

    world = World()
    world.append(0, 1, 2)
    producer = pending(world, 1)
    clock = Deciding()
    began = clock.now().wall_ms
    consumer = Consumer(TxnLog.open(world.store, clock=clock), "g")
    consumer.assign([])
    with world.store.measure() as measured:
        consumer.assign([T0])
    assert consumer.position(*T0) == 1
    assert 8_000 <= clock.now().wall_ms - began <= 9_100
    assert measured.counts.count() <= 20


def test_a_transaction_whose_time_is_over_is_ended_by_who_waits() -> None:
    world = World()
    world.append(0, 1, 2)
    pending(world, 2, transaction_timeout_ms=20_000)
    consumer = subscribed(world)
    assert drained(consumer) == [0, 1, 2]
    assert committed(world) is None


# --- with what is written -----------------------------------------------------------------------------------


def copied(world: World) -> list[int]:
    found: list[int] = world.writing.read("copy").read_all().column("n").to_pylist()
    return found


def test_positions_come_with_what_was_made_of_the_records() -> None:
    world = World()
    world.writing.create_topic("copy", NUMBERS)
    world.append(*range(10))
    consumer = subscribed(world, max_poll_records=3, columns=["n"])
    with Producer(world.writing, "etl") as producer:
        for attempt in range(6):
            batch = consumer.poll(0)
            if batch is None:
                break
            producer.begin()
            producer.send("copy", batch)
            producer.send_offsets(consumer)
            if attempt == 1:
                producer.abort()
                consumer.seek_to_committed()
            else:
                producer.commit()
        assert copied(world) == list(range(10))
        assert committed(world) == 11
        newer = subscribed(world)
        world.append(10)
        batch = consumer.poll(0)
        producer.begin()
        producer.send("copy", batch)
        refuses(ConflictError, "member-fenced", lambda: producer.send_offsets(consumer))
        producer.abort()
    assert drained(newer) == [10]


def test_static_readers_of_one_partition_notice_each_other() -> None:
    world = World()
    world.append(*range(10))
    both = [reading(world, max_poll_records=5) for _ in range(2)]
    for consumer in both:
        consumer.assign([T0])
        assert numbers(consumer.poll(0)) == [0, 1, 2, 3, 4]
    with Producer(world.writing, "a") as first, Producer(world.writing, "b") as second:
        with first.transaction() as txn:
            txn.send_offsets(both[0])
        second.begin()
        refuses(ConflictError, "offsets-changed", lambda: second.send_offsets(both[1]))
        second.abort()
        both[1].seek_to_committed()
        assert numbers(both[1].poll(0)) == [5, 6, 7, 8, 9]
        with second.transaction() as txn:
            txn.send_offsets(both[1])
    assert committed(world) == 11


def test_a_transaction_takes_the_partitions_that_have_moved() -> None:
    world = World(partitions=3)
    for partition in range(3):
        world.append(partition, partition=partition)
    consumer = subscribed(world, max_poll_records=1)
    consumer.commit()
    assert numbers(consumer.poll(0)) == [0]
    wanted = consumer.group_offsets(world.writing.log_id)
    assert [(one.partition, one.offset, one.expected) for one in wanted.offsets] == [(0, 2, 0)]
    consumer.offsets_committed(wanted)
    assert len(consumer.group_offsets(world.writing.log_id).offsets) == 3, "nothing has moved: all of them"
    consumer.unsubscribe()
    refuses(
        InvalidTransactionStateError,
        "nothing-assigned",
        lambda: consumer.group_offsets(world.writing.log_id),
    )


# --- in another log -----------------------------------------------------------------------------------------


def test_positions_are_kept_in_the_log_that_is_written_to() -> None:
    source, target = World(partitions=2), TxnLog.create(MemoryStore(QuickClock()), clock=QuickClock())
    target.create_topic("copy", NUMBERS)
    source.append(0, 1, 2)
    source.append(10, partition=1)

    def attempt(*, fails: bool) -> None:
        """Copy what there is, as a process that has just started."""
        log = TxnLog.open(target.store, clock=QuickClock())
        with (
            reading(source, offsets_log=log, columns=["n"], max_poll_records=2) as consumer,
            Producer(log, "etl") as producer,
        ):
            consumer.subscribe(["t"])
            for batch in consumer.batches():
                with producer.transaction() as txn:
                    txn.send("copy", batch)
                    txn.send_offsets(consumer)
                    if fails:
                        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attempt(fails=True)
    attempt(fails=False)
    source.append(3, 4, 5)
    attempt(fails=False)
    attempt(fails=False)
    read = target.read("copy").read_all().column("n").to_pylist()
    assert sorted(read) == [0, 1, 2, 3, 4, 5, 10]
    state = target.refresh().groups["g"]
    topic_id = source.writing.state.topic_ids["t"]
    assert {key: one.value for key, one in state.committed.items()} == {
        f"{source.writing.log_id}/{topic_id}/0": "8",
        f"{source.writing.log_id}/{topic_id}/1": "2",
    }
    assert "g" not in source.writing.refresh().groups


def test_static_readers_notice_each_other_in_the_other_log_too() -> None:
    source, target = World(), TxnLog.create(MemoryStore(QuickClock()), clock=QuickClock())
    source.append(0, 1)
    both = [reading(source, offsets_log=target) for _ in range(2)]
    for consumer in both:
        consumer.assign([T0])
        assert drained(consumer) == [0, 1]
    with Producer(target, "p") as producer:
        with producer.transaction() as txn:
            txn.send_offsets(both[0])
        producer.begin()
        refuses(ConflictError, "offsets-changed", lambda: producer.send_offsets(both[1]))
        producer.abort()


def test_commits_go_to_the_other_log_too_and_are_fenced_there() -> None:
    source, target = World(), TxnLog.create(MemoryStore(QuickClock()), clock=QuickClock())
    source.append(0, 1, 2)
    older = reading(source, offsets_log=target)
    older.subscribe(["t"])
    assert older.committed(*T0) is None
    older.commit({T0: 2})
    newer = reading(source, offsets_log=TxnLog.open(target.store, clock=QuickClock()))
    newer.subscribe(["t"])
    assert drained(newer) == [2]
    refuses(ConflictError, "member-fenced", older.commit)
    refuses(ConflictError, "member-fenced", older.poll)
    newer.commit()
    assert newer.committed(*T0) == 4


def test_positions_beyond_what_the_consumer_has_seen_of_its_source_are_not_begun_anew() -> None:
    source, target = World(), TxnLog.create(MemoryStore(QuickClock()), clock=QuickClock())
    consumer = reading(source, offsets_log=target)
    consumer.assign([])

    source.append(0, 1)
    ahead = reading(source, offsets_log=target)
    ahead.assign([T0])
    assert drained(ahead) == [0, 1]
    ahead.commit()
    membership = consumer._group
    assert membership is not None
    starts = membership.fetch([TopicPartition(source.writing.state.topic_ids["t"], 0)])
    consumer._reading.replace(frozenset(), starts, consumer._log.state, starts)
    assert consumer.position(*T0) == 3


def test_a_producer_of_another_log_is_told_how_to_take_positions_along() -> None:
    world, other = World(), World()
    world.append(0)
    consumer = subscribed(world)
    with Producer(other.writing, "etl") as producer:
        producer.begin()
        error = refuses(InvalidInputError, "other-log", lambda: producer.send_offsets(consumer))
        assert "offsets_log" in str(error)
        producer.abort()


def test_a_position_of_somebody_else_is_not_taken_for_an_offset() -> None:
    source, target = World(), TxnLog.create(MemoryStore(QuickClock()), clock=QuickClock())
    name = f"{source.writing.log_id}/{source.writing.state.topic_ids['t']}/0"
    with Producer(target, "p") as producer, producer.transaction() as txn:
        txn.send_offsets("g", positions={name: "page 7"})
    consumer = reading(source, offsets_log=target)
    error = refuses(InvalidInputError, "foreign-position", lambda: consumer.assign([T0]))
    assert "page 7" in str(error)


def test_a_commit_whose_outcome_was_unknown_is_not_repeated_once_a_transaction_has_committed() -> None:
    world = World()
    world.append(0, 1)
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    consumer = Consumer(log, "g")
    consumer.subscribe(["t"])
    assert drained(consumer, 1) == [0, 1]
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    with pytest.raises(CommitStateUnknownError):
        consumer.commit({T0: 1})
    plan.clear()
    consumer.seek_to_committed()
    assert drained(consumer) == [1]
    with Producer(log, "etl") as producer, producer.transaction() as txn:
        txn.send_offsets(consumer)
    assert committed(world) == 3
    consumer.commit({T0: 1})
    assert committed(world) == 1, "the same positions, and another commit"


def test_what_was_read_of_a_partition_that_came_later_is_read_again_after_an_abort() -> None:
    world = World()
    world.append(0)
    consumer = subscribed(world, auto_offset_reset="latest")
    world.writing.alter_topic("t", partitions=2)
    world.append(7, partition=1)
    with Producer(consumer._log, "etl") as producer:
        producer.begin()
        assert drained(consumer) == [7]
        producer.send_offsets(consumer)
        producer.abort()
        consumer.seek_to_committed()
        assert drained(consumer) == [7]
