"""Reads published tables with Delta on Spark, and tries every write: ``python delta_spark.py``, with an order
on standard input. For an interpreter with an older pyspark, without txnlog."""

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
    outcomes = {}
    for name, write in attacks(spark, order["attacked"], order["checkpoint"]).items():
        try:
            write()
            outcomes[name] = "done"
        except Exception as error:  # noqa: BLE001  # whatever it is: it is the result
            code = re.search(r"DELTA_\w+", str(error))
            outcomes[name] = code[0] if code else str(error)[:300]
    spark.stop()
    print(json.dumps(outcomes))


def attacks(spark: SparkSession, path: str, checkpoint: str) -> dict[str, Callable[[], Any]]:
    """Return what a program of Delta can try on the table in a directory. ``checkpoint``: a directory for a
    stream."""
    place = f"delta.`{path}`"

    def frame() -> Any:
        return spark.read.format("delta").load(path)

    def stream() -> None:
        source = spark.readStream.format("delta").load(path).writeStream.format("delta")
        source.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(
            path
        ).awaitTermination()

    def registered(then: str) -> None:
        spark.sql(f"CREATE TABLE IF NOT EXISTS attacked USING delta LOCATION '{path}'")
        spark.sql(then)

    return {
        "append": lambda: frame().write.format("delta").mode("append").save(path),
        "overwrite": lambda: frame().limit(1).write.format("delta").mode("overwrite").save(path),
        "overwrite of some (`replaceWhere`)": lambda: (
            frame()
            .where("n = 1")
            .write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", "n = 1")
            .save(path)
        ),
        "streaming write": stream,
        "`INSERT`": lambda: spark.sql(f"INSERT INTO {place} SELECT * FROM {place} LIMIT 1"),
        "`MERGE`": lambda: spark.sql(
            f"MERGE INTO {place} a USING (SELECT 1 AS n) b ON a.n = b.n WHEN MATCHED THEN DELETE"
        ),
        "`UPDATE`": lambda: spark.sql(f"UPDATE {place} SET n = 1"),
        "`DELETE`": lambda: spark.sql(f"DELETE FROM {place}"),
        "`DELETE … WHERE`": lambda: spark.sql(f"DELETE FROM {place} WHERE n < 3"),
        "`TRUNCATE`": lambda: spark.sql(f"TRUNCATE TABLE {place}"),
        "`OPTIMIZE`": lambda: spark.sql(f"OPTIMIZE {place}"),
        "`OPTIMIZE … ZORDER BY`": lambda: spark.sql(f"OPTIMIZE {place} ZORDER BY (n)"),
        "`REORG … APPLY (PURGE)`": lambda: spark.sql(f"REORG TABLE {place} APPLY (PURGE)"),
        "`VACUUM … RETAIN 0 HOURS`": lambda: spark.sql(f"VACUUM {place} RETAIN 0 HOURS"),
        "`RESTORE`": lambda: spark.sql(f"RESTORE {place} TO VERSION AS OF 0"),
        "`ALTER TABLE`, a property": lambda: spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('a' = 'b')"),
        "`ALTER TABLE`, a column": lambda: spark.sql(f"ALTER TABLE {place} ADD COLUMNS (more INT)"),
        "`ALTER TABLE … DROP FEATURE`": lambda: spark.sql(
            f"ALTER TABLE {place} DROP FEATURE 'txnlog.readOnly'"
        ),
        "`CREATE OR REPLACE TABLE`": lambda: spark.sql(
            f"CREATE OR REPLACE TABLE {place} USING delta AS SELECT 1 AS n"
        ),
        "`DROP TABLE` of a catalog": lambda: registered("DROP TABLE attacked"),
    }


if __name__ == "__main__":
    main()
