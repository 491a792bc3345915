"""The end of records, topics and files: trims, deleted topics, compacted segments, the vacuum's mark, and ids that were idle for long. Pure.

``operations`` declares :class:`Trim`, :class:`DeleteTopic`, :class:`Replace` and :class:`VacuumMark`; ``fold`` and ``removal`` apply them, ``trim``,
``deletion``, ``compaction``, ``vacuum`` and ``idle`` decide about them. ``pins`` says which groups and subscriptions hold records back, ``touching``
which undecided transactions a topic has.

``operations`` imports field types and record types only, since :mod:`txnformat.core.operations` imports it. The other modules may import the state and the
operations of every concern, the decision about the end of a transaction, and :mod:`txnformat.core.sealing`, which imports from here the operations alone.
"""
