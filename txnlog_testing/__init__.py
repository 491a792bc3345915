"""The test kit of txnlog: imported by tests, tools and your own checks, and by no module of the product.

* ``simulator``: clients, a store and time in one seeded program, with every fault that a store can show, and
  its oracle (``replay`` runs one seed).
* ``checker``: checks histories that producers and readers wrote down for anomalies (``check_history`` is its
  command).
* ``stores``: servers that speak S3, a proxy that injects faults, stores that count requests, fail by plan,
  take their time or signal, and the conformance test of a store.
* ``models``: second implementations of the protocol's rules, simple and slow, that results are compared with.
* ``interrupts`` lists and strikes every point at which a signal handler can run; ``power_cut`` models what a
  disk keeps.
* ``temporary`` gives a program, and the JVMs that it starts, a temporary directory that is removed, also
  after ``kill -9``.
* ``strategies`` (Hypothesis), ``entries``, ``seal_of``: data for tests.

It needs what the extra ``testing`` installs.

May import: every package of the product; the third parties of the extra ``testing``.
"""
