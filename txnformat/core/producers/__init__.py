"""Idempotent producers: sequence numbers and ids, and what a sequence proves about an unanswered commit.

Pure.

* ``state``: the sequence numbers of one producer in one partition: new, repeated, out of order. Start reading
  here.
* ``absence``: proof by a natural key that no entry so far holds an intent.
* ``fold``: a block of producer ids is given; ``ids``: such blocks in the form in which Kafka's controllers
  keep them.

The numbers of an append are checked by :mod:`txnformat.core.records.decide`, and kept by the state of its
partition.

May import: the shared modules of ``core`` (such as ``state`` and ``folding``), operations, states and folds
of other concerns, and the modules below ``core``.
"""
