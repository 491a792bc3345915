"""Registers the Spark DataSource ``txnlog`` by itself: Spark imports top-level modules named ``pyspark_*``.

Importing this never raises: one such module that does takes all automatically registered sources away. There
is no other module here; the source is :mod:`spark_datasource.datasource`, whose ``register(spark)`` does the
same by hand.

May import: ``spark_datasource``.
"""

from __future__ import annotations

import contextlib

# A fault of the installation shows when the source is used or registered by hand.
with contextlib.suppress(Exception):
    from spark_datasource.datasource import TxnLogDataSource as DefaultSource  # noqa: F401  # Spark looks for it
