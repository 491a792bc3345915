"""Commits by many processes at once to one log, against one process alone.

Each process commits as fast as it can, one intent after the other: nothing but entries (an application
version each), so all that they do is compete for the next slot. The count is that of the commits that were
answered within the time, of all processes together. A wait is the time from a commit's call to its answer;
one that has no answer when the time is over counts with the time that it waited so far, so that a process
that starves shows.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from bench.table import ROUNDS, Benchmark, Context, Measurement, Row, ratio
from txnformat.core.intents import AppRef, Write
from txnformat.log import TxnLog
from txnformat.store.base import ObjectStore
from txnformat.store.open import open_store
from txnlog_testing.stores.latency import LatencyStore

__all__ = ["BENCHMARKS", "Crew", "Run"]

MANY = 32
FAR_MS = 30
END_SECONDS = 60.0
LOCAL_SECONDS = 2.0
FAR_SECONDS = 6.0
"""Seconds of one run; at 30 ms and 32 processes, each process gets about five turns in it."""


@dataclass(frozen=True, slots=True)
class Run:
    """The results of some processes together."""

    seconds: float
    waits_ms: list[list[float]]
    """Waits of each process; the last one is unfinished."""

    @property
    def commits_per_second(self) -> float:
        """Return the commits per second of all processes together."""
        return sum(len(waits) - 1 for waits in self.waits_ms) / self.seconds

    def wait_ms(self, share: float) -> float:
        """Return the wait that ``share`` of the commits do not exceed (0 to 1)."""
        waits = sorted(wait for process in self.waits_ms for wait in process)
        return waits[min(len(waits) - 1, math.ceil(share * len(waits)) - 1)]

    @property
    def tail(self) -> float:
        """How many medians the 99th percentile of the waits is."""
        return self.wait_ms(0.99) / self.wait_ms(0.5)


def _store(location: str, round_trip_ms: float) -> ObjectStore:
    store = open_store(location)
    return LatencyStore(store, round_trip_ms) if round_trip_ms else store


def _work(number: int, orders: Connection) -> None:
    """Serve one process's orders: (location, round trip in ms, seconds); ends with the other side."""
    while True:
        try:
            location, round_trip_ms, seconds = orders.recv()
        except EOFError:
            return
        waits: list[float] = []
        with TxnLog.open(_store(location, round_trip_ms)) as log:
            version = 0
            orders.send("ready")
            begin: float = orders.recv()
            time.sleep(max(0.0, begin - time.monotonic()))
            while (called := time.monotonic()) < begin + seconds:
                version += 1
                log.committer.commit(
                    log.committer.intend(Write(app=AppRef("bench", f"writer-{number}", version)))
                )
                waits.append((min(time.monotonic(), begin + seconds) - called) * 1_000)
                late = time.monotonic() > begin + seconds
                if late:
                    break
            else:
                waits.append(0.0)
        orders.send(waits)


class Crew:
    """Processes that are started once and wait for orders."""

    def __init__(self, orders: list[Connection]) -> None:
        self._orders = orders

    def run(self, location: str, processes: int, *, round_trip_ms: float, seconds: float) -> Run:
        """Let ``processes`` of them commit to a fresh log for ``seconds``."""
        TxnLog.create(location).close()
        chosen = self._orders[:processes]
        for orders in chosen:
            orders.send((location, round_trip_ms, seconds))
        for orders in chosen:
            assert orders.recv() == "ready"
        begin = time.monotonic() + 0.05
        for orders in chosen:
            orders.send(begin)
        return Run(seconds, [orders.recv() for orders in chosen])


