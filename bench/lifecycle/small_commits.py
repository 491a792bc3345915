"""Many small commits: how long a process that knows nothing of the log takes to read them all, and what it
asks the store for.

``python -m bench.lifecycle.small_commits ROOT ROUND_TRIP_MS`` reads such a log once, in a process of its own,
and prints the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.table import Benchmark, Context, Measurement, Row
from txnformat.store.local import LocalStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.latency import FarStore, LatencyStore

__all__ = ["BENCHMARKS", "COMMITS", "ROWS", "SCHEMA", "TOPIC", "rows_of", "write"]

COMMITS = 10_000
ROWS = 3
"""Rows of a commit."""
TOPIC = "small"
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("value", pa.float64())])
FAR_MS = 30.0
ROUNDS = 5


def rows_of(commit: int) -> list[dict[str, Any]]:
    """Return the rows of one commit."""
    first = ROWS * commit
    return [{"number": first + one, "text": f"row {one}", "value": commit / 2} for one in range(ROWS)]


def write(root: Path, commits: int) -> None:
    """Write a log of small commits by one process, with all that it does in the background for readers that
    are far away.
    """
    with TxnLog.create(FarStore(LocalStore(root))) as log:
        log.create_topic(TOPIC, SCHEMA)
        with Producer(log, "bench") as producer:
            for number in range(commits):
                with producer.transaction() as txn:
                    txn.send(TOPIC, rows_of(number))


def read(root: Path, round_trip_ms: float) -> dict[str, float]:
    """Read all rows as a process that knows nothing of the log, and return figures."""
    local = LocalStore(root)
    store = CountingStore(LatencyStore(local, round_trip_ms) if round_trip_ms else local)
    begun, processor = time.perf_counter(), time.process_time()
    with store.measure() as measured, TxnLog.open(store) as log:
        rows = log.read(TOPIC).read_all().num_rows
    places = [file.place for file in log.state.files if file.place is not None]
    return {
        "seconds": time.perf_counter() - begun,
        "processor_s": time.process_time() - processor,
        "rows": rows,
        "entry_gets": measured.counts.count(RequestKind.GET, KeyClass.ENTRY),
        "payload_gets": measured.counts.count(RequestKind.GET, KeyClass.PAYLOADS),
        "requests": sum(measured.counts.requests.values()),
        "entries_with_rows": len({place.entry for place in places}),
        "payload_bytes": sum(file.size for file in log.state.files if file.place is not None),
    }


def _read_apart(root: Path, round_trip_ms: float) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, str(root), str(round_trip_ms)]
    found: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    if found["rows"] != COMMITS * ROWS:
        raise RuntimeError(f"{found['rows']} rows were read, not {COMMITS * ROWS}")
    return found


def _measure(context: Context) -> Sequence[Measurement]:
    context.tick(f"writing {COMMITS:,} commits")
    root = context.folder / "log"
    write(root, COMMITS)
    found: dict[str, list[dict[str, float]]] = {"near": [], "far": []}
    for number in range(ROUNDS):
        context.tick(f"reading {number + 1}/{ROUNDS}")
        found["near"].append(_read_apart(root, 0))
        found["far"].append(_read_apart(root, FAR_MS))
    near, far = found["near"], found["far"]
    details = {name: near[0][name] for name in near[0] if name not in ("seconds", "processor_s")}
    details["processor_s"] = round(min(one["processor_s"] for one in near), 2)
    return [
        Measurement("small-commits-read", tuple(one["seconds"] for one in near), details),
        Measurement(
            "small-commits-far", tuple(one["seconds"] for one in far), {"requests": far[0]["requests"]}
        ),
        Measurement(
            "small-commits-gets", tuple(one["entry_gets"] + one["payload_gets"] for one in far), details
        ),
    ]


READ_NOTE = (
    "the process decodes each embedded file on its own, and the files of seals together; beside much "
    "other work the wall time is that of the processor's share, so look at "
    "`processor_s` of the result"
)

BENCHMARKS = (
    Benchmark(
        name="small-commits",
        how=(
            f"{COMMITS:,} transactions of {ROWS} rows of three columns by one process, which seals and "
            "writes snapshots as it goes; then `log.read(…).read_all()` in a new process that knows "
            "nothing of "
            "the log, with its opening, without its imports: on a local disk, and where each request "
            f"takes {FAR_MS:.0f} ms."
        ),
        rows=(
            Row(
                key="small-commits-read",
                work=f"cold read of {COMMITS:,} commits of {ROWS} rows, local disk",
                against="–",
                figure="s",
                target=5,
                at_least=False,
                note=READ_NOTE,
            ),
            Row(
                key="small-commits-far",
                work=f"the same, {FAR_MS:.0f} ms a request",
                against="–",
                figure="s",
            ),
            Row(
                key="small-commits-gets",
                work=f"GETs of entries and payload bundles in a cold read of {COMMITS:,} commits of "
                f"{ROWS} rows",
                against="–",
                figure="GETs",
                target=COMMITS // 50 + 2,
                at_least=False,
                digits=0,
            ),
        ),
        measure=_measure,
        minutes=4,
    ),
)


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), float(sys.argv[2]))))
