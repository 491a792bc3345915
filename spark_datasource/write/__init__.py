"""Batch writes and SparkTransaction: tasks upload files, the driver commits all of them in one entry.

* ``plan``: the plan of a write, fixed before any task runs; ``routing``: the topic of each row. Start reading
  here.
* ``task``: rows to topics, records to partitions, partitions to batches, batches to files; ``messages``: the
  task's report to the driver.
* ``commit`` and ``sink``: from the reports to the entry; ``repeats``: a version that is in the log already,
  with the same rows or others.
* ``transaction``: :class:`~spark_datasource.write.transaction.SparkTransaction`, with ``transaction_jobs``
  and ``transaction_settings``.
* ``sessions``: how classic Spark finds the format in every thread.

A task that fails, or runs twice, leaves files that no entry names.

May import: ``options``, ``worker``, the modules of ``spark_datasource`` beside the rooms, ``writers`` and
``txnformat``.
"""
