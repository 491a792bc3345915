"""Erasure: records that a condition matches vanish for good, and a certificate says when.

* ``call``: the call: its checks, the request in the log, and passes while it can make them. Start reading
  here.
* ``rewriting``: segments with matching rows get others in their place, until none is left.
* ``certificate``: the last look at the store, and the entry which says that nothing was found.
* ``status``: how far erasures have come, and what they lack, in words. Pure.

The decisions and the state are in :mod:`txnformat.core.lifecycle`; section 5.19 of the specification has the
rules.

May import: the other modules of ``admin``, and what they may import.
"""
