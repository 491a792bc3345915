"""Consumer groups: one member, positions that the next one goes on from, in transactions, and in
another log.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.integration.clients.failing import ENTRY, NUMBERS, Plan, unclear_commit
from tests.integration.consumers.consuming import (
    ENTRY_GET,
    ENTRY_PUT,
    T0,
    World,
    committed,
    drained,
    numbers,
    reading,
    refuses,
    subscribed,
)
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import TopicPartition
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    Consumer,
    GroupMetadata,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

# --- going on -----------------------------------------------------------------------------------------------


def test_the_next_consumer_goes_on_where_the_group_has_committed() -> None:
    world = World(partitions=2)
    world.append(0, 1, 2)
    world.append(10, partition=1)
    with subscribed(world) as consumer:
        assert numbers(consumer.poll(max_records=2)) == [0, 1]
        consumer.commit()
        assert numbers(consumer.poll()) == [10, 2]
    with subscribed(world) as consumer:
        assert consumer.positions() == {T0: 2, ("t", 1): 0}
        assert sorted(drained(consumer)) == [2, 10], "what was handed out and not committed comes again"
        consumer.commit()
    world.append(3)
    with subscribed(world) as consumer:
        assert drained(consumer) == [3]
    assert drained(subscribed(world, "another")) == [0, 1, 2, 3, 10]


@pytest.mark.parametrize(("policy", "found"), [("earliest", [0, 1]), ("latest", [1])])
def test_a_group_that_has_committed_nothing_begins_as_the_policy_says(policy: str, found: list[int]) -> None:
    world = World()
    world.append(0)
    consumer = subscribed(world, auto_offset_reset=policy)
    world.append(1)
    assert drained(consumer) == found
    consumer.commit()
    consumer.close()
    world.append(2)
    assert drained(subscribed(world, auto_offset_reset=policy)) == [2]


def test_going_back_to_a_commit_that_was_never_made_is_as_of_then() -> None:
    world = World()
    world.append(0)
    consumer = subscribed(world, auto_offset_reset="latest")
    world.append(1)
    consumer.seek_to_committed()
    world.append(2)
    consumer.committed(*T0)  # a look
    assert drained(consumer) == [2]


def test_without_a_policy_a_group_needs_committed_positions() -> None:
    world = World()
    world.append(0)
    consumer = subscribed(world, auto_offset_reset="none")
    refuses(OffsetOutOfRangeError, "no-offset", consumer.poll)
    consumer.commit({T0: 1})
    consumer.close()
    assert subscribed(world, auto_offset_reset="none").positions() == {T0: 1}


def test_joining_committing_and_leaving_cost_an_entry_each() -> None:
    world = World(partitions=5)
    world.append(0)
    consumer = reading(world)
    with world.store.measure() as measured:
        consumer.assign([("t", 0), ("t", 3)])
    assert measured.counts.requests == {ENTRY_GET: 2}
    consumer.unsubscribe()
    with world.store.measure() as measured:
        consumer.subscribe(["t"])
    assert measured.counts.requests == {ENTRY_GET: 2, ENTRY_PUT: 1}
    assert drained(consumer) == [0]
    for offsets in (None, {T0: 1}):
        with world.store.measure() as measured:
            consumer.commit(offsets)
        assert measured.counts.requests == {ENTRY_PUT: 1}
    with world.store.measure() as measured:
        assert consumer.poll(0) is None
        assert consumer.positions()[T0] == 2
    assert measured.counts.requests == {ENTRY_GET: 1}
    with world.store.measure() as measured:
        consumer.close()
    assert measured.counts.requests == {ENTRY_PUT: 1}
    with world.store.measure() as measured:
        consumer.close()
    assert measured.counts.requests == {}


# --- one member ---------------------------------------------------------------------------------------------


def test_a_newer_member_takes_over_and_the_older_one_is_told() -> None:
    world = World()
    world.append(0, 1)
    older = subscribed(world)
    assert numbers(older.poll(max_records=1)) == [0]
    older.commit()
    newer = subscribed(world)
    assert older.group_metadata == GroupMetadata("g", 1)
    assert newer.group_metadata == GroupMetadata("g", 2)
    assert numbers(older.poll()) == [1], "it cannot know yet"
    refuses(ConflictError, "member-fenced", older.commit)
    for _ in range(2):
        error = refuses(ConflictError, "member-fenced", older.poll)
        assert "stop" in str(error)
    assert committed(world) == 1
    assert drained(newer) == [1]
    with world.store.measure() as measured:
        older.close()
    assert measured.counts.requests == {}, "it knows that it has nothing to leave"
    newer.commit()
    assert committed(world) == 3, "closing the older one does no harm"
    newer.close()
    state = world.writing.refresh().groups["g"]
    assert (state.member, state.generation) == (None, 3), "who closes leaves"


def test_a_member_is_told_by_a_look_that_it_is_none_any_more() -> None:
    world = World()
    older = subscribed(world)
    subscribed(world)
    refuses(ConflictError, "member-fenced", lambda: [older.poll(0) for _ in range(2)])


def test_who_subscribes_again_goes_on_and_who_was_fenced_begins_at_what_is_committed() -> None:
    world = World()
    world.writing.create_topic("u", NUMBERS)
    world.append(0, 1, 2)
    first = subscribed(world)
    assert numbers(first.poll(max_records=2)) == [0, 1]
    first.subscribe(["t", "u"])
    assert first.group_metadata.generation == 1
    assert first.positions() == {T0: 2, ("u", 0): 0}
    second = subscribed(world)
    second.commit({T0: 1})
    first.lag()  # a look
    first.subscribe(["t"])
    assert first.group_metadata.generation == 3
    assert drained(first) == [1, 2]


def test_assigned_partitions_are_shared_by_agreement() -> None:
    world = World(partitions=2)
    world.append(0, 1)
    world.append(10, 11, partition=1)
    left, right = reading(world), reading(world)
    left.assign([T0])
    right.assign([("t", 1)])
    assert left.group_metadata == GroupMetadata("g", None)
    assert (drained(left), drained(right)) == ([0, 1], [10, 11])
    left.commit()
    right.commit()
    left.close()
    assert (committed(world), committed(world, partition=1)) == (3, 3)
    state = world.writing.refresh().groups["g"]
    assert (state.member, state.generation) == (None, 0)
    again = reading(world)
    again.assign([T0, ("t", 1)])
    assert again.positions() == {T0: 3, ("t", 1): 3}


def test_unsubscribing_leaves_the_group() -> None:
    world = World()
    consumer = subscribed(world)
    consumer.unsubscribe()
    assert world.writing.refresh().groups["g"].member is None
    assert consumer.group_metadata.generation is None
    consumer.assign([T0])
    consumer.commit()
    assert committed(world) == 0


# --- committing ---------------------------------------------------------------------------------------------


def test_committing_what_the_caller_says() -> None:
    world = World(partitions=2)
    world.append(0, 1, 2)
    consumer = subscribed(world)
    consumer.commit({T0: OffsetAndMetadata(2, "by hand"), ("t", 1): 0})
    state = world.writing.refresh()
    found = state.groups["g"].committed[TopicPartition(state.topic_ids["t"], 0)]
    assert (found.value, found.metadata) == (2, "by hand")
    assert consumer.committed(*T0) == 2
    assert consumer.position(*T0) == 0
    consumer.seek_to_committed()
    assert drained(consumer) == [2]


def test_a_commit_that_is_refused_changes_nothing() -> None:
    world = World()
    world.append(0)
    world.begin(1)
    consumer = subscribed(world)
    consumer.commit({T0: 1})
    refuses(OffsetOutOfRangeError, "offset-out-of-range", lambda: consumer.commit({T0: 3}))
    refuses(InvalidInputError, "invalid-offsets", lambda: consumer.commit({T0: -1}))
    refuses(InvalidInputError, "invalid-offsets", lambda: consumer.commit({}))
    refuses(NotFoundError, "unknown-topic", lambda: consumer.commit({("v", 0): 1}))
    refuses(NotFoundError, "unknown-partition", lambda: consumer.commit({("t", 1): 1}))
    assert committed(world) == 1
    bold = subscribed(world, "bold", isolation="read_uncommitted")
    assert drained(bold) == [0, 1]
    bold.commit()
    assert committed(world, "bold") == 3, "who reads what is undecided may commit it"


def test_a_commit_without_positions_costs_nothing() -> None:
    world = World()
    consumer = reading(world)
    with world.store.measure() as measured:
        consumer.commit()
    assert measured.counts.requests == {}


def test_a_commit_with_an_unknown_outcome_may_be_repeated_and_lands_once() -> None:
    world = World()
    world.append(0)
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    consumer = Consumer(log, "g")
    consumer.subscribe(["t"])
    assert drained(consumer) == [0]
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    with pytest.raises(CommitStateUnknownError):
        consumer.commit()
    plan.clear()
    consumer.commit()
    state = world.writing.refresh().groups["g"]
    assert (state.commits, committed(world)) == (1, 2)
    consumer.commit({T0: 1})
    assert committed(world) == 1


def test_another_commit_after_an_unknown_outcome_is_another_commit() -> None:
    world = World()
    world.append(0, 1)
    plan = Plan()
    consumer = Consumer(TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock), "g")
    consumer.subscribe(["t"])
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    with pytest.raises(CommitStateUnknownError):
        consumer.commit({T0: 2})
    plan.clear()
    consumer.commit({T0: 1})
    assert committed(world) == 1


def test_a_join_with_an_unknown_outcome_may_be_repeated_and_lands_once() -> None:
    world = World()
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    consumer = Consumer(log, "g")
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
    plan.next(RequestKind.GET, KeyClass.ENTRY, None)  # the look before
    with pytest.raises(CommitStateUnknownError):
        consumer.subscribe(["t"])
    plan.clear()
    consumer.subscribe(["t"])
    assert world.writing.refresh().groups["g"].generation == 1
    consumer.commit()
    assert committed(world) == 0


def test_a_group_that_cannot_be_left_is_only_said_so(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    plan = Plan()
    consumer = Consumer(TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock), "g")
    consumer.subscribe(["t"])
    plan.always(*ENTRY, Fault(FaultKind.READ_ONLY))
    with caplog.at_level(logging.WARNING, logger="txnlog"):
        consumer.close()
    assert "group g was not left" in caplog.text
    refuses(InvalidTransactionStateError, "consumer-closed", consumer.poll)


# --- by itself ----------------------------------------------------------------------------------------------


def test_positions_are_committed_by_a_poll_when_the_interval_is_over() -> None:
    world = World()
    world.append(0, 1, 2)
    consumer = subscribed(world, enable_auto_commit=True, auto_commit_interval_ms=5_000, max_poll_records=1)
    assert numbers(consumer.poll(0)) == [0]
    assert committed(world) is None
    world.clock.sleep(5)
    assert numbers(consumer.poll(0)) == [1]
    assert committed(world) == 1, "what was handed out before, not what this poll hands out"
    assert numbers(consumer.poll(0)) == [2]
    assert committed(world) == 1
    world.clock.sleep(5)
    assert consumer.poll(0) is None
    assert committed(world) == 4
    world.clock.sleep(5)
    with world.store.measure() as measured:
        assert consumer.poll(0) is None
    assert measured.counts.requests == {ENTRY_GET: 1}, "nothing has changed"
    world.append(3)
    assert numbers(consumer.poll(0)) == [3]
    consumer.close()
    assert committed(world) == 6, "and when it is closed"


def test_without_being_asked_for_nothing_is_committed() -> None:
    world = World()
    world.append(0)
    with subscribed(world) as consumer:
        assert drained(consumer) == [0]
        world.clock.sleep(60)
        assert consumer.poll(0) is None
    assert committed(world) is None


def test_what_a_block_failed_at_is_not_committed() -> None:
    world = World()
    world.append(0)

    def work() -> None:
        with subscribed(world, enable_auto_commit=True, auto_commit_interval_ms=60_000) as consumer:
            assert drained(consumer) == [0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert committed(world) is None
    assert world.writing.refresh().groups["g"].member is None


def test_partitions_that_are_given_up_are_committed_first() -> None:
    world = World(partitions=2)
    world.append(0)
    world.append(10, partition=1)
    consumer = reading(world, enable_auto_commit=True)
    consumer.assign([T0, ("t", 1)])
    assert drained(consumer) == [0, 10]
    consumer.assign([("t", 1)])
    assert (committed(world), committed(world, partition=1)) == (2, 2)
    world.append(11, partition=1)
    assert drained(consumer) == [11]
    consumer.unsubscribe()
    assert committed(world, partition=1) == 4


def test_a_store_that_is_away_delays_commits_and_a_newer_member_ends_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.append(0, 1, 2)
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    consumer = Consumer(log, "g", enable_auto_commit=True, auto_commit_interval_ms=0, max_poll_records=1)
    consumer.subscribe(["t"])
    assert numbers(consumer.poll(0)) == [0]
    plan.always(*ENTRY, Fault(FaultKind.READ_ONLY))
    with caplog.at_level(logging.WARNING, logger="txnlog"):
        assert numbers(consumer.poll(0)) == [1]
    assert "not committed yet" in caplog.text
    plan.clear()
    assert numbers(consumer.poll(0)) == [2]
    assert committed(world) == 2
    newer = subscribed(world)
    refuses(ConflictError, "member-fenced", lambda: consumer.poll(0))
    consumer.close()
    assert newer.committed(*T0) == 2


def test_a_close_that_cannot_commit_says_so_once() -> None:
    world = World()
    world.append(0)
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    consumer = Consumer(log, "g", enable_auto_commit=True)
    consumer.subscribe(["t"])
    assert drained(consumer) == [0]
    plan.always(*ENTRY, Fault(FaultKind.READ_ONLY))
    refuses(StorageError, "read-only-store", consumer.close)
    consumer.close()
    refuses(InvalidTransactionStateError, "consumer-closed", consumer.poll)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"group": "a group"}, "'a group' is not a valid group name"),
        ({"group": 5}, "5 is not a valid group name"),
        ({"enable_auto_commit": True}, "enable_auto_commit needs a group"),
        ({"group": "g", "enable_auto_commit": "yes"}, "'yes', not True or False"),
        ({"auto_commit_interval_ms": -1}, "auto_commit_interval_ms is -1"),
        ({"session_timeout_ms": 0}, "session_timeout_ms is 0"),
        ({"session_timeout_ms": 10**9}, "from 1 to 1800000"),
        ({"default_api_timeout_ms": None}, "default_api_timeout_ms is None"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], told: str) -> None:
    world = World()
    error = refuses(InvalidInputError, "invalid-settings", lambda: Consumer(world.log, **settings))
    assert told in str(error)


def test_an_offsets_log_is_a_log_and_needs_a_group() -> None:
    world = World()
    refuses(
        InvalidInputError,
        "not-a-log",
        lambda: Consumer(world.log, "g", offsets_log="/log"),  # type: ignore[arg-type]
    )
    refuses(InvalidInputError, "invalid-settings", lambda: Consumer(world.log, offsets_log=world.log))


def test_without_a_group_there_is_nothing_to_commit_to() -> None:
    consumer = World().consumer()
    for call in (
        consumer.commit,
        consumer.seek_to_committed,
        lambda: consumer.committed(*T0),
        lambda: consumer.group_metadata,
    ):
        refuses(InvalidTransactionStateError, "no-group", call)


def test_a_log_that_can_only_be_read_has_no_groups() -> None:
    world = World()
    plan = Plan()
    consumer = Consumer(TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock), "g")
    plan.always(*ENTRY, Fault(FaultKind.READ_ONLY))
    refuses(StorageError, "read-only-store", lambda: consumer.subscribe(["t"]))
    assert consumer.assignment() == []


def test_committed_of_what_is_not_there() -> None:
    world = World()
    consumer = subscribed(world)
    assert consumer.committed(*T0) is None
    refuses(NotFoundError, "unknown-partition", lambda: consumer.committed("t", 1))
    refuses(NotFoundError, "unknown-topic", lambda: consumer.committed("v", 0))
    refuses(InvalidInputError, "invalid-partitions", lambda: consumer.committed("t", "0"))  # type: ignore[arg-type]
    world.writing.alter_topic("t", partitions=2)
    assert consumer.committed("t", 1) is None
