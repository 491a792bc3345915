"""Consumer: an exception of a signal handler at any point of a call leaves it as before, or as behind the
call."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.consumers.consuming import T0, World, committed, drained, numbers, refuses
from txnformat.consumers import fetching
from txnformat.consumers.reading import Reading
from txnformat.consumers.uncut import Uncut
from txnformat.core.intents import TakeCheckpoint
from txnlog import Consumer, InvalidTransactionStateError, TxnLog
from txnlog_testing.interrupts import Point, interrupted_at_each, record, thinned

T1 = ("t", 1)


class _Interrupt(Exception):
    """What the signal handler of these tests raises."""


@pytest.fixture(scope="module")
def world() -> World:
    """Two partitions with twelve and six records."""
    world = World(partitions=2)
    for start in range(0, 12, 4):
        world.append(*range(start, start + 4))
        world.append(*range(100 + start // 2, 102 + start // 2), partition=1)
    return world


ALL = [*range(12), *range(100, 106)]
_groups = itertools.count()
"""Of the module, as its log is: a group of an earlier test would have positions."""


class Trials:
    """Fresh consumers that have read three records, each in a group of its own."""

    def __init__(self, world: World, *, cut: int = 1, **settings: Any) -> None:
        self.world = world
        self.got: list[int] = []
        self.group = ""
        self._settings = settings
        self._cut = cut

    def begin(self) -> Consumer:
        self.group = f"g{next(_groups)}"
        consumer = Consumer(self.world.log, self.group, max_poll_records=3, **self._settings)
        consumer.subscribe(["t"])
        self.got = []
        for _ in range(self._cut):
            self.got += numbers(consumer.poll(0)) or []
        return consumer

    def each(self, call: Callable[[Consumer], object]) -> Iterator[tuple[Consumer, Point]]:
        """Yield a consumer whose call was interrupted, for each point of the call."""
        call(self.begin())
        consumer = self.begin()
        with record() as points:
            call(consumer)
        consumer.close()
        assert points
        yield from interrupted_at_each(
            thinned(points, per_place=1), self.begin, call, _Interrupt, lambda one: one.close()
        )


def test_the_next_poll_returns_the_batch_of_the_one_that_was_interrupted(world: World) -> None:
    trials = Trials(world)
    clean = trials.begin()
    wanted = [numbers(clean.poll(0)) for _ in range(6)]
    for consumer, point in trials.each(lambda consumer: consumer.poll(0)):
        assert [numbers(consumer.poll(0)) for _ in range(6)] == wanted, point


@pytest.mark.parametrize("cut", [1, 2])
def test_records_that_lie_ready_are_not_lost_either(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    """The second batch of a chain is cut in the caller's thread."""
    world = World()
    world.append(*range(20))
    trials = Trials(world, cut=cut)
    clean = trials.begin()
    fetches: list[int] = []
    poll = Reading.poll

    def counted(*given: Any, **more: Any) -> Any:
        fetches.append(1)
        return poll(*given, **more)

    monkeypatch.setattr(Reading, "poll", counted)
    wanted = [numbers(clean.poll(0)) for _ in range(4)]
    assert not fetches  # all from what the first poll has decoded
    for consumer, point in trials.each(lambda consumer: consumer.poll(0)):
        assert [numbers(consumer.poll(0)) for _ in range(4)] == wanted, point


def test_dicts_that_were_not_made_are_made_again(world: World) -> None:
    trials = Trials(world)
    for consumer, point in trials.each(lambda consumer: consumer.poll_dicts(0)):
        assert sorted(trials.got + drained(consumer)) == ALL, point


@pytest.mark.parametrize("auto", [False, True])
def test_a_commit_leaves_out_what_the_caller_never_got(world: World, *, auto: bool) -> None:
    trials = Trials(world, enable_auto_commit=auto, auto_commit_interval_ms=1_000_000)
    for consumer, point in trials.each(lambda consumer: consumer.poll(0)):
        got = [0, 0]
        for number in trials.got:
            got[number >= 100] += 1
        if not auto:
            consumer.commit()
        consumer.close()
        found = [committed(world, trials.group, number) or 0 for number in range(2)]
        assert found == got, point


