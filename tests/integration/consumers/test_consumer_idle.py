"""A group is not forgotten while somebody reads under it, though nothing comes for longer than groups are
kept."""

from __future__ import annotations

import pytest

from tests.integration.consumers.consuming import (
    ENTRY_PUT,
    T0,
    World,
    committed,
    drained,
    reading,
    subscribed,
)
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, OffsetAndMetadata, Producer, TxnLog

DAY_S = 24 * 3_600


def pass_days(world: World, days: int, *consumers: Consumer) -> None:
    """Let days go by on which only another topic is written to, consumers poll, and what is idle is
    forgotten."""
    if "other" not in world.writing.topics():
        world.writing.create_topic("other", "kafka")
    for _ in range(days):
        world.clock.sleep(DAY_S + 1)
        with Producer(world.writing) as producer:
            producer.send("other", value="tick")
        for consumer in consumers:
            assert consumer.poll(0) is None
        world.writing.committer.expire()


@pytest.mark.parametrize("mode", ["member", "static"])
def test_positions_are_kept_while_nothing_comes(mode: str) -> None:
    world = World(partitions=2)
    world.append(0, 1, 2)
    consumer = reading(world)
    if mode == "member":
        consumer.subscribe(["t"])
    else:
        consumer.assign([T0])
    assert drained(consumer, 2) == [0, 1, 2]
    consumer.commit({T0: OffsetAndMetadata(2, "a text")})
    before = consumer.group_metadata
    pass_days(world, 40, consumer)
    assert committed(world) == 2, "what was not committed is not now"
    state = world.writing.refresh()
    (found,) = [one for key, one in state.group("g").committed.items() if key.partition == 0]
    assert found.metadata == "a text"
    assert consumer.group_metadata == before
    world.append(3, producer="later")
    assert drained(consumer) == [3]
    consumer.commit()
    assert committed(world) == 6


@pytest.mark.parametrize(("policy", "begun"), [("earliest", 0), ("latest", 2)])
def test_a_member_that_has_committed_nothing_stays_the_member(policy: str, begun: int) -> None:
    world = World()
    world.append(0)
    consumer = subscribed(world, auto_offset_reset=policy)
    drained(consumer)
    pass_days(world, 40, consumer)
    assert committed(world) == begun, "where it began"
    world.append(1, producer="later")
    assert drained(consumer) == [1]
    consumer.commit()


def test_a_group_that_is_read_from_another_log_is_kept() -> None:
    world = World()
    log = TxnLog.create(MemoryStore(world.clock), clock=world.clock)
    world.append(0)
    consumer = Consumer(world.log, "g", offsets_log=log)
    consumer.subscribe(["t"])
    assert drained(consumer) == [0]
    consumer.commit()
    used = log.refresh().group("g").used_entry
    world.clock.sleep(DAY_S + 1)
    assert consumer.poll(0) is None
    group = log.refresh().group("g")
    assert group.used_entry > used
    assert [one.value for one in group.committed.values()] == ["2"]


def test_nobody_else_is_disturbed() -> None:
    world = World()
    world.append(0, 1, 2)
    first, second = reading(world), reading(world)
    for consumer in (first, second):
        consumer.assign([T0])
    first.commit({T0: 1})
    pass_days(world, 2)
    with world.store.measure() as measured:
        assert drained(first, 1) == [0, 1, 2]
    assert measured.counts.requests[ENTRY_PUT] == 1
    second.commit({T0: 3})
    pass_days(world, 1)
    first.poll(0)
    assert committed(world) == 3, "it did not know of that, and what it compares with is not there any more"
    with world.store.measure() as measured:
        first.poll(0)
    assert ENTRY_PUT not in measured.counts.requests
