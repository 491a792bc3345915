"""The records, ends and positions that a simulated history really holds, kept by the rules of the
specification alone, without the product's fold.

* ``ledger``: every record of a history. Start reading here; ``ends`` and ``visible`` are its judges of ends
  and of reads.
* ``groups``, ``acks``: positions of groups, acknowledgements of subscriptions.
* ``removals``, ``rewrites``: log starts and deleted topics; compaction, keys and erasures, of histories whose
  files hold records.

May import: ``txnformat``, ``stores``, and ``world`` of the simulator.
"""
