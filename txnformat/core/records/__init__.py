"""Records of a partition: offsets, extents and batches, and which of them a reader sees. Pure.

* ``state``: the partition: its log end, last stable offset, open and aborted transactions, extents. Start
  reading here.
* ``decide``: a write: its offsets are assigned here; ``fold``: the partitions have the records of an append;
  ``invariants``: the check of each step.
* ``scan``: plans a read; ``visibility``: the isolation level (Kafka's consumer-side filter).
* ``batch_table``: the batches of large appends; ``chunks``: the parts of large values.

May import: the shared modules of ``core`` (such as ``state`` and ``folding``), operations, states and folds
of other concerns, decisions of the concerns that a write touches, and the modules below ``core``.
"""
