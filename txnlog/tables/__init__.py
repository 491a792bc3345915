"""Tables of other systems into a log: a Delta table, or a directory of Parquet files, copied and then
followed, each row exactly once.

Start reading in ``importing`` (:func:`import_delta`, :func:`import_parquet`): it writes steps, each in one
transaction with the position behind it.

* Pure: ``steps`` (what a source gives), ``delta_actions`` (a commit of Delta's log as a step), ``shaping``
  (rows of a file as rows of the topic).
* With a table or a directory: ``delta`` and ``parquet`` (the sources).

The extra ``delta`` has what Delta tables need.

May import: ``writers`` and ``txnformat``, and ``txnlog.rounds``.
"""

from txnlog.tables.importing import TableImport, import_delta, import_parquet

__all__ = ["TableImport", "import_delta", "import_parquet"]
