"""Errands: what the main thread hands over is done once, whatever cuts the wait; and its answer is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, cast

import pytest

from txnformat import shield
from txnformat.errors import InternalError
from txnformat.shield import Errand, is_interruptible, shielded
from txnlog_testing.interrupts import Point, interrupt, record

COLOUR: ContextVar[str] = ContextVar("COLOUR", default="none")


class _Interrupt(Exception):
    """What the signal handler of these tests raises."""


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise _Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def _interrupt_main() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def test_the_main_thread_waits_and_another_thread_works() -> None:
    assert is_interruptible()
    assert shielded(threading.get_ident) != threading.get_ident()
    assert shielded(is_interruptible) is False


def test_elsewhere_an_errand_runs_in_the_thread_that_asks() -> None:
    assert shielded(lambda: shielded(threading.get_ident) == threading.get_ident())


def test_the_answer_is_returned_or_raised() -> None:
    assert shielded(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        shielded(lambda: 1 // 0)


def test_context_variables_are_those_of_the_caller() -> None:
    token = COLOUR.set("red")
    try:
        assert shielded(COLOUR.get) == "red"
    finally:
        COLOUR.reset(token)


def test_an_interrupt_reaches_the_caller_and_the_errand_goes_on() -> None:
    go_on = threading.Event()

    def work() -> str:
        _interrupt_main()
        go_on.wait()
        return "done"

    errand = Errand(work)
    with pytest.raises(_Interrupt):
        errand.run()
    assert not errand.is_ended
    assert shielded(lambda: "another") == "another"  # one that still runs holds up nobody
    go_on.set()
    assert errand.settle()
    assert errand.answer() == "done"


class _Stuck(Exception):
    """What the watchdog of these tests raises."""


class _Held:
    """A worker's queue. Once the worker was told to end it gets nothing for now, as if it had not come to ask
    again yet."""

    def __init__(self, queue: SimpleQueue[Any]) -> None:
        self._queue = queue
        self._is_told = False
        self.go_on = threading.Event()

    def put(self, errand: Any) -> None:
        self._is_told = self._is_told or errand is None
        self._queue.put(errand)

    def get(self) -> Any:
        if self._is_told:
            self.go_on.wait()
        return self._queue.get()


def _points_while_another_runs(strike: Point | None) -> list[Point]:
    """Be cut in a call beside one that still runs; afterwards, when that has ended, the next call is
    answered."""
    go_on = threading.Event()

    def work() -> None:
        _interrupt_main()
        go_on.wait()

    first = Errand(work)
    with pytest.raises(_Interrupt):
        first.run()
    worker = shield._worker
    assert worker is not None
    held = worker.errands = cast("Any", _Held(worker.errands))
    points: list[Point] = []
    cut = record() if strike is None else interrupt(strike, _Interrupt)
    with suppress(_Interrupt), cut as found:
        shielded(lambda: None)
    if isinstance(found, list):
        points = found
    go_on.set()
    first.wait()

    def stop(number: int, frame: object) -> None:
        raise _Stuck

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 60.0)
    try:
        assert shielded(lambda: "answered") == "answered"
    except _Stuck:
        pytest.fail(f"no answer after an interrupt at {strike}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        held.go_on.set()
    return points


def test_an_interrupt_while_a_thread_is_replaced_leaves_one_that_answers() -> None:
    """A thread that was told to end and is still the one that gets the next errand would never do it."""
    points = _points_while_another_runs(None)
    assert any("_submit" in point.place for point in points)
    for point in points:
        _points_while_another_runs(point)


class _Cut:
    """A worker's queue: the caller is interrupted once it has handed an errand over, and before it does
    anything else."""

    def __init__(self, queue: SimpleQueue[Any]) -> None:
        self._queue = queue

    def put(self, errand: Any) -> None:
        self._queue.put(errand)
        if errand is not None:
            raise _Interrupt

    def get(self) -> Any:
        return self._queue.get()


def test_an_errand_whose_caller_was_cut_as_it_handed_it_over_holds_up_nobody() -> None:
    shielded(lambda: None)
    worker = shield._worker
    assert worker is not None
    worker.errands = cast("Any", _Cut(worker.errands))
    go_on, done = threading.Event(), threading.Event()
    first = Errand(go_on.wait)
    with pytest.raises(_Interrupt):
        first.run()
    late = threading.Timer(60, go_on.set)
    late.start()
    try:
        shielded(done.set)
        assert done.is_set()
        assert not go_on.is_set()
    finally:
        late.cancel()
        go_on.set()
    assert first.settle()


def test_an_errand_that_was_never_handed_over_never_runs() -> None:
    done: list[int] = []
    errand = Errand(lambda: done.append(1))
    assert not errand.settle()
    errand.run()
    assert not errand.settle()
    assert done == []
    with pytest.raises(InternalError):
        errand.answer()


def test_settled_errands_have_ended_also_those_whose_callers_were_cut() -> None:
    done: list[int] = []

    def work() -> None:
        _interrupt_main()
        threading.Event().wait(0.05)  # the caller is gone before the end
        done.append(1)

    errand = Errand(work)
    with pytest.raises(_Interrupt):
        errand.run()
    shield.settle_errands()
    assert errand.is_ended
    assert done == [1]


def test_an_errand_runs_once_however_often_it_is_handed_over() -> None:
    done: list[int] = []
    errand = Errand(lambda: done.append(1))
    errand.run()
    errand.run()
    assert errand.settle()
    assert done == [1]
    assert errand.error is None


def test_what_it_raises_is_its_answer_whatever_it_is() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        shielded(leave)
    assert shielded(lambda: 1) == 1


def test_a_forked_child_has_a_library_thread_of_its_own() -> None:
    assert shielded(lambda: 1) == 1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, b"y" if shielded(lambda: 2) == 2 else b"n")
        finally:
            os._exit(0)
    os.close(writer)
    assert os.read(reader, 1) == b"y"
    os.close(reader)
    os.waitpid(child, 0)


def test_without_another_thread_an_errand_runs_in_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(shield, "_worker", None)
    monkeypatch.setattr(shield, "start_new_thread", refuse)
    assert shielded(threading.get_ident) == threading.get_ident()


def test_without_a_second_thread_the_first_one_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(worker: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(shield, "_worker", None)
    monkeypatch.setattr(shield._Worker, "start", refuse)
    assert shielded(threading.get_ident) != threading.get_ident()


def test_the_interpreter_ends_after_an_errand_whose_caller_was_interrupted() -> None:
    program = """
import signal, threading
from txnformat.shield import shielded
raised = threading.Event()
def interrupt(number, frame):
    raised.set()
    raise KeyboardInterrupt
signal.signal(signal.SIGUSR1, interrupt)
def work():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    raised.wait()
    print("whole", flush=True)
try:
    shielded(work)
except KeyboardInterrupt:
    pass
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "whole\n"
