"""Reads published tables with Spark, and tries Iceberg's writes: ``python engines_spark.py``, with an order
on standard input. For an interpreter with a pyspark that the jars know, without txnlog."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__: list[str] = []

REASONS = re.compile(
    r"Failed to get file system for path: txnlog-read-only|No FileSystem for scheme "
    r".?txnlog-read-only|Cannot [a-z ]+: GC is disabled"
)
"""The parts of long messages that tell why a table is not written to."""


def outcome(act: Callable[[], Any]) -> str:
    """Return "done", or the message of the error."""
    try:
        act()
    except Exception as error:  # noqa: BLE001  # whatever it is: it is the result
        text = str(error)
        known = REASONS.search(text)
        return (
            known[0]
            if known
            else next(filter(None, map(str.strip, text.splitlines())), type(error).__name__)[:300]
        )
    return "done"


def main() -> None:
    """Write what each table has as Parquet; print the number of rows of each, or the error, the outcome of
    each write, and how many records pass each filter: filtered, and judged one by one."""
    order = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[2]")
    for name, value in order["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    told: list[Any] = []
    for table in order["tables"]:
        reader = spark.read.format(order["format"]).options(**table["options"])

        def read(reader: Any = reader, table: Mapping[str, Any] = table) -> None:
            frame: DataFrame = reader.load(table["path"])
            frame.coalesce(1).write.parquet(table["out"])
            told.append(frame.count())

        failure = outcome(read)
        if failure != "done":
            told.append(failure)
    writes = {}
    if "attacked" in order:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS own.ns")
        spark.sql(f"CALL own.system.register_table('ns.t', '{order['metadata']}')")
        writes = {what: outcome(act) for what, act in attacks(spark, order["attacked"], order).items()}
    passed = {}
    for one in order.get("filters", ()):
        frame = spark.read.format(order["format"]).options(**order["options"]).load(order["filtered"])
        judged = frame.selectExpr(f"sum(CASE WHEN {one} THEN 1 ELSE 0 END)").collect()[0][0]
        passed[one] = [frame.where(one).count(), judged]
    spark.stop()
    print(json.dumps({"told": told, "writes": writes, "passed": passed}))


def attacks(spark: SparkSession, name: str, order: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return what a program of Iceberg can try on a table."""
    catalog = name.partition(".")[0]
    quoted = name.partition(".")[2]
    call = f"CALL {catalog}.system"
    return {
        "INSERT": lambda: spark.sql(f"INSERT INTO {name} SELECT * FROM {name} LIMIT 1"),
        "INSERT OVERWRITE": lambda: spark.sql(f"INSERT OVERWRITE {name} SELECT * FROM {name} LIMIT 1"),
        "UPDATE": lambda: spark.sql(f"UPDATE {name} SET text = 'x'"),
        "DELETE some": lambda: spark.sql(f"DELETE FROM {name} WHERE n < 3"),
        "DELETE all": lambda: spark.sql(f"DELETE FROM {name}"),
        "MERGE": lambda: spark.sql(
            f"MERGE INTO {name} a USING (SELECT 1 AS n) b ON a.n = b.n WHEN MATCHED THEN DELETE"
        ),
        "TRUNCATE": lambda: spark.sql(f"TRUNCATE TABLE {name}"),
        "ALTER TABLE, a column": lambda: spark.sql(f"ALTER TABLE {name} ADD COLUMN more INT"),
        "ALTER TABLE, a property": lambda: spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('a' = 'b')"),
        "rewrite_data_files": lambda: spark.sql(
            f"{call}.rewrite_data_files(table => '{quoted}', options => map('rewrite-all', 'true'))"
        ).collect(),
        "rewrite_manifests": lambda: spark.sql(f"{call}.rewrite_manifests('{quoted}')").collect(),
        "expire_snapshots": lambda: spark.sql(
            f"{call}.expire_snapshots(table => '{quoted}', older_than => TIMESTAMP '2100-01-01 00:00:00', "
            "retain_last => 1)"
        ).collect(),
        "remove_orphan_files": lambda: spark.sql(
            f"{call}.remove_orphan_files(table => '{quoted}', older_than => TIMESTAMP '2020-01-01 "
            f"00:00:00', location => '{order['topic']}')"
        ).collect(),
        "DROP TABLE … PURGE": lambda: spark.sql(f"DROP TABLE {name} PURGE"),
    }


if __name__ == "__main__":
    main()