def test_a_commit_that_was_interrupted_is_repeated(world: World) -> None:
    trials = Trials(world)
    for consumer, point in trials.each(lambda consumer: consumer.commit()):
        assert committed(world, trials.group) in (None, 3), point
        consumer.commit()
        assert committed(world, trials.group) == 3, point
        assert sorted(trials.got + drained(consumer)) == ALL, point


@pytest.mark.parametrize(
    ("call", "places"),
    [
        (lambda c: c.seek("t", 0, 7), ((3, 0), (7, 0))),
        (lambda c: c.seek_to_end(), ((3, 0), (15, 9))),
        (lambda c: c.seek_to_beginning(), ((3, 0), (0, 0))),
        (lambda c: c.seek_to_committed(), ((3, 0), (0, 0))),
        (lambda c: c.seek_to_time(0), ((3, 0), (0, 0))),
        (lambda c: c.pause(), ((3, 0),)),
        (lambda c: c.lag(), ((3, 0),)),
        (lambda c: c.positions(), ((3, 0),)),
        (lambda c: c.group_offsets(c._log.log_id), ((3, 0),)),
    ],
    ids=[
        "seek",
        "seek_to_end",
        "to_beginning",
        "to_committed",
        "seek_to_time",
        "pause",
        "lag",
        "positions",
        "offsets",
    ],
)
def test_other_calls_are_done_whole_or_not_at_all(
    world: World, call: Callable[[Consumer], object], places: tuple[tuple[int, int], ...]
) -> None:
    trials = Trials(world)
    for consumer, point in trials.each(call):
        assert tuple(consumer.positions().values()) in places, point
        assert consumer.paused() in ([], [T0, T1]), point


@pytest.mark.parametrize("again", [False, True])
def test_a_subscribe_is_done_whole_or_not_at_all(world: World, *, again: bool) -> None:
    def call(consumer: Consumer) -> None:
        consumer.unsubscribe()
        consumer.subscribe(["t"])

    for consumer, point in Trials(world, cut=0).each(call):
        if again:
            consumer.subscribe(["t"])
            assert sorted(drained(consumer)) == ALL, point
        else:
            assert consumer.assignment() in ([], [T0, T1]), point


def test_a_close_that_was_interrupted_is_repeated(world: World) -> None:
    trials = Trials(world, enable_auto_commit=True)
    for consumer, point in trials.each(lambda consumer: consumer.close()):
        consumer.close()
        assert committed(world, trials.group) == 3, point
        assert world.writing.refresh().groups[trials.group].member is None, point
        refuses(InvalidTransactionStateError, "consumer-closed", consumer.positions)


def test_other_threads_get_an_answer(world: World) -> None:
    for consumer, point in Trials(world).each(lambda consumer: consumer.poll(0)):
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(consumer.positions()))  # noqa: B023
        consumer.positions()  # now the interrupted call has ended
        thread.start()
        thread.join()
        assert found == [{T0: 3, T1: 0}], point


# --- real signals -------------------------------------------------------------------------------------------


@contextmanager
def signals() -> Iterator[Callable[[], None]]:
    """Yield a function that has a handler raise in the main thread."""

    def raise_it(number: int, frame: object) -> None:
        raise _Interrupt

    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_while_a_batch_is_fetched_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = fetching.Fetcher.fetch
    with Consumer(world.log) as consumer, signals() as strike:
        consumer.subscribe(["t"])

        def interrupted(*given: Any) -> fetching.Fetched:
            strike()
            return fetch(*given)

        monkeypatch.setattr(fetching.Fetcher, "fetch", interrupted)
        with pytest.raises(_Interrupt):
            consumer.poll(0)
        monkeypatch.undo()
        assert sorted(drained(consumer)) == ALL


