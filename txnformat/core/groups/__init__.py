"""Consumer groups: members, generations, positions, and positions that are pending in transactions. Pure.

* ``operations``: join, commit of positions, deletion, as values.
* ``state``: a group: its member, generation and positions. Start reading here.
* ``decide``: who is the member, what may be committed, what may be deleted; ``checks`` and ``resets`` judge
  what users ask for.
* ``fold``, and ``ends`` for the end of a transaction with pending positions; ``invariants``: the second
  opinion.
* ``listing``: lists and descriptions for operators.

The concern stands above :mod:`txnformat.core.transactions`: a pending position ends with its transaction.

May import: the shared modules of ``core`` (such as ``state`` and ``folding``), operations, states and folds
of other concerns, and the modules below ``core``.
"""
