"""Transactions: the states of a transactional id, how they begin, end and time out, and the abort index.

Pure.

* ``state``: the states of an id, and the only table of legal transitions. Start reading here.
* ``decide``: who may act in a transaction, how it ends, who opens its id; ``fold``: stages, prepared
  transactions, ends.
* ``abort_index``: the aborted transactions of a partition, in Kafka's ``.txnindex`` format.
* ``hanging``, ``lingering`` and ``listing`` read one state for operators.

May import: the shared modules of ``core`` (such as ``state`` and ``folding``), operations, states and folds
of other concerns, but nothing of ``groups`` and ``subscriptions``, which stand above; and the modules below
``core``.
"""
