"""Streams: reads in micro-batches, and the exactly-once sink.

* ``reader``: the stream reader that Spark calls, on the driver and in tasks. Start reading here.
* ``offsets``: positions as they stand in a query's checkpoint; ``progress``: from such a position to the end
  of the next micro-batch; ``admission``: how much of a backlog one micro-batch takes; ``followed_log``: the
  log that a query follows while it runs.
* ``sink``: each batch is one entry of the log, once, whatever Spark repeats; ``messages``: the reports of its
  tasks to the driver; ``commit``: from the reports to the write.

May import: ``read``, ``write``, ``options``, ``worker``, the modules of ``spark_datasource`` beside the
rooms, and ``txnformat``.
"""
