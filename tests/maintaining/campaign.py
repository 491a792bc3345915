"""The campaign: a log with every policy on, whose processes are killed, is judged at the end."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from queue import Queue
from random import Random

import pytest

from tests.maintaining.worker import ROWS, WORK, opened
from txnformat.admin import maintenance
from txnformat.clock import Instant, SystemClock
from txnformat.core.invariants import check_whole
from txnformat.core.state import LogState
from txnformat.core.wire.bundle import BUNDLE_ENTRIES
from txnformat.keys import parse_entry_key
from txnformat.store.local import LocalStore
from txnlog import Producer, TxnLog

__all__ = ["run"]

PRODUCERS, MAINTAINERS = 2, 3
OLD_ENTRIES = 250
LOOKS = 40
WEEK = datetime.timedelta(days=7)
CANARY = "canary-4711"
WHERE = f"name = '{CANARY}'"


class _EarlierClock:
    """A clock that is ten days behind: the first entries of the log are old."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def now(self) -> Instant:
        now = self._clock.now()
        return now._replace(wall_ms=now.wall_ms - 10 * 24 * 3_600_000)

    def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
        self._clock.sleep(seconds, wake)


def _make(root: Path) -> None:
    """Make a log with old entries, every policy, and an erasure that is rewritten."""
    clock = _EarlierClock()
    with TxnLog.create(LocalStore(root, clock), clock=clock) as log:
        common = {"min.compaction.lag.ms": 0}
        log.create_topic("kept", ROWS, partitions=PRODUCERS, settings=common)
        log.create_topic(
            "short",
            ROWS,
            partitions=PRODUCERS,
            settings=common | {"retention.bytes": 0, "retention.pinned.ms": -1},
        )
        latest = common | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        log.create_topic("latest", ROWS, partitions=PRODUCERS, key_columns=["key"], settings=latest)
        log.subscriptions.create("short", WORK)
        log.alter(truncate_older_than=WEEK)
        with Producer(log) as producer:
            for number in range(OLD_ENTRIES):
                producer.send(
                    "kept", [{"key": number, "name": f"old-{number}"}], partition=number % PRODUCERS
                )
                producer.flush()
            producer.send("kept", [{"key": -1, "name": CANARY}], partition=0)
    with TxnLog.open(LocalStore(root, clock), clock=clock) as log:
        log.erase("kept", WHERE, requested_by="the campaign")
        for number in range(BUNDLE_ENTRIES):  # the entries that had the canary go with a whole hundred
            log.create_topic(f"old-{number}", ROWS)


class _Workers:
    """Processes, and the lines that they print, in one queue."""

    def __init__(self, root: Path, steps: int) -> None:
        self._root, self._steps = root, steps
        self.lines: Queue[tuple[subprocess.Popen[str], str, str | None]] = Queue()
        """Process, name and line; None at the end."""
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._threads: list[threading.Thread] = []

    def start(self, name: str) -> None:
        role, _, number = name.partition("-")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.maintaining.worker", role, self._root, number, str(self._steps)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running[name] = process

        def listen() -> None:
            assert process.stdout is not None
            with process.stdout as lines:
                for line in lines:
                    self.lines.put((process, name, line.rstrip()))
            self.lines.put((process, name, None))

        self._threads.append(threading.Thread(target=listen))
        self._threads[-1].start()

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for name in [*self.running]:
            self.kill(name)
        for thread in self._threads:
            thread.join()


def run(root: Path, *, steps: int, rounds: int, kills: int, seed: int) -> Counter[str]:
    """Let producers commit so many steps, maintenance end at least so many rounds, and kill so many
    processes; judge the log, and return what happened."""
    random = Random(seed)
    _make(root)
    done: Counter[str] = Counter()
    workers = _Workers(root, steps)
    producers = [f"produce-{number}" for number in range(PRODUCERS)]
    try:
        for name in (*producers, *(f"maintain-{number}" for number in range(MAINTAINERS)), "work-0"):
            workers.start(name)
        until = random.randint(1, 4)
        while (
            any(name in workers.running for name in producers)
            or done["round"] < rounds
            or done["kill"] < kills
        ):
            process, name, line = workers.lines.get()
            if workers.running.get(name) is not process:
                continue
            if line is None:
                assert (process.wait(), name in producers) == (0, True), name
                del workers.running[name]
                continue
            done[line.split()[0]] += 1
            until -= 1
            if until <= 0 and done["kill"] < kills:
                victim = random.choice([*workers.running])
                workers.kill(victim)
                workers.start(victim)
                done["kill"] += 1
                until = random.randint(1, 4)
    finally:
        workers.close()
    _judge(root, steps, done)
    return done


def _judge(root: Path, steps: int, done: Counter[str]) -> None:
    # A worker changes its whole process; this process has other tests, so the changes are taken back.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maintenance, "TASKS", dict(maintenance.TASKS))
        _judge_log(opened(str(root), datetime.timedelta()), steps, done)


def _judge_log(log: TxnLog, steps: int, done: Counter[str]) -> None:
    for number in range(PRODUCERS):
        with Producer(log, f"producer-{number}"):
            pass  # a new instance aborts what a killed one has left
    for look in range(LOOKS):
        report = log.maintain()
        assert (report.skipped, report.damaged) == ((), ()), report
        if all(one.is_complete for one in log.erasures()):
            break
        log.create_topic(f"look-{look}", ROWS)  # an entry, so that the floor can rise
    assert all(one.is_complete for one in log.erasures()), log.erasures()
    entries = [parse_entry_key(info.key) for info in log.store.list("_txnlog/log/")]
    assert min(one for one in entries if one is not None) >= 200, "old entries are deleted"
    wanted = {f"keep-{number}-{step:04}" for number in range(PRODUCERS) for step in range(steps)}
    wanted |= {f"old-{number}" for number in range(OLD_ENTRIES)}
    kept = log.read("kept").read_all()["name"].to_pylist()
    assert (len(kept), set(kept)) == (len(wanted), wanted), (
        "nothing is lost, there twice, or shown though aborted"
    )
    shown = sorted(row["name"] for row in log.read("latest").read_all().to_pylist())
    newest = {f"keep-{number}-{step:04}" for number in range(PRODUCERS) for step in range(steps - 4, steps)}
    assert newest <= set(shown), "each key has its latest record"
    _check_short(log, log.state)
    done["latest"] = len(shown)
    holding = [info.key for info in log.store.list("") if CANARY.encode() in (log.store.get(info.key) or b"")]
    assert holding == [], "what was erased is in no object"
    assert check_whole(log.state) == []
    problems = log.verify(deep=True).problems
    assert not problems, problems
    log.close()


def _check_short(log: TxnLog, state: LogState) -> None:
    """Only what the subscription has acknowledged was removed."""
    topic = state.topic("short")
    known = state.subscription(topic.topic_id, WORK)
    for one in log.offsets("short"):
        mark = known.partition(one.partition).mark
        assert one.earliest <= mark or one.earliest == 0, (one, mark)
