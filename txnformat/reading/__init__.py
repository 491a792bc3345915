"""Reading: from a request to record batches.

``plan`` turns a request into planned rows of the state and of sidecars (``sealed``), ``pruning`` and
``row_groups`` leave out what a condition rules out, ``rows`` reads the files. ``commits`` plans the window
between two entries, in the order of commits. ``times`` finds offsets by time, ``visible`` finds and counts
what a reader gets, ``dataset`` hands a plan to pyarrow.

May import: ``client``, ``protocol``, ``core``, ``segments``, ``store``, ``predicates``, ``columns``.
"""
