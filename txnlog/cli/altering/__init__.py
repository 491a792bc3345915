"""``txnlog alter-topic``: a topic changes.

``command`` is the command. What a topic may become is said by :mod:`txnformat.core.topics.evolution`.

May import: the shared modules of ``txnlog.cli``, ``txnlog.schemas``, and ``txnformat``.
"""
