"""``read_table`` of a log in a bucket: Spark's own Parquet reader, through its s3a connector, has the rows of
``log.read``.

``python -m tests.smoke.native_s3a`` (``make native-s3a``). It fetches the connector's jars from Maven
Central, several hundred megabytes at the first run, and runs against SeaweedFS.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from spark_datasource.native.table import plan_table
from txnlog import Producer, TxnLog
from txnlog.spark import read_table
from txnlog_testing.stores.s3_server import S3Server, hadoop_version, seaweedfs_server
from txnlog_testing.temporary import own_temporary_directory

__all__: list[str] = []

ROWS = 600_000
"""Of a transaction: enough that a file is read natively from a store with latency."""
ABORTED = 1
"""The transaction that is aborted, of four."""
COLUMNS = ["n", "x", "_partition", "_offset"]


def session(server: S3Server, folder: Path) -> SparkSession:
    """Return a session whose s3a reaches the server."""
    settings = {
        **server.spark_settings,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master("local[2]").appName("native-s3a")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def write(log: TxnLog) -> None:
    """Write transactions of large files to two partitions, one of them aborted, and a small one behind
    them.
    """
    log.create_topic("t", pa.schema([("n", pa.int64()), ("x", pa.float64())]), partitions=2)
    generator = np.random.default_rng(7)
    with Producer(log, "p", buffer="inline") as producer:
        for number, rows in enumerate([ROWS] * 4 + [10]):
            values = {"n": generator.integers(0, 1 << 60, rows), "x": generator.random(rows)}
            producer.begin()
            producer.send("t", pa.table(values), partition=number % 2)
            producer.flush()
            producer.abort() if number == ABORTED else producer.commit()


def main() -> None:
    """Compare all rows and a query, in both ways of writing the scheme."""
    with own_temporary_directory() as folder, seaweedfs_server() as server:
        with TxnLog.create(server.url("log"), storage_options=server.storage_options) as log:
            write(log)
            wanted = log.read("t", columns=COLUMNS).read_all()
        spark = session(server, folder)
        try:
            for scheme in ("s3", "s3a"):
                url = server.url("log", scheme)
                native = plan_table(spark, url, "t").division.native_amount
                assert (native.files, native.rows) == (3, 3 * ROWS), native
                found = read_table(spark, url, "t", columns=COLUMNS).toArrow()
                order = [("_partition", "ascending"), ("_offset", "ascending")]
                assert found.sort_by(order).to_pydict() == wanted.sort_by(order).to_pydict()
                frame = read_table(spark, url, "t").where("x > 0.999")
                assert frame.count() == sum(x > 0.999 for x in wanted["x"].to_pylist())
                print(
                    f"{scheme}: {len(found):,} rows as in the log, {native.rows:,} of them natively",
                    flush=True,
                )
        finally:
            spark.stop()
    print(f"pyspark {version('pyspark')}, hadoop-aws {hadoop_version()}")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"the rows differ: {error}")
