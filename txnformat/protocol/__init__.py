"""The protocol as steps: generators that yield effects and are sent the answers. No IO, no clock, no thread.

``commit`` is the loop (refresh, decide, create, read back), ``slot`` creates one slot and says what came of
it (ours, lost, gone, refused, unknown), ``follow`` opens and refreshes, ``tail`` and ``reads`` fetch entries,
``tail`` also through bundles, which it writes, too; ``cuts`` finds the entry of a snapshot read, ``expiry``
finds transactions whose time is over, ``pace`` lets competitors have their turn, ``repeats`` answers a commit
that the log holds already. ``sealing``, ``spilling``, ``unembedding`` and ``snapshots`` are the steps of
maintenance.

:mod:`txnformat.client.driver` performs the effects on a real store, the simulator in virtual time with every
fault that a store can show.

May import: ``core`` and below.
"""
