"""Batch reads: ``pinning`` fixes what to read of each topic, ``planning`` and ``splits`` cut it, ``split_reader`` reads it in a task."""
