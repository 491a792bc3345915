"""Batch reads: the driver pins and plans, the tasks read.

* ``reader``: the reader that Spark calls. Start reading here.
* ``pinning``: options and the newest state become fixed ranges of every topic, so that all tasks and repeats
  read the same rows.
* ``planning`` and ``splits``: the pinned ranges are cut into splits: few, of equal size, each a run of the
  log in order.
* ``split_reader``: a task reads a split: sidecars of sealed segments first, then the data. It needs no state
  of the log.

Streaming reads use the same modules for each micro-batch.

May import: ``options``, ``worker``, the modules of ``spark_datasource`` beside the rooms, and ``txnformat``.
"""
