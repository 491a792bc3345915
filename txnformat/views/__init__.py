"""Views: topics described again in the metadata of other table formats, for engines that know nothing of
txnlog.

No record is copied.

``delta_types`` (schemas), ``delta_actions`` (the lines of a version), ``delta_table`` (a table as a value,
and the next version) and ``delta_checkpoint`` compute, without IO. The same for Iceberg: ``iceberg_types``,
``iceberg_metadata``, ``iceberg_manifests`` (with pyiceberg) and ``iceberg_table``. ``wanted`` is what both
take. ``shown`` finds which files show a topic at an entry, ``delta_log`` and ``iceberg_log`` read and write
the versions of a table, ``manifests`` says which versions show one entry. A publication as a whole is
:mod:`txnformat.admin.publishing`. Start with ``delta_table``.

May import: ``reading``, ``protocol``, ``core``, ``store``, ``columns``, and the modules beside the rooms.
"""
