"""Time, ids and randomness as components: the only module that asks the machine for them.

The core takes these as arguments; the shells take a :class:`Clock` and an :class:`Ids` and pass values on.
Tests and the simulator pass their own.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import NamedTuple, Protocol

__all__ = ["Clock", "ClockReading", "Ids", "Instant", "SystemClock", "SystemIds", "steady_ms", "waited_ms"]


class Instant(NamedTuple):
    """The two clocks of a machine, read together."""

    wall_ms: int
    """Milliseconds since 1970-01-01 UTC; may jump."""
    boot_ms: int | None
    """Milliseconds since boot, counting suspended time, never going back; None where there is no such clock.
    """


def steady_ms(instant: Instant) -> int:
    """Return the reading of the clock that does not jump, if the machine has it: readings of one machine
    differ by the time between them.
    """
    return instant.wall_ms if instant.boot_ms is None else instant.boot_ms


class ClockReading(Protocol):
    """Both clocks of a machine, read together; perhaps others besides."""

    @property
    def wall_ms(self) -> int:
        """As :attr:`Instant.wall_ms`."""
        ...

    @property
    def boot_ms(self) -> int | None:
        """As :attr:`Instant.boot_ms`."""
        ...


def waited_ms(start: ClockReading, end: ClockReading) -> int:
    """Return the milliseconds between two readings of a machine's clocks, by the one that does not jump if it
    has it.
    """
    if start.boot_ms is None or end.boot_ms is None:
        return end.wall_ms - start.wall_ms
    return end.boot_ms - start.boot_ms


class Clock(Protocol):
    """Where a process gets its time from."""

    def now(self) -> Instant:
        """Return both clocks."""
        ...

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Wait, or return early when ``wake`` is set."""
        ...


class Ids(Protocol):
    """Where a process gets unique names and random numbers from."""

    def new(self) -> str:
        """Return a fresh random UUID (version 4) in its canonical text form."""
        ...

    def uniform(self) -> float:
        """Return a float in [0, 1)."""
        ...


class SystemClock:
    """The machine's clocks.

    ``CLOCK_BOOTTIME`` counts suspended time (Linux); elsewhere ``boot_ms`` is None.
    """

    def now(self) -> Instant:
        """Return both clocks."""
        boot = (
            time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
            if hasattr(time, "CLOCK_BOOTTIME")
            else None
        )
        return Instant(time.time_ns() // 1_000_000, boot)

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Wait, or return early when ``wake`` is set."""
        if wake is None:
            time.sleep(seconds)
        else:
            wake.wait(seconds)


_RANDOM = random.SystemRandom()
"""Keeps no state of its own."""


class SystemIds:
    """The operating system's randomness; safe after a fork, since nothing is kept in the process."""

    def new(self) -> str:
        """Return a fresh random UUID."""
        # As ``uuid.uuid4``, without the object: a commit draws five.
        drawn = bytearray(os.urandom(16))
        drawn[6] = drawn[6] & 0x0F | 0x40  # version 4
        drawn[8] = drawn[8] & 0x3F | 0x80  # variant of RFC 4122
        digits = drawn.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def uniform(self) -> float:
        """Return a float in [0, 1)."""
        return _RANDOM.random()
