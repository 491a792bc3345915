"""``txnlog doctor``: the checks of environment, store and log, and the command that runs them.

* ``command``: the command, and the order of the checks. Start reading here.
* ``diagnosis``: findings as plain values.
* ``environment``: Python, packages, Java; it imports nothing heavy.
* ``store``: the store is reachable, its clock agrees, it keeps the protocol's promises.
* ``log``: the log opens, its maintenance runs, no transaction holds readers back for long.

May import: the shared modules of ``txnlog.cli``, and ``txnformat``, inside functions where pyarrow would be
loaded.
"""
