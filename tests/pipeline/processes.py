"""Processes beside Spark that are killed and stopped at points of their own choice, and replaced: producers,
a sealer.

They are forked from a process that has imported everything and has no thread. Each is one *incarnation* of a
slot; when it was killed, the next one takes its place; when it stands still, too, and then it is continued:
it has to notice that it was replaced.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.faults import wait_until
from tests.killing.points import ANY, KillingStore, Points
from txnformat.errors import ProducerFencedError
from txnformat.store.open import open_store
from txnlog import TxnLog

__all__ = ["FENCED", "Outside", "Task", "open_log"]

FENCED = 4
"""Exit status of a process that was told that it was replaced."""
_PR_SET_PDEATHSIG = 1
SECONDS_MAX = 3_600

PRELOADED = ["tests.pipeline.producers", "tests.pipeline.sealer", "txnlog"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a process does. It travels by pickle."""

    run: Callable[[Task], None]
    slot: str
    log: str
    seed: int
    folder: str
    """Of all of them: for what they tell each other."""
    history: str
    settings: dict[str, Any] = field(default_factory=dict)
    incarnation: int = 0
    nth: int | None = None
    """At which request that writes it ends or stops; None: at none."""
    stops: bool = False
    is_fenced: bool = True
    """Whether the next incarnation fences it."""
    ends: bool = False
    """Only take the place of the one before."""

    @property
    def is_over(self) -> bool:
        """Whether it is to end."""
        return self.ends or self.is_replaced or (Path(self.folder) / "over").exists()

    @property
    def is_replaced(self) -> bool:
        """Whether it is told that another one has its place: one whom nobody fences would never notice."""
        return self.replaced.exists()

    @property
    def replaced(self) -> Path:
        """The file that says so."""
        return Path(self.folder) / f"{self.slot}-{self.incarnation}.replaced"

    @property
    def is_paused(self) -> bool:
        """Whether there is enough to do for those who read."""
        return (Path(self.folder) / "pause").exists()

    @property
    def began(self) -> Path:
        """The file that says that it has taken its place."""
        return Path(self.folder) / f"{self.slot}-{self.incarnation}.began"


def open_log(task: Task) -> TxnLog:
    """Open the log with the points of a task."""
    sign = signal.SIGSTOP if task.stops else signal.SIGKILL
    points = Points(None if task.nth is None else ANY, task.nth or 1, sign)
    return TxnLog.open(KillingStore(open_store(task.log), points))


def _main(task: Task) -> None:
    code = 1
    try:
        ctypes.CDLL(None).prctl(
            _PR_SET_PDEATHSIG, signal.SIGKILL
        )  # no process outlives the one that forks them
        signal.alarm(SECONDS_MAX)
        task.run(task)
        code = 0
    except ProducerFencedError:
        code = FENCED
    except BaseException:  # noqa: BLE001  # whatever it is, the test is told
        (Path(task.folder) / f"{task.slot}-{task.incarnation}.error").write_text(traceback.format_exc())
    finally:
        os._exit(code)


@dataclass
class _One:
    task: Task
    process: BaseProcess


