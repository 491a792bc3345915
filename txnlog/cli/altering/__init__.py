"""``txnlog alter-topic``: a topic changes.

``command`` is the command; :mod:`txnformat.core.topics.evolution` says what a topic may become.

May import: the shared modules of ``txnlog.cli``, ``txnlog.schemas``, and ``txnformat``.
"""
