"""``txnlog publish``: topics as tables of other engines.

``command`` is the command: it publishes, and says where the tables are and what holds later entries back. The
work is done by :mod:`txnformat.admin.publishing`.

May import: the shared modules of ``txnlog.cli``, and ``txnformat``.
"""
