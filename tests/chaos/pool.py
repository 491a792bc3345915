"""Drivers that wait to be wanted: while one works, Spark of the next one starts."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos.drivers import Cluster, Driver
from tests.chaos.jobs import Job

__all__ = ["Pool"]


class Pool:
    """Hands out drivers whose Spark is there. A context manager: all of them end with it.

    Parameters
    ----------
    place : Cluster
        Where they are started.
    master : str
        Of all of them.
    ahead : int, optional
        How many are started while the one before works; by default all but the first.
    """

    def __init__(self, place: Cluster, master: str, *, ahead: int | None = None) -> None:
        self._ahead = ahead
        self._started = 0
        self._place = place
        self._idle = Job(log="", input="", checkpoint="", control="", master=master, waits=True)
        self._next: Driver | None = None
        self._given: list[Driver] = []

    def begin(self, job: Job) -> Driver:
        """Begin a query, and start another Spark for the next one."""
        driver = self._next or self._place.start(self._idle)
        self._next = None
        self._given.append(driver)
        driver.wait_ready()
        change = asdict(replace(job, control=driver.job.control, master=driver.job.master, waits=False))
        driver.begin(**change)
        driver.wait_started()
        if self._ahead is None or self._started < self._ahead:
            self._next = self._place.start(self._idle)
            self._started += 1
        return driver

    def ended(self, driver: Driver) -> None:
        """Kill all that is left of a driver."""
        driver.kill()
        if driver in self._given:
            self._given.remove(driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for driver in [*self._given, *([self._next] if self._next is not None else [])]:
            driver.kill()
            if error is not None:
                error.add_note(f"{Path(driver.job.control).name} printed:\n{driver.log_tail()}")
