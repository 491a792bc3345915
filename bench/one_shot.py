"""One-shot commit of 1,000 rows against an append of the same rows by deltalake, side by side in one run."""

from __future__ import annotations

import json
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


def measure(folder: Path) -> dict[str, Any]:
    """Return medians in ms and the ratio; the two take turns, so that both see the same machine."""
    data = rows()
    log = TxnLog.create(str(folder / "log"))
    log.create_topic("rows", data.schema)
    table = str(folder / "delta")
    deltalake.write_deltalake(table, data)
    opened = deltalake.DeltaTable(table)
    ours: list[float] = []
    theirs: list[float] = []
    theirs_open: list[float] = []
    with Producer(log, "bench") as producer:

        def commit() -> None:
            producer.begin()
            producer.send("rows", data)
            producer.commit()

        for number in range(ROUNDS + WARM_UP):
            times = (
                _timed(commit),
                _timed(lambda: deltalake.write_deltalake(table, data, mode="append")),
                _timed(lambda: deltalake.write_deltalake(opened, data, mode="append")),
            )
            if number >= WARM_UP:
                for kept, value in zip((ours, theirs, theirs_open), times, strict=True):
                    kept.append(value)
    log.close()
    fastest = min(statistics.median(theirs), statistics.median(theirs_open))
    return {
        "what": f"one-shot commit of {ROWS} rows, local disk",
        "rounds": ROUNDS,
        "txnlog_ms": round(statistics.median(ours), 3),
        "deltalake_by_path_ms": round(statistics.median(theirs), 3),
        "deltalake_open_table_ms": round(statistics.median(theirs_open), 3),
        "times_faster_than_the_faster_of_both": round(fastest / statistics.median(ours), 2),
        "versions": {"deltalake": deltalake.__version__, "pyarrow": pa.__version__},
    }


def main() -> None:
    """Measure on a temporary folder beside the system's other temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder)), indent=2))


if __name__ == "__main__":
    main()
