"""Tables of a log in Spark, by Spark's own Parquet reader where that can read them; see docs/spark-read.md.

Importing this needs pyspark; ``import txnlog`` does not import it.
"""

from __future__ import annotations

from txnformat.errors import needing

with needing("pyspark", "txnlog.spark", extra="spark"):
    from spark_datasource.native.calls import create_view, describe, read_table, read_tables, renew_view
    from spark_datasource.native.micro_batches import micro_batch

__all__ = ["create_view", "describe", "micro_batch", "read_table", "read_tables", "renew_view"]
