"""Transactions: the states of a transactional id, how they begin, end and time out, and the abort index. Pure.

``state`` has the only table of legal transitions. ``hanging``, ``lingering`` and ``listing`` read one state for operators.
"""
