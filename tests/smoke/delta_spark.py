"""Reads published tables with Delta on Spark, and tries every write: ``python delta_spark.py``, with an order on standard input. For an interpreter with an older pyspark, without txnlog."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

__all__: list[str] = []


def main() -> None:
    """Write what each table has as Parquet, and print the outcome of each write as JSON."""
    order = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[2]")
    for name, value in order["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for table in order["tables"]:
        frame = spark.read.format("delta").option("versionAsOf", table["version"]).load(table["path"])
        assert frame.count() == table["rows"], (table, frame.count())
        frame.coalesce(1).write.parquet(table["out"])
    path = order["tables"][0]["path"]
    place = f"delta.`{path}`"
    writes: dict[str, Callable[[], Any]] = {
        "append": lambda: (
            spark.read.format("delta").load(path).write.format("delta").mode("append").save(path)
        ),
        "overwrite": lambda: (
            spark.read.format("delta").load(path).limit(1).write.format("delta").mode("overwrite").save(path)
        ),
        "OPTIMIZE": lambda: spark.sql(f"OPTIMIZE {place}"),
        "DELETE": lambda: spark.sql(f"DELETE FROM {place}"),
        "UPDATE": lambda: spark.sql(f"UPDATE {place} SET n = 1"),
        "VACUUM": lambda: spark.sql(f"VACUUM {place} RETAIN 0 HOURS"),
        "ALTER TABLE": lambda: spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('a' = 'b')"),
        "RESTORE": lambda: spark.sql(f"RESTORE {place} TO VERSION AS OF 0"),
    }
    outcomes = {}
    for name, write in writes.items():
        try:
            write()
            outcomes[name] = "done"
        except Exception as error:  # noqa: BLE001  # whatever it is: it is the result
            code = re.search(r"DELTA_\w+", str(error))
            outcomes[name] = code[0] if code else str(error)[:300]
    spark.stop()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