def test_a_poll_that_waits_gives_up_when_its_caller_is_gone(world: World) -> None:
    waits: list[float] = []
    with signals() as strike:

        class Clock(type(world.clock)):  # type: ignore[misc]
            def sleep(self, seconds: float, wake: Any = None) -> None:
                waits.append(seconds)
                strike()
                gone.wait()

        gone = threading.Event()
        log = TxnLog.open(world.memory, clock=Clock())
        with Consumer(log) as consumer:
            consumer.assign([("t", 0)])
            consumer.seek_to_end()
            with pytest.raises(_Interrupt):
                consumer.poll(10**9)
            gone.set()
            assert consumer.positions() == {T0: 15}
    assert len(waits) == 1


# --- what is not expected -----------------------------------------------------------------------------------


def test_after_an_unexpected_failure_of_a_call_that_changes_it_only_close_is_possible(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = world.consumer(0, 1)
    seek = fetching.Assigned.seek

    def fail(one: fetching.Assigned, offset: int | None) -> None:
        if one.key.partition:
            raise MemoryError
        seek(one, offset)

    monkeypatch.setattr(fetching.Assigned, "seek", fail)
    with pytest.raises(MemoryError):
        consumer.seek_to_end()
    monkeypatch.undo()
    for call in (consumer.positions, consumer.poll, consumer.seek_to_beginning):
        refuses(InvalidTransactionStateError, "close-required", call)
    consumer.close()
    refuses(InvalidTransactionStateError, "consumer-closed", consumer.poll)


@pytest.mark.parametrize("what", ["batch", "add"])
def test_an_unexpected_failure_of_a_poll_leaves_it_as_before(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    consumer = world.consumer(0, 1)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(fetching._Filling, what, fail)
    with pytest.raises(MemoryError):
        consumer.poll(0)
    monkeypatch.undo()
    assert sorted(drained(consumer)) == ALL
    consumer.close()


def test_an_unexpected_failure_after_a_commit_has_landed_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials(world)
    consumer = trials.begin()
    commit = world.log.committer.commit

    def fail(intent: Any) -> Any:
        found = commit(intent)
        if isinstance(intent.action, TakeCheckpoint):  # a snapshot may be due just then
            return found
        raise MemoryError

    monkeypatch.setattr(world.log.committer, "commit", fail)
    with pytest.raises(MemoryError):
        consumer.commit()
    monkeypatch.undo()
    assert committed(world, trials.group) == 3
    entry = world.writing.refresh().entry
    consumer.commit()
    assert (committed(world, trials.group), world.writing.refresh().entry) == (3, entry)
    consumer.close()


def test_whoever_fails_at_the_first_step_keeps_nobody_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What guards the consumer against two threads is not left behind."""
    consumer = world.consumer(0, 1)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Uncut, "_checked", lambda *_, **__: fail())
    with pytest.raises(MemoryError):
        consumer.poll(0)
    monkeypatch.undo()
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(drained(consumer)))
    thread.start()
    thread.join()
    assert sorted(found) == ALL
    consumer.close()


def test_of_threads_that_begin_at_once_one_has_it(world: World) -> None:
    consumer = world.consumer(0, 1)
    entered, leave = threading.Event(), threading.Event()
    told: list[str] = []

    def wait(_: object) -> None:
        entered.set()
        leave.wait()

    def hold() -> None:
        consumer._uncut.run("held", wait, breaks=False)

    def ask() -> None:
        try:
            consumer.positions()
        except InvalidTransactionStateError as error:
            told.append(error.kind)

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait()
    others = [threading.Thread(target=ask) for _ in range(8)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    leave.set()
    holder.join()
    assert told == ["concurrent-use"] * 8
    assert sorted(drained(consumer)) == ALL
    consumer.close()
