"""The Spark Python DataSource ``txnlog``: ``datasource`` is what Spark calls; ``schema`` is between a topic's
schema and Spark's.

* ``options``: the options of reads and writes, each declared once in ``options.declared``, and parsed once
  into plain values.
* ``read``: batch reads: the driver pins and plans, tasks read splits.
* ``write``: batch writes: tasks upload files, the driver commits them in one entry; SparkTransaction.
* ``stream``: streaming reads and the exactly-once sink.
* ``native``: tables of whose files Spark's own Parquet reader reads what it can; ``compact``: compaction by
  Spark's tasks.
* ``worker``: what a Python worker of Spark keeps open between calls.

May import: ``writers`` and ``txnformat``.
"""
