"""``txnlog erase``, ``delete-records`` and ``delete-topic``: records vanish for good.

``command`` is the command: it asks for the erasure, shows how far it has come and what it lacks, and gives it
up. The work is done by :mod:`txnformat.admin.erasure`; the page on operating a log describes the command and
its certificate. ``deleting`` has the other two commands.

May import: the shared modules of ``txnlog.cli``, and ``txnformat``.
"""
