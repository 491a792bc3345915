"""A log described, measured and maintained; tools for what belongs to other clients.

* ``describe`` and ``history`` describe; ``metrics``, ``group_metrics`` and ``prometheus`` measure. They
  change nothing.
* ``maintenance`` runs the tasks of ``txnlog maintain``, once or round after round. Start reading here. The
  tasks: ``compaction``, ``retention`` with ``trimming``, ``vacuum`` with ``garbage``, ``truncation``,
  ``erasure``.
* ``publishing`` describes topics as tables of Delta and Iceberg, also by their settings as a task of ``txnlog
  maintain``.
* ``transactions``, ``groups``, ``subscriptions`` and ``prepared`` act for an operator: they end transactions,
  set positions, move subscriptions.
* ``topics`` deletes topics.

May import: ``reading``, ``client``, ``protocol``, ``core`` and below, and of ``verify`` the names of live
objects and the kinds of problems.
"""
