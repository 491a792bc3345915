"""Histories of a query that is killed again and again, each made from a seed.

A history has a log, a folder of input, a checkpoint and drivers, one after the other. While a query runs, the
seed chooses what happens next: a Python worker, an executor or the driver is killed at a point or by the
clock, or the driver is stopped and goes on when its successor has committed. There is always more input than
was processed. At the end a driver is let through, and everything is held against the oracle.

The same seed makes the same strikes. What they meet depends on the machine as well.
"""

from __future__ import annotations

import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos import jobs, processes
from tests.chaos.drivers import Driver
from tests.chaos.faults import Hit, wait_until
from tests.chaos.inputs import feed
from tests.chaos.jobs import Job
from tests.chaos.oracle import Found
from tests.chaos.origin import TOPIC, TOPIC_SCHEMA
from tests.chaos.outside import Tail, examine, final_rows
from tests.chaos.plans import BY_TIME, KINDS, VICTIMS, Kind, Strike, next_strike, settings_of
from tests.chaos.pool import Pool
from txnlog import TxnLog

__all__ = ["History", "run_history"]

NAMESPACE = "spark-stream"
ENDS_MAX = 5
"""Drivers that may be needed at the end, when nobody is killed any more: what a zombie left may stop the
first."""
PROGRESS_SECONDS_MAX = 240.0
ZOMBIE_SECONDS_MAX = 60.0
RESTARTS_MAX = 100

Notice = Callable[["History"], None]


@dataclass
class History:
    """What became of one seed."""

    seed: int
    settings: dict[str, int] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    """By kind of victim."""
    zombies: int = 0
    """Drivers that were stopped and continued."""
    points: Counter[str] = field(default_factory=Counter)
    """Where they were hit."""
    failures: Counter[str] = field(default_factory=Counter)
    """What queries failed with, by code, after which they were started again."""
    drivers: int = 0
    batches: int = 0
    rows: int = 0
    duplicates: int = 0
    losses: int = 0
    torn: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def kill_count(self) -> int:
        return self.kills.total()


class Run:
    """One history as it happens."""

    def __init__(self, pool: Pool, log: TxnLog, job: Job, history: History, tail: Tail) -> None:
        self._pool = pool
        self._log = log
        self._rng = random.Random(
            f"input of {history.seed}"
        )  # not that of strikes: how much input there is takes time
        self._job = job
        self._history = history
        self._tail = tail
        self._fed: list[int] = []
        """How many rows there were after each file."""
        self._strikes = 0
        self._driver: Driver | None = None
        self._zombies: list[tuple[Driver, int]] = []
        """Drivers that stand still, and how many rows there were when they did."""
        self._thawed: list[Driver] = []
        self._lingering: list[Driver] = []

    # --- input ----------------------------------------------------------------------------------------------

    @property
    def rows_fed(self) -> int:
        return self._fed[-1] if self._fed else 0

    def _feed(self) -> None:
        count = self._rng.randint(1, self._history.settings["rows_per_file_max"])
        feed(Path(self._job.input), f"{len(self._fed):06d}", range(self.rows_fed, self.rows_fed + count))
        self._fed.append(self.rows_fed + count)

    def _keep_fed(self) -> None:
        """Have more files than the next micro-batch takes."""
        ahead = self._job.files_per_trigger + 1
        while len(self._fed) < ahead or self._tail.count > self._fed[-ahead]:
            self._feed()

    # --- the driver -----------------------------------------------------------------------------------------

    def driver(self) -> Driver:
        """Return the driver that is there, or the next one."""
        if self._driver is None:
            self._keep_fed()
            self._driver = self._pool.begin(self._job)
            self._history.drivers += 1
        return self._driver

    def _alive(self) -> None:
        """Go on feeding; raise when the driver has ended, or zombies are to be continued."""
        self._keep_fed()
        for zombie, rows in list(self._zombies):
            if self._tail.count > rows:
                self._zombies.remove((zombie, rows))
                zombie.finish()  # it starts no query again
                zombie.thaw()
                self._thawed.append(zombie)
        self.driver().check_alive()

    def _rows(self) -> int:
        """Return how many rows the query has committed."""
        return rows_in(self._log)

    def settle(self) -> None:
        """Wait until one more micro-batch is committed."""
        before = self._tail.count
        self._keep_fed()
        wait_until(lambda: self._tail.count > before, "a batch", self._alive, PROGRESS_SECONDS_MAX)

    def _part_with_driver(self, *, lingers: bool) -> None:
        driver = self.driver()
        self._count_failures(driver)
        self._driver = None
        if lingers:
            self._lingering.append(driver)
        else:
            self._pool.ended(driver)

    def _count_failures(self, driver: Driver) -> None:
        for number in range(1, RESTARTS_MAX + 1):
            said: Any = driver.said(jobs.FAILURE_FILES.format(number))
            if said is None:
                break
            self._history.failures[code_of(said)] += 1

    # --- strikes --------------------------------------------------------------------------------------------

    def strike(self, strike: Strike) -> None:
        """Let one thing happen, and see that it did."""
        driver = self.driver()
        if strike.fault is None:
            self._strike_by_time(driver, strike)
        else:
            self._strikes += 1
            name = f"strike-{self._strikes}"
            driver.control.arm(name, strike.fault)
            hit = driver.control.wait_hit(name, alive=self._alive)
            self._history.points[hit.place.point] += 1
            self._check(strike, hit)
        if strike.is_kill:
            self._history.kills[VICTIMS[strike.kind][0]] += 1
        else:
            self._history.zombies += 1
            self._zombies.append((driver, self._rows()))
            self._driver = None
        if strike.kind in ("driver", "driver-jvm"):
            self._part_with_driver(lingers=strike.lingers)
        if strike.settles:
            self.settle()

    def _check(self, strike: Strike, hit: Hit) -> None:
        """A kill counts for what it was: where there are no executors, their JVM is the driver's."""
        wants_driver = strike.kind not in ("task", "executor")
        if hit.driver != wants_driver and self._job.master == jobs.CLUSTER:
            self._history.problems.append(f"{strike} hit {hit}")

    def _strike_by_time(self, driver: Driver, strike: Strike) -> None:
        self._keep_fed()
        threading.Event().wait(strike.after_ms / 1_000)
        if strike.kind != "driver":

            def victims() -> list[int]:
                return driver.executors() if strike.kind == "executor" else driver.task_workers()

            found = wait_until(lambda: victims() or None, f"a {strike.kind}", self._alive)
            processes.send([self._rng.choice(found)], signal.SIGKILL)
        else:
            processes.send(processes.driver_processes(*driver.pids()), signal.SIGKILL)
        self._history.points[BY_TIME] += 1

    # --- the end --------------------------------------------------------------------------------------------

    def finish(self, ends_max: int = ENDS_MAX) -> None:
        """Let all input be processed, and everybody end."""
        if self._zombies:
            self.settle()
            self._alive()
        for last in range(1, ends_max + 1):
            driver = self.driver()
            driver.finish()
            result = driver.wait_end()
            self._part_with_driver(lingers=False)
            if result.error is None and result.code == 0:
                break
            self._history.failures[code_of(result.error or f"exit {result.code}")] += 1
            if last == ends_max:
                self._history.problems.append(f"driver that nobody killed: {result.error or result.code}")
        for driver in self._thawed:
            self._history.failures.update(_end_of(driver))
        for driver in [*self._thawed, *self._lingering]:
            self._pool.ended(driver)


