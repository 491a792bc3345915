"""Subscriptions: acknowledgements of single records, also inside transactions (Pulsar's PIP-31). Pure.

* ``operations``: creation, deletion, acknowledgements and seeks, as values.
* ``state``: the acknowledged and pending offsets of a partition, and the one rule for conflicts. Start
  reading here.
* ``decide`` turns a conflict into a rejection, ``fold`` into corruption; ``ends`` is the end of a
  transaction; ``invariants``: the second opinion.
* ``backlog``: figures over readable records.

May import: the shared modules of ``core`` (such as ``state`` and ``folding``), operations, states and folds
of other concerns, and the modules below ``core``.
"""