class Outside:
    """Keeps the slots filled. A context manager: nobody is left when it ends.

    Parameters
    ----------
    tasks : list of Task
        The first incarnation of each slot.
    doom : callable
        Returns for an incarnation at which request it ends, and whether it stops there; (None, False): never.
    """

    def __init__(self, tasks: list[Task], doom: Callable[[Task], tuple[int | None, bool]]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._doom = doom
        self._first = tasks
        self._folder = Path(tasks[0].folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._slots: dict[str, _One] = {}
        self._stopped: list[tuple[_One, str]] = []
        """The processes that stand still, and their slots."""
        self._thawed: list[_One] = []
        self._late_init: Counter[str] = Counter()
        """By slot, how many stood still before they had taken their place: continued, each takes it from one
        successor."""
        self._looked = 0.0
        self.kills: Counter[str] = Counter()
        self.zombies: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        """How those ended that were continued."""
        self.problems: list[str] = []

    def _start(self, task: Task) -> None:
        nth, stops = (None, False) if task.ends else self._doom(task)
        task = replace(task, nth=nth, stops=stops)
        process = self._context.Process(target=_main, args=(task,), daemon=True)
        process.start()
        self._slots[task.slot] = _One(task, process)

    def tend(self) -> None:
        """See who ended or stands still, and put others in their places."""
        now = time.monotonic()
        if now < self._looked + 0.05:
            return
        self._looked = now
        for slot, one in list(self._slots.items()):
            code = one.process.exitcode
            following = replace(one.task, incarnation=one.task.incarnation + 1)
            if code == -signal.SIGKILL:
                self.kills[_kind(slot)] += 1
                self._start(following)
            elif code is not None:
                self._ended(one, code)
                self._start(following)
            elif one.task.stops and _is_stopped(one.process):
                self.zombies[_kind(slot)] += 1
                self._stand_still(one, slot)
                self._start(following)
        self._continue()
        self._reap()

    def _stand_still(self, one: _One, slot: str) -> None:
        self._stopped.append((one, slot))
        if not one.task.began.exists():
            self._late_init[slot] += 1

    def _continue(self) -> None:
        for one, slot in list(self._stopped):
            successor = self._slots[slot]
            if successor.task.began.exists() or successor.task.incarnation > one.task.incarnation + 1:
                self._stopped.remove((one, slot))
                self._thaw(one)

    def _thaw(self, one: _One) -> None:
        assert one.process.pid is not None
        if not one.task.is_fenced:
            one.task.replaced.touch()
        os.kill(one.process.pid, signal.SIGCONT)
        self._thawed.append(one)

    def _reap(self) -> None:
        for one in list(self._thawed):
            code = one.process.exitcode
            if code is not None:
                self._thawed.remove(one)
                name = {0: "ended by itself", FENCED: "fenced"}.get(code, f"exit status {code}")
                self.ends[f"{_kind(one.task.slot)}: {name}"] += 1
                if code not in (0, FENCED):
                    self._ended(one, code)

    def _ended(self, one: _One, code: int) -> None:
        if code == FENCED and self._late_init[one.task.slot] > 0:
            self._late_init[one.task.slot] -= 1
            self.ends[f"{_kind(one.task.slot)}: fenced by one that was continued"] += 1
            return
        error = self._folder / f"{one.task.slot}-{one.task.incarnation}.error"
        said = error.read_text() if error.exists() else ""
        self.problems.append(f"{one.task.slot}, which nobody killed, ended with {code}: {said[-2000:]}")

    def pause(self, *, is_ahead: bool) -> None:
        """Let producers wait while those who read are behind."""
        path = self._folder / "pause"
        if is_ahead and not path.exists():
            path.touch()
        elif not is_ahead:
            path.unlink(missing_ok=True)

    def end(self) -> None:
        """Let everybody end, and nothing be left open."""
        self.pause(is_ahead=False)
        (self._folder / "over").touch()
        for slot, one in list(self._slots.items()):
            code = _end_of(one, or_stop=True)
            if code is None:
                self.zombies[_kind(slot)] += 1
                self._stand_still(one, slot)
            elif code == -signal.SIGKILL:
                self.kills[_kind(slot)] += 1
            elif code:
                self._ended(one, code)
            self._start(replace(one.task, incarnation=one.task.incarnation + 1, ends=True))
        for one in self._slots.values():
            if code := _end_of(one):
                self._ended(one, code)
        self._continue()
        for one in self._thawed:
            _end_of(one)
        self._reap()
        self._slots.clear()  # Spark may need more drivers yet, and whoever starts one tends: nobody is to be replaced any more

    def __enter__(self) -> Self:
        for task in self._first:
            self._start(task)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in [*self._slots.values(), *(one for one, _ in self._stopped), *self._thawed]:
            if one.process.pid is not None and one.process.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.process.pid, signal.SIGKILL)
            one.process.join()


def _kind(slot: str) -> str:
    return "producer" if slot.startswith("producer") else slot


def _end_of(one: _One, *, or_stop: bool = False) -> int | None:
    """Wait for the end of a process, and return its exit status; None: it stands still, if that may be."""
    process = one.process
    wait_until(
        lambda: process.exitcode is not None or (or_stop and _is_stopped(process)), f"{one.task.slot} to end"
    )
    return process.exitcode


def _is_stopped(process: BaseProcess) -> bool:
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(")") + 2] == "T"
