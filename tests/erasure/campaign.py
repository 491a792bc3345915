"""Processes that write, read, compact, vacuum and erase at the same time, and are killed; afterwards no canary is anywhere, and all else is there."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from random import Random

from tests.erasure.worker import KEY, WHERE
from tests.erasure.world import PEOPLE, canaries
from txnformat.admin.erasure.status import ErasureStage
from txnlog import Producer, TxnLog

__all__ = ["Outcome", "run"]

HELPERS = ("compact", "vacuum", "erase", "read", "follow")
LOOKS = 60
NOW = datetime.timedelta()


@dataclass(slots=True)
class Outcome:
    """The result of a round."""

    canaries: int
    kills: int = 0
    left: dict[str, list[str]] = field(default_factory=dict)
    """Canaries by object."""
    visible: int = 0
    lost: int = 0
    """Other records that are not there, or twice."""
    stage: str = ""
    problems: tuple[object, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether all is as it must be."""
        return not (self.left or self.visible or self.lost or self.problems) and self.stage == "complete"


class _Workers:
    """Processes, and the lines that they print, in one queue."""

    def __init__(self, root: str, batches: int, rows: int) -> None:
        self._arguments = (root, str(batches), str(rows))
        self.lines: Queue[tuple[subprocess.Popen[str], str, bool]] = Queue()
        """Process and name for each line, and for the end."""
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []

    def start(self, name: str) -> None:
        role, _, number = name.partition("-")
        root, batches, rows = self._arguments
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.erasure.worker", role, root, number or "0", batches, rows],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running[name] = process

        def listen() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for _ in lines:
                    self.lines.put((process, name, False))
            self.lines.put((process, name, True))

        self._threads.append(threading.Thread(target=listen))
        self._threads[-1].start()

    def kill(self, name: str) -> None:
        """Kill -9, and wait for the end."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for name in [*self.running]:
            self.kill(name)
        for thread in self._threads:
            thread.join()


@contextmanager
def _workers(root: str, batches: int, rows: int) -> Iterator[_Workers]:
    workers = _Workers(root, batches, rows)
    try:
        yield workers
    finally:
        workers.close()


def run(root: Path, wanted: int, kills: int, seed: int, *, producers: int = 2, rows: int = 500) -> Outcome:
    """Write at least so many canaries, kill so many processes meanwhile, then complete the erasures and look at every object."""
    random = Random(seed)
    batches = max(1, -(-wanted // (producers * rows)))
    log = TxnLog.create(root)
    log.upgrade()
    log.create_topic("t", PEOPLE, partitions=2)
    outcome = Outcome(producers * batches * rows)
    names = [f"produce-{number}" for number in range(producers)]
    with _workers(str(root), batches, rows) as workers:
        for name in (*names, *(f"{role}-{number}" for number, role in enumerate(HELPERS))):
            workers.start(name)
        until = random.randint(1, 4)
        while any(name in workers.running for name in names):
            process, name, ended = workers.lines.get()
            if ended and workers.running.get(name) is process:
                assert (process.wait(), name in names) == (0, True), name
                del workers.running[name]
            until -= 1
            if until <= 0 and outcome.kills < kills:
                victim = random.choice([*workers.running])
                workers.kill(victim)
                workers.start(victim)
                outcome.kills += 1
                until = random.randint(1, 4)
    _complete(log, names)
    _judge(log, outcome, batches, rows, producers)
    log.close()
    return outcome


def _complete(log: TxnLog, names: list[str]) -> None:
    """End what was open, call each erasure again, and do what maintenance does."""
    for name in names:
        with Producer(log, name.replace("produce", "producer")):
            pass  # a new instance aborts what a killed one has left
    helpers = range(len(HELPERS))
    for number in helpers:
        key = f"{KEY}-{number}"
        report = log.erase("t", WHERE, requested_by="the campaign", key=key, all_rows=True)
        assert report.status is not None
    for look in range(LOOKS):
        if all(one.stage is ErasureStage.COMPLETE for one in log.erasures()):
            break
        log.create_topic(f"look-{look}", PEOPLE)
        log.vacuum(NOW, allow_short_grace=True)
        log.maintain("erasures")


def _judge(log: TxnLog, outcome: Outcome, batches: int, rows: int, producers: int) -> None:
    seen: list[str] = log.read("t", columns=["name"]).read_all()["name"].to_pylist()
    outcome.visible = sum(name.startswith("canary-") for name in seen)
    expected = {
        f"keep-{number}-{batch:06}-{row:06}"
        for number in range(producers)
        for batch in range(batches)
        for row in range(rows)
    }
    kept = [name for name in seen if name.startswith("keep-")]
    outcome.lost = len(expected ^ set(kept)) + len(kept) - len(set(kept))
    outcome.left = canaries(log.store)
    stages = {one.stage.value for one in log.erasures()}
    outcome.stage = stages.pop() if len(stages) == 1 else ", ".join(sorted(stages))
    outcome.problems = tuple(log.verify(deep=True).problems)
