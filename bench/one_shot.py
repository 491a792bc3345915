"""One-shot commit of 1,000 rows against an append of the same rows by deltalake, side by side in one run.

They take turns, in two ways: ten commits each (a busy writer: code and data are in the processor's caches), and one each
(a writer that is called now and then: whoever comes is cold). deltalake leaves its writes in the page cache; txnlog syncs
its own before it answers, and a sync waits for whatever else is dirty. So the system is synced, untimed, before each turn:
everybody pays for what they write. deltalake is timed as people call it, by path, and on a table that is kept open.
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
CALLS = 100
WARM_UP = 2


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


def _series(calls: dict[str, Callable[[], object]], *, turn: int) -> dict[str, float]:
    """Return the median of each call in ms, over turns of ``turn`` calls."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM_UP + CALLS // turn):
        for name, call in calls.items():
            os.sync()
            elapsed = [_timed(call) for _ in range(turn)]
            if number >= WARM_UP:
                times[name] += elapsed
    return {name: statistics.median(values) for name, values in times.items()}


def _summary(medians: dict[str, float]) -> dict[str, float]:
    shown = {f"{name}_ms": round(value, 3) for name, value in medians.items()}
    for name in ("deltalake_by_path", "deltalake_open_table"):
        shown[f"times_faster_than_{name}"] = round(medians[name] / medians["txnlog"], 2)
    return shown


def _take_turns(folder: Path, turn: int) -> dict[str, float]:
    """Measure on a fresh log and fresh tables, so that each has the same number of commits behind it."""
    data = rows()
    by_path, kept_open = str(folder / "by_path"), str(folder / "kept_open")
    for table in (by_path, kept_open):
        deltalake.write_deltalake(table, data)
    opened = deltalake.DeltaTable(kept_open)
    with TxnLog.create(str(folder / "log")) as log:
        log.create_topic("rows", data.schema)
        with Producer(log, "bench") as producer:

            def commit() -> None:
                producer.begin()
                producer.send("rows", data)
                producer.commit()

            calls: dict[str, Callable[[], object]] = {
                "txnlog": commit,
                "deltalake_by_path": lambda: deltalake.write_deltalake(by_path, data, mode="append"),
                "deltalake_open_table": lambda: deltalake.write_deltalake(opened, data, mode="append"),
            }
            return _summary(_series(calls, turn=turn))


def measure(folder: Path) -> dict[str, Any]:
    """Return medians in ms and ratios."""
    results: dict[str, Any] = {"what": f"one-shot commit of {ROWS} rows, local disk", "calls": CALLS}
    for name, turn in (("ten_in_a_row", 10), ("one_by_one", 1)):
        (folder / name).mkdir()
        results[name] = _take_turns(folder / name, turn)
    results["versions"] = {"deltalake": deltalake.__version__, "pyarrow": pa.__version__}
    return results


def main() -> None:
    """Measure on a temporary folder beside the system's other temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder)), indent=2))


if __name__ == "__main__":
    main()
