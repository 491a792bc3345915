"""The memory of a vacuum of a million objects: a process of its own looks at a local root and says what would
go.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.lifecycle.opening import HASH, SCHEMA, Volatile, memory_of
from bench.table import ROUNDS, Benchmark, Context, Measurement, Row
from txnformat import keys
from txnformat.core.intents import TopicAppend, Write
from txnformat.core.operations import PendingPartition
from txnformat.store.local import LocalStore
from txnformat.types import BatchRecord, FileRecord
from txnlog import TxnLog

__all__ = ["BENCHMARKS", "grow", "measure_here"]

OBJECTS = 1_000_000
FILES_OF_APPEND = 1_000
LIVE_SHARE = 4
"""One in so many of the data files is in use."""
MIB = 2**20


def grow(root: Path, objects: int, advance: Callable[[str], object] = lambda what: None) -> None:
    """Make a log whose root has so many data files, all empty: a part of them named by entries and sealed,
    the others by nothing.
    """
    with TxnLog.create(LocalStore(root, posix=Volatile()), embedding=False) as log:
        topic = log.create_topic("t", SCHEMA)
        data = root / topic.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        live = objects // LIVE_SHARE
        for first in range(0, live, FILES_OF_APPEND):
            advance(f"{first:,} files in use")
            log.committer.commit(log.committer.intend(_append(log, min(FILES_OF_APPEND, live - first), data)))
            log.maintain("seal")
        for number in range(objects - live):
            if number % 50_000 == 0:
                advance(f"{number:,} files that nothing names")
            (root / keys.data_key(topic.directory, 0, str(uuid.uuid4()))).touch()


def _append(log: TxnLog, count: int, data: Path) -> Write:
    state = log.refresh()
    topic = state.topic("t")
    names = [keys.data_key(topic.directory, state.entry, str(uuid.uuid4())) for _ in range(count)]
    for name in names:
        (data / name.rpartition("/")[2]).touch()
    files = tuple(FileRecord(name, 1_000, HASH, 100, HASH, 1) for name in names)
    batches = tuple(BatchRecord(0, number, 0, 1, 1, 100, 1_000, 2_000) for number in range(count))
    pending = (PendingPartition(0, count, count, -1, HASH[:16], 100 * count, 1_000, 2_000),)
    return Write(appends=(TopicAppend(topic.topic_id, 1, files, pending, batches),))


def measure_here(root: Path) -> dict[str, Any]:
    """Vacuum in this process, without changing anything; return the growth of its memory beyond that of the
    open log.
    """
    with TxnLog.open(str(root)) as log:
        log.refresh()
        before = memory_of("VmRSS")
        begun, processor = time.perf_counter(), time.process_time()
        report = log.vacuum(dry_run=True)
        return {
            "objects": sum(row.objects for row in report.rows),
            "mib": round((memory_of("VmHWM") - before) / MIB, 1),
            "seconds": round(time.perf_counter() - begun, 1),
            "processor_seconds": round(time.process_time() - processor, 1),
        }


def measure_apart(root: Path) -> dict[str, Any]:
    """Vacuum in a process of its own."""
    command = [sys.executable, "-m", "bench.lifecycle.vacuuming", "--measure", str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(context: Context) -> list[Measurement]:
    """Return the memory, and the processor's time for an object."""
    root = context.folder / "log"
    grow(root, OBJECTS, context.tick)
    found = []
    for number in range(ROUNDS):
        context.tick(f"vacuum {number + 1}/{ROUNDS}")
        found.append(measure_apart(root))
    details = {
        "objects": found[0]["objects"],
        "seconds": sorted(one["seconds"] for one in found)[ROUNDS // 2],
    }
    micros = tuple(1e6 * one["processor_seconds"] / one["objects"] for one in found)
    return [
        Measurement("vacuum-memory", tuple(one["mib"] for one in found), details),
        Measurement("vacuum-processor", micros),
    ]


def main() -> None:
    """Measure one root, or make one and measure it."""
    parser = argparse.ArgumentParser(prog="python -m bench.lifecycle.vacuuming", description=__doc__)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--folder", type=Path, help="keep the log here; one that is there is not made anew")
    parser.add_argument(
        "--measure", type=Path, help="only measure the log of this directory, in this process"
    )
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure_here(given.measure)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = given.folder or Path(temporary) / "log"
        if not (root / keys.FORMAT_KEY).exists():
            grow(root, given.objects, partial(print, file=sys.stderr))
        print(json.dumps(measure_apart(root)))


BENCHMARKS = (
    Benchmark(
        name="vacuum",
        how=(
            f"`log.vacuum(dry_run=True)` of a root on local disk with {OBJECTS:,} data files, of which "
            f"one in {LIVE_SHARE} is named by sealed batches and the others by nothing; all are empty, "
            "and a vacuum reads none. In a process of its own each time; memory is the growth of the "
            "resident set at its peak, beyond that of the open log."
        ),
        rows=(
            Row(
                key="vacuum-memory",
                work=f"memory of a vacuum of {OBJECTS:,} objects",
                against="–",
                figure="MiB",
                target=128,
                at_least=False,
                digits=1,
            ),
            Row(
                key="vacuum-processor",
                work="the vacuum's time for each object",
                against="–",
                figure="µs of the processor",
                digits=1,
            ),
        ),
        measure=measure,
        minutes=5,
    ),
)


if __name__ == "__main__":
    main()
