"""A compacted topic that is published as a Delta table, scanned by Delta on Spark, against a native Delta
table of the same rows.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path

from bench import shapes
from bench.spark.stream import DELTA, DELTA_PYSPARK
from bench.table import Benchmark, Context, Measurement, Row, ratio
from tests.smoke.versions import environment
from txnlog import TxnLog

__all__ = ["BENCHMARKS"]

ROWS = 5_000_000
ROUNDS = 7
WARM_UP = 3


def measure(context: Context) -> list[Measurement]:
    """Return the view's speed by that of the native table.

    Raises
    ------
    RuntimeError
        They do not hold the same number of rows.
    """
    context.tick(f"pyspark {DELTA_PYSPARK}")
    python = environment(DELTA_PYSPARK)
    context.tick("writing")
    root = context.folder / "log"
    shapes.write_log(root, shapes.flights(ROWS))
    shapes.write_parquet(context.folder / "parquet", shapes.flights(ROWS))
    with TxnLog.open(root) as log:
        context.tick("compacting")
        log.compact("rows", min_lag_ms=0)
        (published,) = log.publish().topics
        view = log.published_tables()["rows"].path.removeprefix("file://")
    order = {
        "settings": {
            **DELTA,
            "spark.sql.warehouse.dir": str(context.folder / "warehouse"),
            "spark.driver.memory": "2g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        },
        "parquet": str(context.folder / "parquet"),
        "native": str(context.folder / "native"),
        "view": view,
        "files": published.files,
        "rounds": ROUNDS,
        "warm_up": WARM_UP,
    }
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    context.tick("scanning")
    child = subprocess.run(
        [str(python), str(Path(__file__).with_name("delta_scans.py"))],
        input=json.dumps(order),
        stdout=subprocess.PIPE,
        env=clean | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
        text=True,
        check=True,
    )
    found = json.loads(child.stdout.splitlines()[-1])
    if set(found["rows"].values()) != {ROWS}:
        raise RuntimeError(f"they do not hold the same rows: {found['rows']}")
    seconds = found["seconds"]
    medians = {f"{name}_s": round(statistics.median(times), 3) for name, times in seconds.items()}
    return [
        ratio(
            "delta-view-scan", seconds["native"], seconds["view"], files=published.files, rows=ROWS, **medians
        )
    ]


BENCHMARKS = (
    Benchmark(
        name="delta-view",
        how=(
            f"{ROWS:,} flights in a topic that is compacted and published as a Delta table, and the same "
            "rows in a native Delta table with as many files, each read whole into a sink that drops it, by "
            f"Delta on Spark {DELTA_PYSPARK} in local[2]. From the page cache, {ROUNDS} rounds."
        ),
        rows=(
            Row(
                key="delta-view-scan",
                work="scan of a compacted topic by Delta on Spark, flights",
                against="a native Delta table of the same rows",
                figure="times its speed",
                target=0.95,
            ),
        ),
        measure=measure,
        minutes=3,
    ),
)
