"""Seeded histories of many clients in virtual time, with faults, and the oracle that judges them.

* ``simulator``: one seed is one history. Start reading here; ``hand`` drives single steps in a test's own
  order.
* ``world`` and ``store``: virtual time, processes, the scheduler, and an object store with a plan of faults.
* ``actors``: the processes; their clients: ``clients``, ``transactions``, ``groups``, ``acks``, ``removing``,
  ``compacting``.
* ``oracle``: the judge: one fold of the true chain, and the meaning of every answer. ``ledgers`` judge their
  concerns without the product's fold.

The clients run the product's own steps (:mod:`txnformat.protocol`); only effects and time are simulated.

May import: ``txnformat``, and ``stores``.
"""
