"""The test kit that interrupts calls at every point, its oracle, and the memory store under it."""

from __future__ import annotations

import signal
from collections import Counter as Count
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interrupts import sample
from tests.interrupts.ledger import Batch, Fate, Group, Ledger, Seen
from txnformat.store import memory
from txnformat.store.base import CreateOutcome
from txnformat.store.memory import MemoryStore
from txnlog_testing.interrupts import Point, PointKind, interrupt, interrupted_at_each, record, thinned
from txnlog_testing.stores.signalling import SignallingStore

ROOTS = (str(Path(sample.__file__)),)
ALL = [2, 4, 6]


class Stop(BaseException):
    """What is raised."""


def points(counter: sample.Counter) -> list[Point]:
    with record(ROOTS) as found:
        counter.move()
    assert sorted(counter.done) == ALL
    return found


def outcomes(kind: type[sample.Counter]) -> Count[str]:
    """Interrupt at every point, call again, and say what came of it."""
    found: Count[str] = Count()
    for point in points(kind()):
        counter = kind()
        with pytest.raises(Stop), interrupt(point, Stop, ROOTS) as struck:
            counter.move()
        assert struck.hit
        assert "sample.py" in struck.trace[0]
        if counter.lock.inner.locked():
            found["leaked lock"] += 1
            continue
        counter.move()
        found["whole" if sorted(counter.done) == ALL else "lost"] += 1
    return found


def test_every_point_is_struck_and_the_flaws_of_a_program_show() -> None:
    found = outcomes(sample.Counter)
    assert found["leaked lock"] >= 3  # in __enter__ behind acquire, and in __exit__ before release
    assert found["lost"] >= 6  # between pop and append, three times
    assert outcomes(sample.SafeCounter).keys() == {"whole"}


def test_a_point_that_a_call_comes_to_only_sometimes_is_tried_again_or_passed_over() -> None:
    found = points(sample.SafeCounter())
    begun: list[sample.SafeCounter] = []

    def begin() -> sample.SafeCounter:
        begun.append(sample.SafeCounter())
        return begun[-1]

    def call(counter: sample.SafeCounter) -> None:
        if len(begun) % 3 == 0:  # two trials of three do not come to it
            counter.move()

    trials = interrupted_at_each(found, begin, call, Stop, roots=ROOTS)
    assert [point for _, point in trials] == found
    assert len(begun) == 3 * len(found)
    more = [*found, replace(found[-1], nth=99)]
    assert len(
        list(interrupted_at_each(more, sample.SafeCounter, sample.SafeCounter.move, Stop, roots=ROOTS))
    ) == len(found)
    with pytest.raises(AssertionError, match="points were not reached"):
        list(interrupted_at_each(found, sample.SafeCounter, lambda _: None, Stop, roots=ROOTS))


def test_points_are_where_the_interpreter_runs_handlers() -> None:
    found = points(sample.Counter())
    kinds = Count(point.kind for point in found)
    assert kinds[PointKind.JUMP] >= 2  # a loop of three rounds
    assert kinds[PointKind.WAITING] == 1  # Lock.acquire
    names = Count(point.place.rsplit(":", 1)[1] for point in found if point.kind is PointKind.ENTRY)
    assert names["double"] == 3
    assert names["PythonLock.note"] == 2
    # abs, pop, append of each round, acquire, release; no plain Python function is looked at when it returns
    assert kinds[PointKind.RETURNED] == 3 * 3 + 2
    assert kinds[PointKind.MADE] == 0


def test_thinned_keeps_the_first_and_the_last_of_each_place() -> None:
    found = points(sample.Counter())
    kept = thinned(found, 2)
    assert {(one.place, one.offset, one.kind) for one in kept} == {
        (one.place, one.offset, one.kind) for one in found
    }
    doubles = [one.nth for one in kept if one.place.endswith("double") and one.kind is PointKind.ENTRY]
    assert doubles == [1, 3]


def test_a_run_without_the_point_is_left_alone() -> None:
    point = points(sample.Counter())[-1]
    counter = sample.Counter()
    counter.waiting.clear()
    with interrupt(Point(point.place, point.line, point.offset, point.kind, 99), Stop, ROOTS) as struck:
        counter.move()
    assert not struck.hit


