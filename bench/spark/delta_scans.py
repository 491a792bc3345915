"""Scans of Delta tables in turns: ``python delta_scans.py``, with an order on standard input.

For an interpreter with a pyspark that Delta knows, without txnlog.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

__all__: list[str] = []


def main() -> None:
    """Write the native table, scan both in turns, and print the seconds of each as JSON."""
    order: dict[str, Any] = json.load(sys.stdin)
    builder = SparkSession.builder.master("local[2]")
    for name, value in order["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.read.parquet(order["parquet"]).repartition(order["files"]).write.format("delta").save(
        order["native"]
    )
    frames = {name: spark.read.format("delta").load(order[name]) for name in ("view", "native")}
    rows = {name: frame.count() for name, frame in frames.items()}
    seconds: dict[str, list[float]] = {name: [] for name in frames}
    for number in range(order["warm_up"] + order["rounds"]):
        for name in list(frames) if number % 2 == 0 else list(frames)[::-1]:
            start = time.perf_counter()
            frames[name].write.format("noop").mode("overwrite").save()
            if number >= order["warm_up"]:
                seconds[name].append(time.perf_counter() - start)
    spark.stop()
    print(json.dumps({"rows": rows, "seconds": seconds}))


if __name__ == "__main__":
    main()
