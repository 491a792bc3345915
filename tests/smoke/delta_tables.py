"""Published tables in Delta on Spark: equal to snapshot reads of the log; every write of Delta is refused or
harmless, and changes no byte of an object.

``python -m tests.smoke.delta_tables`` (``make delta-tables``). It fetches Delta's jars from Maven Central,
and runs with the newest pyspark that these know, in an environment of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.integration.views.tables import CASES, expected, path_of, row, write
from tests.smoke.versions import environment
from txnformat.views.manifests import ViewTable
from txnlog import TxnLog
from txnlog_testing.temporary import own_temporary_directory

__all__ = ["attacked"]

PYSPARK = "4.2.1"
SETTINGS = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


REFUSED = "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"
"""The error of Delta about a writer feature that it does not have."""
OTHERWISE = {
    "`ALTER TABLE … DROP FEATURE`": "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE",
    "`DROP TABLE` of a catalog": "done",
}
"""Operations that end otherwise, with their outcome. A table that was registered by its path is not deleted
with its name."""


def objects(log: TxnLog) -> dict[str, str]:
    """Return the SHA-256 of each object of a log, by key."""
    return {
        info.key: hashlib.sha256(log.store.get(info.key) or b"").hexdigest() for info in log.store.list("")
    }


def check_untouched(log: TxnLog, before: Mapping[str, str]) -> list[str]:
    """Raise AssertionError unless all objects of a log are what they were; return the keys of new ones, which
    a refused write leaves behind."""
    after = objects(log)
    changed = [key for key, digest in before.items() if after.get(key) != digest]
    assert not changed, changed
    return sorted(after.keys() - before.keys())


def run(order: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the outcomes of the writes, after all tables were read. ``order``: the tables to read, and the
    one to write to."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    python = environment(PYSPARK)
    clean |= {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = SETTINGS | {"spark.sql.warehouse.dir": str(folder / "warehouse")}
    child = subprocess.run(
        [str(python), str(Path(__file__).with_name("delta_spark.py"))],
        input=json.dumps({"settings": settings, "checkpoint": str(folder / "checkpoint"), **order}),
        stdout=subprocess.PIPE,
        env=clean,
        text=True,
        check=True,
        cwd=folder,
    )
    found: dict[str, str] = json.loads(child.stdout.splitlines()[-1])
    return found


def check_refused(outcomes: Mapping[str, str]) -> None:
    """Raise AssertionError unless every write was refused, or is known to end otherwise."""
    wrong = {name: outcome for name, outcome in outcomes.items() if outcome != OTHERWISE.get(name, REFUSED)}
    assert outcomes, "no write was tried"
    assert not wrong, wrong


def attacked(log: TxnLog, table: ViewTable, folder: Path) -> dict[str, str]:
    """Return the outcomes of the writes of Delta on Spark to a table: all are refused or harmless, and every
    object of the log is what it was."""
    before = objects(log)
    outcomes = run({"tables": [], "attacked": path_of(table)}, folder)
    check_untouched(log, before)
    check_refused(outcomes)
    return outcomes


def main() -> None:
    """Publish every kind of topic, let Spark read and write, and compare."""
    with own_temporary_directory() as folder:
        logs: dict[str, TxnLog] = {}
        tables: dict[str, ViewTable] = {}
        for number, case in enumerate(sorted(CASES, key=lambda case: case != "compacted")):
            logs[case] = CASES[case](folder / f"log-{number}")
            logs[case].publish("t")
            if case == "compacted":
                write(logs[case], [row(1_000)])
                logs[case].publish("t")
            tables[case] = logs[case].published_tables()["t"]
        wanted = {case: expected(logs[case], table) for case, table in tables.items()}
        order = {
            "tables": [
                {
                    "path": path_of(table),
                    "version": table.version,
                    "rows": len(wanted[case]),
                    "out": str(folder / f"out-{number}"),
                }
                for number, (case, table) in enumerate(tables.items())
            ],
            "attacked": path_of(tables["compacted"]),
        }
        before = {case: objects(log) for case, log in logs.items()}
        outcomes = run(order, folder)
        for name, outcome in outcomes.items():
            print(f"{name}: {outcome}")
        for number, case in enumerate(tables):
            found = pq.read_table(folder / f"out-{number}")
            texts = sorted(repr(row) for row in _plain(found).to_pylist(maps_as_pydicts="lossy"))
            assert texts == wanted[case], case
            left = check_untouched(logs[case], before[case])
            for key in left:
                print(f"{case}: left behind by Spark: {key}")
            report = logs[case].verify(deep=True)
            assert report.ok, report.problems
            print(f"{case}: {len(texts)} rows as in the log, and every object is what it was")
            logs[case].close()
        check_refused(outcomes)


def _plain(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None)


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"a table differs, or a write was not refused: {error}")
