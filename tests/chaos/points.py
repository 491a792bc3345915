"""The worker's side: points that are reached, and what happens there.

A Python worker does one call of Spark at a time, so what it does is kept once for the process: also threads
of the store know it that way.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from tests.chaos.faults import DRIVER_FILE, Control, Fault, Hit, Place, read_whole
from tests.chaos.processes import driver_processes, jvm_of, processes, send
from tests.killing.points import KillingStore
from txnformat.store import open as store_open
from txnformat.store.base import ObjectStore

__all__ = ["InjectedError", "Points", "begin_task", "install"]


class InjectedError(Exception):
    """A fault was to raise."""


class Points:
    """What a worker has reached; carries out the faults that wait there."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.call = "open"
        self._where: dict[str, int | None] = {}

    def begin(self, call: str, **where: int | None) -> None:
        """Begin one call of Spark: ``batch``, ``partition``, ``attempt`` and ``task``, where they are
        known.
        """
        self.call = call
        self._where = where

    def reached(self, point: str) -> None:
        place = Place(point=point, pid=os.getpid(), **self._where)
        for name, fault in self.control.armed():
            if fault.matches(place) and (time := self.control.claim(name, fault)) is not None:
                self._carry_out(name, time, fault, place)

    def _carry_out(self, name: str, time: int, fault: Fault, place: Place) -> None:
        victims, is_driver = self._victims(fault)
        self.control.note(name, time, Hit(place=place, victims=victims, driver=is_driver))
        match fault.how:
            case "kill":
                send(victims, signal.SIGKILL)
            case "stop":
                send(victims, signal.SIGSTOP)
            case "raise":
                raise InjectedError(f"fault {name} at {place.point}")
            case "wait":
                self.control.wait_release(name)
            case "note":
                pass

    def _victims(self, fault: Fault) -> tuple[tuple[int, ...], bool]:
        me = os.getpid()
        driver = read_whole(Path(self.control.folder) / DRIVER_FILE)
        table = processes()
        jvm = driver["jvm"] if me == driver["python"] else jvm_of(me, table)
        is_driver = jvm == driver["jvm"]
        match fault.victim:
            case "worker":
                return (me,), is_driver
            case "jvm":
                return (jvm,), is_driver
            case "driver":
                return tuple(driver_processes(driver["python"], driver["jvm"], table)), True


_installed: Points | None = None


def install(folder: str) -> Points:
    """Put the points of a control folder into this process; every store that is opened from now on has
    them.
    """
    global _installed
    if _installed is None:
        _patch_open_store()
    if _installed is None or _installed.control.folder != Path(folder):
        _installed = Points(Control(folder))
    return _installed


def begin_task(folder: str, call: str, context: TaskContext) -> Points:
    """Begin one call of a task."""
    points = install(folder)
    batch = context.getLocalProperty("streaming.sql.batchId")
    points.begin(
        call,
        batch=None if batch is None else int(batch),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        task=context.taskAttemptId(),
    )
    return points


class _Current:
    """The points that are installed as they are reached: a store may be kept for longer than a control
    folder."""

    @property
    def call(self) -> str:
        return "open" if _installed is None else _installed.call

    def reached(self, point: str) -> None:
        if _installed is not None:
            _installed.reached(point)


def _patch_open_store() -> None:
    from spark_datasource.options import storage

    real = store_open.open_store

    def open_store(*args: Any, **options: Any) -> ObjectStore:
        return KillingStore(real(*args, **options), _Current())

    store_open.open_store = open_store
    vars(storage)["open_store"] = open_store  # it has its own name for it
