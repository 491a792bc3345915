"""Everything that writes to a log: producers, their transactions, and bulk appends.

* ``producer``: :class:`~writers.producer.Producer`, the calls that users make. Start reading here.
* ``session``: the producer's side of the protocol: identity, intents, unknown outcomes. ``standing`` is its
  knowledge as one immutable value.
* ``transaction``: the states of a producer, the calls that each state allows, and the ``with`` statement of a
  transaction.
* ``rows``, ``accumulator``, ``partitioner`` and ``chunks``: records as they are sent: checked, buffered,
  assigned to partitions, cut if they are large.
* ``staging`` and ``upload``: buffered records become segment files, which no reader sees before an entry
  names them.
* ``whole_files``: Parquet files of other writers that go in as they are.
* ``inputs``: positions and acknowledgements that commit with the records.
* ``bulk`` appends without a producer; ``job`` is a producer whose transaction many processes write into.
* ``settings``, ``linger``, ``calls``, ``ownership`` and ``producer_ids``: settings, flushes in time,
  interrupts, forks, ids.

No module of ``txnformat`` knows this package, and nothing here imports pyspark. Each write is an intent that
:mod:`txnformat.client.committer` commits.

May import: ``txnformat``.
"""
