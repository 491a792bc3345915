"""Streams: ``reader`` with ``offsets``, ``progress`` and ``admission``; ``sink`` with ``messages`` and ``commit``. Uses ``read`` and ``write``."""
