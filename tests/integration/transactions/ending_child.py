"""Processes that check data files and end on one of them: each as a decoder does that a file ends.

The environment names the file by its key.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable

from txnformat.store.base import ObjectStore
from txnformat.verify.deep_child import Asked, check, serve
from txnformat.verify.report import Record

HOSTILE = "TXNLOG_TEST_HOSTILE"
"""Environment variable: the key of the hostile file."""


def _signal(number: int) -> Callable[[], object]:
    """Signal the asking thread: one sent to the process may reach another thread, after this one has
    answered."""
    return lambda: signal.pthread_kill(threading.get_ident(), number)


def _exit() -> None:
    os._exit(7)


def _raise() -> None:
    raise KeyError("a defect")


def _memory() -> None:
    memoryview(bytearray(resource.getrlimit(resource.RLIMIT_AS)[0]))


def _spin() -> None:
    while True:
        pass


def _print() -> None:
    print("what a library prints", flush=True)
    os.write(1, b"and what C prints\n")


def _nonsense() -> None:
    for number in range(3, 64):  # the answers' pipe is one of them
        try:
            os.write(number, b"\0\0\0\4nons")
        except OSError:
            continue


ENDS: dict[str, Callable[[], object]] = {
    "SIGSEGV": _signal(signal.SIGSEGV),
    "SIGABRT": os.abort,
    "SIGKILL": _signal(signal.SIGKILL),
    "exit": _exit,
    "raise": _raise,
    "memory": _memory,
    "time": _spin,
    "nonsense": _nonsense,
    "print": _print,
}


def serve_ending(way: str) -> None:
    """Serve as the product does, but for the hostile file."""

    def checking(store: ObjectStore, asked: Asked) -> Record:
        if asked.use.record.key == os.environ[HOSTILE]:
            ENDS[way]()
        return check(store, asked)

    serve(checking)


def program(way: str) -> str:
    """Return what :func:`~txnformat.verify.deep_files.check_apart` is to run."""
    return f"from {__name__} import serve_ending; serve_ending({way!r})"


def fail_to_start() -> None:
    """End before anything was answered."""
    sys.exit("no such thing here")
