"""Batch writes and SparkTransaction: ``plan`` is fixed before any task runs, ``task`` writes files, ``messages`` come back, ``sink`` commits."""