@contextmanager
def crew(processes: int) -> Iterator[Crew]:
    """Start processes, and end them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.contention"])
    started: list[tuple[BaseProcess, Connection]] = []
    process: BaseProcess
    try:
        for number in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(number, theirs), daemon=True)
            process.start()
            theirs.close()
            started.append((process, ours))
        yield Crew([orders for _, orders in started])
    finally:
        for _, orders in started:
            orders.close()
        for process, _ in started:
            process.join(END_SECONDS)


def _turns(
    crew_: Crew,
    context: Context,
    name: str,
    processes: tuple[int, ...],
    *,
    round_trip_ms: float,
    seconds: float,
) -> dict[int, list[Run]]:
    """Return the runs of each number of processes, round by round."""
    found: dict[int, list[Run]] = {count: [] for count in processes}
    for number in range(ROUNDS):
        for count in processes if number % 2 == 0 else processes[::-1]:
            context.tick(f"{name}, {count} processes, {number + 1}/{ROUNDS}")
            location = str(context.folder / f"{name}-{count}-{number}")
            found[count].append(crew_.run(location, count, round_trip_ms=round_trip_ms, seconds=seconds))
    return found


def _details(runs: dict[int, list[Run]]) -> dict[str, Any]:
    """Return what else is worth keeping, by number of processes."""
    details: dict[str, Any] = {}
    for count, found in runs.items():
        details[f"commits_per_s_{count}"] = round(
            statistics.median(run.commits_per_second for run in found), 1
        )
        for share in (0.5, 0.99):
            details[f"wait_p{share * 100:.0f}_{count}_ms"] = round(
                statistics.median(run.wait_ms(share) for run in found), 1
            )
    return details


def measure(context: Context) -> list[Measurement]:
    """Return rates against one process, and tails of the waits."""
    with crew(MANY) as processes:
        local = _turns(processes, context, "local", (1, 8, MANY), round_trip_ms=0, seconds=LOCAL_SECONDS)
        far = _turns(processes, context, "far", (1, MANY), round_trip_ms=FAR_MS, seconds=FAR_SECONDS)
    found = []
    for name, runs, counts in (("local", local, (8, MANY)), ("far", far, (MANY,))):
        rates = {count: [run.commits_per_second for run in each] for count, each in runs.items()}
        for count in counts:
            found += [
                ratio(f"contention-{name}-{count}", rates[count], rates[1], **_details(runs)),
                Measurement(f"contention-{name}-{count}-tail", tuple(run.tail for run in runs[count])),
            ]
    return found


def _row_pair(name: str, where: str, count: int, target: float) -> tuple[Row, Row]:
    return (
        Row(
            key=f"contention-{name}-{count}",
            work=f"commits/s of {count} processes, {where}",
            against="1 process",
            figure="times its rate",
            target=target,
            note=NOTE,
        ),
        Row(
            key=f"contention-{name}-{count}-tail",
            work=f"99th percentile of the wait for a commit, {count} processes, {where}",
            against="the median wait",
            figure="times the median",
            target=10,
            at_least=False,
            digits=1,
            note=NOTE,
        ),
    )


NOTE = (
    "on a local disk a commit takes less than a millisecond, so what limits many processes on a machine "
    "of two cores is the "
    "processor: every process reads and folds every entry, so each commit costs as many folds as there "
    "are processes, and "
    "a process that is not scheduled waits. With 30 ms of latency, as on an object store, the same 32 "
    "processes keep their rate and "
    "wait evenly (the rows with 30 ms). `make bench BENCH=contention` gives rates and waits"
)

BENCHMARKS = (
    Benchmark(
        name="contention",
        how=(
            "Processes that commit as fast as they can to one log: entries without data (an application "
            "version each), so that "
            "all they do is compete for the next slot. Rates are commits of all processes together; a "
            "commit without an answer "
            f"at the end counts as a wait of the time so far. Local disk, {LOCAL_SECONDS:g} s a run; the "
            "same with "
            f"{FAR_MS} ms added to each request, {FAR_SECONDS:g} s a run; {ROUNDS} rounds. "
            f"One process with {FAR_MS} ms needs one round trip a commit."
        ),
        rows=(
            *_row_pair("local", "local", 8, 0.5),
            *_row_pair("local", "local", MANY, 0.3),
            *_row_pair("far", f"{FAR_MS} ms latency", MANY, 0.7),
        ),
        measure=measure,
        minutes=2,
    ),
)
