"""One-shot commit of 1,000 rows against an append of the same rows by deltalake, side by side in one run.

The two take turns. deltalake leaves its writes in the page cache; txnlog syncs its own before it answers, and a sync
on ext4 waits for whatever else is dirty. So the system is synced, untimed, before each timed call: everybody pays for
what they write. A second series without that shows what a neighbour's dirty pages cost a durable commit.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa

from txnlog import Producer, TxnLog

ROWS = 1_000
ROUNDS = 60
WARM_UP = 5


def rows() -> pa.Table:
    """Return 1,000 rows of four columns."""
    generator = np.random.default_rng(7)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "value": generator.random(ROWS),
            "name": [f"name-{number % 97}" for number in range(ROWS)],
            "at": pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us", "UTC")),
        }
    )


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1_000


def _series(calls: dict[str, Callable[[], object]], *, clean: bool) -> dict[str, float]:
    """Return the median of each call in ms; they take turns, with nothing dirty before each when ``clean``."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + WARM_UP):
        for name, call in calls.items():
            if clean:
                os.sync()
            elapsed = _timed(call)
            if number >= WARM_UP:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def _summary(medians: dict[str, float]) -> dict[str, float]:
    fastest = min(medians["deltalake_by_path"], medians["deltalake_open_table"])
    shown = {f"{name}_ms": round(value, 3) for name, value in medians.items()}
    return {**shown, "times_faster_than_the_faster_of_both": round(fastest / medians["txnlog"], 2)}


def measure(folder: Path) -> dict[str, Any]:
    """Return medians in ms and ratios."""
    data = rows()
    table = str(folder / "delta")
    deltalake.write_deltalake(table, data)
    opened = deltalake.DeltaTable(table)
    with TxnLog.create(str(folder / "log")) as log:
        log.create_topic("rows", data.schema)
        with Producer(log, "bench") as producer:

            def commit() -> None:
                producer.begin()
                producer.send("rows", data)
                producer.commit()

            calls: dict[str, Callable[[], object]] = {
                "txnlog": commit,
                "deltalake_by_path": lambda: deltalake.write_deltalake(table, data, mode="append"),
                "deltalake_open_table": lambda: deltalake.write_deltalake(opened, data, mode="append"),
            }
            clean, dirty = _series(calls, clean=True), _series(calls, clean=False)
    return {
        "what": f"one-shot commit of {ROWS} rows, local disk",
        "rounds": ROUNDS,
        "each_pays_for_its_own_writes": _summary(clean),
        "among_dirty_pages": _summary(dirty),
        "versions": {"deltalake": deltalake.__version__, "pyarrow": pa.__version__},
    }


def main() -> None:
    """Measure on a temporary folder beside the system's other temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder)), indent=2))


if __name__ == "__main__":
    main()
