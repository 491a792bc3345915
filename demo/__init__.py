"""`make demo`: the flights of New York 2013 in transactions, read with Spark under every isolation level.

``ingest`` writes the flights, and keeps books of its own to hold the log against. Start reading in
``__main__``, which runs the steps one by one.

May import: every package of the product, by the names that users import, and the servers of
``txnlog_testing``.
"""
