"""Benchmarks of what a log forgets or writes anew.

``compaction`` and ``scan`` compare many small files with few large ones, ``opening`` measures what a long log
costs a new process. Start reading in the module of the row that you look for: its ``BENCHMARKS`` declares the
rows.

May import: the shared modules of ``bench``, and what those may import.
"""
