"""A process that does a task of maintenance dies at a request, or its disk is full; then everything is
examined, and the next run completes the task."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.integration.upkeep.truncation_world import entries_in
from tests.maintenance.ledger import Ledger
from tests.maintenance.tasks import TASKS, Task, world_of
from tests.maintenance.world import ISOLATIONS, World
from tests.rounds import spread, telling
from txnformat.store.requests import RequestKind
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, SimulatedCrash

__all__ = ["WRITES", "Watched", "deaths", "die", "examine", "is_between", "kinds_of", "requests_of"]

WRITES = (RequestKind.CREATE, RequestKind.PUT, RequestKind.OPEN_WRITE, RequestKind.DELETE)
STATES_MAX = 5
"""Of a task, in a short round."""
SEED = 1
"""Of the process that dies: it does the same in each run, so that a store that was examined need not be
examined again."""

At = Callable[[int, RequestKind, str], Fault | None]
"""The fault of a request: its number from 0, the operation, the key."""


class Watched:
    """A process whose requests are counted, each with a fault if the test says so."""

    def __init__(self, world: World, at: At) -> None:
        self.world, self._at = world, at
        self.requests: list[tuple[RequestKind, str]] = []

    def run(self, task: Task) -> Any:
        """Open the log, do the task, and what it leaves to the background; return what the task returned."""
        log = self.world.opened(FaultyStore(self.world.store, self._plan), SEED)
        found = task.run(log)
        log.close()
        return found

    def _plan(self, operation: RequestKind, key: str, _: int) -> Fault | None:
        self.requests.append((operation, key))
        return self._at(len(self.requests) - 1, operation, key)


def requests_of(task: Task, world: World) -> list[tuple[RequestKind, str]]:
    """Return the requests of the task when nothing fails, with those that open the log."""
    watched = Watched(world.copied(), lambda *_: None)
    watched.run(task)
    return watched.requests


def die(task: Task, world: World, number: int, kind: FaultKind) -> World:
    """Return a copy in which a process died at a request of the task."""
    left = world.copied()
    watched = Watched(left, lambda at, *_: Fault(kind) if at == number else None)
    with pytest.raises(SimulatedCrash):
        watched.run(task)
    return left


def deaths(name: str, *, full: bool) -> int:
    """Let a process die before each request of a task, and after each that changes something; examine what
    each has left, and return the number of requests.

    After a read is before the next request. ``full``: else the process dies only at the first request of each
    kind, and the last of all, and of what that has left STATES_MAX are examined.
    """
    task, world = TASKS[name], world_of(name)
    requests = requests_of(task, world)
    left: dict[bytes, World] = {}
    for number in range(len(requests)) if full else telling(kinds_of(requests)):
        kills = [FaultKind.CRASH_BEFORE]
        if requests[number][0] in WRITES:
            kills.append(FaultKind.CRASH_AFTER)
        for kind in kills:
            dead = die(task, world, number, kind)
            left.setdefault(dead.fingerprint(), dead)
    states = [*left.values()]
    for number, state in enumerate(states if full else spread(states, STATES_MAX)):
        for in_use in (False, True) if full else (number % 2 == 1,):
            examine(task, state.copied(), in_use=in_use)
    return len(requests)


def kinds_of(requests: Sequence[tuple[RequestKind, str]]) -> list[tuple[RequestKind, str]]:
    """Return the kind of each request: its operation, and its key without ids and numbers."""
    return [(operation, re.sub("[0-9a-f]*[0-9][0-9a-f]*", "#", key)) for operation, key in requests]


def examine(task: Task, left: World, *, in_use: bool) -> None:
    """Readers and writers find the log as it was; the next run completes the task, and one after that does
    nothing.

    ``in_use``: clients write and read before the next run; else afterwards.
    """
    is_between(task, left)
    _is_sound(left)
    if in_use:
        left.go_on()
        is_between(task, left)
    _complete(task, left)
    if not in_use:
        left.go_on()
        is_between(task, left)
    _is_sound(left, deep=True)


def _complete(task: Task, world: World) -> None:
    for _ in range(task.runs):
        world.clock.sleep(task.rest_s)
        log = world.opened()
        task.run(log)
        log.close()
    _is_after(task, world)
    if not task.repeats:
        again = Watched(world, lambda *_: None)
        again.run(task)
        assert not [one for one in again.requests if one[0] in WRITES], "a further run does nothing"
    task.done(world)


def _is_sound(world: World, *, deep: bool = False) -> None:
    left = entries_in(world.store)
    assert left == list(range(left[0], left[-1] + 1)), "entries go from the oldest on"
    log = world.opened()
    assert [one.entry for one in log.history()] == list(range(log.state.entry, -1, -1)), (
        "bundles have the rest"
    )
    report = log.verify(deep=deep)
    assert report.ok, report.problems


def is_between(task: Task, world: World) -> None:
    """Check that readers see the log as before the task, or after it, record by record; a topic is there as a
    whole, or not at all."""
    after = world.ledger.copied()
    task.after(after)
    _is_shown(world, world.ledger, after)


def _is_after(task: Task, world: World) -> None:
    task.after(world.ledger)
    _is_shown(world, world.ledger, world.ledger)


def _is_shown(world: World, before: Ledger, after: Ledger) -> None:
    log = world.opened()
    assert after.topics() <= set(log.topics()) <= before.topics()
    for topic in log.topics():
        one, other = before.copied(), after.copied()
        for part in log.offsets(topic):
            place = (topic, part.partition)
            assert part.log_end in (before.log_end(place), after.log_end(place))
            assert part.last_stable_offset in (before.stable_end(place), after.stable_end(place))
            assert before.starts.get(place, 0) <= part.earliest <= after.starts.get(place, 0)
            one.starts[place] = other.starts[place] = part.earliest
        lasting = other.visible(topic, "snapshot").keys() & one.visible(topic, "snapshot").keys()
        for isolation in ISOLATIONS:
            first, second = one.visible(topic, isolation), other.visible(topic, isolation)
            must = first.keys() & second.keys()
            if isolation == "read_uncommitted":
                must &= lasting  # a compaction drops records of aborted transactions
            seen = world.seen(log, topic, isolation)
            assert must <= seen.keys() <= first.keys() | second.keys(), (topic, isolation, seen)
            assert seen.items() <= (first | second).items(), (topic, isolation, seen)