def test_a_signal_during_a_request_reaches_the_main_thread() -> None:
    inner = MemoryStore()
    store = SignallingStore(inner, signal.SIGUSR1)

    def stop(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        for is_after in (False, True):
            store = SignallingStore(inner, signal.SIGUSR1)
            store.arm(1, is_after=is_after)
            with pytest.raises(Stop):
                store.create(f"key-{is_after}", b"x")
            assert store.struck
            assert (inner.get(f"key-{is_after}") is not None) is is_after
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_the_memory_store_survives_an_interrupt_at_every_point() -> None:
    def used() -> MemoryStore:
        store = MemoryStore()
        for key in ("a", "b", "d"):
            store.create(key, b"1")
        return store

    def change(store: MemoryStore) -> None:
        store.create("c", b"2")
        store.delete("b")
        store.put("e", b"3")

    roots = (str(Path(memory.__file__)),)
    store = used()
    with record(roots) as found:
        change(store)
    assert len(found) > 10
    for point in found:
        store = used()
        with pytest.raises(Stop), interrupt(point, Stop, roots):
            change(store)
        listed = [info.key for info in store.list("")]
        assert listed == sorted(key for key in "abcde" if store.get(key) is not None), point
        assert store.create("0", b"").outcome is CreateOutcome.CREATED
        change(store)
        assert [info.key for info in store.list("")] == ["0", "a", "c", "d", "e"]


# --- the oracle ---------------------------------------------------------------------------------------------


def ledger(fate: Fate, *, is_certain: bool = True) -> Ledger:
    group = Group(True, fate, [Batch("t", (1, 2), is_certain), Batch("t", (3,), True)], ["g"], [7])
    return Ledger([group], 3)


def seen(*values: int, group: bool = True, acknowledged: bool = True) -> Seen:
    groups = frozenset({"g"} if group else ())
    return Seen({"t": Count(values)}, groups, frozenset(() if acknowledged else {7}), ())


@pytest.mark.parametrize(
    ("fate", "found", "problem"),
    [
        (Fate.ACKNOWLEDGED, seen(1, 2, 3), None),
        (Fate.ACKNOWLEDGED, seen(1, 2), "lost"),
        (Fate.ACKNOWLEDGED, seen(1, 2, 3, 3), "t: 3 is there 2 times"),
        (Fate.ACKNOWLEDGED, seen(1, 2, 3, group=False), "lost"),
        (Fate.ACKNOWLEDGED, seen(1, 2, 3, acknowledged=False), "lost"),
        (Fate.ACKNOWLEDGED, seen(1, 3), "torn"),
        (Fate.ACKNOWLEDGED, seen(1, 2, 3, 9), "t: 9 was never sent"),
        (Fate.ABORTED, seen(group=False, acknowledged=False), None),
        (Fate.ABORTED, seen(3, group=False, acknowledged=False), "visible"),
        (Fate.ABORTED, seen(group=True, acknowledged=False), "visible"),
        (Fate.OPEN, seen(1, 2, 3), "visible"),
        (Fate.UNKNOWN, seen(1, 2, 3), None),
        (Fate.UNKNOWN, seen(group=False, acknowledged=False), None),
        (Fate.UNKNOWN, seen(1, 2, 3, group=False), "torn"),
        (Fate.UNKNOWN, seen(3, group=False, acknowledged=False), "torn"),
    ],
)
def test_the_ledger_finds_what_is_not_as_it_was_told(fate: Fate, found: Seen, problem: str | None) -> None:
    problems = list(ledger(fate).check(found))
    assert (problems == []) if problem is None else problems[0].startswith(problem), problems


def test_of_a_send_that_raised_all_or_nothing_may_be_there() -> None:
    unsure = ledger(Fate.ACKNOWLEDGED, is_certain=False)
    assert list(unsure.check(seen(1, 2, 3))) == list(unsure.check(seen(3))) == []
    assert "torn" in next(iter(unsure.check(seen(1, 3))))


def test_without_transactions_each_flushed_batch_is_there_and_each_other_one_whole() -> None:
    flushed, held = Batch("t", (1, 2), True, True), Batch("t", (3, 4), True)
    both = Ledger([Group(False, batches=[flushed, held])], 4)
    for values in ((1, 2), (1, 2, 3, 4)):
        assert list(both.check(seen(*values))) == []
    assert "lost" in next(iter(both.check(seen(3, 4))))
    assert "torn" in next(iter(both.check(seen(1, 2, 4))))
