"""Data files: immutable Parquet objects that hold a topic's records without their offsets.

``writer`` writes batches as runs of whole row groups. ``reader`` asks only for the row groups and columns
that are wanted; ``joint_reads`` decodes small reads of several files as one; ``segment_object`` fetches their
bytes and compares checksums. Before pyarrow gets a byte, its checksum is compared, and ``footer``,
``footer_shape``, ``footer_schema``, ``thrift_compact`` and ``pages`` check what the file declares: they
cannot end the process, whatever the bytes are. ``footer_encoding`` makes the footer that pyarrow gets. The
entry names size, checksum and footer of each file.

May import: ``store``, ``columns``, and the modules beside the packages.
"""
