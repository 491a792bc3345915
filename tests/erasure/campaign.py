"""Processes that write, read, compact, vacuum and erase at the same time, and are killed; afterwards no
canary is anywhere, and all else is there."""

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
from txnformat.clock import Instant, SystemClock
from txnformat.core.intents import AppRef, Write
from txnformat.core.wire.bundle import BUNDLE_ENTRIES
from txnformat.store.local import LocalStore
from txnlog import Producer, TxnLog

__all__ = ["Outcome", "run"]

HELPERS = ("compact", "vacuum", "erase", "read", "follow")
LOOKS = 60
NOW = datetime.timedelta()
DAYS = 8
DAY_MS = 24 * 3_600_000


@dataclass(slots=True)
class Outcome:
    """The result of a round."""

    canaries: int
    kills: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    """Lines of the processes, by role: of a query one for each second."""
    killed: dict[str, int] = field(default_factory=dict)
    """Kills by role."""
    left: dict[str, list[str]] = field(default_factory=dict)
    """Canaries by object."""
    visible: int = 0
    lost: int = 0
    """Other records that are not there, or twice."""
    stage: str = ""
    problems: tuple[object, ...] = ()
    copied: int | None = None
    """Other records that a Spark query has copied into another topic; None: there was no query."""

    @property
    def ok(self) -> bool:
        """Return whether all is as it must be."""
        return not (self.left or self.visible or self.lost or self.problems) and self.stage == "complete"


class Ahead(SystemClock):
    """The machine's clock some days ahead: a truncation keeps what is younger than a week."""

    def __init__(self) -> None:
        self.days = 0

    def now(self) -> Instant:
        now = super().now()
        return now._replace(wall_ms=now.wall_ms + self.days * DAY_MS)


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


def run(
    root: Path,
    wanted: int,
    kills: int,
    seed: int,
    *,
    producers: int = 2,
    rows: int = 500,
    stream_steps: int = 0,
) -> Outcome:
    """Write at least so many canaries, kill so many processes meanwhile, then complete the erasures and look
    at every object.

    ``stream_steps``: a query of Spark copies the topic into another one, which is erased at the end; it
    begins before the others, is killed, too, and the round goes on until it has made so many steps. 0: there
    is no query.
    """
    random = Random(seed)
    batches = max(1, -(-wanted // (producers * rows)))
    log = TxnLog.create(root)
    log.create_topic("t", PEOPLE, partitions=2)
    outcome = Outcome(producers * batches * rows)
    names = [f"produce-{number}" for number in range(producers)]
    with _workers(str(root), batches, rows) as workers:
        others = [f"{role}-{number}" for number, role in enumerate(HELPERS)]
        if stream_steps:
            log.create_topic("copy", PEOPLE)
            workers.start("stream")
            workers.lines.get()  # it has begun: what comes is streamed
        for name in (*names, *others):
            workers.start(name)
        silent: set[str] = set()
        until = random.randint(1, 4)
        while any(name in workers.running for name in names) or outcome.steps.get("stream", 0) < stream_steps:
            process, name, ended = workers.lines.get()
            silent.discard(name)
            if ended and workers.running.get(name) is process:
                assert (process.wait(), name in names) == (0, True), name
                del workers.running[name]
            role = name.partition("-")[0]
            outcome.steps[role] = outcome.steps.get(role, 0) + (not ended)
            until -= 1
            if until <= 0 and outcome.kills < kills:
                # A session of Spark takes longer to begin than others live: it would never do anything.
                victim = random.choice([one for one in workers.running if one not in silent])
                workers.kill(victim)
                workers.start(victim)
                silent |= {victim} & {"stream"}
                outcome.kills += 1
                role = victim.partition("-")[0]
                outcome.killed[role] = outcome.killed.get(role, 0) + 1
                until = random.randint(1, 4)
    topics = ["t", "copy"] if stream_steps else ["t"]
    if stream_steps:
        _copy_the_rest(str(root))
    log.close()
    clock = Ahead()
    log = TxnLog.open(LocalStore(root, clock), clock=clock)
    _complete(log, clock, names, topics)
    _judge(log, outcome, batches, rows, producers, topics)
    log.close()
    return outcome


def _copy_the_rest(root: str) -> None:
    """Start the query once more, and let it come to the end."""
    command = [sys.executable, "-m", "tests.erasure.worker", "copy", root, "0", "0", "0"]
    subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, check=True)


def _complete(log: TxnLog, clock: Ahead, names: list[str], topics: list[str]) -> None:
    """End what was open, call each erasure again, and do what maintenance does, until the entries are gone
    that may have canaries in their payloads."""
    for name in names:
        with Producer(log, name.replace("produce", "producer")):
            pass  # a new instance aborts what a killed one has left
    helpers = range(len(HELPERS))
    for number in helpers:
        for topic in topics:
            key = f"{KEY}-{number}"
            report = log.erase(topic, WHERE, requested_by="the campaign", key=key, all_rows=True)
            assert report.status is not None
    while log.refresh().entry % BUNDLE_ENTRIES:  # a truncation lets whole hundreds go
        log.committer.commit(log.committer.intend(Write(app=AppRef("campaign", "fill", log.state.entry))))
    clock.days = DAYS
    for look in range(LOOKS):
        if all(one.stage is ErasureStage.COMPLETE for one in log.erasures()):
            break
        log.create_topic(f"look-{look}", PEOPLE)
        log.maintain("seal")
        log.committer.write_snapshot()
        log.truncate()
        clock.days += 1
        log.vacuum(NOW, allow_short_grace=True)
        log.maintain("erasures")


def _judge(log: TxnLog, outcome: Outcome, batches: int, rows: int, producers: int, topics: list[str]) -> None:
    expected = {
        f"keep-{number}-{batch:06}-{row:06}"
        for number in range(producers)
        for batch in range(batches)
        for row in range(rows)
    }
    for topic in topics:
        seen: list[str] = log.read(topic, columns=["name"]).read_all()["name"].to_pylist()
        outcome.visible += sum(name.startswith("canary-") for name in seen)
        kept = [name for name in seen if name.startswith("keep-")]
        outcome.lost += len(expected ^ set(kept)) + len(kept) - len(set(kept))
        if topic == "copy":
            outcome.copied = len(kept)
    outcome.left = canaries(log.store)
    stages = {one.stage.value for one in log.erasures()}
    outcome.stage = stages.pop() if len(stages) == 1 else ", ".join(sorted(stages))
    outcome.problems = tuple(log.verify(deep=True).problems)
