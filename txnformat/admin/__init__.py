"""A log described and measured, and tools for what belongs to other clients.

``describe`` and ``history`` read, ``metrics`` and ``prometheus`` count, ``group_listing`` and ``group_metrics`` say how far groups are behind. ``transactions``, ``groups``, ``subscriptions``
and ``prepared`` change: they end transactions, set positions, move subscriptions. ``maintenance`` runs the tasks of ``txnlog maintain``, once or round after round; ``truncation`` lets old entries go; ``compaction``
rewrites sealed records, ``retention`` and ``trimming`` move log starts, ``topics`` deletes topics, and ``vacuum`` deletes the objects that ``garbage`` finds.

May import: ``reading``, ``client``, ``protocol``, ``core`` and below.
"""
