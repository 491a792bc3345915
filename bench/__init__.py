"""Benchmarks: ratios against peers, measured side by side in one run.

* ``registry`` lists the benchmarks, ``table`` declares rows and measurements, ``page`` writes
  docs/internals/benchmarks.md from the kept results. Start reading here.
* The other modules are one benchmark each, or what several share; ``lifecycle`` and ``spark`` are rooms of
  benchmarks.

``python -m bench`` runs all of them, ``make bench BENCH=name`` one. No module of the product imports them.

May import: every package of the product, and ``txnlog_testing``.
"""
