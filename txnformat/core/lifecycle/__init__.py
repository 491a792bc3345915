"""The end of records, topics and files: trims, deleted topics, compacted segments, the vacuum's mark, and ids
that were idle for long.

Pure.

* ``operations`` declares :class:`Trim`, :class:`DeleteTopic`, :class:`Replace`, :class:`VacuumMark` and those
  of erasures. Start reading here.
* ``trim``, ``deletion``, ``compaction``, ``vacuum``, ``truncation``, ``erasure`` and ``idle`` decide;
  ``features`` says what a log allows.
* ``fold`` applies the operations, that of features too, with ``removal``, ``cleaned`` and ``erased``;
  ``invariants`` checks the results; ``state`` keeps erasures.
* ``pins`` says which groups and subscriptions hold records back, ``touching`` which undecided transactions a
  topic has; ``offset_map`` knows the latest offset of each key.

May import: the states and operations of every concern, the decision about the end of a transaction, and
:mod:`txnformat.core.sealing`, which imports from here the operations alone; the shared modules of ``core``,
and the modules below it. ``operations`` imports field types and record types only, since
:mod:`txnformat.core.operations` imports it.
"""
