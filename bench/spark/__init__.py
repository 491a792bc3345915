"""Benchmarks of the Spark source and sink, and what they compare with.

``bare_source`` and ``bare_sink`` are the least that a Python source or sink can do; the difference to them is
what txnlog adds. The modules ``stream_queries`` and ``stream_runs`` run queries for several benchmarks. Start
reading in the module of the row that you look for.

May import: the shared modules of ``bench``, and what those may import; pyspark.
"""
