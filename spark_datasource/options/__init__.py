"""Options of ``format("txnlog")``: text from Spark in, plain values out.

* ``declared``: every option, declared once with its names, kind, default and text; the tables of the
  documentation are made from it. Start reading here.
* ``read`` and ``write``: the options of reads and writes, parsed together, with the rules between them.
* ``values`` parses single values; ``names``, ``offsets`` and ``topics`` those with a form of their own.
* ``storage``: how a Spark job reaches a bucket, by options of its own or by the settings of Spark's
  connectors (``hadoop``).
* ``delegation``: the internal option by which a write belongs to a SparkTransaction.

All problems of a set of options are one error, raised before anything is read or written.

May import: ``writers``, ``txnformat``, and of this package ``schema``, ``failures`` and ``worker``.
"""
