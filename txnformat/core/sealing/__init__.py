"""Seals: offset ranges below the last stable offset that moved from the state into sidecars, so that the
state stays small.

Pure.

* ``sidecar``: the sidecars of a sealed segment: ``.index``, ``.markers``, ``.txnindex``, after a compaction
  ``.runs``. Start reading here.
* ``segment_list``: objects that describe sealed segments, so that a state names only the newest of them;
  ``lists``: which list takes in which.
* ``fold``: the ranges leave the state, and with them the files that only they needed.

The steps that write a seal are in :mod:`txnformat.protocol`.

May import: the shared modules of ``core`` (such as ``state`` and ``folding``), operations, states and folds
of other concerns, and the modules below ``core``.
"""
