"""A small program with one flaw of each kind that interrupts bring out, for the tests of the test kit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

__all__ = ["Counter", "PythonLock", "SafeCounter"]


class PythonLock:
    """A lock whose ``with`` is Python: an interrupt between its two lines, or before the last one, loses the
    lock."""

    def __init__(self) -> None:
        self.inner = threading.Lock()
        self.waits = 0

    def __enter__(self) -> None:
        self.inner.acquire()
        self.note()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.note()
        self.inner.release()

    def note(self) -> None:
        """Count."""
        self.waits += 1


class Counter:
    """Moves values from one list to another, in two steps."""

    def __init__(self) -> None:
        self.lock = PythonLock()
        self.waiting = [1, 2, 3]
        self.done: list[int] = []

    def move(self) -> None:
        """Move all."""
        with self.lock:
            while self.waiting:
                value = self.waiting.pop()
                self.done.append(double(value))


class SafeCounter(Counter):
    """The same in an order in which nothing is lost, with a lock whose ``with`` is C."""

    def move(self) -> None:
        """Move all."""
        with self.lock.inner:
            while self.waiting:
                value = self.waiting[-1]
                if double(value) not in self.done:
                    self.done.append(double(value))
                self.waiting.pop()


def double(value: int, by: Callable[[int], int] = abs) -> int:
    """Return twice the value."""
    return 2 * by(value)
