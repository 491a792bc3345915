"""Consumer: when it looks at the log, and how long a poll waits."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.clients.failing import QuickClock
from tests.integration.consumers.consuming import ENTRY_GET, HookedStore, World, numbers
from txnlog import Consumer, InvalidInputError, Subscription, TxnLog


def looks(world: World, consumer: Consumer, timeout_ms: int) -> tuple[int, int]:
    """Return how many looks at the log an idle poll takes, and how many milliseconds."""
    start = world.clock.now().wall_ms
    with world.store.measure() as measured:
        assert consumer.poll(timeout_ms) is None
    assert set(measured.counts.requests) == {ENTRY_GET}
    return measured.counts.count(), world.clock.now().wall_ms - start


def test_an_idle_consumer_looks_once_a_second_and_wakes_in_time() -> None:
    world = World(is_far=True)
    with world.consumer() as consumer:
        assert looks(world, consumer, 0) == (1, 0)
        assert looks(world, consumer, 10_000) == (14, 10_000), "after 50, 150, … ms, then every second"
        assert looks(world, consumer, 10_000) == (10, 10_000)
        assert looks(world, consumer, 300) == (1, 300), "at the end of the wait"
        assert looks(world, consumer, 0) == (1, 0)
        world.append(1)
        assert numbers(consumer.poll(0)) == [1]
        assert looks(world, consumer, 150) == (2, 150), "impatient again"


def test_the_longest_wait_between_looks_is_a_setting_and_a_local_disk_needs_none() -> None:
    for interval_ms, expected in ((250, 40), (10_000, 1)):
        world = World(is_far=True)
        with world.consumer(look_interval_ms=interval_ms) as consumer:
            looks(world, consumer, 60_000)
            assert looks(world, consumer, 10_000) == (expected, 10_000)
    for interval_ms in (250, 60_000):
        world = World()
        with world.consumer(look_interval_ms=interval_ms) as consumer:
            assert looks(world, consumer, 10_000) == (500, 10_000)


class Committing(QuickClock):
    """Commits at given times, which only sleeping reaches."""

    def __init__(self, every_ms: int) -> None:
        super().__init__()
        self.every_ms = every_ms
        self.commit: Callable[[], None] | None = None
        self.commits: list[int] = []
        self._due_ms = self.now().wall_ms + every_ms

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        end_ms = self.now().wall_ms + round(seconds * 1_000)
        while self.commit is not None and self._due_ms <= end_ms:
            super().sleep(max(0, self._due_ms - self.now().wall_ms) / 1_000)
            self._due_ms += self.every_ms
            self.commits.append(self.now().wall_ms)
            self.commit()
        super().sleep(max(0, end_ms - self.now().wall_ms) / 1_000)


@pytest.mark.parametrize(("every_ms", "looks_each"), [(200, 4), (1_700, 8), (10_000, 16)])
def test_a_regular_commit_is_read_soon_after_it_for_a_few_looks_more(every_ms: int, looks_each: int) -> None:
    clock = Committing(every_ms)
    world = World(is_far=True, clock=clock)
    clock.commit = lambda: world.append(len(clock.commits))
    waited: list[int] = []
    with world.consumer() as consumer, world.store.measure() as measured:
        while len(waited) < 40:
            got = numbers(consumer.poll(60_000))
            assert got is not None
            waited += [clock.now().wall_ms - clock.commits[number - 1] for number in got]
    assert statistics.median(waited[10:]) <= 60
    new_entries = 2  # of each commit: the batch, and its end
    assert measured.counts.requests[ENTRY_GET] <= len(waited) * (new_entries + looks_each)


@pytest.mark.parametrize("value", [9, 60_001, 1.5, True, "250"])
def test_an_interval_that_is_none_is_refused(value: Any) -> None:
    world = World()
    text = "look_interval_ms is .*, not a whole number from 10 to 60000"
    with pytest.raises(InvalidInputError, match=text):
        Consumer(world.log, look_interval_ms=value)
    with pytest.raises(InvalidInputError, match=text):
        Subscription(world.log, "t", "s", look_interval_ms=value)


def test_what_is_there_when_the_time_is_over_is_returned() -> None:
    class Late(QuickClock):
        """Lets somebody write while the consumer waits for the last time."""

        def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
            super().sleep(seconds, wake)
            if self.now().wall_ms == self.due_ms:
                self.due_ms = 0
                world.append(1)

        due_ms = 0

    world = World()
    clock = Late()
    log = TxnLog.open(world.memory, clock=clock)
    with Consumer(log) as consumer:
        consumer.subscribe(["t"])
        clock.due_ms = clock.now().wall_ms + 400
        assert numbers(consumer.poll(400)) == [1]


def test_a_consumer_that_has_enough_looks_once_a_second() -> None:
    world = World()
    world.append(*range(100))
    with world.consumer(max_poll_records=1) as consumer, world.store.measure() as measured:
        for _ in range(30):
            assert consumer.poll(0) is not None
            world.clock.sleep(0.1)
        assert measured.counts.requests[ENTRY_GET] == 2


def test_a_late_batch_goes_out_with_what_it_has() -> None:
    world = World(partitions=4, embedding=False)
    for partition in range(4):
        world.append(partition, partition=partition)
    clock = QuickClock()
    store = HookedStore(world.memory, lambda: clock.sleep(0.14))
    with Consumer(TxnLog.open(store, clock=clock)) as consumer:
        consumer.subscribe(["t"])
        assert numbers(consumer.poll(0)) == [0, 1], "two files take 280 ms"
        assert numbers(consumer.poll(0)) == [2, 3]
        consumer.seek_to_beginning()
        assert numbers(consumer.poll(10_000)) == [0, 1, 2, 3], "who has time waits"
