"""Records and columns as text and files: what ``consume`` writes and ``produce`` reads.

* ``sources``: the input of ``produce``, piece by piece: JSON lines, CSV (``csv_input``, and ``csv_quotes`` of
  it) or Parquet. Start reading here. ``pieces``: what they share.
* ``csv_output``: records as CSV; their JSON is that of :mod:`txnformat.columns.json_values`.
* ``following``: batches of a consumer, for ``consume --follow`` and ``--group``.
* ``outputs``: files that commands write, also those outside this room. ``columns``: columns as text, such as
  ``amount:decimal(10,2)``; ``file_formats``: formats by the suffix of a file's name.

May import: the shared modules of ``txnlog.cli``, and ``txnformat``.
"""
