"""A cold open of a log with a million entries, on local disk: the round trips, and the time of a process that
has not opened it before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.lifecycle.opening import Growing, World, round_trips
from bench.table import ROUNDS, Benchmark, Context, Measurement, Row
from txnformat import keys
from txnformat.store.local import LocalStore
from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore

__all__ = ["BENCHMARKS", "grow", "measure_here"]

ENTRIES = 1_000_000
REAL = 2_150
"""Entries of which there is more than an empty file: with two snapshots, bundles, seals, and a tail behind
the newest snapshot."""
SHAPE = World("cold", topics=20, partitions=10, commits=REAL, partitions_of_commit=10, batches=1)


def grow(root: Path, entries: int) -> None:
    """Make a log whose newest entry has about this number: the directory has a file for each, and the newest
    ones are those of real commits.
    """
    growing = Growing(root, SHAPE)
    first = max(growing.state.entry + 1, entries - REAL)
    for number in range(growing.state.entry + 1, first):
        (root / keys.entry_key(number)).touch()
    growing.jump(first - 1)
    for number in range(REAL):
        growing.append(f"topic-{number % SHAPE.topics:04d}", range(SHAPE.partitions), 1)


def measure_here(root: Path) -> dict[str, Any]:
    """Open the log in this process, once."""
    store = LocalStore(root)
    begun = time.perf_counter()
    with TxnLog.open(store) as log:
        seconds = time.perf_counter() - begun
        counting = CountingStore(LocalStore(root))
        with counting.measure() as measured:
            trips = round_trips(counting)
        return {
            "seconds": seconds,
            "round_trips": trips,
            "requests": sum(measured.counts.requests.values()),
            "entry": log.state.entry,
            "tail": log.state.entry - log.state.checkpoints[-1].entry,
        }


def measure_apart(root: Path) -> dict[str, Any]:
    """Open the log in a process of its own."""
    command = [sys.executable, "-m", "bench.lifecycle.cold_open", "--measure", str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(context: Context) -> list[Measurement]:
    """Return the round trips and the seconds."""
    root = context.folder / "log"
    context.tick(f"{ENTRIES:,} entries")
    grow(root, ENTRIES)
    found = []
    for number in range(ROUNDS):
        context.tick(f"open {number + 1}/{ROUNDS}")
        found.append(measure_apart(root))
    details = {name: found[0][name] for name in ("entry", "tail", "requests")}
    return [
        Measurement("cold-open-trips", tuple(float(one["round_trips"]) for one in found), details),
        Measurement("cold-open", tuple(one["seconds"] for one in found)),
    ]


def main() -> None:
    """Measure one root, or make one."""
    parser = argparse.ArgumentParser(prog="python -m bench.lifecycle.cold_open", description=__doc__)
    parser.add_argument("--measure", type=Path, help="only open the log of this directory, in this process")
    parser.add_argument("--grow", type=Path, help="only make a log in this directory")
    given = parser.parse_args()
    if given.grow:
        grow(given.grow, ENTRIES)
    if given.measure:
        print(json.dumps(measure_here(given.measure)))


BENCHMARKS = (
    Benchmark(
        name="cold-open",
        how=(
            f"`TxnLog.open` on local disk, in a process of its own each time, of a log of {ENTRIES:,} "
            f"entries. The directory of entries has a file for each; the newest {REAL:,} are of real "
            "commits to "
            f"{SHAPE.topics} topics of {SHAPE.partitions} partitions, with snapshots, bundles and seals, "
            "and the files of older ones are empty: an opener reads none of them. The log of `make "
            "bench-open` has a million real ones. "
            "Requests that are made together are one round trip; on a local disk slots are probed one by one."
        ),
        rows=(
            Row(
                key="cold-open-trips",
                work=f"cold open at {ENTRIES:,} entries",
                against="–",
                figure="round trips",
                target=4,
                at_least=False,
                digits=0,
            ),
            Row(
                key="cold-open",
                work=f"cold open at {ENTRIES:,} entries, local disk",
                against="–",
                figure="s",
                target=1,
                at_least=False,
            ),
        ),
        measure=measure,
        minutes=3,
    ),
)


if __name__ == "__main__":
    main()
