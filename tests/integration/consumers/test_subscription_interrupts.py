"""Subscription: an exception of a signal handler at any point of a call loses no record, and no
acknowledgement."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS, rows
from txnformat.consumers import delivery as delivery_module
from txnformat.consumers import fetching as fetching_module
from txnformat.store.memory import MemoryStore
from txnlog import AckConflictError, InvalidTransactionStateError, Producer, Subscription, TxnLog
from txnlog_testing.interrupts import Point, interrupted_at_each, record, thinned
from writers.inputs import TransactionInputs


class _Interrupt(Exception):
    """What the signal handler of these tests raises."""


ALL = list(range(12))


class Trials:
    """A log with twelve records, and for each trial a subscription of its own of which three are received."""

    def __init__(self) -> None:
        self.log = TxnLog.create(MemoryStore())
        self.log.create_topic("raw", NUMBERS)
        with Producer(self.log) as producer:
            producer.send("raw", rows(*ALL))
        self._names = count()

    def begin(self) -> Subscription:
        name = f"work-{next(self._names)}"
        self.log.subscriptions.create("raw", name)
        subscription = Subscription(self.log, "raw", name)
        self.first = subscription.receive(3, timeout_ms=0)
        return subscription

    def each(self, call: Callable[[Subscription], object]) -> Iterator[tuple[Subscription, Point]]:
        call(self.begin())
        subscription = self.begin()
        with record() as points:
            call(subscription)
        assert points
        yield from interrupted_at_each(
            thinned(points, per_place=1), self.begin, call, _Interrupt, lambda one: one.close()
        )

    def free(self, subscription: Subscription) -> list[int]:
        """Return what another instance receives: all that is not acknowledged."""
        with Subscription(self.log, "raw", subscription.name) as other:
            return received(other)


def received(subscription: Subscription) -> list[int]:
    found: list[int] = []
    while (batch := subscription.receive(5, timeout_ms=0)) is not None:
        found += batch.column("n").to_pylist()
    return found


@pytest.fixture(scope="module")
def trials() -> Trials:
    return Trials()


@pytest.mark.parametrize("name", ["receive", "receive_dicts"])
def test_records_that_the_caller_never_got_are_received_again_and_no_others(
    trials: Trials, name: str
) -> None:
    for subscription, point in trials.each(lambda one: getattr(one, name)(4, timeout_ms=0)):
        assert received(subscription) == ALL[3:], point


@pytest.mark.parametrize("cumulative", [False, True])
def test_an_acknowledgement_that_was_interrupted_is_repeated(trials: Trials, *, cumulative: bool) -> None:
    def call(subscription: Subscription) -> None:
        if cumulative:
            subscription.acknowledge_cumulative([(0, 2)])
        else:
            subscription.acknowledge(trials.first)

    for subscription, point in trials.each(call):
        assert trials.free(subscription) in (ALL, ALL[3:]), point
        call(subscription)
        assert trials.free(subscription) == ALL[3:], point
        with pytest.raises(AckConflictError):  # told once, it is another one
            call(subscription)
        assert received(subscription) == ALL[3:], point


def test_after_other_records_were_received_a_repeat_is_told(trials: Trials) -> None:
    """Others may have gone back meanwhile: then an answer from before would not be true."""
    for subscription, point in trials.each(lambda one: one.acknowledge(trials.first)):
        assert received(subscription) == ALL[3:], point
        was_done = trials.free(subscription) == ALL[3:]
        if was_done:
            with pytest.raises(AckConflictError):
                subscription.acknowledge(trials.first)
        else:
            subscription.acknowledge(trials.first)
        assert trials.free(subscription) == ALL[3:], point


def test_what_was_given_back_comes_again(trials: Trials) -> None:
    def call(subscription: Subscription) -> None:
        subscription.negative_acknowledge(trials.first)

    for subscription, point in trials.each(call):
        call(subscription)
        assert received(subscription) == ALL, point


@pytest.mark.parametrize(
    "call", [lambda one: one.seek(0), lambda one: one.redeliver_unacknowledged(), lambda one: one.backlog()]
)
def test_other_calls_are_done_whole_or_not_at_all(
    trials: Trials, call: Callable[[Subscription], object]
) -> None:
    for subscription, point in trials.each(call):
        assert received(subscription) in (ALL, ALL[3:]), point


def test_a_close_that_was_interrupted_is_repeated(trials: Trials) -> None:
    for subscription, point in trials.each(lambda one: one.close()):
        subscription.close()
        with pytest.raises(InvalidTransactionStateError, match="closed"):
            subscription.receive(timeout_ms=0)
        assert trials.free(subscription) == ALL, point


@pytest.mark.parametrize(
    ("where", "what"), [(delivery_module.Delivery, "_wanted"), (fetching_module.Fetched, "move")]
)
def test_an_unexpected_failure_of_a_receive_leaves_it_as_before(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, where: type, what: str
) -> None:
    def fail(*_: object) -> pa.RecordBatch:
        raise MemoryError

    subscription = trials.begin()
    monkeypatch.setattr(where, what, fail)
    with pytest.raises(MemoryError):
        subscription.receive(4, timeout_ms=0)
    monkeypatch.undo()
    assert received(subscription) == ALL[3:]
    subscription.close()


def test_a_signal_while_an_acknowledgement_is_written(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_it(number: int, frame: object) -> None:
        struck.set()
        raise _Interrupt

    subscription = trials.begin()
    committer, commit = trials.log.committer, trials.log.committer.commit
    struck = threading.Event()

    def interrupted(intent: Any) -> Any:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        struck.wait()
        return commit(intent)

    before = signal.signal(signal.SIGUSR1, raise_it)
    try:
        monkeypatch.setattr(committer, "commit", interrupted)
        with pytest.raises(_Interrupt):
            subscription.acknowledge(trials.first)
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    subscription.acknowledge(trials.first)
    assert trials.free(subscription) == ALL[3:]


# --- what a producer takes along ----------------------------------------------------------------------------


class _Source:
    """Somebody else's class whose positions, and whose records, a transaction has taken along."""

    log_id = ""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.told: list[object] = []

    def transaction_takes(self, acks: Any, producer: Any) -> None:
        pass

    def transaction_ended(self, acks: Any, *, committed: bool) -> None:
        self.told.append(committed)
        if self.fails:
            raise ZeroDivisionError

    def offsets_committed(self, offsets: Any) -> None:
        self.told.append(offsets.group)
        if self.fails:
            raise ZeroDivisionError


@pytest.mark.parametrize("committed", [False, True])
def test_everybody_is_told_how_a_transaction_ended_although_one_fails(
    trials: Trials, caplog: pytest.LogCaptureFixture, *, committed: bool
) -> None:
    from txnformat.core.intents import GroupOffsets

    sources: list[Any] = [_Source(fails=True), _Source(fails=False)]
    progress = TransactionInputs()
    acks: Any = object()
    for source in sources:
        progress.acknowledge(acks, source, None)  # type: ignore[arg-type]
        progress.add(GroupOffsets("g", (), (), None, False), source)
    assert progress
    progress.committed() if committed else progress.discard()
    assert not progress
    assert [source.told for source in sources] == [["g", True] if committed else [False]] * 2
    assert "could not be notified" in caplog.text
