"""Tables of a log in Spark, by Spark's own Parquet reader where that can read them; see docs/spark-read.md.

Importing this needs pyspark; ``import txnlog`` does not import it.
"""

from __future__ import annotations

try:
    from spark_datasource.native.calls import create_view, describe, read_table, read_tables, renew_view
    from spark_datasource.native.micro_batches import micro_batch
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pyspark":
        raise
    raise ModuleNotFoundError(
        "txnlog.spark needs pyspark: pip install 'txnlog[spark]'", name="pyspark"
    ) from None

__all__ = ["create_view", "describe", "micro_batch", "read_table", "read_tables", "renew_view"]
