"""Errands: what the main thread hands over is done once, whatever cuts the wait; and its answer is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from txnformat import shield
from txnformat.errors import InternalError
from txnformat.shield import Errand, is_interruptible, shielded

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


def test_an_errand_that_was_never_handed_over_never_runs() -> None:
    done: list[int] = []
    errand = Errand(lambda: done.append(1))
    assert not errand.settle()
    errand.run()
    assert not errand.settle()
    assert done == []
    with pytest.raises(InternalError):
        errand.answer()


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
