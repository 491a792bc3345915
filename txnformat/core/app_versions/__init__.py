"""Versions of applications: the exactly-once key of a batch engine. Pure.

An application, such as a streaming query or a nightly job, numbers its writes. The log keeps the newest
version of each application, and the runs (instances) that have written it, so a version that is repeated
changes nothing, and an older run is fenced.

* ``state``: the newest version, and its runs. Start reading here.
* ``decide``: whether a write was done before, and whether its version may follow; ``fold``: the version is
  the newest; ``invariants``: the second opinion.

The operation is declared in :mod:`txnformat.core.operations`.

May import: the shared modules of ``core`` (such as ``state`` and ``folding``), operations, states and folds
of other concerns, and the modules below ``core``.
"""