def _end_of(driver: Driver) -> list[str]:
    """Return what a driver ended with that was stopped and continued."""
    try:
        wait_until(lambda: not driver.is_alive, "a zombie to end", seconds=ZOMBIE_SECONDS_MAX)
    except TimeoutError:
        return ["a zombie that went on until it was killed"]
    said = driver.said(jobs.RESULT_FILE)
    return [f"zombie: {code_of(said['error'])}"] if said is not None and said["error"] else []


def code_of(error: str) -> str:
    """Return what is stable in the text of an error: the innermost code in brackets, else its beginning."""
    codes = re.findall(r"\[([A-Z][A-Z0-9_.]{5,})\]", error)
    ours = [code for code in codes if code.startswith("TXNLOG_")]
    return str((ours or codes or [error.split("\n")[0][:80]])[-1])


def run_history(
    pool: Pool,
    place: str,
    folder: Path,
    seed: int,
    kills: int,
    *,
    storage_options: Mapping[str, str] | None = None,
    first: Sequence[Kind] = (),
    kinds: Sequence[Kind] = tuple(KINDS),
    broken: str | None = None,
    ends_max: int = ENDS_MAX,
    notice: Notice | None = None,
) -> History:
    """Run one history.

    Parameters
    ----------
    place : str
        Path or URL of its log.
    folder : Path
        For what else it has.
    kills : int
        When it is over.
    first : sequence of Kind
        What happens first, in that order.
    kinds : sequence of Kind
        What may happen then.
    broken : str, optional
        A defect of the sink: see tests.chaos.broken.
    ends_max : int
        Drivers that may be needed at the end.
    notice : callable, optional
        Called after every strike.
    """
    rng = random.Random(seed)
    history = History(seed, settings_of(rng))
    options = dict(storage_options or {})
    # Its tasks upload: some of the points at which they are killed are around the request of a file.
    log = TxnLog.create(place, storage_options=options, embedding=False)
    log.create_topic(TOPIC, TOPIC_SCHEMA, partitions=history.settings["partitions"], key_columns=["key"])
    job = Job(
        log=place,
        input=str(folder / "input"),
        checkpoint=str(folder / "checkpoint"),
        control="",
        files_per_trigger=history.settings["files_per_trigger"],
        options={f"storage.{name}": value for name, value in options.items()},
        restarts=RESTARTS_MAX,
        broken=broken,
    )
    ahead = list(first)
    with Tail(place, history.settings["partitions"], options) as tail:
        run = Run(pool, log, job, history, tail)
        while history.kill_count < kills:
            run.strike(next_strike(rng, kinds=[ahead.pop(0)] if ahead else kinds))
            if notice is not None:
                notice(history)
        run.finish(ends_max)
        _wait_for_tail(tail, log)
        seen = tail.end()
    query = next(iter({row.query for row in final_rows(log)}), "")
    found = examine(log, list(range(run.rows_fed)), [seen], (NAMESPACE, query))
    _note(history, found)
    history.batches = len({row.batch for row in final_rows(log)})
    log.close()
    return history


def _wait_for_tail(tail: Tail, log: TxnLog) -> None:
    """Let the reader get what is there: what it saw is to be compared with as much as possible."""
    tail.wait_count(rows_in(log), PROGRESS_SECONDS_MAX)


def rows_in(log: TxnLog) -> int:
    """Return how many rows are committed."""
    log.refresh()
    return sum(one.last_stable_offset for one in log.offsets(TOPIC))


def _note(history: History, found: Found) -> None:
    history.rows, history.torn = found.rows, found.torn
    history.duplicates, history.losses = found.duplicates, found.losses
    history.problems += found.violations
