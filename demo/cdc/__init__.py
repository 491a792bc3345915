"""`make demo-cdc`: changes of orders and payments into two topics of txnlog and into two tables of Delta, and
readers that join the two meanwhile.

* ``changes``: the transactions of a made-up shop, from a seed. Pure.
* ``checking``: says whether orders and payments that were read agree. Pure; it knows nothing of the systems.
* ``systems``: what the demo asks of a system: apply a transaction, read the two tables. ``topics`` is txnlog,
  ``delta`` the other one.
* ``writer`` and ``reader``: processes of their own; ``running`` starts them, kills the writer, and collects
  what readers saw.
* ``chart``: the picture.

Start reading in ``__main__``.

May import: every package of the product, by the names that users import, and ``txnlog_testing``.
"""
