"""The bytes of documents: canonical JSON, its declarations, checksums, bundles of entries.

Pure; knows no operation.

* ``document``: canonical JSON, perhaps compressed, bounded before it is decoded. Start reading here.
* ``typed``: documents decoded by their declarations (:class:`msgspec.Struct`).
* ``entry_bytes``: a commit entry with its own checksum; ``bundle``: a hundred entries as one object.
* ``small_documents``: ``format.json``, the hint ``latest``, lists of condemned objects.

May import: of ``core`` only ``entry``, of ``store`` the sizes of objects, and the modules beside the
packages.
"""
