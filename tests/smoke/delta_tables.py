"""Published tables in Delta on Spark: equal to snapshot reads of the log, and no write of Delta touches a file of the log.

``python -m tests.smoke.delta_tables`` (``make delta-tables``). It fetches Delta's jars from Maven Central, and runs with the newest pyspark that these know, in an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.integration.views.tables import CASES, expected, row, write
from tests.smoke.versions import environment
from txnformat.views.manifests import ViewTable
from txnlog import TxnLog
from txnlog_testing.temporary import own_temporary_directory

__all__: list[str] = []

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


def objects(log: TxnLog) -> dict[str, int]:
    return {info.key: info.size for info in log.store.list("")}


def run(order: dict[str, Any]) -> dict[str, str]:
    """Return the outcomes of the writes, after all tables were read."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    python = environment(PYSPARK)
    clean |= {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    child = subprocess.run(
        [str(python), str(Path(__file__).with_name("delta_spark.py"))],
        input=json.dumps(order),
        stdout=subprocess.PIPE,
        env=clean,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(child.stdout.splitlines()[-1])
    return found


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
            "settings": SETTINGS | {"spark.sql.warehouse.dir": str(folder / "warehouse")},
            "tables": [
                {
                    "path": table.path.removeprefix("file://"),
                    "version": table.version,
                    "rows": len(wanted[case]),
                    "out": str(folder / f"out-{number}"),
                }
                for number, (case, table) in enumerate(tables.items())
            ],
        }
        before = {case: objects(log) for case, log in logs.items()}
        outcomes = run(order)
        for number, case in enumerate(tables):
            found = pq.read_table(folder / f"out-{number}")
            texts = sorted(repr(row) for row in _plain(found).to_pylist(maps_as_pydicts="lossy"))
            assert texts == wanted[case], case
            left = {key: size for key, size in objects(logs[case]).items() if key in before[case]}
            assert left == before[case], case
            report = logs[case].verify(deep=True)
            assert report.ok, report.problems
            print(f"{case}: {len(texts)} rows as in the log")
            logs[case].close()
    for name, outcome in outcomes.items():
        print(f"{name}: {outcome}")


def _plain(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None)


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"a table differs: {error}")
