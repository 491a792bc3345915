"""Verification: everything that can be derived again from a log's objects is derived again, and each
difference is reported.

``log`` is the run, ``chain`` checks links, fold, invariants and snapshots, ``offsets`` derives offsets and
the abort index from the operations alone, ``references``, ``files``, ``sidecars`` and ``bytes`` compare
objects with what names them, ``report`` holds the findings. ``all_files`` goes through the data files;
``deep_files`` and ``deep_child`` decode them in another process, so that a file which ends its decoder is a
finding. ``unnamed`` counts what no entry names.

May import: ``reading``, ``client``, ``protocol``, ``core`` and below.
"""
