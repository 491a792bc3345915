"""The storage format and the commit protocol of txnlog.

All partitions of a root are sequenced by one chain of commit entries. The packages below are its rooms;
imports go down only (``make layers``):

==============
=====================================================================================================
``consumers``   Consumer and Subscription: groups, positions, fetching, acknowledgements. ``log``
:class:`~txnformat.log.TxnLog`, a log as users hold it; ``log_reads`` is its reading half. ``lookup``
Topics as producers and consumers look them up; ``values`` puts large values together from their chunks.
``looking``     A log to look at: its transactions as a document, and the page that draws it. ``verify``
Derives a log's metadata again from its objects, and reports each difference. ``admin``       Describes,
measures and maintains a log, publishes topics as tables; tools for what belongs to others. ``views``
Topics described again for other engines: tables of Delta and Iceberg. ``reading``     Plans a read and
returns record batches. ``client``      Threads and real IO: group commit, the driver that performs effects,
background work, maintenance. ``protocol``    The steps of a commit, a refresh, a seal: generators that yield
effects. No IO. ``core``        The log as values: operations, entries, state, decisions, the fold,
invariants. Pure. ``segments``    Data files: Parquet written as a stream, and read by byte range after every
byte was checked. ``store``       Object stores: local disk, S3, memory, and their wrappers. ``predicates``
``where`` texts: from SQL to a tree, from a tree to a mask. ``columns``     Types of columns and the rules for
their values; Arrow bytes that are not trusted. ==============
=====================================================================================================

The modules beside the packages stand below all of them (``errors``, ``types``, ``keys``, ``clock`` …). The
test kit is ``txnlog_testing``: no module of the product imports it. Start reading at ``core.state`` and
``core.decide``; ARCHITECTURE.md follows a write and a read step by step.

May import: no other package of the project, and no pyspark.
"""
